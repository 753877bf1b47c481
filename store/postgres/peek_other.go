//go:build !unix

package postgres

import "net"

// silent cannot tell here; the driver looks itself, which takes a millisecond.
func silent(net.Conn) bool { return false }
