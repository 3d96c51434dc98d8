package main

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"text/template"
	"unicode/utf8"
)

// testCase is a line of input or output: templates, data, and what rendering the first template gives.
type testCase struct {
	// Template is the text of the only template, called "t".
	Template string `json:"t,omitempty"`
	// Templates are names and texts, where there are several.
	Templates [][2]string     `json:"templates,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	Output    *string         `json:"out,omitempty"`
	Error     string          `json:"err,omitempty"`
}

// maxOutput keeps recorded cases small.
const maxOutput = 1 << 16

var errLong = errors.New("the output is too long")

// errLayout ends a case that does something with the text of an encoder, whose layout is not compared.
var errLayout = errors.New("the layout of encoded data matters")

var encoderName = regexp.MustCompile(`\b(toJson|toToml|toYaml)\b`)

// onlyEncoded is an action that encodes a value, and does nothing else with the text.
var onlyEncoded = regexp.MustCompile(`^\{\{-? ?(to(Json|Toml|Yaml)\b([^|}]|\}[^|}])*|([^}]|\}[^}])*\| ?to(Json|Toml|Yaml)) ?-?\}\}$`)

// hasLayout tells whether the case has more than one action, of which one encodes a value.
func (c *testCase) hasLayout() bool {
	for _, one := range c.named() {
		switch calls := len(encoderName.FindAllString(one[1], -1)); {
		case calls == 0:
		case calls > 1 || c.Templates != nil || strings.Count(one[1], "{{") > 1 || !onlyEncoded.MatchString(one[1]):
			return true
		}
	}
	return false
}

type limited struct{ strings.Builder }

func (l *limited) Write(text []byte) (int, error) {
	if l.Len()+len(text) > maxOutput {
		return 0, errLong
	}
	return l.Builder.Write(text)
}

func (c *testCase) named() [][2]string {
	if c.Templates != nil {
		return c.Templates
	}
	return [][2]string{{"t", c.Template}}
}

// render parses the templates, and executes the first.
func (c *testCase) render(data any, functions template.FuncMap) (string, error) {
	var first *template.Template
	for _, one := range c.named() {
		if first == nil {
			first = template.New(one[0]).Funcs(functions)
			if _, err := first.Parse(one[1]); err != nil {
				return "", err
			}
		} else if _, err := first.New(one[0]).Parse(one[1]); err != nil {
			return "", err
		}
	}
	var output limited
	err := first.Execute(&output, data)
	return output.String(), err
}

// isNoCase tells whether an error is one of this program.
func isNoCase(err error) bool {
	for _, own := range []error{errLong, errCycle, errAddress} {
		if err != nil && strings.Contains(err.Error(), own.Error()) {
			return true
		}
	}
	return false
}

// judge adds the output or the error. Another result for the same case, an address, or bytes that are not UTF-8 are an error.
func (c *testCase) judge(functions template.FuncMap) error {
	c.Output, c.Error = nil, ""
	if c.hasLayout() {
		return errLayout
	}
	kept := []any{} // Data stays alive, so that addresses differ.
	attempts := 4
	for _, one := range c.named() {
		if unordered.MatchString(one[1]) {
			attempts = 30
		}
	}
	for range attempts {
		data, err := decode(c.Data)
		if err != nil {
			return err
		}
		kept = append(kept, data)
		output, err := c.render(data, functions)
		if isNoCase(err) {
			return err
		}
		text := ""
		if err != nil {
			text, output = err.Error(), ""
		}
		switch {
		case !utf8.ValidString(output) || !utf8.ValidString(text):
			return errors.New("the result is not UTF-8")
		case address.MatchString(output) || address.MatchString(text):
			return errors.New("the result has an address")
		case len(kept) > 1 && (output != *c.Output || text != c.Error):
			return errors.New("the result is another one each time")
		}
		c.Output, c.Error = &output, text
	}
	if c.Error != "" {
		c.Output = nil
	}
	return nil
}

// unordered are functions whose result has no order in Go.
var unordered = regexp.MustCompile(`keys|values`)

// address is an address of the heap, which begins at 0xc000000000: osm-judges builds this program without the experiment that moves it.
var address = regexp.MustCompile(`(?i)0x0?c0|c000[0-9a-f]{6}|8245[0-9]{8}|\b14000[0-9a-f]{6}`)
