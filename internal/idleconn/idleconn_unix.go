//go:build unix

package idleconn

import (
	"crypto/tls"
	"errors"
	"net"
	"syscall"
)

// IsSilent reports whether nothing has arrived on an idle connection, not even its end. It does not wait and
// consumes nothing.
func IsSilent(conn net.Conn) bool {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	c, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var peeked error
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, peeked = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	return err == nil && (errors.Is(peeked, syscall.EAGAIN) || errors.Is(peeked, syscall.EWOULDBLOCK))
}
