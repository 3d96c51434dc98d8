package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"text/template"

	"github.com/BurntSushi/toml"
	"github.com/Masterminds/sprig/v3"
	"gopkg.in/yaml.v3"
)

// functions returns what profiles can call: sprig's functions, and encoders that report errors as Helm's do.
func functions() template.FuncMap {
	all := sprig.TxtFuncMap()
	all["toToml"] = toTOML
	all["toYaml"] = toYAML
	all["fromYaml"] = fromYAML
	all["toJson"] = toJSON
	all["fromJson"] = fromJSON
	return all
}

func toTOML(v any) string {
	var text bytes.Buffer
	if err := toml.NewEncoder(&text).Encode(v); err != nil {
		return err.Error()
	}
	return text.String()
}

func toYAML(v any) string {
	text, err := yaml.Marshal(v)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(text), "\n")
}

func fromYAML(text string) map[string]any {
	decoded := map[string]any{}
	var node yaml.Node
	err := yaml.Unmarshal([]byte(text), &node)
	if err == nil && node.Kind != 0 {
		timestampsAreTexts(&node)
		err = node.Decode(&decoded)
	}
	if err != nil {
		decoded["Error"] = err.Error()
	}
	return decoded
}

// timestampsAreTexts gives timestamps the type that they have without functions for dates.
func timestampsAreTexts(node *yaml.Node) {
	if node.Kind == yaml.ScalarNode && node.ShortTag() == "!!timestamp" {
		node.Tag = "!!str"
	}
	for _, below := range node.Content {
		timestampsAreTexts(below)
	}
}

func toJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(text)
}

func fromJSON(text string) map[string]any {
	decoded := map[string]any{}
	if err := json.Unmarshal([]byte(text), &decoded); err != nil {
		decoded["Error"] = err.Error()
	}
	return decoded
}
