package cache

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/cache/zmtp"
	"github.com/understudy-ha/understudy/lease"
)

// withDefaults fills in the zero fields.
func (c Config) withDefaults() Config {
	c.BindURL = cmp.Or(c.BindURL, c.Self)
	c.BindAPI = cmp.Or(c.BindAPI, c.ownMember().API)
	c.Fetches = cmp.Or(c.Fetches, 64)
	c.Timings = c.Timings.WithDefaults()
	c.Jitter = max(0, cmp.Or(c.Jitter, 0.05))
	c.MaxKeys = cmp.Or(c.MaxKeys, 1_000_000)
	c.MaxBytes = cmp.Or(c.MaxBytes, 256<<20)
	c.MaxKey = cmp.Or(c.MaxKey, 1<<10)
	c.MaxValue = cmp.Or(c.MaxValue, 16<<20)
	c.MaxWaiting = cmp.Or(c.MaxWaiting, 10_000)
	if c.Clock == nil {
		c.Clock = lease.BootClock()
	}
	if c.Wall == nil {
		c.Wall = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// ownMember is this peer's entry among the members; the zero Member when it is missing.
func (c Config) ownMember() protocol.Member {
	for _, m := range c.Members {
		if m.URL == c.Self {
			return m
		}
	}
	return protocol.Member{}
}

// Validate reports what is wrong with the configuration, and what to do about it;
// the error wraps [ErrConfig].
func (c Config) Validate() error {
	c = c.withDefaults()
	for _, check := range []func() error{c.checkMembers, c.checkBounds, c.checkSafety} {
		if err := check(); err != nil {
			return fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	if err := c.Timings.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

func (c Config) checkMembers() error {
	if c.Self == "" {
		return errors.New("a peer needs Self, its url as in Members")
	}
	if err := protocol.NewMembers(c.Members).Validate(); err != nil {
		return err
	}
	if c.ownMember().URL == "" {
		return fmt.Errorf("%s is not among the members: add it with its api address; urls are compared byte for byte", c.Self)
	}
	for _, bind := range []string{c.BindURL, c.BindAPI} {
		if _, err := zmtp.ParseAddr(bind, true); err != nil {
			return err
		}
	}
	return nil
}

func (c Config) checkBounds() error {
	for _, b := range []struct {
		what         string
		n, low, high int64
	}{
		{"Fetches", int64(c.Fetches), 1, 1 << 20},
		{"MaxKeys", int64(c.MaxKeys), 1, 1 << 40},
		{"MaxKey", int64(c.MaxKey), 1, 64 << 10},
		{"MaxValue", int64(c.MaxValue), 1, 1 << 30},
		{"MaxBytes", c.MaxBytes, int64(c.MaxValue), 1 << 50},
		{"MaxWaiting", int64(c.MaxWaiting), 1, 1 << 24},
	} {
		if b.n < b.low || b.n > b.high {
			return fmt.Errorf("the bound %s is %d: it must be from %d to %d", b.what, b.n, b.low, b.high)
		}
	}
	if c.Jitter > 0.5 {
		return fmt.Errorf("the jitter is %v: it is the part of a time to live that is taken off, 0 to 0.5; below 0 for none", c.Jitter)
	}
	return nil
}

// checkSafety refuses what would let strangers in.
func (c Config) checkSafety() error {
	if n := len(c.Secret); n > 0 && (n < 16 || n > 1024) {
		return fmt.Errorf("the secret has %d bytes: it must have 16 to 1024", n)
	} else if n > 0 && c.Mixed {
		return errors.New("a mixed cluster cannot have a secret: peers of the original know none, and every peer would refuse their messages")
	}
	if c.Curve != nil {
		if c.Curve.Key.Secret == [32]byte{} {
			return errors.New("this peer's own CURVE key pair is missing: make one with zmtp.NewCurveKey")
		}
		for _, m := range c.Members {
			if key, ok := c.Curve.Peers[m.URL]; m.URL != c.Self && (!ok || key == [32]byte{}) {
				return fmt.Errorf("the public key of %s is missing: with CURVE every peer's key must be known", m.URL)
			}
		}
		return nil
	}
	if c.Insecure {
		return nil
	}
	for _, bind := range []string{c.BindURL, c.BindAPI} {
		at, _ := zmtp.ParseAddr(bind, true) // as checkMembers found it
		host, _, _ := net.SplitHostPort(at)
		if ip := net.ParseIP(host); host != "localhost" && !ip.IsLoopback() {
			return fmt.Errorf("%s can be reached from other hosts, and nothing protects it: use CURVE keys, listen on 127.0.0.1, or allow it with Insecure", bind)
		}
	}
	return nil
}
