// Package netlink stands in for the one that coreos-cloudinit takes interfaces down with, which no document of ours asks for.
package netlink

import (
	"errors"
	"net"
)

// NetworkLinkDown does not take an interface down.
func NetworkLinkDown(*net.Interface) error {
	return errors.New("no interface is taken down here")
}
