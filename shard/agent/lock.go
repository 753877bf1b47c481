package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// failoverLock is the lock that makes one agent the orchestrator. Its value changes with each renewal, so that
// everyone sees on a clock of their own whether the holder is alive.
type failoverLock struct {
	*common
	view   *viewCache
	report *reporter

	seen      string        // value in the view
	seenSince time.Duration // when it changed
	heldValue string        // value under which this agent holds it, "" if it does not
	trying    string        // value that a call under way, or one with an unknown outcome, sets
	renewing  string        // … in place of this one of this agent's own
	primary   string        // on whose lock
	renewedAt time.Duration
	count     int64
	tryAt     time.Duration // when to take it; 0: not decided
}

// observe records when the lock last moved.
func (l *failoverLock) observe(now time.Duration) {
	if l.seen != l.view.Lock || l.seenSince == 0 {
		l.seen, l.seenSince, l.tryAt = l.view.Lock, now, 0
	}
}

// recognise holds the lock if the view shows what a call set whose answer was lost, or what it was to renew.
func (l *failoverLock) recognise() {
	if l.view.Lock != "" && (l.view.Lock == l.trying || l.view.Lock == l.renewing) {
		l.heldValue = l.view.Lock
	}
}

// isHeld reports whether the agent holds the lock of the present primary.
func (l *failoverLock) isHeld() bool { return l.heldValue != "" && l.primary == l.view.Row.Primary }

// forget drops the claim to the lock without a call to the store: others take it over after T.
func (l *failoverLock) forget() { l.heldValue, l.trying, l.renewing = "", "", "" }

// tryTake takes the lock after a little while, so that not all agents try at once. One that another agent holds it
// takes over only when that agent has not renewed it for T.
func (l *failoverLock) tryTake(now time.Duration) {
	if l.tryAt == 0 {
		l.tryAt = now + l.cfg.Jitter(min(l.cfg.Timing.Interval/50, 10*time.Millisecond))
	}
	due := l.tryAt
	if l.view.Lock != "" && l.view.Lock != l.heldValue {
		due = max(due, l.seenSince+l.cfg.Timing.Timeout)
	}
	if now < due {
		l.wakeBy(due)
		return
	}
	l.set(now, l.view.Lock)
}

// renew renews the lock every interval.
func (l *failoverLock) renew(now time.Duration) {
	if now >= l.renewedAt+l.cfg.Timing.Interval {
		l.set(now, l.heldValue)
	}
}

// set takes, renews or takes over the lock of the present primary.
func (l *failoverLock) set(now time.Duration, instead string) {
	if l.busy[workFailoverLock] {
		return
	}
	primary := l.view.Row.Primary
	if l.heldValue != "" && l.primary != primary {
		l.release()
		return
	}
	l.count++
	value := fmt.Sprintf("%s:%d", l.instance.ID, l.count)
	l.trying, l.renewing, l.primary, l.renewedAt, l.tryAt = value, l.heldValue, primary, now, 0
	l.background(workFailoverLock, l.cfg.storeTimeout(), func(ctx context.Context) func() {
		err := l.cfg.Registry.Lock(ctx, shard.Lock{Shard: l.cfg.Shard, Primary: primary, Value: value, Instead: instead})
		return func() {
			switch {
			case err == nil:
				l.heldValue, l.renewing = value, ""
				l.seenSince = l.now()
				return
			case errors.Is(err, shard.ErrLocked):
				if l.heldValue == instead {
					l.heldValue = ""
				}
				l.trying, l.renewing = "", ""
			case errors.Is(err, lease.ErrUnknown):
				l.heldValue = "" // the next view shows whether it is ours, under the old value or the new one
			default: // nothing was set: what it held it still holds
				l.trying, l.renewing = "", ""
			}
			l.report.reread = true
		}
	})
}

// release gives the lock back.
func (l *failoverLock) release() {
	if l.heldValue == "" || l.busy[workFailoverLock] {
		return
	}
	heldValue, primary := l.heldValue, l.primary
	l.forget()
	l.background(workFailoverLock, l.cfg.storeTimeout(), func(ctx context.Context) func() {
		if err := l.cfg.Registry.Unlock(ctx, shard.Lock{Shard: l.cfg.Shard, Primary: primary, Instead: heldValue}); err != nil {
			l.log.Debug("failover lock could not be given back; others take it over after T", "err", err)
		}
		return func() { l.report.reread = true }
	})
}
