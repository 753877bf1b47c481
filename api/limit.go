package api

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/internal/prometheus"
	"github.com/understudy-ha/understudy/internal/ratelimit"
	"github.com/understudy-ha/understudy/lease"
)

// maxBuckets is how many callers have a bucket at a time.
const maxBuckets = 10_000

// Rate is how often a caller may send requests.
type Rate struct {
	// PerSecond is how many requests a second. 0 is the default, and less than 0 no limit.
	PerSecond float64
	// Burst is how many at once. 0 is the default: PerSecond times 4, at least 1.
	Burst int
}

// Limits of each caller: each token of the store, and each client address with none, or with the configured
// token. An address is an IPv4 address or the first 64 bits of an IPv6 one. What keeps a lease alive is not limited,
// nor are values of a cache.
type Limits struct {
	// Read requests. Default 50 a second, 200 at once.
	Read Rate
	// Act requests. Default 10 a second, 50 at once. Wrong tokens have a bucket of the same size, apart from right ones.
	// It applies to this host too, because all guesses behind a proxy come from there.
	Act Rate
	// Ingest: requests with heartbeats and messages. Default: no limit.
	Ingest Rate
	// Loopback: callers on this host are limited too, as which all callers of a proxy on this host come.
	Loopback bool
	// Leases is up to how many leases of one space, and up to how many live sessions, callers may add more. Default 10,000.
	Leases int
}

func (l Limits) withDefaults() Limits {
	fill := func(r *Rate, perSecond float64, burst int) {
		if r.PerSecond == 0 {
			r.PerSecond = perSecond
			if r.Burst == 0 {
				r.Burst = burst
			}
		}
		if r.Burst == 0 {
			r.Burst = max(1, int(math.Ceil(4*r.PerSecond)))
		}
	}
	fill(&l.Read, 50, 200)
	fill(&l.Act, 10, 50)
	fill(&l.Ingest, -1, 1)
	l.Leases = cmp.Or(l.Leases, defaultLeases)
	return l
}

// Validate checks the limits; errors wrap lease.ErrInvalid.
func (l Limits) Validate() error {
	for name, r := range map[access.Scope]Rate{access.Read: l.Read, access.Act: l.Act, access.Ingest: l.Ingest} {
		if math.IsNaN(r.PerSecond) || r.PerSecond > 1e6 || r.PerSecond > 0 && r.PerSecond < 0.01 || r.Burst < 0 || r.Burst > 1e6 {
			return fmt.Errorf("%w: limit of %s: %v a second, %d at once; use 0.01 to 1000000 a second (or less than 0: no limit), and up to 1000000 at once",
				lease.ErrInvalid, name, r.PerSecond, r.Burst)
		}
	}
	if l.Leases < 0 {
		return fmt.Errorf("%w: limit of leases: %d; use 1 or more", lease.ErrInvalid, l.Leases)
	}
	return nil
}

// wrongToken is the bucket of requests without a valid token. It is not a scope that a token can have.
const wrongToken access.Scope = "wrong token"

func (l Limits) rateOf(scope access.Scope) Rate {
	switch scope {
	case access.Read:
		return l.Read
	case access.Ingest:
		return l.Ingest
	}
	return l.Act
}

// limiter holds a token bucket for each caller and scope.
type limiter struct {
	limits  Limits
	now     func() time.Time
	buckets ratelimit.Limiter[bucketKey]
	limited *prometheus.Counters
}

type bucketKey struct {
	token string       // of the store, or
	addr  netip.Prefix // without one
	scope access.Scope
}

func newLimiter(limits Limits) *limiter {
	return &limiter{
		limits: limits.withDefaults(), now: time.Now, buckets: ratelimit.New[bucketKey](maxBuckets),
		limited: prometheus.NewCounters("understudy_http_limited_total", "Requests rejected because their caller was over its rate limit, by scope.", "scope"),
	}
}

// allow returns a [limitedError] when the caller is over its rate.
func (l *limiter) allow(r *http.Request, who caller, scope access.Scope) error {
	key, rate, limited := l.bucketOf(r, who, scope)
	if !limited {
		return nil
	}
	if wait, _ := l.buckets.Take(key, rate.PerSecond, float64(rate.Burst), l.now()); wait > 0 {
		l.limited.Of(string(scope)).Inc()
		return limitedError{scope, rate, wait}
	}
	return nil
}

// isOver reports whether allow would return an error, and counts nothing.
func (l *limiter) isOver(r *http.Request, who caller, scope access.Scope) bool {
	key, rate, limited := l.bucketOf(r, who, scope)
	return limited && l.buckets.IsEmpty(key, rate.PerSecond, float64(rate.Burst), l.now())
}

func (l *limiter) bucketOf(r *http.Request, who caller, scope access.Scope) (key bucketKey, rate Rate, limited bool) {
	rate = l.limits.rateOf(scope)
	if rate.PerSecond < 0 {
		return key, rate, false
	}
	key = bucketKey{token: who.token.ID, scope: scope}
	addr := addressOf(r)
	// This host is trusted unless a proxy on it forwards other callers. Guesses of tokens are limited even so.
	if addr.IsLoopback() && !l.limits.Loopback && scope != wrongToken {
		return key, rate, false
	}
	if key.token == "" {
		key.addr = ratelimit.Network(addr)
	}
	return key, rate, true
}

// addressOf is where a request came from; the zero address if that is none.
func addressOf(r *http.Request) netip.Addr {
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		return at.Addr().Unmap().WithZone("")
	}
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	addr, _ := netip.ParseAddr(host)
	return addr.Unmap().WithZone("")
}
