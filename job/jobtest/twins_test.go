package jobtest

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/internal/testkit/recorder"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/memory"
)

// named is a twin, with the topic that must catch it.
type named struct {
	by string
	twin
}

// twin is a store that is broken in one way.
type twin struct {
	job.Store
	change func(next job.Store, ctx context.Context, name string, decide job.Decision) (job.Job, error)
	query  func(*job.Query)
	runs   func(*job.RunQuery) func([]job.Run)
	leases lease.Store
	apart  bool // the lease and the job are two operations
	put    func(next job.Store, ctx context.Context, key job.RunKey, term int64, o job.Output) error
}

func (t twin) Change(ctx context.Context, name string, decide job.Decision) (job.Job, error) {
	if t.change == nil {
		return t.Store.Change(ctx, name, decide)
	}
	return t.change(t.Store, ctx, name, decide)
}

func (t twin) AcquireAndChange(ctx context.Context, e lease.Expectation, name string, decide func(lease.Lease) job.Decision) (lease.Lease, job.Job, error) {
	if !t.apart {
		return t.Store.(job.CombinedStore).AcquireAndChange(ctx, e, name, decide)
	}
	l, err := t.leases.Acquire(ctx, e)
	if err != nil {
		return l, job.Job{}, err
	}
	j, err := t.Store.Change(ctx, name, decide(l))
	return l, j, err
}

func (t twin) ChangeAndRelease(ctx context.Context, name string, decide job.Decision, r lease.ReleaseRequest) error {
	if !t.apart {
		return t.Store.(job.CombinedStore).ChangeAndRelease(ctx, name, decide, r)
	}
	if err := t.leases.Release(ctx, r); err != nil {
		return err
	}
	_, err := t.Store.Change(ctx, name, decide)
	return err
}

func (t twin) List(ctx context.Context, q job.Query) ([]job.Job, time.Time, error) {
	if t.query != nil {
		t.query(&q)
	}
	return t.Store.List(ctx, q)
}

func (t twin) Runs(ctx context.Context, q job.RunQuery) ([]job.Run, error) {
	after := func([]job.Run) {}
	if t.runs != nil {
		after = t.runs(&q)
	}
	all, err := t.Store.Runs(ctx, q)
	after(all)
	return all, err
}

func (t twin) PutOutput(ctx context.Context, key job.RunKey, term int64, o job.Output) error {
	if t.put == nil {
		return t.Store.PutOutput(ctx, key, term, o)
	}
	return t.put(t.Store, ctx, key, term, o)
}

// edited is a twin that does what is decided differently.
func edited(edit func(j job.Job, c *job.Change, err error) error) twin {
	return twin{change: func(next job.Store, ctx context.Context, name string, decide job.Decision) (job.Job, error) {
		return next.Change(ctx, name, func(j job.Job, now time.Time) (job.Change, error) {
			c, err := decide(j, now)
			return c, edit(j, &c, err)
		})
	}}
}

// apart is a twin for which reading and writing are two operations; first is what is written in between.
func apart(next job.Store, ctx context.Context, name string, decide job.Decision) (job.Job, error) {
	was, now, err := next.Get(ctx, name)
	if errors.Is(err, job.ErrNotFound) {
		return next.Change(ctx, name, decide)
	}
	c, err := decide(was, now)
	pause()
	if err != nil || c.Unchanged {
		return was, err
	}
	return next.Change(ctx, name, func(job.Job, time.Time) (job.Change, error) { return c, nil })
}

// pause is everyone else's turn.
func pause() {
	timer := time.NewTimer(2 * time.Millisecond)
	<-timer.C
}

func twins() map[string]named {
	return map[string]named{
		"loses the runs":         {"change/kept as it was decided", edited(func(_ job.Job, c *job.Change, err error) error { c.Runs = nil; return err })},
		"writes the refused":     {"change/what is refused changes nothing", twin{change: writesRefused}},
		"the host's clock":       {"change/by the store's clock", twin{change: hostsClock}},
		"claims after the start": {"change/one of many claims a run", twin{change: apart}},
		"reads and then writes":  {"change/no other comes in between", twin{change: apart}},
		"late results count": {"change/a late result only makes an event", edited(func(j job.Job, c *job.Change, err error) error {
			if len(c.Runs) == 0 && j.Last.State == job.Lost {
				r := j.Last
				r.State = job.Succeeded
				c.Runs = []job.Run{r}
			}
			return err
		})},
		"shows the first again": {"list/by name, in pages", twin{query: func(q *job.Query) { q.After = q.After[:max(0, len(q.After)-1)] }}},
		"all is due":            {"list/what is due", twin{query: func(q *job.Query) { q.DueWithin = 0 }}},
		"the oldest first": {"runs/the latest first, by state", twin{runs: func(*job.RunQuery) func([]job.Run) {
			return func(all []job.Run) { slices.Reverse(all) }
		}}},
		"keeps all": {"runs/old ones are dropped", twin{change: neverPrunes}},
		"takes output of any term": {"output/of the term that runs", twin{put: func(next job.Store, ctx context.Context, key job.RunKey, _ int64, o job.Output) error {
			return next.PutOutput(ctx, key, 1, o)
		}}},
		"output is text": {"output/of the term that runs", twin{put: func(next job.Store, ctx context.Context, key job.RunKey, term int64, o job.Output) error {
			o.Tail = bytes.ToValidUTF8(o.Tail, []byte("?"))
			return next.PutOutput(ctx, key, term, o)
		}}},
		"forgets half": {"forget/with all runs", edited(func(j job.Job, c *job.Change, err error) error {
			if c.Forget {
				c.Forget, c.Job = false, job.Job{Name: j.Name}
			}
			return err
		})},
		"no event": {"forget/with all runs", edited(func(_ job.Job, c *job.Change, err error) error { c.Event = history.Event{}; return err })},
		"a name's end counts": {"names/hostile text is only data", edited(func(_ job.Job, c *job.Change, err error) error {
			c.Job.Name = "x"
			for i := range c.Runs {
				c.Runs[i].Trigger = "x"
			}
			return err
		})},
		"acquires, and then changes": {"combined/both or neither", twin{apart: true}},
		"releases, and then changes": {"combined/released with the change", twin{apart: true}},
		"goes on without a context": {"context/nothing once it is over", twin{change: func(next job.Store, ctx context.Context, name string, decide job.Decision) (job.Job, error) {
			return next.Change(context.WithoutCancel(ctx), name, decide)
		}}},
	}
}

func writesRefused(next job.Store, ctx context.Context, name string, decide job.Decision) (job.Job, error) {
	var refused error
	out, err := next.Change(ctx, name, func(j job.Job, now time.Time) (c job.Change, err error) {
		c, refused = decide(j, now)
		return c, nil
	})
	return out, errors.Join(refused, err)
}

func hostsClock(next job.Store, ctx context.Context, name string, decide job.Decision) (job.Job, error) {
	return next.Change(ctx, name, func(j job.Job, _ time.Time) (job.Change, error) { return decide(j, time.Now()) })
}

// neverPrunes is a store whose versions are counted otherwise.
func neverPrunes(next job.Store, ctx context.Context, name string, decide job.Decision) (job.Job, error) {
	pruned, stop := false, errors.New("not that one")
	out, err := next.Change(ctx, name, func(j job.Job, now time.Time) (job.Change, error) {
		if pruned = job.PrunesAt(j.Version + 1); pruned {
			return job.Change{}, stop
		}
		return decide(j, now)
	})
	if pruned {
		out, _, err = next.Get(ctx, name)
		out.Version++
	}
	return out, err
}

// TestSuiteCatches proves the suite: each broken store is caught by the topic that is named, and each topic catches one.
func TestSuiteCatches(t *testing.T) {
	recorder.Catches(t, slices.Collect(maps.Keys(topics())), twins(), func(n named) string { return n.by }, func(t *testing.T, r testing.TB, broken named) {
		var mu sync.Mutex
		var ahead time.Duration
		s := memory.New(func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return time.Now().Add(ahead)
		})
		broken.Store, broken.leases = s.Jobs(), s
		topics()[broken.by](newBench(r, t.Context(), Subject{Jobs: broken.twin, History: s, Leases: s, Advance: func(d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			ahead += d
		}}))
	})
}
