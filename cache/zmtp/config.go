package zmtp

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/internal/connlimit"
)

// Config says what a socket is and what it may cost. Only Kind must be set.
type Config struct {
	Kind     Kind
	Security Security // nil: NULL; or a Curve
	Handler  Handler

	// Subscribe has the prefixes that are sent after every connect. SUB only.
	Subscribe [][]byte

	// Queue is how many bytes may wait to be written on one connection; default 8 MiB.
	// A message that would go beyond is refused, except by an empty queue, which takes
	// any one message. The last 32nd is for messages of at most 1 KiB: it can still be said
	// that a larger one was refused.
	Queue int
	// Budget bounds what waits on all connections together, also of other sockets with the same one: more is refused; nil: no bound.
	Budget *Budget
	// MaxMessage is how many bytes the frames of one message may have together; default
	// 64 MiB. A larger message closes its connection.
	MaxMessage int
	// MaxFrames is how many frames a message may have; default 64.
	MaxFrames int
	// MaxConns is how many connections a Listener has at a time, those in handshake
	// among them; default 4096, or an eighth of the files that the process may open. One
	// address (IPv6: its first 64 bits) has at most a quarter of them, loopback all. To make
	// room, the oldest in handshake is closed, or else the new one.
	MaxConns int

	HandshakeTimeout time.Duration // for the handshake, and as long for TCP to connect; default 5 s
	WriteTimeout     time.Duration // a peer that reads nothing for so long is disconnected; default 10 s

	// Heartbeat is how often a PING is sent to a peer that speaks ZMTP 3.1; 0, the
	// default, is never. A PING of the other side is always answered, and the time to
	// live that it carries is kept.
	Heartbeat time.Duration
	// HeartbeatTimeout is how long nothing may come after a PING; default Heartbeat.
	HeartbeatTimeout time.Duration

	// ReconnectMin and ReconnectMax bound the back-off of a Dialer, which doubles, with
	// jitter; default 50 ms to 2 s. The first attempt after the loss of a connection that
	// lasted for ReconnectMin is made at once.
	ReconnectMin, ReconnectMax time.Duration

	Log *slog.Logger // nil: nothing is logged
}

// Bounds that nobody needs to change.
const (
	maxHandshake     = 8 << 10  // bytes of one command of the handshake
	maxCommand       = 64 << 10 // bytes of one later command
	maxSubscriptions = 1024     // of one connection
	maxPrefixes      = 64 << 10 // bytes of the subscriptions of one connection
	linger           = time.Second
)

// Validate reports what is wrong with the configuration, wrapping [ErrConfig].
func (c Config) Validate() error {
	switch {
	case c.Kind != PUB && c.Kind != SUB && c.Kind != ROUTER && c.Kind != DEALER:
		return fmt.Errorf("%w: Kind is %q; use PUB, SUB, ROUTER or DEALER", ErrConfig, string(c.Kind))
	case len(c.Subscribe) > 0 && c.Kind != SUB:
		return fmt.Errorf("%w: a %s socket does not subscribe", ErrConfig, c.Kind)
	case len(c.Subscribe) > maxSubscriptions:
		return fmt.Errorf("%w: %d subscriptions; at most %d", ErrConfig, len(c.Subscribe), maxSubscriptions)
	case min(c.Queue, c.MaxMessage, c.MaxFrames, c.MaxConns) < 0:
		return fmt.Errorf("%w: Queue, MaxMessage, MaxFrames and MaxConns must not be negative", ErrConfig)
	case min(c.HandshakeTimeout, c.WriteTimeout, c.Heartbeat, c.HeartbeatTimeout, c.ReconnectMin, c.ReconnectMax) < 0:
		return fmt.Errorf("%w: times must not be negative", ErrConfig)
	case cmp.Or(c.ReconnectMin, 50*time.Millisecond) > cmp.Or(c.ReconnectMax, 2*time.Second):
		return fmt.Errorf("%w: ReconnectMin is longer than ReconnectMax", ErrConfig)
	}
	total := 0
	for _, p := range c.Subscribe {
		total += len(p)
	}
	if total > maxPrefixes {
		return fmt.Errorf("%w: the subscriptions have %d bytes; at most %d", ErrConfig, total, maxPrefixes)
	}
	return nil
}

// resolve checks the configuration and puts the defaults in.
func (c Config) resolve(server bool) (*Config, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Kind == PUB && !server {
		return nil, fmt.Errorf("%w: a PUB socket listens; SUB sockets dial", ErrConfig)
	}
	if c.Security == nil {
		c.Security = null{}
	}
	security, err := c.Security.resolve(server)
	if err != nil {
		return nil, err
	}
	c.Security = security
	c.Queue = cmp.Or(c.Queue, 8<<20)
	c.MaxMessage = cmp.Or(c.MaxMessage, 64<<20)
	c.MaxFrames = cmp.Or(c.MaxFrames, 64)
	c.MaxConns = cmp.Or(c.MaxConns, connlimit.Bound(connlimit.FurtherShare))
	c.HandshakeTimeout = cmp.Or(c.HandshakeTimeout, 5*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 10*time.Second)
	c.HeartbeatTimeout = cmp.Or(c.HeartbeatTimeout, c.Heartbeat)
	c.ReconnectMin = cmp.Or(c.ReconnectMin, 50*time.Millisecond)
	c.ReconnectMax = cmp.Or(c.ReconnectMax, 2*time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &c, nil
}

// ParseAddr makes tcp://host:port what package net understands. Only a listener may
// use * for the host (all interfaces) and * or 0 for the port (the kernel chooses).
func ParseAddr(addr string, listen bool) (string, error) {
	rest, ok := strings.CutPrefix(addr, "tcp://")
	host, port, err := net.SplitHostPort(rest)
	if !ok || err != nil || len(addr) > 255 {
		return "", fmt.Errorf("address %.255q: it must look like tcp://host:port, with IPv6 in brackets", addr)
	}
	if listen && host == "*" {
		host = ""
	} else if host == "" || strings.ContainsAny(host, "* \t\r\n\x00") {
		return "", fmt.Errorf("address %q: no host", addr)
	}
	if listen && port == "*" {
		port = "0"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 && !listen {
		return "", fmt.Errorf("address %q: the port must be a number from 1 to 65535", addr)
	}
	return net.JoinHostPort(host, port), nil
}
