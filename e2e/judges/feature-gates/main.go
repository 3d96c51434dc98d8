// Command feature-gates writes the feature gates that a kubelet of one minor version knows, as Kubernetes itself registers them, as a JSON
// array of lines: the name, and behind it the only value of a gate that is locked.
//
// Each minor version has its own module file: `go build -modfile go-1.33.mod`.
package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	metricsfeatures "k8s.io/component-base/metrics/features"
	_ "k8s.io/kubernetes/pkg/features"
)

func main() {
	// What the package of features has not registered, the kubelet's own packages do; they have nothing else that counts here.
	for _, add := range []func(featuregate.MutableVersionedFeatureGate) error{
		logsapi.AddFeatureGates, metricsfeatures.AddFeatureGates,
	} {
		if err := add(utilfeature.DefaultMutableFeatureGate); err != nil {
			fail(err)
		}
	}
	gates := utilfeature.DefaultMutableFeatureGate.GetAll()
	lines := []string{}
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		line := string(name)
		if spec := gates[name]; spec.LockToDefault {
			line = fmt.Sprintf("%s %t", name, spec.Default)
		}
		lines = append(lines, line)
	}
	if err := json.NewEncoder(os.Stdout).Encode(lines); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
