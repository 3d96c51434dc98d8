// Package vm stands in for making machines.
package vm

import (
	"context"

	"go.anx.io/go-anxcloud/pkg/client"
)

// Network would be an interface.
type Network struct {
	VLAN, NICType string
	IPs           []string
}

// AdditionalDisk would be a disk.
type AdditionalDisk struct {
	SizeGBs int
	Type    string
}

// Definition would be a machine.
type Definition struct {
	DiskType, CPUPerformanceType, Script, SSH, DNS1, DNS2, DNS3, DNS4 string
	AdditionalDisks                                                   []AdditionalDisk
}

// Response would be the answer.
type Response struct{ Identifier string }

// API would make machines.
type API struct{}

// NewDefinition gives an empty one.
func (API) NewDefinition(_, _, _, _ string, _, _, _ int, _ []Network) Definition {
	return Definition{}
}

// Provision makes none.
func (API) Provision(context.Context, Definition, bool) (Response, error) {
	return Response{}, client.ErrAbsent
}

// Deprovision removes none.
func (API) Deprovision(context.Context, string, bool) (Response, error) {
	return Response{}, client.ErrAbsent
}
