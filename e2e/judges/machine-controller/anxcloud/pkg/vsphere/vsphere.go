// Package vsphere stands in for what brings the others together.
package vsphere

import (
	"go.anx.io/go-anxcloud/pkg/client"
	"go.anx.io/go-anxcloud/pkg/vsphere/info"
	"go.anx.io/go-anxcloud/pkg/vsphere/provisioning/progress"
	"go.anx.io/go-anxcloud/pkg/vsphere/provisioning/vm"
)

// API would be the whole.
type API struct{}

// Provisioning would make machines.
type Provisioning struct{}

// NewAPI gives what does nothing.
func NewAPI(client.Client) API { return API{} }

// Info is that of machines.
func (API) Info() info.API { return info.API{} }

// Provisioning is that of machines.
func (API) Provisioning() Provisioning { return Provisioning{} }

// Progress is that of tasks.
func (Provisioning) Progress() progress.API { return progress.API{} }

// VM is that of machines.
func (Provisioning) VM() vm.API { return vm.API{} }
