package agent

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// QuietIntervals is how many intervals lie between two reports of a shard in which nothing happens, where the store tells of
// changes.
const QuietIntervals = 2

// rereadSoon is the pause between two reads of a row that is about to change.
const rereadSoon = 20 * time.Millisecond

// reporter exchanges with the store, one call at a time: it reports the node and gets the shard's view back,
// or reads the view alone. Times are readings of the agent's clock.
type reporter struct {
	*common
	view   *viewCache
	watch  *leaseWatch
	record func(now time.Duration) shard.Record
	accept func(v shard.View, now time.Duration)
	// publish makes a refusal visible.
	publish func()

	due    bool // a report is
	urgent bool // … and others wait for what it says
	reread bool // the view is to be read
	// What the operator should know about this node: what this turn found, why the latest task of the agent's own failed, and
	// why the promises of the others are missing. Each is cleared by who sets it.
	trouble, taskFailed, unpromised string

	registered  bool          // the store has accepted a record of this run
	refusal     string        // why it does not take the record
	failing     time.Duration // since when the store has not answered; 0: it answers
	steadySince time.Duration // since when every call has been answered
	lastOK      time.Duration // when the latest report that was answered was sent
	answeredAt  time.Duration // … or the latest read

	acceptedGist shard.Record // the gist of the latest that was accepted
	watching     atomic.Bool  // the store tells of changes

	sent      int64 // reports so far
	notBefore time.Duration
	retry     backoff.Backoff // soon again, so that a store that comes and goes hears of the node in between
	waiters   []reportWaiter
}

// troubles is what the operator should know first.
func (r *reporter) troubles() string { return cmp.Or(r.trouble, r.unpromised, r.taskFailed) }

// reportWaiter waits for a report that is sent after it came.
type reportWaiter struct {
	after int64
	done  chan struct{}
}

// isRegistered reports whether the agent may act on its node.
func (r *reporter) isRegistered() bool { return r.registered && r.refusal == "" }

// step reports, or reads the view, if there is reason to.
func (r *reporter) step(now time.Duration) {
	if r.busy[workReport] || !r.due && !r.urgent && !r.reread {
		return
	}
	if r.refusal != "" && !r.due {
		r.reread = false
		return
	}
	if now < r.notBefore {
		r.wakeBy(r.notBefore)
		return
	}
	report, urgent := r.due || r.urgent, r.urgent
	var rec shard.Record
	if report {
		rec = r.record(now)
		if !urgent && !r.reread && r.canWait(rec, now) {
			r.due = false
			return
		}
		r.sent++
	}
	r.due, r.urgent, r.reread = false, false, false
	r.background(workReport, r.cfg.storeTimeout(), func(ctx context.Context) func() {
		var v shard.View
		var err error
		asked := r.now()
		if report {
			v, err = r.cfg.Registry.Report(ctx, rec, urgent)
		} else {
			v, err = r.cfg.Registry.ReadView(ctx, r.cfg.Shard)
		}
		return func() {
			if report && (err == nil || errors.Is(err, shard.ErrTaken)) {
				r.lastOK = asked
			}
			if err == nil || errors.Is(err, shard.ErrTaken) || errors.Is(err, shard.ErrNotFound) {
				r.answeredAt = asked
			}
			if report && err == nil {
				r.acceptedGist = rec.Gist()
			}
			r.finish(v, report, err)
			if err != nil && urgent {
				r.urgent = !errors.Is(err, shard.ErrTaken)
			}
		}
	})
}

// canWait reports whether a report can wait for the next interval: nothing happens in the shard, it says what the one
// before said, and another that is lost would leave enough of T.
func (r *reporter) canWait(rec shard.Record, now time.Duration) bool {
	i, row := r.cfg.Timing.Interval, r.view.Row
	p, _ := r.view.Node(row.Primary)
	calm := row.Plan == nil && row.Request == nil && p.Condition == shard.Up && p.Role == shard.Primary && p.Fence != shard.Closed && !r.watch.takeable
	return calm && r.watching.Load() && r.registered && r.failing == 0 && 4*i <= r.cfg.Timing.Timeout &&
		now < r.lastOK+QuietIntervals*i-i/2 && reflect.DeepEqual(rec.Gist(), r.acceptedGist)
}

// finish takes the answer of the store.
func (r *reporter) finish(v shard.View, report bool, err error) {
	now := r.now()
	switch {
	case err == nil:
		if r.failing != 0 {
			r.log.Info(lease.StoreAnswers, "after", now-r.failing)
		}
		if r.failing != 0 || r.steadySince == 0 {
			r.steadySince = now
		}
		r.failing = 0
		r.retry.Reset()
		if report {
			r.registered, r.refusal = true, ""
			r.releaseWaiters()
		}
		r.accept(v, now)
	case errors.Is(err, shard.ErrTaken) || errors.Is(err, lease.ErrInvalid):
		if r.refusal == "" {
			r.log.Error("node cannot be registered; nothing is done with it", "err", err)
		}
		r.refusal = err.Error()
		r.publish()
	case errors.Is(err, shard.ErrNotFound):
		r.failing, r.notBefore = 0, now+rereadSoon
	default:
		if r.failing == 0 {
			r.failing = now
			r.log.Warn("store does not answer", "err", err)
		}
		r.notBefore, r.due = now+r.retry.Next(), true
	}
}

func (r *reporter) releaseWaiters() {
	r.waiters = slices.DeleteFunc(r.waiters, func(w reportWaiter) bool {
		if w.after < r.sent {
			close(w.done)
		}
		return w.after < r.sent
	})
}

// rereadAfter has the view read when the last one is that old.
func (r *reporter) rereadAfter(age, now time.Duration) {
	if due := r.view.at + age; now >= due {
		r.reread = true
	} else {
		r.wakeBy(due)
	}
}

// waitAccepted returns when a report that was sent after the call was accepted.
func (r *reporter) waitAccepted(ctx context.Context) error {
	done := make(chan struct{})
	ok := r.runInLoop(func() {
		r.waiters = append(r.waiters, reportWaiter{after: r.sent, done: done})
		r.urgent = true
	})
	if !ok {
		return errStopped
	}
	select {
	case <-done:
		return nil
	case <-r.ended:
		return errStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// readNow returns a view that was read after the call, from another goroutine.
func (r *reporter) readNow(ctx context.Context) (shard.View, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.storeTimeout())
	defer cancel()
	v, err := r.cfg.Registry.ReadView(ctx, r.cfg.Shard)
	if err != nil && !errors.Is(err, shard.ErrNotFound) {
		return shard.View{}, err
	}
	now := r.now()
	if err == nil && !r.runInLoop(func() { r.accept(v, now) }) {
		return shard.View{}, errStopped
	}
	return v, nil
}

// watchStore wakes the loop when the store says that something happened.
func (r *reporter) watchStore(ctx context.Context) {
	const first, most = 50 * time.Millisecond, 5 * time.Second
	for retry := r.cfg.retry(first, most); ; {
		started := r.now()
		err := r.cfg.Registry.Watch(ctx, r.cfg.Shard, func(string) {
			r.watching.Store(true)
			notify(r.woken)
		})
		r.watching.Store(false)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errors.ErrUnsupported):
			lease.Sleep(ctx, r.clock, lease.UnsupportedRetry)
			continue
		}
		r.log.Debug("watch broke; polling goes on", "err", err)
		if r.now()-started > most {
			retry.Reset()
		}
		if !lease.Sleep(ctx, r.clock, retry.Next()) {
			return
		}
	}
}
