// Command kubelet judges kubelet configuration files by the types of one minor version, strictly: an unknown field, a
// duplicate one or a wrong type is a complaint. So is a feature gate that this version does not have (the argument names the
// file that lists them: name, and the only value of a locked one): such a kubelet would not start.
//
// It reads a JSON array of texts on standard input and writes an array of arrays of complaints, in the same order.
// Each minor version has its own module file: `go build -modfile go-1.33.mod`.
package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/kubelet/config/v1beta1"
)

func main() {
	var texts []string
	if err := json.NewDecoder(os.Stdin).Decode(&texts); err != nil {
		fail(err)
	}
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		fail(err)
	}
	gates, err := readGates(os.Args[1])
	if err != nil {
		fail(err)
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	answers := make([][]string, len(texts))
	for i, text := range texts {
		answers[i] = judge(decoder, gates, text)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		fail(err)
	}
}

// judge returns what is wrong with one configuration file; nothing if it is good.
func judge(decoder runtime.Decoder, gates map[string]string, text string) []string {
	object, kind, err := decoder.Decode([]byte(text), nil, nil)
	if err != nil {
		if strict, ok := runtime.AsStrictDecodingError(err); ok {
			var complaints []string
			for _, e := range strict.Errors() {
				complaints = append(complaints, e.Error())
			}
			return complaints
		}
		return []string{strings.TrimSpace(err.Error())}
	}
	configuration, ok := object.(*v1beta1.KubeletConfiguration)
	if !ok {
		return []string{fmt.Sprintf("kind: %s is no KubeletConfiguration", kind.Kind)}
	}
	complaints := []string{}
	for _, name := range slices.Sorted(maps.Keys(configuration.FeatureGates)) {
		locked, known := gates[name]
		value := strconv.FormatBool(configuration.FeatureGates[name])
		switch {
		case !known:
			complaints = append(complaints, fmt.Sprintf("featureGates.%s: no such feature gate", name))
		case locked != "" && locked != value:
			complaints = append(complaints, fmt.Sprintf("featureGates.%s: is locked to %s", name, locked))
		}
	}
	return complaints
}

// readGates reads a list of feature gates; a gate that is not locked has an empty value.
func readGates(path string) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	gates := map[string]string{"AllAlpha": "", "AllBeta": ""}
	for line := range strings.Lines(string(data)) {
		name, locked, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != "" && name != "#" {
			gates[name] = locked
		}
	}
	return gates, nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
