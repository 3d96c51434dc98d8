// Package client stands in for a client of the cloud Anexia, which no test asks for: each package here has what the compiler needs.
package client

import (
	"errors"
	"net/http"
)

// ErrAbsent is what every call of the cloud ends with.
var ErrAbsent = errors.New("there is no client of Anexia here")

// Client would make requests.
type Client any

// Option would configure a client.
type Option any

// ResponseError would be an answer of the cloud.
type ResponseError struct {
	error
	ErrorData struct{ Code int }
}

// TokenFromString gives no option.
func TokenFromString(string) Option { return nil }

// HTTPClient gives no option.
func HTTPClient(*http.Client) Option { return nil }

// New makes no client.
func New(...Option) (Client, error) { return nil, ErrAbsent }
