package memory_test

import (
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/job/jobtest"
	"github.com/understudy-ha/understudy/store/memory"
)

func TestJobs(t *testing.T) {
	jobtest.TestStore(t, func(t *testing.T) jobtest.Subject {
		var mu sync.Mutex
		var by time.Duration
		s := memory.New(func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return time.Now().Add(by)
		})
		return jobtest.Subject{Jobs: s.Jobs(), History: s, Leases: s, Advance: func(d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			by += d
		}}
	})
}
