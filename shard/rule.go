package shard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
)

// rule makes the node the primary that it is to be, or keeps it one.
func (a *Agent) rule(b Bearing, now time.Duration) {
	s := &a.s
	if s.deed != nil || s.busy["yield"] || a.ill(now) {
		return
	}
	if now < s.retry {
		s.by(s.retry)
		return
	}
	held := s.tenure != nil && s.tenure.live.Valid()
	if a.gate.isOpen() && s.node.Fence == Closed && a.gate.seen(s.probedAt) && s.pause.epoch == 0 {
		a.log.Warn("the fence was closed by somebody else")
		a.gate.close() // and then opened in order
		return
	}
	if b.Stance == Hold && held && a.gate.isOpen() && s.pause.epoch == 0 {
		s.cut = false
		return
	}
	if s.cut {
		// A store that comes and goes must not open and close the node in turn.
		if steady := s.steady + 2*a.cfg.Timing.Interval; s.failing != 0 || now < steady {
			s.by(max(steady, now+a.cfg.Timing.Interval/4))
			return
		}
	}
	within := 4 * a.cfg.Timing.Timeout
	switch b.Stance {
	case Hold:
		a.do("hold the shard", nil, within, func(ctx context.Context) error { return a.hold(ctx) })
	case Found:
		a.do("found the shard", nil, within, func(ctx context.Context) error { return a.found(ctx) })
	case Resume:
		a.do("resume the shard", nil, within, func(ctx context.Context) error { return a.resume(ctx) })
	}
}

// ill gives the lease up for a node that answers and has not been able to write for T, as long as a
// replica can take its place. Whether it could write again cannot be told behind a closed fence.
func (a *Agent) ill(now time.Duration) bool {
	s := &a.s
	if seat := a.seated(); seat != nil && s.ill == "" {
		since := time.Duration(seat.unwell.Load())
		if since == 0 || now-since < a.cfg.Timing.Timeout {
			return false
		}
		s.ill, _ = a.unwell.Load().(string)
	}
	if s.ill == "" {
		return false
	}
	if best, _ := choose(s.view, choice{from: a.id}); best == "" {
		s.ill = ""
		return false
	}
	s.trouble = s.ill
	s.shun(s.ill)
	a.stepDown(s.ill)
	a.keepClosed()
	return true
}

// hold takes the lease for a primary that the row names, and opens it.
func (a *Agent) hold(ctx context.Context) error {
	if err := a.takeLease(ctx, false); err != nil {
		return err
	}
	v, err := a.looked(ctx)
	if err != nil {
		return err
	}
	if b := Stand(v, a.selfNow()); b.Stance != Hold {
		return fmt.Errorf("the node is not to be the primary any more: %s", b.Why)
	}
	return a.openUp(ctx, true)
}

func (a *Agent) selfNow() Self {
	var me Self
	a.ask(func() { me = a.self(a.cfg.Clock.Now()) })
	return me
}

// found makes the shard.
func (a *Agent) found(ctx context.Context) error {
	if err := a.takeLease(ctx, false); err != nil {
		return err
	}
	if a.selfNow().State.Role == Replica { // of nobody: it was started so
		if err := a.gate.shut(ctx); err != nil {
			return err
		}
		if _, err := a.promoted(ctx); err != nil {
			return err
		}
	}
	secret := rand.Text()
	return a.decideAndOpen(ctx, func(v View) (Decision, error) {
		if v.Row.Rev != 0 {
			return Decision{}, fmt.Errorf("%w: the shard has been made by another", ErrChanged)
		}
		me, _ := v.Node(a.id)
		me.Lineage = a.selfNow().State.Lineage
		return Decision{Row: v.Foundation(me, secret)}, nil
	}, func(r Row) bool { return r.Secret == secret })
}

// resume goes on under a new epoch.
func (a *Agent) resume(ctx context.Context) error {
	if err := a.gate.shut(ctx); err != nil {
		return err
	}
	if _, err := a.promoted(ctx); err != nil {
		return err
	}
	if err := a.takeLease(ctx, false); err != nil {
		return err
	}
	return a.decideAndOpen(ctx, func(v View) (Decision, error) {
		me := a.selfNow()
		if b := Stand(v, me); b.Stance != Resume && b.Stance != Hold {
			return Decision{}, fmt.Errorf("the node is not to go on as the primary any more: %s", b.Why)
		}
		row := v.Reopen(me.State.Lineage)
		e := history.Event{Part: Space, Subject: row.Name, Term: row.Epoch, Reason: lease.CutReason(fmt.Sprintf(
			"%s goes on after a restart; what it had not kept on disk is lost (it had %d keys, and has %d)", a.cfg.Announced, me.Memory.Keys, me.State.Keys))}
		return Decision{Row: row, Event: &e}, nil
	}, nil)
}

// decideAndOpen writes the node into the row and opens it. When it fails, the lease is given up and
// the node stays closed. done knows a row in which an earlier try, whose answer was lost, was
// taken; nil: none can.
func (a *Agent) decideAndOpen(ctx context.Context, edit func(v View) (Decision, error), done func(Row) bool) error {
	err := a.decideOwn(ctx, edit, done)
	if err == nil {
		err = a.openUp(ctx, false)
	}
	if err != nil {
		a.dismiss(ctx, err)
	}
	return err
}

// decideOwn decides as edit says about the view as it is, until the decision is taken.
func (a *Agent) decideOwn(ctx context.Context, edit func(v View) (Decision, error), done func(Row) bool) error {
	for {
		v, err := a.looked(ctx)
		if err != nil {
			return err
		}
		if done != nil && done(v.Row) {
			return nil
		}
		d, err := edit(v)
		if err != nil {
			return err
		}
		if !a.holds() {
			return fmt.Errorf("%w: the shard's lease", lease.ErrLost)
		}
		rev, err := a.decide(ctx, d)
		switch {
		case err == nil:
			d.Row.Rev = rev
			if !a.ask(func() { a.decided(d.Row) }) {
				return errStopped
			}
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, lease.ErrInvalid):
			return err
		case done == nil && errors.Is(err, lease.ErrUnknown):
			return err // the next look tells
		}
		if !lease.Sleep(ctx, a.cfg.Clock, a.cfg.Jitter(a.cfg.Timing.Interval/8)) {
			return context.Cause(ctx)
		}
	}
}

func (a *Agent) decide(ctx context.Context, d Decision) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.call())
	defer cancel()
	return a.cfg.Registry.Decide(ctx, d)
}

// decided takes in a row that this agent has just decided.
func (a *Agent) decided(row Row) {
	s := &a.s
	now := a.cfg.Clock.Now()
	s.rev, s.revAt = row.Rev, now
	s.view.Row = row
	s.trackPlan(now)
	s.look = true
	a.publish(now)
}

// openUp opens or arms the fence of the primary, under trust, once the store knows what holds. A
// node that never was closed is taken over as it is.
func (a *Agent) openUp(ctx context.Context, as bool) error {
	fence, n := Open, 0
	if a.cfg.MinReplicas > 0 {
		fence, n = Armed, a.cfg.MinReplicas
	}
	var open bool
	ok := a.ask(func() {
		seen := a.s.node.Fence
		open = as && (seen == Open || seen == Armed && a.s.armed) && a.gate.seen(a.s.probedAt) && a.s.node.Role == Primary && a.s.pause.epoch == 0
		if !open {
			a.s.armed, a.s.willOpen = false, fence
		}
	})
	if !ok {
		return errStopped
	}
	if err := a.reported(ctx); err != nil {
		return fmt.Errorf("reporting before the fence is opened: %w", err)
	}
	if open {
		return a.gate.adopt()
	}
	if err := a.gate.set(ctx, fence, n); err != nil {
		return fmt.Errorf("opening the fence: %w", err)
	}
	err := a.each(ctx, func(ctx context.Context) error { return a.node.Pause(ctx, 0) })
	if err != nil && !errors.Is(err, ErrUnsupported) {
		a.log.Warn("ending the pause of writes; it ends by itself", "err", err)
	}
	_, err = a.look(ctx)
	a.ask(func() {
		a.s.armed = fence == Armed
		a.s.pause.epoch, a.s.pause.until = 0, 0
		a.paused.Store(0)
		a.s.tell = true
		a.s.stats.Opened++
	})
	return err
}

// promote makes the node the primary that a plan names.
func (a *Agent) promote(ctx context.Context, c Command, plan Plan) error {
	began := a.cfg.Clock.Now()
	call := HookCall{Event: OnPromote, Shard: a.cfg.Shard, Node: a.cfg.Announced, Role: Primary, Epoch: c.Epoch, From: plan.From, To: a.id}
	if err := a.before(ctx, call); err != nil {
		return err
	}
	if err := a.gate.shut(ctx); err != nil {
		return err
	}
	a.sit() // the session takes a moment
	n, err := a.promoted(ctx)
	if err != nil {
		a.dismiss(ctx, err)
		return err
	}
	if err := a.takeLease(ctx, plan.Kind == Switchover); err != nil {
		a.dismiss(ctx, err)
		return err
	}
	err = a.decideAndOpen(ctx, func(v View) (Decision, error) {
		if why := plan.latecomer(v, n.promotedAt()); why != "" {
			return Decision{}, errors.New(why)
		}
		row, err := v.Row.Install(a.id, c.Epoch, n, a.cfg.Clock.Now()-began)
		return Decision{Row: row}, err
	}, func(r Row) bool { return r.Primary == a.id && r.PrimaryEpoch == c.Epoch })
	if err == nil {
		a.after(call)
	}
	return err
}

// dismiss gives up what a promotion that failed has taken. The node stays closed.
func (a *Agent) dismiss(ctx context.Context, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.Timing.Timeout)
	defer cancel()
	if closed := a.gate.shut(ctx); closed == nil {
		a.yield(ctx, "", "it did not become the primary: "+err.Error())
	}
}

// promoted makes the node a primary and returns what it is then.
func (a *Agent) promoted(ctx context.Context) (State, error) {
	n, err := a.look(ctx)
	if err != nil {
		return n, err
	}
	if n.Role != Primary {
		if err := a.each(ctx, a.node.Promote); err != nil {
			return n, err
		}
	}
	for {
		n, err := a.look(ctx)
		if err == nil && n.Role == Primary && !n.Loading {
			return n, nil
		}
		if !lease.Sleep(ctx, a.cfg.Clock, 5*time.Millisecond) {
			return n, fmt.Errorf("waiting for the node to become a primary: %w", context.Cause(ctx))
		}
	}
}
