package leasetest

import (
	"sync"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// BubbleClock is a host's clock in a testing/synctest bubble, where the boot
// clock of the real host must not be asked. The zero BubbleClock is ready.
type BubbleClock struct {
	mu     sync.Mutex
	begin  time.Time
	jumped time.Duration
	late   time.Duration
}

var _ lease.Clock = (*BubbleClock)(nil)

// Now implements [lease.Clock]: the bubble's time since it was first asked.
func (c *BubbleClock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begin.IsZero() {
		c.begin = time.Now().Add(-time.Hour) // hosts have been up for a while
	}
	return time.Since(c.begin)
}

// Wall implements [lease.Clock].
func (c *BubbleClock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.jumped).Round(0)
}

// Timer implements [lease.Clock].
func (c *BubbleClock) Timer(d time.Duration) (<-chan time.Time, func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Not a channel timer, and none that is due at once: under the race detector, the runtime may crash
	// when two goroutines of a bubble meet timers that are already due.
	fired := make(chan time.Time, 1)
	if d += c.late; d <= 0 {
		fired <- time.Now()
		return fired, func() bool { return false }
	}
	t := time.AfterFunc(d, func() { fired <- time.Now() })
	return fired, t.Stop
}

// StepWall steps the wall clock.
func (c *BubbleClock) StepWall(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jumped += by
}

// Delay makes every timer that is set from now on late.
func (c *BubbleClock) Delay(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late = by
}
