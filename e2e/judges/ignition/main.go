// Command ignition judges Ignition configs by Ignition's own parser for spec 3.3: warnings are complaints, as is anything that it would
// fetch from elsewhere. It says what a machine would make of them.
//
// It reads a JSON array of texts on standard input and writes an array of answers, in the same order.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/coreos/ignition/v2/config/v3_3"
	"github.com/coreos/ignition/v2/config/v3_3/types"
	"github.com/vincent-petithory/dataurl"
)

// Answer is what a machine would make of one config.
type Answer struct {
	Complaints []string `json:"complaints"`
	Files      []File   `json:"files"`
	Units      []Unit   `json:"units"`
	Users      []User   `json:"users"`
}

// File is a file, decoded.
type File struct {
	Path      string `json:"path"`
	Mode      int    `json:"mode"`
	Overwrite bool   `json:"overwrite"`
	Content   []byte `json:"content"`
}

// Unit is a systemd unit.
type Unit struct {
	Name     string            `json:"name"`
	Enabled  bool              `json:"enabled"`
	Masked   bool              `json:"masked"`
	Contents *string           `json:"contents"`
	Dropins  map[string]string `json:"dropins"`
}

// User is a user.
type User struct {
	Name         string   `json:"name"`
	PasswordHash *string  `json:"passwordHash"`
	Keys         []string `json:"keys"`
	Groups       []string `json:"groups"`
}

func main() {
	var texts []string
	if err := json.NewDecoder(os.Stdin).Decode(&texts); err != nil {
		fail(err)
	}
	answers := make([]Answer, len(texts))
	for i, text := range texts {
		answers[i] = judge(text)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func judge(text string) Answer {
	answer := Answer{Complaints: []string{}, Files: []File{}, Units: []Unit{}, Users: []User{}}
	complain := func(format string, args ...any) {
		answer.Complaints = append(answer.Complaints, fmt.Sprintf(format, args...))
	}
	config, report, err := v3_3.Parse([]byte(text))
	for _, entry := range report.Entries {
		complain("%s", entry.String())
	}
	if err != nil {
		if len(report.Entries) == 0 {
			complain("%v", err)
		}
		return answer
	}
	for _, file := range config.Storage.Files {
		content, err := decode(file.Contents)
		if err != nil {
			complain("storage.files (%s): %v", file.Path, err)
		}
		if file.Mode == nil {
			complain("storage.files (%s): has no mode", file.Path)
			continue
		}
		answer.Files = append(answer.Files, File{file.Path, *file.Mode, is(file.Overwrite), content})
	}
	for _, unit := range config.Systemd.Units {
		dropins := map[string]string{}
		for _, dropin := range unit.Dropins {
			if dropin.Contents == nil {
				complain("systemd.units (%s): drop-in %s is empty", unit.Name, dropin.Name)
				continue
			}
			dropins[dropin.Name] = *dropin.Contents
		}
		answer.Units = append(answer.Units, Unit{unit.Name, is(unit.Enabled), is(unit.Mask), unit.Contents, dropins})
	}
	for _, user := range config.Passwd.Users {
		keys, groups := []string{}, []string{}
		for _, key := range user.SSHAuthorizedKeys {
			keys = append(keys, string(key))
		}
		for _, group := range user.Groups {
			groups = append(groups, string(group))
		}
		answer.Users = append(answer.Users, User{user.Name, user.PasswordHash, keys, groups})
	}
	return answer
}

func is(flag *bool) bool {
	return flag != nil && *flag
}

// decode reads contents that stand in the config itself.
func decode(contents types.Resource) ([]byte, error) {
	if contents.Source == nil {
		return nil, fmt.Errorf("has no contents")
	}
	url, err := dataurl.DecodeString(*contents.Source)
	if err != nil {
		return nil, fmt.Errorf("is fetched from elsewhere, or can't be decoded: %w", err)
	}
	if contents.Compression == nil || *contents.Compression == "" {
		return url.Data, nil
	}
	reader, err := gzip.NewReader(bytes.NewReader(url.Data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(reader)
}
