// Package v1 has a type of Kubernetes that template data uses, under the name that %T prints.
package v1

import (
	"encoding/json"
	"time"
)

// Duration is like Kubernetes' metav1.Duration.
type Duration struct {
	time.Duration
}

// MarshalJSON writes the text of the duration.
func (d Duration) MarshalJSON() ([]byte, error) {
	return json.Marshal(d.String())
}
