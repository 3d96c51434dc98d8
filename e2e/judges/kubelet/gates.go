package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// writeGates writes the feature gates of this version as a JSON array of lines: the name, its stage (alpha, beta, ga or deprecated), whether
// it is on unless it is set, "locked" if it can't be set to anything else, and the gates without which it can't be on.
func writeGates() error {
	known := utilfeature.DefaultMutableFeatureGate.GetAll()
	needed := dependencies(utilfeature.DefaultMutableFeatureGate)
	lines := []string{}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		spec := known[name]
		words := []string{string(name), "ga", "off"}
		if spec.PreRelease != featuregate.GA {
			words[1] = strings.ToLower(string(spec.PreRelease))
		}
		if spec.Default {
			words[2] = "on"
		}
		if spec.LockToDefault {
			words = append(words, "locked")
		}
		for _, other := range needed[name] {
			words = append(words, fmt.Sprintf("needs=%s", other))
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return json.NewEncoder(os.Stdout).Encode(lines)
}

// dependencies returns which gates a gate needs. Versions before 1.35 have none.
func dependencies(gates any) map[featuregate.Feature][]featuregate.Feature {
	if gates, ok := gates.(interface {
		Dependencies() map[featuregate.Feature][]featuregate.Feature
	}); ok {
		return gates.Dependencies()
	}
	return nil
}
