package sqlite_test

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/sqlite"
)

func TestConformance(t *testing.T) {
	leasetest.Run(t, func(t *testing.T) *leasetest.Harness {
		opens, step := stepped(t)
		return &leasetest.Harness{Open: func(t *testing.T) store.Store { return opens(t) }, Step: step}
	})
}

// stepped is a store that is opened with one clock, and what steps that.
func stepped(t *testing.T) (opens func(*testing.T) *sqlite.Store, step func(*testing.T, time.Duration)) {
	path := filepath.Join(t.TempDir(), "store.db")
	c := &clock{Clock: lease.BootClock()}
	opens = func(t *testing.T) *sqlite.Store { return open(t, sqlite.Config{Path: path, Clock: c, Wall: c.Wall}) }
	return opens, func(_ *testing.T, d time.Duration) { c.step(d) }
}

func TestLinearizable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	leasetest.CheckLinearizable(t, func(t *testing.T) leasetest.Target {
		return open(t, sqlite.Config{Path: path})
	}, leasetest.Concurrent{})
}

// open opens a store until the test ends.
func open(t testing.TB, cfg sqlite.Config) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("Open(%s): %v", cfg.Path, err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// clock is this host's, moved by what a test steps it; so is its wall clock.
type clock struct {
	lease.Clock
	mu sync.Mutex
	by time.Duration
}

func (c *clock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by += d
}

func (c *clock) stepped() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by
}

func (c *clock) Now() time.Duration { return c.Clock.Now() + c.stepped() }
func (c *clock) Wall() time.Time    { return c.Clock.Wall().Add(c.stepped()) }
