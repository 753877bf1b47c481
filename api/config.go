package api

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard/catalog"
	"github.com/understudy-ha/understudy/store"
)

// MinToken is the least number of characters of a token.
const MinToken = 16

// Config describes a [Server], or a [Cache].
type Config struct {
	// Store that is served. Required.
	Store store.Store
	// Notifier that wakes those who wait. Default: one of its own.
	Notifier *lease.Notifier
	// Keepers of this process's sessions, for the metrics.
	Keepers []*lease.Keeper
	// Self tells the term under which this process is primary of a role now.
	// Default: it is primary of nothing.
	Self func(role string) (elect.Term, bool)
	// Roles that this process campaigns for. They are the roles in the metrics. See [Server.SetRoles].
	Roles []string
	// Dispatchers of this process, by what tells what they have done, for the metrics.
	Dispatchers []func() dispatch.Stats
	// Cache is this process's peer of a cache, which runs already. Default: none.
	Cache CachePeer
	// CacheType is the media type of the cache's values. Default application/octet-stream.
	CacheType string
	// Monitor is what this process does for the monitor. Default: nothing; the
	// sources of the store are shown nevertheless.
	Monitor *Monitor
	// Shards is what is known of the shards in the store, such as a [catalog.Catalog] that
	// runs. Default: the server has nothing to say of shards.
	Shards catalog.AgedViews
	// Token that may do everything, and manage the tokens of the store, which requests may bear as well. ""
	// asks for none, and is only for loopback: see [CheckListen].
	Token string
	// Operator is what the history calls a caller with Token that does not name itself. Default: token config.
	Operator string
	// Clients are what callers with a client certificate may do, by its common name or a DNS name of it. The listener verifies
	// certificates, and asks for them. Default: certificates count for nothing.
	Clients map[string]access.Scopes
	// Limits of how often a caller may ask. The zero value limits with room to spare.
	Limits Limits
	// CertificateExpires tells when the certificate ends that is served, for the metrics. Default: there is
	// none.
	CertificateExpires func() time.Time
	// Counters of parts of this process that the API knows nothing else of, for the metrics. Default: none.
	Counters func() []Counter
	// Demo answers GET /v1/demo and POST /v1/demo/{act}: it is that of `understudy demo`, which kills processes when its page asks for
	// that, and is for loopback alone. Default: there are no such paths.
	Demo http.Handler
	// Listen is the address that is listened on, HOST:PORT. If it is given, a
	// missing token is refused unless it is a loopback address.
	Listen string
	// Version of the program, to be shown.
	Version string
	// Timeout of a request that does not ask to wait. Default 5 s.
	Timeout time.Duration
	// Clock of this host. Default lease.BootClock.
	Clock lease.Clock
	// Jitter returns a random duration in [0, d). Default: the runtime's source.
	Jitter func(d time.Duration) time.Duration
	// Logger; nil is silent.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Self == nil {
		c.Self = func(string) (elect.Term, bool) { return elect.Term{}, false }
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Clock == nil {
		c.Clock = lease.BootClock()
	}
	if c.Jitter == nil {
		c.Jitter = backoff.Random
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate checks the configuration; errors wrap lease.ErrInvalid.
func (c Config) Validate() error {
	if c.Store == nil {
		return fmt.Errorf("%w: the API needs a store", lease.ErrInvalid)
	}
	if _, ok := c.Store.(store.Shards); c.Shards != nil && !ok {
		return fmt.Errorf("%w: this store keeps no shards", lease.ErrInvalid)
	}
	for _, role := range c.Roles {
		if err := elect.ValidateRole(role); err != nil {
			return err
		}
	}
	return c.validateServing()
}

// validateServing checks what every server needs.
func (c Config) validateServing() error {
	if c.Timeout < 0 {
		return fmt.Errorf("%w: a timeout of %v is negative", lease.ErrInvalid, c.Timeout)
	}
	if err := c.Limits.Validate(); err != nil {
		return err
	}
	if err := CheckMediaType(c.CacheType); err != nil {
		return err
	}
	if c.Demo != nil && !isLoopback(hostOf(c.Listen)) {
		return fmt.Errorf("%w: listening on %q would let other hosts kill the processes of the demonstration: listen on 127.0.0.1", lease.ErrInvalid, c.Listen)
	}
	if c.Listen != "" {
		return CheckListen(c.Listen, c.Token, true)
	}
	return checkToken(c.Token)
}

// CheckListen refuses to listen where it is not safe: an address that other
// hosts can reach needs a token, and TLS, either the server's own or that of a
// proxy in front of it (secured). Errors wrap lease.ErrInvalid.
func CheckListen(addr, token string, secured bool) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%w: listen address %q: use HOST:PORT", lease.ErrInvalid, addr)
	}
	if err := checkToken(token); err != nil {
		return err
	}
	switch {
	case isLoopback(host):
		return nil
	case token == "":
		return fmt.Errorf("%w: listening on %q lets other hosts in: set a token, or listen on 127.0.0.1", lease.ErrInvalid, addr)
	case !secured:
		return fmt.Errorf("%w: listening on %q would send the token in the clear: give a certificate, or say that a proxy in front provides TLS", lease.ErrInvalid, addr)
	}
	return nil
}

func checkToken(token string) error {
	if token == "" {
		return nil
	}
	if len(token) < MinToken {
		return fmt.Errorf("%w: the token has %d characters; at least %d are needed", lease.ErrInvalid, len(token), MinToken)
	}
	for i := range len(token) {
		if token[i] <= ' ' || token[i] > '~' {
			return fmt.Errorf("%w: the token has a character at position %d that is not visible ASCII", lease.ErrInvalid, i+1)
		}
	}
	return nil
}

// isLoopback reports whether a host, without its port, is this one for sure.
func isLoopback(host string) bool {
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.Unmap().IsLoopback()
}
