// Command kubelet judges kubelet configuration files by the types of one minor version, strictly: an unknown field, a
// duplicate one or a wrong type is a complaint. So is a feature gate that this version does not have (the argument names the
// file that lists them: name, and the only value of a locked one): such a kubelet would not start.
//
// It reads a JSON array of texts on standard input and writes an array of arrays of complaints, in the same order. A text is a
// configuration file, with its drop-ins behind it in their order, each after a line "---": they are judged one by one, and merged as
// the kubelet merges them.
//
// With the argument "fields" it reads nothing and writes the fields of the configuration instead, see writeFields.
//
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

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

func main() {
	if os.Args[1] == "fields" {
		if err := writeFields(); err != nil {
			fail(err)
		}
		return
	}
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

// judge returns what is wrong with one configuration file and its drop-ins; nothing if they are good.
func judge(decoder runtime.Decoder, gates map[string]string, text string) []string {
	complaints := []string{}
	var merged []byte
	for _, file := range strings.Split(text, "\n---\n") {
		if _, complaints = decode(decoder, file); len(complaints) > 0 {
			return complaints
		}
		patch, err := yaml.YAMLToJSON([]byte(file))
		if err == nil && merged != nil {
			patch, err = jsonpatch.MergePatch(merged, patch)
		}
		if err != nil {
			return []string{err.Error()}
		}
		merged = patch
	}
	configuration, complaints := decode(decoder, string(merged))
	if len(complaints) > 0 {
		return complaints
	}
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

// decode decodes one file strictly.
func decode(decoder runtime.Decoder, text string) (*v1beta1.KubeletConfiguration, []string) {
	object, kind, err := decoder.Decode([]byte(text), nil, nil)
	if err != nil {
		if strict, ok := runtime.AsStrictDecodingError(err); ok {
			var complaints []string
			for _, e := range strict.Errors() {
				complaints = append(complaints, e.Error())
			}
			return nil, complaints
		}
		return nil, []string{strings.TrimSpace(err.Error())}
	}
	configuration, ok := object.(*v1beta1.KubeletConfiguration)
	if !ok {
		return nil, []string{fmt.Sprintf("kind: %s is no KubeletConfiguration", kind.Kind)}
	}
	return configuration, []string{}
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
