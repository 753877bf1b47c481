package memory_test

import (
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/memory"
)

func TestConformance(t *testing.T) {
	leasetest.Run(t, func(*testing.T) *leasetest.Harness {
		var mu sync.Mutex
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		s := memory.New(func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return now
		})
		return &leasetest.Harness{
			Open: func(*testing.T) store.Store { return s },
			Step: func(_ *testing.T, d time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				now = now.Add(d)
			},
		}
	})
}
