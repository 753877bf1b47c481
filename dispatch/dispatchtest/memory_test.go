package dispatchtest_test

import (
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/claim/claimtest"
	"github.com/understudy-ha/understudy/dispatch/dispatchtest"
	"github.com/understudy-ha/understudy/store/memory"
)

func TestMemory(t *testing.T) {
	dispatchtest.Run(t, func(*testing.T) *dispatchtest.Harness {
		m, step := newMemory()
		return &dispatchtest.Harness{
			Open: func(*testing.T) dispatchtest.Store { return m },
			Step: func(_ *testing.T, d time.Duration) { step(d) },
		}
	})
}

func TestMemoryClaims(t *testing.T) {
	claimtest.Run(t, func(*testing.T) *claimtest.Harness {
		m, step := newMemory()
		return &claimtest.Harness{
			Open: func(*testing.T) claimtest.Store { return m },
			Step: func(_ *testing.T, d time.Duration) { step(d) },
		}
	})
}

// newMemory is an empty store with a clock that stands still until it is stepped.
func newMemory() (m *dispatchtest.Memory, step func(time.Duration)) {
	var mu sync.Mutex
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	now := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return at
	}
	return dispatchtest.NewMemory(memory.New(now), now), func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		at = at.Add(d)
	}
}
