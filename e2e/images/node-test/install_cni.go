package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// installCNI writes a network configuration to path and waits for the end of ctx, as the pod of a network plugin does.
func installCNI(ctx context.Context, config, path string) error {
	if !json.Valid([]byte(config)) {
		return errors.New("no JSON in $CNI_CONFIG")
	}
	if err := writeWhole(path, []byte(config)); err != nil {
		return err
	}
	fmt.Println("wrote", path)
	<-ctx.Done()
	return nil
}

// writeWhole gives a file its content such that whoever watches the directory sees all of it or nothing.
func writeWhole(path string, content []byte) error {
	// The container runtime passes over names without a suffix that it knows.
	file, err := os.CreateTemp(filepath.Dir(path), ".node-test-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // nothing to remove once it is renamed
	if _, err := file.Write(content); err != nil {
		return errors.Join(err, file.Close())
	}
	if err := errors.Join(file.Chmod(0o644), file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
