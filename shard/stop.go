package shard

import (
	"context"
	"errors"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// handOver begins to stop. A primary that this agent supervises asks for a switchover
// first, if a replica can take its place.
func (a *Agent) handOver() {
	s := &a.s
	now := a.cfg.Clock.Now()
	s.leaving = now
	if a.cfg.Process == nil || s.view.Row.Primary != a.id || !a.gate.isOpen() || s.failing != 0 {
		s.letGo = true
		return
	}
	if best, _ := choose(s.view, choice{from: a.id}); best == "" {
		s.letGo = true
		return
	}
	v := s.view
	a.job("handover", a.cfg.call(), func(ctx context.Context) func() {
		row := v.Row.Copy()
		id := lease.NewID()
		if row.Request == nil && row.Plan == nil {
			row.Request = &Request{ID: id, Kind: Switchover, By: "the agent of " + a.cfg.Announced + ", which stops", At: v.Now}
			if _, err := a.cfg.Registry.Decide(ctx, Decision{Row: row}); err != nil && !errors.Is(err, ErrChanged) {
				return func() { s.letGo = true }
			}
		}
		return func() { s.look, s.handover = true, id }
	})
}

// left tells that nothing keeps the agent any more.
func (s *state) left(now time.Duration) bool {
	if s.leaving == 0 {
		return false
	}
	s.by(now + 50*time.Millisecond)
	row := s.view.Row
	if last := row.Last; last != nil && s.handover != "" && last.Request == s.handover && last.Failed != "" {
		return true
	}
	return s.letGo || now-s.leaving > 2*DefaultPause || s.failing != 0 || s.gone != 0 ||
		row.Request == nil && row.Plan == nil && s.view.Row.Primary != "" && !s.busy["handover"] && s.deed == nil && s.tenure == nil
}

// leave ends what the agent holds. The loop has ended.
func (a *Agent) leave(ctx context.Context) {
	s := &a.s
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timing.Timeout)
	defer cancel()
	now := a.cfg.Clock.Now()
	if d := s.deed; d != nil {
		d.cancel(errStopped)
	}
	if a.cfg.Process != nil && a.gate.isOpen() && s.gone == 0 {
		if err := a.gate.shut(ctx); err != nil {
			a.log.Warn("the fence could not be closed; the session lapses by itself", "err", err)
			return
		}
		s.node.Fence = Closed
	}
	if s.registered && s.refused == "" {
		s.trouble = "its agent has stopped"
		r := a.record(now)
		r.Timeout = Gone
		_, err := a.cfg.Registry.Report(ctx, r, false)
		if err != nil {
			a.log.Debug("the last report was not accepted", "err", err)
		}
	}
	if l := s.lock; l.mine != "" {
		_ = a.cfg.Registry.Unlock(ctx, Lock{Shard: a.cfg.Shard, Primary: l.primary, Instead: l.mine})
	}
	if t := s.tenure; t != nil {
		s.tenure = nil
		a.release(ctx, t, "", "its agent has stopped")
	}
}
