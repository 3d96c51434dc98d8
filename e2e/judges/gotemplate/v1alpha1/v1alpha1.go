// Package v1alpha1 has a named string, under the name that %T prints.
package v1alpha1

// CloudProvider is the name of a cloud.
type CloudProvider string
