package job

import (
	"context"
	"errors"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// acquirer claims a run with the acquisition of the job's lease, and stores its result before the release: each pair in one
// transaction, if the store can.
type acquirer struct {
	lease.Acquirer
	store  Store
	name   string
	holder lease.Instance

	claimed Job      // as it was when a run was claimed under the lease, which nobody can have started before
	doubt   bool     // a claim had no answer: it may have been applied, or may be yet
	first   int64    // the lowest term that this acquirer can have taken, under which nobody else can have claimed; 0: it has not tried
	finish  Decision // how that ended; nil: it was not started
	stored  bool     // what became of it is in the store
}

// Acquire implements [lease.Acquirer].
func (a *acquirer) Acquire(ctx context.Context, e lease.Expectation) (lease.Lease, error) {
	a.first = e.Seen.Term + 1
	both, can := a.store.(CombinedStore)
	if !can {
		return a.Acquirer.Acquire(ctx, e)
	}
	claimed := false
	l, j, err := both.AcquireAndChange(ctx, e, a.name, func(l lease.Lease) Decision {
		return func(j Job, now time.Time) (Change, error) {
			c, err := Claim(Holder{Term: l.Term, Instance: a.holder})(j, now)
			if err != nil {
				c = Change{Job: j, Unchanged: true} // the holder claims again, and is told
			}
			claimed = !c.Unchanged
			return c, nil
		}
	})
	a.doubt = a.doubt || err != nil && transient(err)
	if a.claimed = (Job{}); err == nil && claimed {
		a.claimed = j // otherwise it may be a run of an earlier use of the term
	}
	return l, err
}

// Release implements [lease.Acquirer].
func (a *acquirer) Release(ctx context.Context, r lease.ReleaseRequest) error {
	decide := a.finish
	doubt := a.doubt && a.first > 0 && r.Term >= a.first
	if run, on := a.claimed.RunningUnder(r.Term); decide == nil && on {
		decide = giveBack(run)
	} else if decide == nil && doubt {
		decide = giveBack(Run{Term: r.Term})
	}
	if doubt {
		decide = closing(r.Term, decide)
	}
	if decide == nil || a.stored {
		return a.Acquirer.Release(ctx, r)
	}
	var err error
	both, can := a.store.(CombinedStore)
	if can {
		err = both.ChangeAndRelease(ctx, a.name, decide, r)
	} else {
		_, err = a.store.Change(ctx, a.name, decide)
	}
	gone := errors.Is(err, ErrNotFound) // the job; its lease is still to be released
	a.stored = err == nil || gone || errors.Is(err, lease.ErrNotHeld)
	if gone || !can && err == nil {
		return a.Acquirer.Release(ctx, r)
	}
	return err
}
