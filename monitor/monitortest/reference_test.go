package monitortest

import (
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store/memory"
)

// wallClock is one that is stepped.
type wallClock struct {
	mu sync.Mutex
	at time.Time
}

func newWallClock() *wallClock {
	return &wallClock{at: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
}

func (c *wallClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *wallClock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func reference(t *testing.T) (*Reference, Rig) {
	clock := newWallClock()
	s := memory.New(clock.now)
	r := NewReference(Options{Clock: clock.now, Sessions: s, History: s})
	return r, Rig{
		Table: r, Sessions: s, History: s,
		Step: func(_ *testing.T, d time.Duration) { clock.step(d) },
		Sent: func(_ *testing.T, sink string) []monitor.Notice { return r.SentTo(sink) },
	}
}

func TestReference(t *testing.T) {
	Run(t, func(t *testing.T) Rig { _, rig := reference(t); return rig })
}
