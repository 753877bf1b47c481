//go:build embedded

package dns

import (
	"context"
	"fmt"
	"net"

	"github.com/understudy-ha/understudy/lease"
)

// Server is not in this program: no demonstration is asked for names, and the library takes a while to download and compile.
type Server struct{}

// New returns an error that wraps lease.ErrInvalid.
func New(Config) (*Server, error) {
	return nil, fmt.Errorf("%w: this program was built for the demonstration (-tags embedded), without DNS; use the program that `make build` makes", lease.ErrInvalid)
}

// Stats of nothing.
func (*Server) Stats() Stats { return Stats{} }

// Serve is never called: nothing makes a server.
func (*Server) Serve(context.Context, net.PacketConn, net.Listener) error { return nil }
