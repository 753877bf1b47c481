package dns

import (
	"net/netip"
	"sync"
	"time"
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

// limiter gives each source so many answers in a second, and twice as many at once. It keeps two
// generations of sources: one that fills up takes the place of the older, so that
// it is bounded whatever comes.
type limiter struct {
	rate float64 // 0 is no limit

	mu         sync.Mutex
	young, old map[netip.Addr]*bucket
}

type bucket struct {
	left  float64
	at    time.Time
	slips int
}

func newLimiter(rate int) *limiter {
	return &limiter{rate: float64(max(0, rate)), young: map[netip.Addr]*bucket{}}
}

// take judges one query at a time.
func (l *limiter) take(from netip.Addr, now time.Time) verdict {
	from = from.Unmap().WithZone("")
	if l.rate == 0 || from.IsLoopback() {
		return pass
	}
	if from.Is6() {
		from = netip.PrefixFrom(from, 64).Masked().Addr()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.young[from]
	if b == nil {
		if len(l.young) >= maxSources/2 {
			l.old, l.young = l.young, map[netip.Addr]*bucket{}
		}
		if b = l.old[from]; b == nil {
			b = &bucket{left: 2 * l.rate, at: now}
		}
		l.young[from] = b
	}
	b.left = min(2*l.rate, b.left+l.rate*max(0, now.Sub(b.at)).Seconds())
	b.at = now
	if b.left >= 1 {
		b.left--
		return pass
	}
	b.slips++
	if b.slips%2 == 0 {
		return slip
	}
	return drop
}
