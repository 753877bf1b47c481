package client

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/cache/zmtp"
)

// ErrConfig wraps everything that is wrong with a Config.
var ErrConfig = errors.New("client: configuration")

// Config says whom to ask and for how long. Servers is needed; every other field has
// a useful zero.
type Config struct {
	// Servers are the api addresses of peers, tcp://host:port: at least one, at most 64.
	Servers []string
	// Curve encrypts, and proves who the servers are; nil: neither.
	Curve *Curve
	// Timeout bounds every Get, whatever its context allows; 5 s, at least 1 ms.
	Timeout time.Duration
	// InFlight bounds the requests that wait for one server; 1,024.
	InFlight int
	// MaxValue bounds a value, in bytes; 16 MiB. A server that sends more is
	// disconnected.
	MaxValue int
	// Logger gets connections, and what servers do wrong, at Debug; nil: nothing.
	Logger *slog.Logger

	rules rules
}

// Curve is this client's key, and those of the servers.
type Curve struct {
	Key     zmtp.CurveKey
	Servers map[string][32]byte // public keys by address, of every server
}

// rules are the waits of the protocol; tests shorten them.
type rules struct {
	first   time.Duration // for the first reply
	alive   time.Duration // after a keep-alive
	avoid   time.Duration // for which a server that was silent is passed over
	backOff time.Duration // at most, after "ask another"
}

const (
	maxServers = 64
	maxKey     = 64 << 10 // a bound for what is sent at all; servers have their own
	overhead   = 64 << 10 // what may stand around a value in a message
)

// Validate reports what is wrong with the configuration, wrapping [ErrConfig].
func (c Config) Validate() error {
	if n := len(c.Servers); n == 0 || n > maxServers {
		return fmt.Errorf("%w: %d servers; 1 to %d are needed", ErrConfig, n, maxServers)
	}
	for i, addr := range c.Servers {
		if _, err := zmtp.ParseAddr(addr, false); err != nil {
			return fmt.Errorf("%w: server: %w", ErrConfig, err)
		}
		if slices.Contains(c.Servers[:i], addr) {
			return fmt.Errorf("%w: the server %s is named twice", ErrConfig, addr)
		}
		if c.Curve != nil && c.Curve.Servers[addr] == [32]byte{} {
			return fmt.Errorf("%w: Curve has no public key of the server %s", ErrConfig, addr)
		}
	}
	switch {
	case c.Curve != nil && c.Curve.Key.Secret == [32]byte{}:
		return fmt.Errorf("%w: Curve has no secret key; make one with zmtp.NewCurveKey", ErrConfig)
	case c.Timeout != 0 && c.Timeout < time.Millisecond:
		return fmt.Errorf("%w: Timeout is %v; at least 1ms is needed", ErrConfig, c.Timeout)
	case min(c.InFlight, c.MaxValue) < 0:
		return fmt.Errorf("%w: InFlight and MaxValue must not be negative", ErrConfig)
	}
	return nil
}

func (c Config) withDefaults() Config {
	c.Servers = slices.Clone(c.Servers)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	c.InFlight = cmp.Or(c.InFlight, 1024)
	c.MaxValue = cmp.Or(c.MaxValue, 16<<20)
	c.rules.first = cmp.Or(c.rules.first, 500*time.Millisecond)
	c.rules.alive = cmp.Or(c.rules.alive, 2100*time.Millisecond)
	c.rules.avoid = cmp.Or(c.rules.avoid, time.Second)
	c.rules.backOff = cmp.Or(c.rules.backOff, 500*time.Millisecond)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// socket is the configuration of the connection to a server.
func (c Config) socket(addr string, h zmtp.Handler) zmtp.Config {
	cfg := zmtp.Config{
		Kind:             zmtp.DEALER,
		Handler:          h,
		MaxMessage:       c.MaxValue + overhead,
		ReconnectMax:     500 * time.Millisecond,
		Heartbeat:        5 * time.Second,
		HeartbeatTimeout: 10 * time.Second,
		Log:              c.Logger,
	}
	if c.Curve != nil {
		cfg.Security = zmtp.Curve{Secret: c.Curve.Key.Secret, ServerKey: c.Curve.Servers[addr]}
	}
	return cfg
}
