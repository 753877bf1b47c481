package claimtest_test

import (
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/claim/claimtest"
	"github.com/understudy-ha/understudy/store/memory"
)

func TestMemory(t *testing.T) {
	claimtest.Run(t, func(*testing.T) *claimtest.Harness {
		var mu sync.Mutex
		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		now := func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return at
		}
		m := claimtest.NewMemory(memory.New(now), now)
		return &claimtest.Harness{
			Open: func(*testing.T) claimtest.Store { return m },
			Step: func(_ *testing.T, d time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				at = at.Add(d)
			},
		}
	})
}
