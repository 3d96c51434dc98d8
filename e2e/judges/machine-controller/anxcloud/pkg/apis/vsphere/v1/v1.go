// Package v1 stands in for templates of machines.
package v1

import (
	"context"

	"go.anx.io/go-anxcloud/pkg/api"
	corev1 "go.anx.io/go-anxcloud/pkg/apis/core/v1"
	"go.anx.io/go-anxcloud/pkg/client"
)

// Template would be what a machine is made from.
type Template struct{ Identifier string }

// FindNamedTemplate finds none.
func FindNamedTemplate(context.Context, api.API, string, string, corev1.Location) (*Template, error) {
	return nil, client.ErrAbsent
}
