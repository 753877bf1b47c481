package zmtp

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
)

// TestRefusedByAll: a name is refused only if each of its addresses refuses. One with two families whose process listens on
// one of them, which is cut off, is not.
func TestRefusedByAll(t *testing.T) {
	for _, c := range []struct {
		name      string
		addresses []string
		cut       string // this one does not answer, the others refuse
		unknown   error
		refused   bool
	}{
		{"one address", []string{"::1"}, "", nil, true},
		{"all refuse", []string{"::1", "127.0.0.1"}, "", nil, true},
		{"the second is cut off", []string{"::1", "127.0.0.1"}, "127.0.0.1", nil, false},
		{"the name is unknown by now", nil, "", errors.New("no such host"), false},
	} {
		lookup := func(_ context.Context, host string) ([]string, error) {
			if host != "peer" {
				t.Errorf("%s: looked up %s", c.name, host)
			}
			return c.addresses, c.unknown
		}
		dial := func(_ context.Context, _, at string) (net.Conn, error) {
			host, port, _ := net.SplitHostPort(at)
			if port != "7701" {
				t.Errorf("%s: dialed %s", c.name, at)
			}
			if host == c.cut {
				return nil, os.ErrDeadlineExceeded
			}
			return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)} // of a name: its first
		}
		if _, err := connect(t.Context(), "peer:7701", lookup, dial); err == nil || errors.Is(err, syscall.ECONNREFUSED) != c.refused {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
