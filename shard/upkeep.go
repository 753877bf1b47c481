package shard

import (
	"context"
	"errors"
	"time"
)

// arm arms the fence of a primary once enough replicas acknowledge, and disarms it when
// they do not any more, which the store has to know first.
func (a *Agent) arm(now time.Duration) {
	s := &a.s
	if s.tenure == nil || !a.gate.isOpen() || s.deed != nil || s.busy["arm"] || s.pause.epoch != 0 || s.node.Role != Primary {
		return
	}
	need := max(1, a.cfg.MinReplicas)
	enough := a.acknowledging() >= need
	switch {
	case s.armed && s.node.Fence != Armed && a.gate.seen(s.probedAt):
		a.log.Warn("the fence was disarmed by somebody else")
		s.armed, s.tell = false, true
	case (enough && s.ready >= 2 || a.cfg.MinReplicas > 0) && !s.armed && s.node.Fence != Armed:
		if due := s.arming + a.cfg.Timing.Interval/4; s.arming != 0 && now < due {
			s.by(due)
			return
		}
		s.arming = now
		a.job("arm", a.cfg.exchange(), func(ctx context.Context) func() {
			err := a.gate.set(ctx, Armed, need)
			return func() {
				s.ready = 0
				switch {
				case err == nil:
					s.armed, s.tell, s.node.Fence, s.probeAt = true, true, Armed, 0
					s.unarmed.over()
				case errors.Is(err, ErrUnsupported):
					a.log.Debug("the engine has no fence that could be armed")
				case s.unarmed.due(kindOf(err), a.cfg.Clock.Now()):
					a.log.Warn("the fence could not be armed; trying again", "err", err)
				}
			}
		})
	case s.armed && !enough && a.cfg.MinReplicas == 0 && s.ready <= -2:
		s.armed, s.tell = false, true
	case !s.armed && !enough && s.node.Fence == Armed && a.cfg.MinReplicas == 0:
		a.disarm()
	case !s.armed && enough && s.node.Fence == Armed:
		s.armed, s.tell = true, true
	}
}

// disarm opens the fence, once a report that does not promise it was accepted.
func (a *Agent) disarm() {
	s := &a.s
	if now := a.cfg.Clock.Now(); now < s.disarmed+a.cfg.Timing.Interval {
		return
	}
	s.disarmed = a.cfg.Clock.Now()
	a.job("arm", a.cfg.Timing.Timeout, func(ctx context.Context) func() {
		if err := a.reported(ctx); err != nil {
			return nil // it stays as it is while the store is down
		}
		var still bool
		a.ask(func() { still = !s.armed && s.tenure != nil })
		if !still {
			return nil
		}
		err := a.gate.set(ctx, Open, 0)
		return func() {
			if err == nil {
				s.probeAt = 0
				s.node.Fence, s.tell = Open, true
				a.log.Warn("the fence is disarmed: no replica acknowledges")
			}
		}
	})
}

// acknowledging counts the replicas that keep up.
func (a *Agent) acknowledging() int {
	n := 0
	limit := max(2*a.cfg.Timing.Interval, 2*time.Second)
	for _, f := range a.s.node.Followers {
		if f.Online && f.Lag <= limit {
			n++
		}
	}
	return n
}

// countReady counts rounds with and without enough replicas, once for each probe.
func (a *Agent) countReady() {
	s := &a.s
	if a.acknowledging() >= max(1, a.cfg.MinReplicas) {
		s.ready = max(s.ready, 0) + 1
	} else {
		s.ready = min(s.ready, 0) - 1
	}
}

// upkeep keeps the members as they are and the lineage as it is called, which is the primary's to do.
func (a *Agent) upkeep(now time.Duration) {
	s := &a.s
	if s.tenure == nil || !s.tenure.live.Valid() || s.deed != nil || s.failing != 0 || s.busy["admit"] ||
		s.view.Row.Primary != a.id || s.view.Row.Plan != nil || now < s.admitted+a.cfg.Timing.Interval/4 {
		return
	}
	row, changed := s.view.Admit(max(0, a.cfg.ForgetAfter))
	if a.folder.memory().GoesOn(s.node) {
		renamed, news := row.Rename(s.node.Lineage, s.node.Txn)
		row, changed = renamed, changed || news
	}
	if !changed {
		return
	}
	s.admitted = now
	s.pendings = append(s.pendings, row.Members...)
	a.job("admit", a.cfg.call(), func(ctx context.Context) func() {
		rev, err := a.cfg.Registry.Decide(ctx, Decision{Row: row})
		return func() {
			s.look = true
			if err == nil {
				row.Rev = rev
				a.decided(row)
			}
		}
	})
}

// remember keeps what the node has, so that it is known again after a restart.
func (a *Agent) remember(now time.Duration) {
	s := &a.s
	m := a.folder.memory()
	if epoch := max(m.Epoch, s.view.Row.Epoch); epoch > m.Epoch {
		if err := a.folder.raise(epoch); err != nil {
			a.unkept(err, now)
			return
		}
	}
	if !s.answered || s.fresh || s.view.Row.Primary == a.id && s.node.Role == Replica {
		return // a primary that was restarted as a replica is to be known as such until it goes on
	}
	holding := s.tenure != nil && a.gate.isOpen() && a.holding()
	next := m.Note(s.node, holding)
	moved := m.Lineage.ID != next.Lineage.ID || m.Run != next.Run || m.Copying != next.Copying || (m.Keys == 0) != (next.Keys == 0)
	if next == m || !moved && now-s.kept < max(time.Second, a.cfg.Timing.Interval) {
		return
	}
	s.kept = now
	err := a.folder.change(false, func(m *Memory) { *m = m.Note(s.node, holding) })
	if err != nil {
		a.unkept(err, now)
		return
	}
	s.unkept.over()
}

func (a *Agent) unkept(err error, now time.Duration) {
	if a.s.unkept.due("data folder", now) {
		a.log.Error("the data folder cannot be written", "err", err)
	}
}
