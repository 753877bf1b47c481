package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// orchestrate carries out what the planner wants done next, if this agent is the one to do it.
func (a *Agent) orchestrate(now time.Duration) {
	s := &a.s
	row := s.view.Row
	fresh := s.viewAt != 0 && now-s.viewAt <= a.cfg.Timing.Timeout
	switch {
	case row.Rev == 0 || !fresh || s.stale || s.failing != 0 || now < s.promised:
		return
	case row.Plan == nil && row.Request == nil && s.wellSince != s.began && now < s.wellSince+a.cfg.Timing.Timeout:
		// The store was away: first everybody has to report again.
		s.by(s.wellSince + a.cfg.Timing.Timeout)
		return
	}
	sight := Sight{Node: a.id, Instance: a.instance.ID, Over: s.over, PhaseFor: now - s.phase.since, Orchestrating: a.leads()}
	if s.over {
		sight.OverFor = now - s.overSince
		sight.Fenced = s.fenced.epoch == row.Epoch && s.fenced.at >= s.overSince
	}
	act := Next(s.view, sight, a.cfg.Policy)
	switch {
	case act.Blocked == "":
		s.blocked.over()
	case s.blocked.due(wording(act.Blocked), now):
		a.log.Error(act.Blocked)
	}
	s.action = act
	if act.Wait > 0 {
		s.by(now + max(act.Wait, time.Millisecond))
		if act.Finding.Wait > 0 && act.Finding.Wait <= act.Wait {
			// More slowly as it goes on.
			age := max(act.Finding.Wait, (now-s.overSince)/8)
			a.lookAgain(now, min(age, a.cfg.Timing.Interval/2))
		}
	}
	switch {
	case !act.Lock:
		a.unlock()
	case !sight.Orchestrating:
		a.pickLock(now)
	default:
		a.direct(act, now)
	}
}

// leads tells that the agent holds the failover lock of the present primary.
func (a *Agent) leads() bool {
	l := a.s.lock
	return l.mine != "" && l.primary == a.s.view.Row.Primary
}

// direct is what the orchestrator does: the lock is renewed, and the action carried out.
func (a *Agent) direct(act Action, now time.Duration) {
	s := &a.s
	if now >= s.lock.renewed+a.cfg.Timing.Interval {
		a.setLock(now, s.lock.mine)
	}
	if d := act.Decide; d != nil && !s.busy["decide"] {
		a.decideAsync(*d)
		return
	}
	if due := s.fencedAt + a.cfg.Timing.Interval/2; act.FenceAt != "" && now < due {
		s.by(due)
	} else if act.FenceAt != "" && !s.busy["fence"] {
		s.fencedAt = now
		epoch := s.view.Row.Epoch
		a.job("fence", a.cfg.Policy.Patience, func(ctx context.Context) func() {
			node := a.cfg.Engines.At(act.FenceAt)
			defer func() { _ = node.Close() }()
			err := a.each(ctx, func(ctx context.Context) error { return node.SetFence(ctx, Closed, 0) })
			if err != nil {
				a.log.Warn("the old primary could not be fenced from here", "address", act.FenceAt, "err", err)
				return nil
			}
			return func() { s.fenced.epoch, s.fenced.at = epoch, now }
		})
	}
	a.send(act.Send, now)
}

// send sends the commands that have had no answer for a while.
func (a *Agent) send(all []Command, now time.Duration) {
	s := &a.s
	again := a.cfg.Policy.Patience / 4
	var due []Command
	for _, c := range all {
		at, was := s.sent[c.ID]
		if !was || now >= at+again {
			due = append(due, c)
			s.by(now + again)
		} else {
			s.by(at + again)
		}
	}
	if len(due) == 0 || s.busy["send"] {
		return
	}
	a.noteSent(due, now)
	a.job("send", a.cfg.call(), func(ctx context.Context) func() {
		if err := a.cfg.Commands.Send(ctx, due...); err != nil {
			a.log.Warn("commands could not be sent; trying again", "err", err)
		}
		return nil
	})
}

// noteSent remembers when commands were sent, those of one epoch at a time.
func (a *Agent) noteSent(c []Command, now time.Duration) {
	for id := range a.s.sent {
		if len(a.s.sent) > 4*MaxMembers {
			delete(a.s.sent, id)
		}
	}
	for _, c := range c {
		a.s.sent[c.ID] = now
	}
}

// decideAsync takes a decision of the planner.
func (a *Agent) decideAsync(d Decision) {
	s := &a.s
	before := s.view.Row.Plan
	phaseFor := a.cfg.Clock.Now() - s.phase.since
	a.job("decide", a.cfg.call(), func(ctx context.Context) func() {
		rev, err := a.cfg.Registry.Decide(ctx, d)
		return func() {
			s.look = true
			switch {
			case err == nil:
				d.Row.Rev = rev
				a.tellPlan(before, d.Row, phaseFor)
				a.noteSent(d.Commands, a.cfg.Clock.Now())
				a.decided(d.Row)
			case errors.Is(err, ErrChanged):
				s.stale = true
				a.log.Debug("the row was changed by another")
			default:
				s.stale = true
				a.log.Warn("a decision could not be taken; looking again", "err", err)
				s.notBefore = a.cfg.Clock.Now() + a.cfg.Jitter(a.cfg.Timing.Interval/8)
			}
		}
	})
}

// tellPlan logs what became of the plan.
func (a *Agent) tellPlan(before *Plan, row Row, took time.Duration) {
	p := row.Plan
	switch {
	case p == nil && row.Last != nil && before != nil:
		a.log.Info("the plan is over", "epoch", row.Last.Epoch, "phase", before.Phase, "took", took, "plan", row.Last.String())
	case p == nil:
	case before == nil || before.Epoch != p.Epoch:
		a.log.Warn("a plan begins", "epoch", p.Epoch, "kind", p.Kind, "phase", p.Phase, "from", p.From, "to", p.To, "why", p.Reason)
		a.s.stats.Plans++
	default:
		a.log.Info("the plan goes on", "epoch", p.Epoch, "phase", p.Phase, "to", p.To, "before", before.Phase, "took", took)
	}
}

// pickLock takes the failover lock: a free one after a little while, so that not all try at once,
// and that of somebody who has been silent for T over.
func (a *Agent) pickLock(now time.Duration) {
	s := &a.s
	l := &s.lock
	if l.pick == 0 {
		l.pick = now + a.cfg.Jitter(min(a.cfg.Timing.Interval/50, 10*time.Millisecond))
	}
	due := l.pick
	if s.view.Lock != "" && s.view.Lock != l.mine {
		due = max(due, l.since+a.cfg.Timing.Timeout)
	}
	if now < due {
		s.by(due)
		return
	}
	a.setLock(now, s.view.Lock)
}

// setLock takes, renews or takes over the lock of the present primary.
func (a *Agent) setLock(now time.Duration, instead string) {
	s := &a.s
	l := &s.lock
	if s.busy["lock"] {
		return
	}
	primary := s.view.Row.Primary
	if l.mine != "" && l.primary != primary {
		a.unlock()
		return
	}
	l.count++
	value := fmt.Sprintf("%s:%d", a.instance.ID, l.count)
	l.try, l.primary, l.renewed, l.pick = value, primary, now, 0
	a.job("lock", a.cfg.call(), func(ctx context.Context) func() {
		err := a.cfg.Registry.Lock(ctx, Lock{Shard: a.cfg.Shard, Primary: primary, Value: value, Instead: instead})
		return func() {
			switch {
			case err == nil:
				l.mine = value
				l.since = a.cfg.Clock.Now()
			case errors.Is(err, ErrLocked):
				if l.mine == instead {
					l.mine = ""
				}
				l.try = ""
				s.look = true
			case errors.Is(err, lease.ErrUnknown):
				l.mine = ""
				s.look = true // which tells whether it is ours
			default:
				l.mine, l.try = "", ""
				s.look = true
			}
		}
	})
}

// unlock gives the lock back.
func (a *Agent) unlock() {
	s := &a.s
	l := &s.lock
	if l.mine == "" || s.busy["lock"] {
		return
	}
	mine, primary := l.mine, l.primary
	l.mine, l.try = "", ""
	a.job("lock", a.cfg.call(), func(ctx context.Context) func() {
		if err := a.cfg.Registry.Unlock(ctx, Lock{Shard: a.cfg.Shard, Primary: primary, Instead: mine}); err != nil {
			a.log.Debug("the failover lock could not be given back; it expires", "err", err)
		}
		return func() { s.look = true }
	})
}
