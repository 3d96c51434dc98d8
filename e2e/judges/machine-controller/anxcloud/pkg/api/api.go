// Package api stands in for the generic client.
package api

import "go.anx.io/go-anxcloud/pkg/client"

// API would make requests.
type API any

// HTTPError would be an answer of the cloud.
type HTTPError struct{ error }

// StatusCode is none.
func (HTTPError) StatusCode() int { return 0 }

// WithClientOptions gives no option.
func WithClientOptions(...client.Option) any { return nil }

// NewAPI makes no client.
func NewAPI(...any) (API, error) { return nil, client.ErrAbsent }
