package checks

import (
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/monitortest"
)

// NewSessions makes a store of sessions. The store in memory imports this package: its tests outside set it.
var NewSessions func(now func() time.Time) interface {
	lease.Store
	lease.Roster
	history.Log
}

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

func reference(t *testing.T) (*Memory, monitortest.Rig) {
	clock := newWallClock()
	s := NewSessions(clock.now)
	r := NewMemory(Options{Clock: clock.now, Sessions: s, History: s})
	return r, monitortest.Rig{
		Table: monitor.Validated(r), Sessions: s, History: s,
		Step: func(_ *testing.T, d time.Duration) { clock.step(d) },
		Sent: func(_ *testing.T, sink string) []monitor.Notification { return r.SentTo(sink) },
	}
}
