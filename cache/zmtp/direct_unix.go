//go:build unix

package zmtp

import (
	"errors"
	"net"
	"syscall"
)

// directWriter writes what the kernel takes at once, and never waits for the rest.
type directWriter struct {
	raw  syscall.RawConn
	once func(fd uintptr) bool
	p    []byte
	n    int
	err  error
}

func (d *directWriter) start(nc net.Conn) {
	if sc, ok := nc.(syscall.Conn); ok {
		d.raw, _ = sc.SyscallConn()
	}
	d.once = func(fd uintptr) bool {
		for {
			d.n, d.err = syscall.Write(int(fd), d.p)
			if d.err != syscall.EINTR {
				return true // not "try again when it is writable"
			}
		}
	}
}

// write is called by one goroutine at a time.
func (d *directWriter) write(p []byte) (int, error) {
	if d.raw == nil || len(p) == 0 {
		return 0, nil
	}
	d.p = p
	err := d.raw.Write(d.once)
	d.p = nil
	switch {
	case err != nil:
		return 0, err
	case d.err == nil:
		return d.n, nil
	case errors.Is(d.err, syscall.EAGAIN):
		return 0, nil
	}
	return 0, d.err
}
