// Command coreos-cloudinit judges cloud-configs by coreos-cloudinit's own validation, where warnings are complaints, and says what a machine would
// make of them. With an argument, it applies them, to the folder of that name; programs that they need come from PATH.
//
// It reads a JSON array of texts on standard input and writes an array of answers, in the same order.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/coreos/coreos-cloudinit/config"
	"github.com/coreos/coreos-cloudinit/config/validate"
	"github.com/coreos/coreos-cloudinit/datasource"
	"github.com/coreos/coreos-cloudinit/initialize"
)

// Answer is what a machine would make of one document.
type Answer struct {
	Complaints []string `json:"complaints"`
	Hostname   string   `json:"hostname"`
	Keys       []string `json:"keys"`
	Files      []File   `json:"files"`
	Units      []Unit   `json:"units"`
	Users      []User   `json:"users"`
}

// File is a file, decoded.
type File struct {
	Path    string `json:"path"`
	Mode    int    `json:"mode"`
	Content []byte `json:"content"`
}

// Unit is a systemd unit.
type Unit struct {
	Name    string            `json:"name"`
	Enable  bool              `json:"enable"`
	Mask    bool              `json:"mask"`
	Command string            `json:"command"`
	Content string            `json:"content"`
	Dropins map[string]string `json:"dropins"`
}

// User is a user.
type User struct {
	Name     string   `json:"name"`
	Password string   `json:"password"`
	Keys     []string `json:"keys"`
	Groups   []string `json:"groups"`
}

func main() {
	log.SetOutput(io.Discard)
	root := "/"
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	var texts []string
	if err := json.NewDecoder(os.Stdin).Decode(&texts); err != nil {
		fail(err)
	}
	// A document that means one of these words, and not what stands for it, does not come out as it went in.
	for _, variable := range []string{"COREOS_PUBLIC_IPV4", "COREOS_PRIVATE_IPV4", "COREOS_PUBLIC_IPV6", "COREOS_PRIVATE_IPV6"} {
		os.Setenv(variable, "replaced")
	}
	environment := initialize.NewEnvironment(root, "", "/var/lib/coreos-cloudinit", initialize.DefaultSSHKeyName, datasource.Metadata{})
	answers := make([]Answer, len(texts))
	for i, text := range texts {
		document, answer := judge(text, environment)
		answers[i] = answer
		if len(os.Args) > 1 && document != nil {
			if err := apply(document, environment); err != nil {
				fail(err)
			}
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

// apply does what the program does. Users are those of the machine that this runs on, so none are made.
func apply(document *config.CloudConfig, environment *initialize.Environment) error {
	if len(document.Users) > 0 {
		return fmt.Errorf("users are not made here")
	}
	return initialize.Apply(*document, nil, environment)
}

func judge(text string, environment *initialize.Environment) (*config.CloudConfig, Answer) {
	answer := Answer{Complaints: []string{}, Keys: []string{}, Files: []File{}, Units: []Unit{}, Users: []User{}}
	complain := func(format string, args ...any) {
		answer.Complaints = append(answer.Complaints, fmt.Sprintf(format, args...))
	}
	report, err := validate.Validate([]byte(text))
	if err != nil {
		complain("%v", err)
	}
	for _, entry := range report.Entries() {
		complain("%s", entry.String())
	}
	parsed, err := initialize.ParseUserData(environment.Apply(text))
	if err != nil {
		complain("%v", err)
		return nil, answer
	}
	document, ok := parsed.(*config.CloudConfig)
	if !ok {
		complain("is no cloud-config")
		return nil, answer
	}
	answer.Hostname = document.Hostname
	answer.Keys = append(answer.Keys, document.SSHAuthorizedKeys...)
	paths := map[string]bool{}
	write := func(name string) {
		if !path.IsAbs(name) || path.Clean(name) != name {
			complain("%s: the path is not absolute and plain", name)
		}
		if paths[name] {
			complain("%s: the path is written twice", name)
		}
		paths[name] = true
	}
	for _, file := range document.WriteFiles {
		write(file.Path)
		mode, err := strconv.ParseInt(file.RawFilePermissions, 8, 32)
		// Go keeps other bits elsewhere: they would be lost.
		if err != nil || mode > 0o777 || len(file.RawFilePermissions) != 4 {
			complain("%s: permissions %q are not four octal digits of at most 0777", file.Path, file.RawFilePermissions)
		}
		answer.Files = append(answer.Files, File{file.Path, int(mode), []byte(file.Content)})
	}
	for _, unit := range document.CoreOS.Units {
		if unit.Content != "" {
			write("/etc/systemd/system/" + unit.Name)
		}
		dropins := map[string]string{}
		for _, dropin := range unit.DropIns {
			if dropin.Name == "" || dropin.Content == "" {
				complain("%s: drop-in %q is empty", unit.Name, dropin.Name)
			}
			write("/etc/systemd/system/" + unit.Name + ".d/" + dropin.Name)
			dropins[dropin.Name] = dropin.Content
		}
		if unit.Enable && unit.Content != "" && !strings.Contains(unit.Content, "[Install]\n") {
			complain("%s: is enabled, but has no section [Install]", unit.Name)
		}
		if unit.Mask && (unit.Content != "" || unit.Enable) {
			complain("%s: is masked, which removes what is written", unit.Name)
		}
		answer.Units = append(answer.Units, Unit{unit.Name, unit.Enable, unit.Mask, unit.Command, unit.Content, dropins})
	}
	for _, user := range document.Users {
		answer.Users = append(answer.Users, User{user.Name, user.PasswordHash, append([]string{}, user.SSHAuthorizedKeys...), append([]string{}, user.Groups...)})
	}
	return document, answer
}
