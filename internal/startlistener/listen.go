package startlistener

import (
	"errors"
	"fmt"
	"net"

	"github.com/understudy-ha/understudy/internal/usererr"
)

// Listen listens on the address that a flag gives.
func Listen(flag, addr string) (net.Listener, error) {
	if addr == "" {
		return nil, usererr.Errorf("%s is missing; use HOST:PORT, as in %s 127.0.0.1:6379", flag, flag)
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, usererr.Errorf("%s %q: use HOST:PORT", flag, addr)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		var wrong *net.AddrError
		var name *net.DNSError
		if errors.As(err, &wrong) || errors.As(err, &name) {
			return nil, usererr.Errorf("%s: %v; use HOST:PORT", flag, err)
		}
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return l, nil
}
