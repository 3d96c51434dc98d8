// Package progress stands in for the state of a task.
package progress

import (
	"context"

	"go.anx.io/go-anxcloud/pkg/client"
)

// Progress would be that state.
type Progress struct {
	Progress     int
	VMIdentifier string
	Errors       []string
}

// API would find tasks.
type API struct{}

// NewAPI gives what finds none.
func NewAPI(client.Client) API { return API{} }

// Get finds none.
func (API) Get(context.Context, string) (Progress, error) { return Progress{}, client.ErrAbsent }
