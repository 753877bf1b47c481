package shardtest

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/store/memory"
)

// clock stands still until it is stepped.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// reference is the store in memory, by a clock of its own.
func reference() Subject {
	c := newClock()
	s := memory.New(c.read)
	return Subject{Registry: s.Registry(), Commands: s.Commands(), Leases: s, History: s, Advance: c.step}
}

// TestMemoryUnstepped is for stores whose clock cannot be stepped.
func TestMemoryUnstepped(t *testing.T) {
	for name, topic := range topics() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memory.New(nil)
				try(t, t, Subject{Registry: s.Registry(), Commands: s.Commands(), Leases: s, History: s}, topic)
			})
		})
	}
}
