package sqlite_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// crowd keeps so many writers at the store until the test's end.
func crowd(t testing.TB, s *sqlite.Store, writers int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for range writers {
		running.Go(func() {
			for ctx.Err() == nil {
				err := s.Append(ctx, history.Event{Part: "test", Subject: "crowd", Reason: "writing"})
				if err != nil && !errors.Is(err, lease.ErrUnavailable) {
					t.Errorf("a writer: %v", err)
					return
				}
			}
		})
	}
	t.Cleanup(func() { cancel(); running.Wait() })
}

// TestRenewalsGoFirst counts how many transactions of others a renewal waits for: it does not stand behind all of them.
func TestRenewalsGoFirst(t *testing.T) {
	if testing.Short() {
		t.Skip("a crowd of 400 writers, which -short leaves out")
	}
	const writers = 400
	s := open(t, sqlite.Config{Path: filepath.Join(t.TempDir(), "store.db")})
	n := session(t, s, "a", lease.Timing{Interval: time.Minute, Timeout: time.Hour})
	crowd(t, s, writers)
	newest := func() int64 {
		t.Helper()
		last, err := s.Read(t.Context(), history.Query{Newest: true, Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		if len(last) == 0 {
			return 0
		}
		return last[0].ID
	}
	for wait := time.Now(); newest() < 2*writers; {
		if time.Since(wait) > ample {
			t.Fatal("the writers do not write")
		}
	}
	var passed []int64
	for range 25 {
		before := newest()
		r, err := s.RenewSession(t.Context(), n.ID)
		if err != nil {
			t.Fatal(err)
		}
		passed = append(passed, r.Changes-before)
	}
	slices.Sort(passed)
	if median := passed[len(passed)/2]; median > writers/4 {
		t.Errorf("a renewal waits for %d transactions of %d writers (median)", median, writers)
	}
	after := newest()
	for wait := time.Now(); newest() < after+writers; {
		if time.Since(wait) > ample {
			t.Fatal("the writers have no turn any more")
		}
	}
}

// BenchmarkRenewInACrowd renews beside a thousand writers, and reports the median and the worst.
func BenchmarkRenewInACrowd(b *testing.B) {
	s, n, _ := benchStore(b, 0)
	crowd(b, s, 1000)
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		if _, err := s.RenewSession(b.Context(), n.ID); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1e3, "median-ms")
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1e3, "worst-ms")
}
