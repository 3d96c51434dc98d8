// Package info stands in for what is known of a machine.
package info

import (
	"context"

	"go.anx.io/go-anxcloud/pkg/client"
)

// Info would be a machine.
type Info struct {
	Name, Identifier, Status string
	Network                  []struct{ IPv4, IPv6 []string }
}

// API would find machines.
type API struct{}

// Get finds none.
func (API) Get(context.Context, string) (Info, error) { return Info{}, client.ErrAbsent }
