package agent

import (
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// leaseWatch judges by lease.TakeoverPolicy whether the shard's lease can be taken, whoever holds
// it. It observes the lease all the time, so that a takeover need not count a whole T first.
type leaseWatch struct {
	*common
	lease         lease.Lease
	policy        lease.TakeoverPolicy
	takeable      bool // it is free, or this agent believes that its session has lapsed
	takeableSince time.Duration
}

// observe takes the lease as a reply showed it that was received at now. ownSession is nil unless this
// agent holds the lease.
func (w *leaseWatch) observe(l lease.Lease, ownSession *lease.ActiveSession, now time.Duration) {
	if l.Seen() != w.lease.Seen() {
		w.takeable = false
	}
	w.lease = l
	reserved := l.Reserved > 0 && !w.instance.IsNamed(l.Successor)
	w.policy.Observe(l, now, reserved, w.cfg.Timing.Timeout)
	w.update(ownSession, now)
}

// update records since when the lease can be taken.
func (w *leaseWatch) update(ownSession *lease.ActiveSession, now time.Duration) {
	switch {
	case ownSession != nil && ownSession.Valid():
		w.takeable = false
	case w.lease.Session == "":
		if !w.takeable {
			w.takeable, w.takeableSince = true, now
		}
	case now >= w.policy.Due():
		if !w.takeable {
			w.takeable, w.takeableSince = true, min(now, w.policy.Due())
		}
	default:
		w.takeable = false
		w.wakeBy(w.policy.Due())
	}
}
