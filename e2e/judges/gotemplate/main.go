// Command gotemplate renders templates with Go's text/template and the functions that profiles have: what the crate osm-gotemplate is
// compared with. It reads cases, a JSON object per line, and writes each with its output or error.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/template"
	"time"
)

func main() {
	time.Local = time.UTC
	if err := answer(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func answer(from io.Reader, to io.Writer) error {
	all := functions()
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<26)
	encoder := json.NewEncoder(to)
	for lines.Scan() {
		var one testCase
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return err
		}
		if err := one.render(all); err != nil {
			return fmt.Errorf("%s: %w", lines.Bytes(), err)
		}
		if err := encoder.Encode(one); err != nil {
			return err
		}
	}
	return lines.Err()
}

// testCase is a line of input or output: templates, data, and what rendering the first template gives.
type testCase struct {
	// Template is the text of the only template, called "t".
	Template string `json:"t,omitempty"`
	// Templates are names and texts, where there are several.
	Templates [][2]string     `json:"templates,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	Output    *string         `json:"out,omitempty"`
	Error     *string         `json:"err,omitempty"`
}

// render adds the output, or the error of the template.
func (c *testCase) render(functions template.FuncMap) error {
	data, err := decode(c.Data)
	if err != nil {
		return err
	}
	output, err := c.execute(data, functions)
	if err != nil {
		text := err.Error()
		c.Error = &text
		return nil
	}
	c.Output = &output
	return nil
}

// execute parses the templates, and executes the first.
func (c *testCase) execute(data any, functions template.FuncMap) (string, error) {
	templates := c.Templates
	if templates == nil {
		templates = [][2]string{{"t", c.Template}}
	}
	first := template.New(templates[0][0]).Funcs(functions)
	for at, one := range templates {
		into := first
		if at > 0 {
			into = first.New(one[0])
		}
		if _, err := into.Parse(one[1]); err != nil {
			return "", err
		}
	}
	var output strings.Builder
	err := first.Execute(&output, data)
	return output.String(), err
}
