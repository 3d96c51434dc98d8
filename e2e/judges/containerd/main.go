// Command containerd judges containerd configuration files as strictly as containerd itself is lenient: containerd only
// warns of an unknown key, and says nothing of an unknown plugin or an unknown runtime option.
//
// It reads a JSON array of texts on standard input and writes an array of arrays of complaints, in the same order.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	_ "github.com/containerd/containerd/v2/cmd/containerd/builtins"
	"github.com/containerd/containerd/v2/cmd/containerd/server/config"
	"github.com/containerd/containerd/v2/version"
	"github.com/containerd/log"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"github.com/pelletier/go-toml/v2"
)

const (
	criRuntime = "io.containerd.cri.v1.runtime"
	criImages  = "io.containerd.cri.v1.images"
	runcV2     = "io.containerd.runc.v2"
)

func main() {
	var texts []string
	if err := json.NewDecoder(os.Stdin).Decode(&texts); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Migrations log what they do; complaints are the only output.
	log.L.Logger.SetOutput(io.Discard)
	answers := make([][]string, len(texts))
	for i, text := range texts {
		answers[i] = judge(text)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// judge returns what is wrong with one configuration file; nothing if it is good.
func judge(text string) []string {
	complaints := []string{}
	complain := func(format string, args ...any) {
		complaints = append(complaints, fmt.Sprintf(format, args...))
	}

	var c config.Config
	if err := strict([]byte(text), &c); err != nil {
		return append(complaints, lines(err)...)
	}
	// Version 1 and files without a version are refused by containerd 2.
	if c.Version < 2 {
		complain("version: %d, but containerd wants 2 or later", c.Version)
		return complaints
	}
	if err := c.ValidateVersion(); err != nil {
		complain("%v", err)
		return complaints
	}

	plugins := registry.Graph(func(*plugin.Registration) bool { return false })
	known := map[string]bool{}
	for _, p := range plugins {
		known[p.URI()] = true
	}
	for _, id := range slices.Sorted(maps.Keys(c.Plugins)) {
		if !known[id] {
			complain("plugins.%q: containerd has no such plugin", id)
		}
	}
	for _, id := range slices.Concat(c.DisabledPlugins, c.RequiredPlugins) {
		if !known[id] {
			complain("disabled_plugins or required_plugins: containerd has no plugin %q", id)
		}
	}

	if err := migrate(&c, plugins); err != nil {
		complain("%v", err)
		return complaints
	}
	for _, p := range plugins {
		section, ok := c.Plugins[p.URI()]
		if !ok || p.Config == nil {
			continue
		}
		data, err := toml.Marshal(section)
		if err != nil {
			complain("plugins.%q: %v", p.URI(), err)
			continue
		}
		if err := strict(data, reflect.New(reflect.TypeOf(p.Config).Elem()).Interface()); err != nil {
			for _, line := range lines(err) {
				complain("plugins.%q: %s", p.URI(), line)
			}
		}
	}
	return append(complaints, judgeCRI(c.Plugins, known)...)
}

// migrate brings a configuration to the newest version, as containerd does on start.
func migrate(c *config.Config, plugins []plugin.Registration) error {
	ctx := context.Background()
	if c.Plugins == nil {
		c.Plugins = map[string]any{}
	}
	for v := c.Version; v < version.ConfigVersion; v++ {
		if err := c.MigrateConfigTo(ctx, v+1); err != nil {
			return err
		}
		for _, p := range plugins {
			if p.ConfigMigration == nil {
				continue
			}
			if err := p.ConfigMigration(ctx, v, c.Plugins); err != nil {
				return err
			}
		}
	}
	return nil
}

// judgeCRI looks at what containerd finds out only when the first pod starts: runtimes, their options, the snapshotter.
func judgeCRI(plugins map[string]any, known map[string]bool) []string {
	var complaints []string
	complain := func(format string, args ...any) {
		complaints = append(complaints, fmt.Sprintf(format, args...))
	}

	images := table(plugins, criImages)
	if name, ok := images["snapshotter"].(string); ok && !known["io.containerd.snapshotter.v1."+name] {
		complain("plugins.%q.snapshotter: containerd has no snapshotter %q", criImages, name)
	}

	runtimes := table(plugins, criRuntime, "containerd", "runtimes")
	for _, name := range slices.Sorted(maps.Keys(runtimes)) {
		place := fmt.Sprintf("plugins.%q.containerd.runtimes.%s", criRuntime, name)
		kind, _ := table(runtimes, name)["runtime_type"].(string)
		if kind == "" {
			complain("%s: runtime_type is missing", place)
		}
		options, ok := table(runtimes, name)["options"].(map[string]any)
		if !ok {
			continue
		}
		var target any = &runtimeoptions.Options{}
		if kind == runcV2 {
			target = &runcoptions.Options{}
		}
		data, err := toml.Marshal(options)
		if err == nil {
			err = strict(data, target)
		}
		if err != nil {
			for _, line := range lines(err) {
				complain("%s.options: %s", place, line)
			}
		}
	}
	// containerd brings a runtime "runc" along; another default must be declared.
	if name, ok := table(plugins, criRuntime, "containerd")["default_runtime_name"].(string); ok && name != "runc" {
		if _, ok := runtimes[name]; !ok {
			complain("plugins.%q.containerd.default_runtime_name: no runtime %q", criRuntime, name)
		}
	}
	return complaints
}

// table walks down tables; it is empty where one is missing or is no table.
func table(tables map[string]any, path ...string) map[string]any {
	for _, key := range path {
		tables, _ = tables[key].(map[string]any)
	}
	return tables
}

func strict(data []byte, target any) error {
	return toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields().Decode(target)
}

// lines turns a TOML error into complaints with a place.
func lines(err error) []string {
	if missing, ok := errors.AsType[*toml.StrictMissingError](err); ok {
		var all []string
		for _, e := range missing.Errors {
			all = append(all, "unknown key "+strings.Join(e.Key(), "."))
		}
		return all
	}
	if decode, ok := errors.AsType[*toml.DecodeError](err); ok {
		row, column := decode.Position()
		return []string{fmt.Sprintf("line %d, column %d: %v", row, column, err)}
	}
	return []string{err.Error()}
}
