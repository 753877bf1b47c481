package sqlite_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/sqlite"
)

func benchStore(b *testing.B, leases int) (*sqlite.Store, lease.Session, string) {
	path := filepath.Join(b.TempDir(), "store.db")
	s := open(b, sqlite.Config{Path: path})
	n := session(b, s, "a", lease.Timing{Interval: time.Minute, Timeout: time.Hour})
	if leases > 0 {
		hold(b, path, n, leases)
	}
	return s, n, path
}

// BenchmarkBesideABareUpdate takes turns, so that a disk that is busy with other
// things disturbs all alike: an update of one row in a transaction of its own,
// with the same settings on the same file, a renewal, and an acquisition. It
// reports the medians.
func BenchmarkBesideABareUpdate(b *testing.B) {
	for _, leases := range []int{0, 1000, 100_000} {
		b.Run(fmt.Sprintf("held=%d", leases), func(b *testing.B) {
			s, n, path := benchStore(b, leases)
			db := plain(b, path+"?_synchronous=FULL&_busy_timeout=1000")
			db.SetMaxOpenConns(1)
			if _, err := db.Exec("CREATE TABLE bare (id TEXT PRIMARY KEY, n INTEGER NOT NULL); INSERT INTO bare VALUES ('a', 0)"); err != nil {
				b.Fatal(err)
			}
			update, err := db.Prepare("UPDATE bare SET n = n + 1 WHERE id = ?")
			if err != nil {
				b.Fatal(err)
			}
			defer update.Close()
			i := 0
			turns := []struct {
				name string
				do   func() error
				took []time.Duration
			}{
				{name: "bare", do: func() error { _, err := update.Exec("a"); return err }},
				{name: "renew", do: func() error { _, err := s.RenewSession(b.Context(), n.ID); return err }},
				{name: "acquire", do: func() error {
					i++
					_, err := s.Acquire(b.Context(), lease.Expectation{Lease: lease.ID{Space: "role", Key: fmt.Sprint("r", i)}, Session: n.ID})
					return err
				}},
			}
			for b.Loop() {
				for j := range turns {
					began := time.Now()
					if err := turns[j].do(); err != nil {
						b.Fatal(err)
					}
					turns[j].took = append(turns[j].took, time.Since(began))
				}
			}
			for _, t := range turns {
				slices.Sort(t.took)
				b.ReportMetric(float64(t.took[len(t.took)/2].Nanoseconds())/1e3, t.name+"-µs")
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	s, n, _ := benchStore(b, 0)
	take(b, s, n, "r")
	for b.Loop() {
		if _, err := s.Get(b.Context(), roleR); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEndSession(b *testing.B) {
	for range b.N {
		b.StopTimer()
		s, n, _ := benchStore(b, 100_000)
		b.StartTimer()
		if err := s.EndSession(b.Context(), n.ID, "stopped"); err != nil {
			b.Fatal(err)
		}
	}
}
