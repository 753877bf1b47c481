package jobtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
)

// Subject is one empty store under test.
type Subject struct {
	Jobs    job.Store
	History history.Log
	// Leases of the same store. Required if Jobs is a [job.CombinedStore].
	Leases lease.Store
	// Other is another handle on the same store, as another process has it. Default: the same.
	Other job.Store
	// Advance moves the store's clock forward.
	Advance func(d time.Duration)
}

// TestStore puts a store through the suite; fresh returns an empty one for each topic.
func TestStore(t *testing.T, fresh func(t *testing.T) Subject) {
	for name, topic := range topics() {
		t.Run(name, func(t *testing.T) { topic(newBench(t, t.Context(), fresh(t))) })
	}
}

func topics() map[string]func(*bench) {
	return map[string]func(*bench){
		"change/kept as it was decided":            testKept,
		"change/what is refused changes nothing":   testRefused,
		"change/by the store's clock":              testClock,
		"change/no other comes in between":         testRace,
		"change/one of many claims a run":          testClaims,
		"change/a late result only makes an event": testLate,
		"list/by name, in pages":                   testList,
		"list/what is due":                         testDue,
		"runs/the latest first, by state":          testRuns,
		"runs/old ones are dropped":                testPrune,
		"output/of the term that runs":             testOutput,
		"forget/with all runs":                     testForget,
		"names/hostile text is only data":          testHostile,
		"context/nothing once it is over":          testContext,
		"combined/both or neither":                 testCombined,
		"combined/released with the change":        testChangeAndRelease,
	}
}

type bench struct {
	testing.TB
	Subject
	ctx context.Context
}

func newBench(t testing.TB, ctx context.Context, s Subject) *bench {
	if s.Other == nil {
		s.Other = s.Jobs
	}
	return &bench{TB: t, Subject: s, ctx: ctx}
}

var hourly = job.Definition{Schedule: "every 1h"}

func (b *bench) change(name string, decide job.Decision) job.Job {
	b.Helper()
	j, err := b.Jobs.Change(b.ctx, name, decide)
	if err != nil {
		b.Fatalf("changing %q: %v", name, err)
	}
	return j
}

func (b *bench) define(name string) job.Job {
	b.Helper()
	return b.change(name, job.Define(name, hourly))
}

func (b *bench) get(name string) (job.Job, time.Time) {
	b.Helper()
	j, now, err := b.Other.Get(b.ctx, name)
	if err != nil {
		b.Fatalf("Get(%q): %v", name, err)
	}
	return j, now
}

func (b *bench) runs(q job.RunQuery) []job.Run {
	b.Helper()
	if q.Limit == 0 {
		q.Limit = 1000
	}
	all, err := b.Other.Runs(b.ctx, q)
	if err != nil {
		b.Fatalf("Runs(%+v): %v", q, err)
	}
	return all
}

func (b *bench) same(what string, want, got any) {
	b.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		b.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

func holder(term int64) job.Holder {
	return job.Holder{Term: term, Instance: lease.Instance{ID: fmt.Sprint("id-", term), Name: "host"}}
}

func testKept(b *bench) {
	if _, _, err := b.Jobs.Get(b.ctx, "a"); !isNotFound(err) {
		b.Errorf("before it is added: %v, want ErrNotFound", err)
	}
	j := b.define("a")
	kept, now := b.get("a")
	b.same("the job", j, kept)
	if j.Version != 1 || now.Before(j.Created) || now.Sub(j.Created) > time.Hour {
		b.Errorf("version %d, created at %v, now %v", j.Version, j.Created, now)
	}
	b.Advance(time.Hour)
	j = b.change("a", job.Claim(holder(7)))
	r, on := j.Running()
	if !on || r.Term != 7 || j.Version != 2 || r.Instance.ID != "id-7" {
		b.Fatalf("claimed: %+v", j)
	}
	kept, _ = b.get("a")
	b.same("the claimed job", j, kept)
	b.same("its run", []job.Run{r}, b.runs(job.RunQuery{Job: "a"}))
	j = b.change("a", job.Finish(r.Scheduled, 7, job.Result{State: job.Failed, ExitCode: 3, Why: "exit code 3"}))
	b.same("the run that ended", []job.Run{j.Last}, b.runs(job.RunQuery{Job: "a"}))
	if j.Last.ExitCode != 3 || j.Ended[job.Failed] != 1 {
		b.Errorf("ended: %+v", j)
	}
}

// isNotFound: and it is not worth trying again.
func isNotFound(err error) bool {
	return errors.Is(err, job.ErrNotFound) && !errors.Is(err, lease.ErrUnavailable) && !errors.Is(err, lease.ErrUnknown)
}

func testRefused(b *bench) {
	j := b.define("a")
	refusal := errors.New("no")
	_, err := b.Jobs.Change(b.ctx, "a", func(j job.Job, _ time.Time) (job.Change, error) {
		j.PausedBy = "x"
		return job.Change{Job: j, Event: history.Event{Part: job.Space, Subject: "a", Reason: "refused"}}, refusal
	})
	if !errors.Is(err, refusal) {
		b.Errorf("refused with %v", err)
	}
	got := b.change("a", func(j job.Job, _ time.Time) (job.Change, error) {
		j.PausedBy = "x"
		return job.Change{Job: j, Unchanged: true}, nil
	})
	kept, _ := b.get("a")
	b.same("the job", j, kept)
	b.same("what was returned", j.Version, got.Version)
	if e := b.events("a"); len(e) != 1 {
		b.Errorf("events: %+v, want one, of the addition", e)
	}
}

func (b *bench) events(name string) []history.Event {
	b.Helper()
	all, err := b.History.Read(b.ctx, history.Query{Part: job.Space, Subject: name})
	if err != nil {
		b.Fatal(err)
	}
	return all
}

// testClock: what is due is decided by the store's clock, which every call shows.
func testClock(b *bench) {
	j := b.define("a")
	if _, on := b.change("a", job.Claim(holder(1))).Running(); on {
		b.Error("claimed at once what is due in an hour")
	}
	b.Advance(59 * time.Minute)
	if _, on := b.change("a", job.Claim(holder(1))).Running(); on && j.Next.Sub(j.Created) > 59*time.Minute+30*time.Second {
		b.Error("claimed before its time")
	}
	b.Advance(time.Minute)
	var seen time.Time
	b.change("a", func(j job.Job, now time.Time) (job.Change, error) {
		seen = now
		return job.Change{Unchanged: true}, nil
	})
	_, now := b.get("a")
	_, listed, err := b.Jobs.List(b.ctx, job.Query{Limit: 1})
	for what, at := range map[string]time.Time{"Change": seen, "Get": now, "List": listed} {
		if d := at.Sub(j.Created); err != nil || d < time.Hour || d > 2*time.Hour {
			b.Errorf("%s shows %v after the addition, want an hour (%v)", what, d, err)
		}
	}
	if _, on := b.change("a", job.Claim(holder(1))).Running(); !on {
		b.Error("not claimed when it is due")
	}
}

func testRace(b *bench) {
	const callers, times = 4, 8
	b.define("a")
	var all sync.WaitGroup
	for n := range callers {
		on := []job.Store{b.Jobs, b.Other}[n%2]
		all.Go(func() {
			for range times {
				if _, err := on.Change(b.ctx, "a", job.Trigger("x")); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	j, _ := b.get("a")
	if len(j.Open) != callers*times || j.Version != 1+callers*times {
		b.Errorf("%d runs are queued at version %d, want %d", len(j.Open), j.Version, callers*times)
	}
	if n := len(b.runs(job.RunQuery{Job: "a"})); n != callers*times {
		b.Errorf("%d runs are stored, want %d", n, callers*times)
	}
}

func testClaims(b *bench) {
	const callers = 6
	b.define("a")
	b.Advance(time.Hour)
	var all sync.WaitGroup
	var mu sync.Mutex
	var claimed []int64
	for n := range int64(callers) {
		on := []job.Store{b.Jobs, b.Other}[n%2]
		all.Go(func() {
			// Only a claim of one's own counts, and none is given up: nobody calls it lost.
			j, err := on.Change(b.ctx, "a", func(j job.Job, now time.Time) (job.Change, error) {
				if _, on := j.Running(); on {
					return job.Change{Job: j, Unchanged: true}, nil
				}
				return job.Claim(holder(n+1))(j, now)
			})
			if r, on := j.Running(); err != nil {
				b.Error(err)
			} else if on && r.Term == n+1 {
				mu.Lock()
				claimed = append(claimed, r.Term)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(claimed) != 1 {
		b.Errorf("claimed under the terms %v, want one of them", claimed)
	}
}

func testLate(b *bench) {
	b.define("a")
	b.Advance(time.Hour)
	r, _ := b.change("a", job.Claim(holder(1))).Running()
	b.change("a", job.Claim(holder(2)))
	b.change("a", job.Finish(r.Scheduled, 1, job.Result{State: job.Succeeded}))
	if got := b.runs(job.RunQuery{Job: "a"}); len(got) != 1 || got[0].State != job.Lost {
		b.Errorf("runs: %+v, want one that is lost", got)
	}
	e := b.events("a")
	if len(e) != 3 || e[2].Term != 1 || e[1].Term != 1 {
		b.Errorf("events: %+v, want added, lost and late", e)
	}
}
