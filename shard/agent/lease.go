package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// heldLease is the shard's lease as this agent holds it.
type heldLease struct {
	lease   lease.Lease
	session *lease.ActiveSession
}

// shardLease takes and releases the shard's lease under the agent's session. The kernel keeps the session
// ([lease.Keeper]) and rules when a lapse may be believed ([lease.TakeoverPolicy]). The kernel's contender
// does not take the lease here, for two reasons: it would count a whole T from its first look, which the
// agent has already observed, and a switchover may take only a lease that was released for it.
type shardLease struct {
	*common
	sessions *sessions
	trust    *trust
	watch    *leaseWatch
	view     *viewCache
	held     *heldLease // nil: it is not held. The loop's
}

// session is that of the lease as long as it is held, nil otherwise.
func (l *shardLease) session() *lease.ActiveSession {
	if l.held == nil {
		return nil
	}
	return l.held.session
}

// isValid reports whether the lease is held under a session that is trusted.
func (l *shardLease) isValid() bool { return l.held != nil && l.held.session.Valid() }

// update forgets a lease whose session has lapsed, and judges whether the lease can be taken.
func (l *shardLease) update(now time.Duration) {
	if l.held != nil {
		select {
		case <-l.held.session.Done():
			l.held = nil
			l.log.Warn("session with the shard's lease has ended")
		default:
		}
	}
	l.watch.update(l.session(), now)
}

// isHeldNow is isValid for other goroutines.
func (l *shardLease) isHeldNow() (held bool) {
	l.runInLoop(func() { held = l.isValid() })
	return held
}

// acquire takes the shard's lease, waiting until it can be had or ctx ends. With namedOnly it is taken only if its holder
// named this agent when it released it, as [reconciler.yieldLease] does. One that has lapsed can look released: the store ends
// a session when a late renewal finds it lapsed, and so does its own agent, however long its node was open.
func (l *shardLease) acquire(ctx context.Context, namedOnly bool) error {
	if l.isHeldNow() {
		return nil
	}
	s := l.sessions.start()
	pause := l.cfg.Timing.Interval / 8
	for {
		// Less trust would end before the fence can be opened and closed again.
		live, err := s.waitTrusted(ctx, l.cfg.margin()+l.cfg.nodeTimeout())
		if err != nil {
			return fmt.Errorf("waiting for a session: %w", err)
		}
		held, err := l.claim(ctx, live, namedOnly)
		switch {
		case err == nil:
			return l.install(ctx, s, held, live)
		case ctx.Err() != nil:
			return fmt.Errorf("taking the lease: %w", context.Cause(ctx))
		case errors.Is(err, lease.ErrInvalid):
			return err
		}
		if err := l.waitForChange(ctx, pause); err != nil {
			return err
		}
	}
}

// waitForChange waits for a new view, which a release brings, or until the lease can be taken; at most a pause.
func (l *shardLease) waitForChange(ctx context.Context, pause time.Duration) error {
	var replaced <-chan struct{}
	var due time.Duration
	if !l.runInLoop(func() { replaced, due = l.view.replaced, l.watch.policy.Due() }) {
		return errStopped
	}
	now := l.now()
	wait := pause/2 + l.cfg.Jitter(pause)
	if due > now {
		wait = min(wait, due-now)
	}
	timer, stop := l.clock.Timer(wait)
	defer stop()
	select {
	case <-ctx.Done():
	case <-replaced:
	case <-timer:
	}
	return nil
}

// claim asks for the lease once, if the takeover policy allows it, and reads back an unknown outcome.
func (l *shardLease) claim(ctx context.Context, live *lease.ActiveSession, namedOnly bool) (lease.Lease, error) {
	id := shard.LeaseID(l.cfg.Shard)
	ctx, cancel := context.WithTimeout(ctx, l.cfg.storeTimeout())
	defer cancel()
	var seen lease.Seen
	var waited, early bool
	ok := l.runInLoop(func() {
		now := l.now()
		seen, waited = l.watch.policy.Expectation(now)
		last := l.watch.lease
		// This agent's own earlier session cannot act any more: no need to wait for its end.
		early = (l.watch.policy.Due() > now || namedOnly && !l.instance.IsNamed(last.Successor)) && last.Holder.ID != l.instance.ID
	})
	if !ok {
		return lease.Lease{}, errStopped
	}
	if early {
		got, err := l.cfg.Leases.Get(ctx, id)
		if err == nil {
			l.observe(got)
			err = lease.ErrHeld
		}
		return got, err
	}
	got, err := l.cfg.Leases.Acquire(ctx, lease.Expectation{Lease: id, Session: live.ID(), Seen: seen, Waited: waited})
	if errors.Is(err, lease.ErrUnknown) {
		got, err = l.cfg.Leases.Get(ctx, id)
		if err == nil && (got.Session != live.ID() || got.Ended) {
			err = lease.ErrHeld
		}
	}
	if err == nil || errors.Is(err, lease.ErrHeld) {
		l.observe(got)
	}
	return got, err
}

// observe takes the lease as the store showed it just now.
func (l *shardLease) observe(got lease.Lease) {
	now := l.now()
	l.runInLoop(func() { l.watch.observe(got, l.session(), now) })
}

// install records a lease that was taken. From then on the agent's trust rests on its session.
func (l *shardLease) install(ctx context.Context, s *session, held lease.Lease, live *lease.ActiveSession) error {
	ok := l.runInLoop(func() { l.held = &heldLease{lease: held, session: live} })
	if !ok || l.sessions.get() != s {
		return errStopped
	}
	l.trust.update(func(t *trust) { t.session = live })
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	return nil
}

// giveUp releases the lease and ends the session. The fence must be closed, or the node dead.
func (l *shardLease) giveUp(ctx context.Context, successor, reason string) {
	var held *heldLease
	if !l.runInLoop(func() { held, l.held = l.held, nil }) {
		held = nil
	}
	l.trust.update(func(t *trust) { t.session, t.promised = nil, 0 })
	if held != nil {
		l.release(ctx, held, successor, reason)
	}
	l.sessions.end()
}

// release tries until the session would have lapsed.
func (l *shardLease) release(ctx context.Context, held *heldLease, successor, reason string) {
	timing := l.cfg.Timing
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timing.Timeout)
	defer cancel()
	for retry := l.cfg.retry(timing.Interval/8, timing.Interval); ; {
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, l.cfg.storeTimeout())
			defer cancel()
			return l.cfg.Leases.Release(ctx, lease.ReleaseRequest{
				Lease: held.lease.ID, Session: held.lease.Session, Term: held.lease.Term,
				Successor: successor, Reserve: timing.Interval, Reason: lease.TruncateReason(reason),
			})
		}()
		if err == nil || errors.Is(err, lease.ErrNotHeld) || errors.Is(err, lease.ErrInvalid) {
			return
		}
		if !lease.Sleep(ctx, l.clock, retry.Next()) {
			l.log.Warn("lease could not be released; it will lapse", "err", err)
			return
		}
	}
}
