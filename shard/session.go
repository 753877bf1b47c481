package shard

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// session is the agent's own in the store, kept only while its node is, or is about to
// become, the primary. It is renewed only after the node has answered a write probe.
type session struct {
	keeper *lease.Keeper
	cancel context.CancelFunc
	done   chan struct{}

	vouched atomic.Int64 // clock reading before the last probe that was answered
	unwell  atomic.Int64 // … since when the node cannot write; 0: it can
}

// tenure is the shard's lease as this agent holds it.
type tenure struct {
	lease lease.Lease
	live  *lease.Live
}

// sit returns the agent's session, and begins it if there is none.
func (a *Agent) sit() *session {
	a.sessionMu.Lock()
	defer a.sessionMu.Unlock()
	if a.session != nil {
		return a.session
	}
	s := &session{done: make(chan struct{})}
	vouch := a.cfg.Engines.At(a.cfg.Node)
	keeper, err := lease.NewKeeper(lease.KeeperConfig{
		Store: &a.leases, Instance: a.instance, Timing: a.cfg.Timing, Clock: a.cfg.Clock, Logger: a.log, Jitter: a.cfg.Jitter,
		Vouch: func(ctx context.Context) error { return a.vouch(ctx, s, vouch) },
	})
	if err != nil {
		panic("shard: " + err.Error()) // New has checked all of it
	}
	ctx, cancel := context.WithCancel(a.ctx)
	s.keeper, s.cancel = keeper, cancel
	a.session = s
	a.wg.Go(func() {
		defer close(s.done)
		defer func() { _ = vouch.Close() }()
		defer cancel()
		if err := keeper.Run(ctx); err != nil {
			a.log.Error("the session cannot be kept", "err", err)
		}
	})
	return s
}

// vouch tells whether the node is well enough to keep its session: it answers, be it that it
// refuses because of its own fence, or cannot write.
func (a *Agent) vouch(ctx context.Context, s *session, node Engine) error {
	now := a.cfg.Clock.Now()
	err := a.tryWrite(ctx, node)
	switch {
	case err == nil || errors.Is(err, ErrNodeRefused):
		s.unwell.Store(0)
	case errors.Is(err, ErrNodeUnwell):
		s.unwell.CompareAndSwap(0, int64(now))
		a.unwell.Store(err.Error())
	default:
		return err
	}
	s.vouched.Store(int64(now))
	return nil
}

// tryWrite asks the node whether it is well. While its writes are paused a probe has to do.
func (a *Agent) tryWrite(ctx context.Context, node Engine) error {
	if until := time.Duration(a.paused.Load()); until != 0 && a.cfg.Clock.Now() < until {
		_, err := node.Probe(ctx)
		return err
	}
	return node.TryWrite(ctx)
}

// rise ends the session; its leases are released with it. It does not wait.
func (a *Agent) rise() {
	a.sessionMu.Lock()
	s := a.session
	a.session = nil
	a.sessionMu.Unlock()
	a.trust.set(func(t *trust) { t.live = nil })
	if s != nil {
		s.cancel()
	}
}

// seated returns the session, nil if there is none.
func (a *Agent) seated() *session {
	a.sessionMu.Lock()
	defer a.sessionMu.Unlock()
	return a.session
}

// takeLease takes the shard's lease, waiting until it can be had or ctx ends.
// With released it is not taken from a holder whose session has lapsed.
func (a *Agent) takeLease(ctx context.Context, released bool) error {
	if a.holds() {
		return nil
	}
	s := a.sit()
	pause := a.cfg.Timing.Interval / 8
	for {
		live, err := s.trusted(ctx, a.cfg.margin()+a.cfg.exchange())
		if err != nil {
			return fmt.Errorf("waiting for a session: %w", err)
		}
		held, err := a.claim(ctx, live, released)
		switch {
		case err == nil:
			return a.install(ctx, s, held, live)
		case ctx.Err() != nil:
			return fmt.Errorf("taking the lease: %w", context.Cause(ctx))
		case errors.Is(err, lease.ErrInvalid):
			return err
		}
		// A release wakes the view; the pause is for all else.
		var changed <-chan struct{}
		var due time.Duration
		if !a.ask(func() { changed, due = a.s.viewed, a.s.patience.Due() }) {
			return errStopped
		}
		now := a.cfg.Clock.Now()
		wait := pause/2 + a.cfg.Jitter(pause)
		if due > now {
			wait = min(wait, due-now)
		}
		timer, stop := a.cfg.Clock.Timer(wait)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer:
		}
		stop()
	}
}

// install makes a lease that was taken the agent's tenure.
func (a *Agent) install(ctx context.Context, s *session, held lease.Lease, live *lease.Live) error {
	ok := a.ask(func() {
		a.s.tenure = &tenure{lease: held, live: live}
		a.s.heldSince = a.cfg.Clock.Now()
	})
	if !ok || a.seated() != s {
		return errStopped
	}
	a.trust.set(func(t *trust) { t.live = live })
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	return nil
}

// trusted waits for a session that is believed in for longer than margin.
func (s *session) trusted(ctx context.Context, margin time.Duration) (*lease.Live, error) {
	for {
		live, err := s.keeper.Session(ctx)
		if err != nil {
			return nil, err
		}
		_, changed := live.Until()
		if live.Remaining() > margin {
			return live, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-s.done:
			return nil, errStopped
		case <-live.Done():
		case <-changed:
		}
	}
}

// claim asks for the lease once, as patience allows, and reads back what is unknown.
func (a *Agent) claim(ctx context.Context, live *lease.Live, released bool) (lease.Lease, error) {
	id := LeaseOf(a.cfg.Shard)
	ctx, cancel := context.WithTimeout(ctx, a.cfg.call())
	defer cancel()
	var seen lease.Seen
	var waited, early bool
	ok := a.ask(func() {
		now := a.cfg.Clock.Now()
		seen, waited = a.s.patience.Claim(now)
		l := a.s.lease
		// Of one's own earlier session nobody has to be afraid.
		early = (a.s.patience.Due() > now || released && !l.Free()) && l.Holder.ID != a.instance.ID
	})
	if !ok {
		return lease.Lease{}, errStopped
	}
	if early {
		l, err := a.cfg.Leases.Get(ctx, id)
		if err == nil {
			a.observe(l)
			err = lease.ErrHeld
		}
		return l, err
	}
	l, err := a.cfg.Leases.Acquire(ctx, lease.Claim{Lease: id, Session: live.ID(), Seen: seen, Waited: waited})
	if errors.Is(err, lease.ErrUnknown) {
		l, err = a.cfg.Leases.Get(ctx, id)
		if err == nil && (l.Session != live.ID() || l.Ended) {
			err = lease.ErrHeld
		}
	}
	if err == nil || errors.Is(err, lease.ErrHeld) {
		a.observe(l)
	}
	return l, err
}

// observe takes in the lease as the store showed it just now.
func (a *Agent) observe(l lease.Lease) {
	now := a.cfg.Clock.Now()
	a.ask(func() { a.s.see(a, l, now) })
}

// yield gives the lease up and ends the session. The fence must be closed, or the node dead.
// It tries until the session would have lapsed.
func (a *Agent) yield(ctx context.Context, successor, reason string) {
	var t *tenure
	if !a.ask(func() { t, a.s.tenure = a.s.tenure, nil }) {
		t = nil
	}
	a.trust.set(func(t *trust) { t.live, t.promised = nil, 0 })
	if t != nil {
		a.release(ctx, t, successor, reason)
	}
	a.rise()
}

func (a *Agent) release(ctx context.Context, t *tenure, successor, reason string) {
	timing := a.cfg.Timing
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timing.Timeout)
	defer cancel()
	for pause := timing.Interval / 8; ; pause = min(2*pause, timing.Interval) {
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, a.cfg.call())
			defer cancel()
			return a.cfg.Leases.Release(ctx, lease.Handback{
				Lease: t.lease.ID, Session: t.lease.Session, Term: t.lease.Term,
				Successor: successor, Reserve: timing.Interval, Reason: lease.CutReason(reason),
			})
		}()
		if err == nil || errors.Is(err, lease.ErrNotHeld) || errors.Is(err, lease.ErrInvalid) {
			return
		}
		if !lease.Sleep(ctx, a.cfg.Clock, pause/2+a.cfg.Jitter(pause)) {
			a.log.Warn("the lease could not be released; it will lapse", "err", err)
			return
		}
	}
}

// leases is the store as the keeper sees it: after a crash nobody ends sessions.
type leases struct {
	lease.Store
	crashed atomic.Bool
}

// EndSession ends the session, unless the agent is abandoned.
func (l *leases) EndSession(ctx context.Context, id, reason string) error {
	if l.crashed.Load() {
		return fmt.Errorf("%w: the agent is abandoned", lease.ErrInvalid)
	}
	return l.Store.EndSession(ctx, id, reason)
}
