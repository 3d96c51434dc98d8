// Package dbus stands in for systemd, as coreos-cloudinit calls it: calls are noted, a line each, in the file that the variable CALLS
// names, among those of the programs that are run.
package dbus

import (
	"fmt"
	"os"
	"strings"
)

// Conn is a connection to a systemd that only takes notes.
type Conn struct{}

// EnableUnitFileChange is a link that was made.
type EnableUnitFileChange struct{ Type, Filename, Destination string }

// Property is a property of a transient unit.
type Property struct{}

// New connects.
func New() (*Conn, error) { return &Conn{}, nil }

func note(words ...string) error {
	file, err := os.OpenFile(os.Getenv("CALLS"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = fmt.Fprintln(file, "systemd", strings.Join(words, " "))
	return err
}

// EnableUnitFiles enables units.
func (*Conn) EnableUnitFiles(units []string, runtime, force bool) (bool, []EnableUnitFileChange, error) {
	words := append([]string{"enable"}, units...)
	if runtime {
		words = append(words, "--runtime")
	}
	return true, nil, note(words...)
}

// Reload makes systemd read its units again.
func (*Conn) Reload() error { return note("daemon-reload") }

// StartUnit starts a unit.
func (*Conn) StartUnit(name, _ string) (string, error) { return "done", note("start", name) }

// StopUnit stops a unit.
func (*Conn) StopUnit(name, _ string) (string, error) { return "done", note("stop", name) }

// RestartUnit restarts a unit.
func (*Conn) RestartUnit(name, _ string) (string, error) { return "done", note("restart", name) }

// ReloadUnit reloads a unit.
func (*Conn) ReloadUnit(name, _ string) (string, error) { return "done", note("reload", name) }

// TryRestartUnit restarts a unit that runs.
func (*Conn) TryRestartUnit(name, _ string) (string, error) { return "done", note("try-restart", name) }

// ReloadOrRestartUnit reloads a unit, or restarts it.
func (*Conn) ReloadOrRestartUnit(name, _ string) (string, error) {
	return "done", note("reload-or-restart", name)
}

// ReloadOrTryRestartUnit reloads a unit that runs, or restarts it.
func (*Conn) ReloadOrTryRestartUnit(name, _ string) (string, error) {
	return "done", note("reload-or-try-restart", name)
}

// StartTransientUnit starts a unit that there is no file of.
func (*Conn) StartTransientUnit(name, _ string, _ ...Property) (string, error) {
	return "done", note("start-transient", name)
}

// PropDescription describes a transient unit.
func PropDescription(string) Property { return Property{} }

// PropExecStart says what a transient unit runs.
func PropExecStart([]string, bool) Property { return Property{} }
