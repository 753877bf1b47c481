//go:build !embedded

package dns

import (
	"net/netip"
	"time"

	"github.com/understudy-ha/understudy/internal/ratelimit"
)

// maxSources is how many sources a limiter tells apart at a time.
const maxSources = 8192

// verdict of a limiter.
type verdict int

const (
	pass verdict = iota
	slip         // a truncated answer, so that whoever really asks comes by TCP
	drop
)

// limiter gives each source so many answers in a second, and twice as many at once.
type limiter struct {
	rate    float64 // 0 or less is no limit
	sources ratelimit.Limiter[netip.Prefix]
}

func newLimiter(rate int) limiter {
	return limiter{rate: float64(rate), sources: ratelimit.New[netip.Prefix](maxSources)}
}

// take judges one query at a time.
func (l limiter) take(from netip.Addr, now time.Time) verdict {
	from = from.Unmap().WithZone("")
	if l.rate <= 0 || from.IsLoopback() {
		return pass
	}
	wait, denied := l.sources.Take(ratelimit.Network(from), l.rate, 2*l.rate, now)
	switch {
	case wait == 0:
		return pass
	case denied%2 == 0:
		return slip
	}
	return drop
}
