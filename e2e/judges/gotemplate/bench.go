package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"text/template"
)

// bench measures how long it takes to render the files NAME.tmpl in a directory, each alone, with the data of data.json. It writes
// {"parse_and_render": nanoseconds, "render": nanoseconds, "bytes": of output}.
func bench(directory string) error {
	described, err := os.ReadFile(filepath.Join(directory, "data.json"))
	if err != nil {
		return err
	}
	paths, err := filepath.Glob(filepath.Join(directory, "*.tmpl"))
	if err != nil {
		return err
	}
	one := testCase{Data: described}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		one.Templates = append(one.Templates, [2]string{filepath.Base(path), string(text)})
	}
	data, err := decode(one.Data)
	if err != nil {
		return err
	}
	all := functions()
	parse := func() ([]*template.Template, error) {
		var parsed []*template.Template
		for _, named := range one.Templates {
			added, err := template.New(named[0]).Funcs(all).Parse(named[1])
			if err != nil {
				return nil, err
			}
			parsed = append(parsed, added)
		}
		return parsed, nil
	}
	bytes := 0
	render := func(parsed []*template.Template) error {
		var count counter
		for _, one := range parsed {
			if err := one.Execute(&count, data); err != nil {
				return err
			}
		}
		bytes = int(count)
		return nil
	}
	parsed, err := parse()
	if err != nil {
		return err
	}
	if err := render(parsed); err != nil {
		return err
	}
	both := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			parsed, _ := parse()
			_ = render(parsed)
		}
	})
	rendered := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			_ = render(parsed)
		}
	})
	if both.N == 0 || rendered.N == 0 {
		return errors.New("nothing was measured")
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]int64{
		"parse_and_render": both.NsPerOp(), "render": rendered.NsPerOp(), "bytes": int64(bytes),
	})
}

// counter counts what is written.
type counter int

func (c *counter) Write(text []byte) (int, error) {
	*c += counter(len(text))
	return len(text), nil
}

var _ io.Writer = new(counter)
