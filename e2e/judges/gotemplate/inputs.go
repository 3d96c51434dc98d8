package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// readInputs reads the hand-written inputs of a directory, by the names of the files without their ending. In a file, a line is
//
//	# a comment
//	@ DATA            the data of the cases that follow, as JSON
//	@name DATA        the same, and keeps it under a name; the line "@name" uses it again
//	"TEXT"            a template, as a JSON string
//	[["NAME", "TEXT"], …]  several templates, as JSON
//	TEXT              a template
func readInputs(directory string) (map[string][]testCase, error) {
	paths, err := filepath.Glob(filepath.Join(directory, "*.txt"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no inputs in %s", directory)
	}
	all := map[string][]testCase{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		topic := strings.TrimSuffix(filepath.Base(path), ".txt")
		if all[topic], err = readLines(string(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return all, nil
}

func readLines(text string) ([]testCase, error) {
	var cases []testCase
	var data json.RawMessage
	kept := map[string]json.RawMessage{}
	for number, line := range strings.Split(text, "\n") {
		one := testCase{Data: data}
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
			continue
		case strings.HasPrefix(line, "@"):
			name, described, _ := strings.Cut(line[1:], " ")
			if described == "" && name != "" {
				known, ok := kept[name]
				if !ok {
					return nil, fmt.Errorf("line %d: no data %s", number+1, name)
				}
				data = known
				continue
			}
			data = json.RawMessage(described)
			if described == "" {
				data = nil
			}
			if _, err := decode(data); err != nil {
				return nil, fmt.Errorf("line %d: %w", number+1, err)
			}
			kept[name] = data
			continue
		case strings.HasPrefix(line, "[["):
			if err := json.Unmarshal([]byte(line), &one.Templates); err != nil {
				return nil, fmt.Errorf("line %d: %w", number+1, err)
			}
		case strings.HasPrefix(line, `"`):
			if err := json.Unmarshal([]byte(line), &one.Template); err != nil {
				return nil, fmt.Errorf("line %d: %w", number+1, err)
			}
		default:
			one.Template = line
		}
		cases = append(cases, one)
	}
	return cases, nil
}
