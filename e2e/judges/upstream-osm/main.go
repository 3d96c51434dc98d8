// Command upstream-osm judges profiles by the types of the upstream OSM, which ignore an unknown field and refuse a wrong type, such as
// a list of words in `bootcmd`. One profile that they refuse keeps the upstream OSM from reading any.
//
// It reads a JSON array of profiles in YAML on standard input and writes an array of arrays of complaints, in the same order.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"k8c.io/operating-system-manager/pkg/crd/osm/v1alpha1"
	"sigs.k8s.io/yaml"
)

func main() {
	var texts []string
	if err := json.NewDecoder(os.Stdin).Decode(&texts); err != nil {
		fail(err)
	}
	answers := make([][]string, len(texts))
	for i, text := range texts {
		answers[i] = []string{}
		if err := yaml.Unmarshal([]byte(text), &v1alpha1.OperatingSystemProfile{}); err != nil {
			answers[i] = append(answers[i], err.Error())
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
