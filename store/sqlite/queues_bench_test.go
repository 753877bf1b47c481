package sqlite_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/sqlite"
)

const jobs = "jobs"

// line is a queue with some keys, and who delivers it.
type line struct {
	testing.TB
	*sqlite.Store
	path string
	me   lease.Session
}

func newLine(t testing.TB, cfg sqlite.Config) *line {
	t.Helper()
	l := &line{TB: t, Store: open(t, cfg), path: cfg.Path}
	if err := l.QueueAdmin().CreateQueue(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
	l.me = session(t, l.Store, "me", lease.Timing{Interval: time.Minute, Timeout: time.Hour})
	return l
}

// add enqueues a number of batches for each of the keys from first on.
func (l *line) add(first, keys, each int) {
	l.Helper()
	var batches []dispatch.Message
	flush := func() {
		if _, err := l.QueueAdmin().Add(l.Context(), batches); err != nil {
			l.Fatal(err)
		}
		batches = batches[:0]
	}
	for range each {
		for k := range keys {
			batches = append(batches, dispatch.Message{Queue: jobs, Key: fmt.Sprintf("key-%06d", first+k), Payload: make([]byte, 200)})
			if len(batches) == claim.MaxKeys {
				flush()
			}
		}
	}
	flush()
}

func (l *line) take(most int) []claim.Claim {
	l.Helper()
	held, err := l.Claims().ClaimKeys(l.Context(), claim.ClaimRequest{Space: dispatch.Space(jobs), Session: l.me.ID, Limit: most, Fresh: most})
	if err != nil {
		l.Fatal(err)
	}
	return held
}

func (l *line) turn(results []dispatch.Result, begin []claim.Claim) dispatch.ExchangeResult {
	l.Helper()
	out, err := l.Queue().Exchange(l.Context(), dispatch.Exchange{
		Queue: jobs, Session: l.me.ID, Results: results, Begin: begin, Window: time.Minute,
	})
	if err != nil {
		l.Fatal(err)
	}
	return out
}

// committed are the results of assignments that went well, and the claims to go
// on with.
func committed(as []dispatch.Assignment) (results []dispatch.Result, next []claim.Claim) {
	for _, a := range as {
		results = append(results, dispatch.Result{
			Key: a.Key, Term: a.Term, Seq: a.Seq, State: dispatch.Committed, After: dispatch.Next, Attempt: a.Attempt, Code: 200,
		})
		next = append(next, claim.Claim{Key: a.Key, Term: a.Term})
	}
	return results, next
}

// BenchmarkTurn delivers: each turn has the results of some keys and the begin of
// their next batches. The shorter queue and the long one, whose rows lie in a file
// of some hundred megabytes.
func BenchmarkTurn(b *testing.B) {
	for _, c := range []struct{ keys, waiting int }{{100, 0}, {300, 0}, {100, 100_000}, {100, 1_000_000}} {
		b.Run(fmt.Sprintf("keys=%d/waiting=%d", c.keys, c.waiting), func(b *testing.B) {
			l := newLine(b, sqlite.Config{Path: filepath.Join(b.TempDir(), "store.db")})
			l.fill(c.waiting, c.waiting/10)
			var delivered int
			var spent time.Duration
			for b.Loop() {
				b.StopTimer()
				if c.waiting == 0 {
					l.add(0, c.keys, 10)
				}
				held := l.take(c.keys)
				as := l.turn(nil, held).Begun
				b.StartTimer()
				began := time.Now()
				for len(as) > 0 {
					delivered += len(as)
					results, next := committed(as)
					as = l.turn(results, next).Begun
				}
				spent += time.Since(began)
			}
			b.ReportMetric(float64(delivered)/spent.Seconds(), "batches/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// fill puts batches there by way of SQL, as any program might.
func (l *line) fill(batches, keys int) {
	const portion = 20_000
	for from := 0; from < batches; from += portion {
		if _, err := plain(l, l.path).Exec(fillSQL(from, min(from+portion, batches), keys)); err != nil {
			l.Fatal(err)
		}
	}
}

func fillSQL(from, to, keys int) string {
	return fmt.Sprintf(`
WITH RECURSIVE i (n) AS (SELECT %d UNION ALL SELECT n + 1 FROM i WHERE n + 1 < %d)
INSERT INTO understudy_enqueue (queue, key, payload) SELECT 'jobs', printf('key-%%06d', n %% %d), zeroblob(200) FROM i`, from, to, keys)
}

func BenchmarkEnqueue(b *testing.B) {
	for _, each := range []int{1, 100} {
		b.Run(fmt.Sprintf("batches=%d", each), func(b *testing.B) {
			l := newLine(b, sqlite.Config{Path: filepath.Join(b.TempDir(), "store.db")})
			l.add(0, 1000, 1)
			batches := make([]dispatch.Message, each)
			n := 0
			for b.Loop() {
				for i := range batches {
					n++
					batches[i] = dispatch.Message{Queue: jobs, Key: fmt.Sprintf("key-%06d", n%1000), Payload: make([]byte, 200)}
				}
				if _, err := l.QueueAdmin().Add(b.Context(), batches); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "batches/s")
		})
	}
}

// BenchmarkWake is how long it takes from an enqueue, by a program that knows
// nothing of the store, until one who slept has begun the batch.
func BenchmarkWake(b *testing.B) {
	l := newLine(b, sqlite.Config{Path: filepath.Join(b.TempDir(), "store.db")})
	db := plain(b, l.path+"?_pragma=busy_timeout(1000)&_synchronous=FULL")
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	changes, over := make(chan lease.Change, 10), make(chan error, 1)
	go func() { over <- l.Watch(ctx, func(c lease.Change) { changes <- c }) }()
	<-changes
	var took []time.Duration
	for b.Loop() {
		if _, err := l.Claims().Join(ctx, claim.Member{Space: dispatch.Space(jobs), Session: l.me.ID, Asleep: true}); err != nil {
			b.Fatal(err)
		}
		<-time.After(rand.N(20 * time.Millisecond)) // at any moment between two looks
		began := time.Now()
		tx, err := db.Begin()
		if err != nil {
			b.Fatal(err)
		}
		if _, err := sqlite.Enqueue(ctx, tx, dispatch.Message{Queue: jobs, Key: "k"}); err != nil {
			b.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			b.Fatal(err)
		}
		for c := range changes {
			if c.Lease == claim.WakeID(dispatch.Space(jobs)) {
				break
			}
		}
		as := l.turn(nil, l.take(10)).Begun
		took = append(took, time.Since(began))
		results, _ := committed(as)
		l.turn(results, nil)
	}
	cancel()
	if err := <-over; err != nil {
		b.Fatal(err)
	}
	report(b, took)
}

// BenchmarkRenewalBesideTurns is what the writing of queues costs a session: it is
// renewed while two others deliver and enqueue as fast as they can.
func BenchmarkRenewalBesideTurns(b *testing.B) {
	l := newLine(b, sqlite.Config{Path: filepath.Join(b.TempDir(), "store.db")})
	ctx, cancel := context.WithCancel(b.Context())
	var busy sync.WaitGroup
	other := *l
	other.Store = open(b, sqlite.Config{Path: l.path})
	busy.Go(func() {
		for ctx.Err() == nil {
			other.add(0, 100, 3)
		}
	})
	busy.Go(func() {
		var as []dispatch.Assignment
		for ctx.Err() == nil {
			results, next := committed(as)
			as = l.turn(results, append(next, l.take(100)...)).Begun
		}
	})
	third := open(b, sqlite.Config{Path: l.path})
	n := session(b, third, "renews", lease.Timing{Interval: time.Minute, Timeout: time.Hour})
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		if _, err := third.RenewSession(b.Context(), n.ID); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
		<-time.After(5 * time.Millisecond)
	}
	cancel()
	busy.Wait()
	report(b, took)
}

func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	for name, part := range map[string]int{"p50-ms": 500, "p95-ms": 950, "p99-ms": 990, "max-ms": 1000} {
		b.ReportMetric(float64(took[min(len(took)*part/1000, len(took)-1)].Microseconds())/1e3, name)
	}
	b.ReportMetric(0, "ns/op")
}
