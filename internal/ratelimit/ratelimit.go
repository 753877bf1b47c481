// Package ratelimit limits how often each of many callers may ask, with a token bucket for each.
package ratelimit

import (
	"net/netip"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/internal/lru"
)

// Limiter holds a bucket for each key. It is safe to use from many goroutines.
type Limiter[K comparable] struct {
	buckets *lru.Cache[K, *bucket]
}

type bucket struct {
	mu     sync.Mutex
	left   float64
	since  time.Time
	denied int
}

// New returns a limiter with at most so many buckets. The one that was asked for longest ago is dropped: its key starts
// with a full bucket next time, which is the price of bounded memory.
func New[K comparable](most int) Limiter[K] { return Limiter[K]{lru.New[K, *bucket](most)} }

// Take takes one request from the bucket of the key, which gets perSecond of them a second and holds burst. If there is
// none, it returns how long until there is one, and how many requests of the bucket were denied so far.
func (l Limiter[K]) Take(key K, perSecond, burst float64, now time.Time) (wait time.Duration, denied int) {
	b := l.buckets.GetOrAdd(key, func() *bucket { return &bucket{left: burst, since: now} })
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(perSecond, burst, now)
	if b.left < 1 {
		b.denied++
		return time.Duration((1 - b.left) / perSecond * float64(time.Second)), b.denied
	}
	b.left--
	return 0, b.denied
}

// IsEmpty reports whether Take would deny a request now. It takes none, and a key that never took one gets no bucket.
func (l Limiter[K]) IsEmpty(key K, perSecond, burst float64, now time.Time) bool {
	b, ok := l.buckets.Get(key)
	if !ok {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(perSecond, burst, now)
	return b.left < 1
}

func (b *bucket) fill(perSecond, burst float64, now time.Time) {
	if passed := now.Sub(b.since).Seconds(); passed > 0 {
		b.left = min(burst, b.left+passed*perSecond)
		b.since = now
	}
}

// Network is the range in which one caller can choose its address: a host usually gets a whole IPv6 /64, and could
// otherwise have a new bucket for each request.
func Network(addr netip.Addr) netip.Prefix {
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits)
	return p
}
