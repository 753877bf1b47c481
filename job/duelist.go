package job

import (
	"context"
	"time"
)

// dueList is what was due when it was read last.
type dueList struct {
	turn chan struct{} // of capacity 1: whoever fills it reads, or reads the rest
	read time.Duration // when the answer came
	now  time.Time     // by the store's clock
	jobs []Job
	all  bool // jobs are all that were due
}

const (
	// shareFor is how old a list may be by which an instance leaves a job to another. At one moment many jobs are due, of most of
	// which others were faster: a list costs no more than reading one of them.
	shareFor = 5 * time.Millisecond
	// maxShared is up to how many jobs are listed so.
	maxShared = 100
)

// isDone reports whether another instance runs, or has ended, the run of a job that was due at a time. What it cannot say is to be read.
func (r *runner) isDone(ctx context.Context, name string, due time.Time) (runs, ended bool) {
	if len(r.offers) <= maxGets {
		return false, false
	}
	came := r.Keeper.Clock().Now()
	d := &r.shared
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return false, false
	}
	if d.read < came-shareFor || d.now.Before(due) {
		if !d.all && d.read > 0 && came-d.read < r.Keeper.Timing().Interval {
			return false, false // too many for a list
		}
		call, cancel := context.WithTimeout(ctx, r.Keeper.Timing().CallTimeout())
		defer cancel()
		jobs, now, err := r.Store.List(call, Query{DueWithin: time.Millisecond, Limit: maxShared})
		if err != nil {
			return false, false
		}
		d.jobs, d.now, d.all, d.read = jobs, now, len(jobs) < maxShared, r.Keeper.Clock().Now()
	}
	for _, j := range d.jobs {
		if j.Name == name {
			_, runs = j.Running()
			return runs, false
		}
	}
	return false, d.all && !d.now.Before(due)
}
