package jobtest

import (
	"errors"
	"time"

	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
)

// combined is the store if it is a [job.CombinedStore], with a session.
func (b *bench) combined() (both job.CombinedStore, session string, can bool) {
	if both, can = b.Jobs.(job.CombinedStore); !can {
		return nil, "", false
	}
	s := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance("host", ""), Timing: lease.Timing{Interval: 10 * time.Hour, Timeout: 100 * time.Hour}}
	if _, err := b.Leases.StartSession(b.ctx, s); err != nil {
		b.Fatal(err)
	}
	return both, s.ID, true
}

func (b *bench) lease(name string) lease.Lease {
	b.Helper()
	l, err := b.Leases.Get(b.ctx, job.LeaseID(name))
	if err != nil {
		b.Fatal(err)
	}
	return l
}

func claimUnder(l lease.Lease) job.Decision {
	return job.Claim(job.Holder{Term: l.Term, Instance: l.Holder})
}

func testCombined(b *bench) {
	both, session, can := b.combined()
	if !can {
		return
	}
	b.define("a")
	b.Advance(time.Hour)
	e := lease.Expectation{Lease: job.LeaseID("a"), Session: session, Places: 1}
	refusal := errors.New("no")
	_, _, err := both.AcquireAndChange(b.ctx, e, "a", func(lease.Lease) job.Decision {
		return func(job.Job, time.Time) (job.Change, error) { return job.Change{}, refusal }
	})
	if l := b.lease("a"); !errors.Is(err, refusal) || errors.Is(err, lease.ErrUnavailable) || l.Term != 0 {
		b.Errorf("a change was refused with %v, and the lease is %+v", err, l)
	}
	l, j, err := both.AcquireAndChange(b.ctx, e, "a", claimUnder)
	if err != nil {
		b.Fatal(err)
	}
	kept, _ := b.get("a")
	b.same("the job", j, kept)
	if r, on := kept.Running(); !on || r.Term != l.Term || l.Session != session || b.lease("a").Session != session || b.lease("a").Term != l.Term {
		b.Errorf("the run is %+v, and the lease %+v", r, l)
	}
	// Whose answer was lost, asks again.
	e.Seen = b.lease("a").Seen()
	if again, _, err := both.AcquireAndChange(b.ctx, e, "a", claimUnder); err != nil || again.Term != l.Term {
		b.Errorf("asked again: %+v, %v", again, err)
	}
	_, other, _ := b.combined()
	held, _, err := both.AcquireAndChange(b.ctx, lease.Expectation{Lease: e.Lease, Session: other, Seen: e.Seen, Places: 1}, "a", func(lease.Lease) job.Decision {
		return job.Trigger("who has no lease")
	})
	if !errors.Is(err, lease.ErrHeld) || held.Session != session {
		b.Errorf("another got %+v, %v", held, err)
	}
	_, _, err = both.AcquireAndChange(b.ctx, lease.Expectation{Lease: job.LeaseID("b"), Session: lease.NewID(), Places: 1}, "a", func(lease.Lease) job.Decision {
		return job.Trigger("who has no session")
	})
	if !errors.Is(err, lease.ErrLapsed) {
		b.Errorf("without a session: %v", err)
	}
	after, _ := b.get("a")
	b.same("the job, which nobody else changed", kept, after)
}

func testChangeAndRelease(b *bench) {
	both, session, can := b.combined()
	if !can {
		return
	}
	b.define("a")
	b.Advance(time.Hour)
	l, j, err := both.AcquireAndChange(b.ctx, lease.Expectation{Lease: job.LeaseID("a"), Session: session, Places: 1}, "a", claimUnder)
	if err != nil {
		b.Fatal(err)
	}
	r, _ := j.Running()
	release := lease.ReleaseRequest{Lease: l.ID, Session: session, Term: l.Term, Reason: "run ended"}
	refusal := errors.New("no")
	err = both.ChangeAndRelease(b.ctx, "a", func(job.Job, time.Time) (job.Change, error) { return job.Change{}, refusal }, release)
	if !errors.Is(err, refusal) || b.lease("a").Session != session {
		b.Errorf("a change was refused with %v, and the lease is %+v", err, b.lease("a"))
	}
	finish := job.Finish(r.Scheduled, r.Term, job.Result{State: job.Failed, ExitCode: 3, Why: "exit code 3"})
	if err := both.ChangeAndRelease(b.ctx, "a", finish, release); err != nil {
		b.Fatal(err)
	}
	if kept, _ := b.get("a"); kept.Last.ExitCode != 3 || b.lease("a").Session != "" {
		b.Errorf("ended: %+v, and the lease is %+v", kept.Last, b.lease("a"))
	}
	b.same("its run", 3, b.runs(job.RunQuery{Job: "a"})[0].ExitCode)
	if err := both.ChangeAndRelease(b.ctx, "a", job.Pause("x"), release); !errors.Is(err, lease.ErrNotHeld) || errors.Is(err, lease.ErrUnavailable) {
		b.Errorf("released twice: %v", err)
	}
	if kept, _ := b.get("a"); kept.PausedBy != "x" {
		b.Error("the change is lost because the lease was not held")
	}
}
