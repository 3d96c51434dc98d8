// Package providerconfig has the types of a network configuration, under the names that %T prints.
package providerconfig

// DNSConfig lists DNS servers.
type DNSConfig struct {
	Servers []string
}

// IPFamily is a named string.
type IPFamily string

// NetworkConfig is a static network configuration.
type NetworkConfig struct {
	CIDR     string
	Gateway  string
	DNS      DNSConfig
	IPFamily IPFamily
}

// IsStaticIPConfig has a pointer as its receiver, which may be nil.
func (n *NetworkConfig) IsStaticIPConfig() bool {
	return n != nil && (n.CIDR != "" || n.Gateway != "" || len(n.DNS.Servers) != 0)
}
