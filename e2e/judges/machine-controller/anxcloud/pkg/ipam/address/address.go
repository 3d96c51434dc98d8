// Package address stands in for addresses.
package address

import (
	"context"

	"go.anx.io/go-anxcloud/pkg/client"
)

// API would reserve addresses.
type API struct{}

// NewAPI gives what reserves nothing.
func NewAPI(client.Client) API { return API{} }

// ReserveRandom would say what to reserve.
type ReserveRandom struct {
	LocationID, VlanID, PrefixID string
	ReservationPeriod            uint
	Count                        int
}

// Reserved would be the addresses.
type Reserved struct{ Data []struct{ Address string } }

// ReserveRandom reserves nothing.
func (API) ReserveRandom(context.Context, ReserveRandom) (Reserved, error) {
	return Reserved{}, client.ErrAbsent
}
