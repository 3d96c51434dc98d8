// Package v1 stands in for places.
package v1

// Location would be a place.
type Location struct{ Identifier string }
