package agent

import (
	"net"
	"net/netip"
	"slices"
)

// localAddress reports whether the host of an address is this one. A name counts if it is
// "localhost": others may be resolved differently at any time.
func localAddress(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	if ip.IsLoopback() {
		return true
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(all, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr() == ip.WithZone("")
	})
}
