package agent

import (
	"context"
	"errors"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// stopPoll is how often a stopping agent looks whether its primary has been replaced.
const stopPoll = 50 * time.Millisecond

// shutdown hands a primary over before the agent stops.
type shutdown struct {
	*common
	view      *viewCache
	fence     *fence
	report    *reporter
	process   *supervisor
	reconcile *reconciler

	since   time.Duration // when it started; 0: the agent is not stopping
	done    bool          // nothing is left to hand over
	request string        // id of the request for a switchover
}

// start starts to stop. A primary that stops with this agent hands over first.
func (s *shutdown) start() {
	s.since = s.now()
	s.done = s.cfg.Process == nil && !s.cfg.HandOver || !s.view.isPrimary() || !s.fence.isOpen() || s.report.failing != 0
}

// requestHandOver asks that another take over, in the background.
func (s *shutdown) requestHandOver() {
	v := s.view.View
	s.background(workHandOver, s.cfg.storeTimeout(), func(ctx context.Context) func() {
		id, err := s.requestSwitchover(ctx, v)
		return func() {
			s.done = err != nil
			s.report.reread, s.request = true, id
			if id != "" {
				s.since = s.now() // the wait for the plan before has ended
			}
		}
	})
}

// requestSwitchover asks that another take this primary's place, and returns the request's id: "" if something is under
// way already.
func (s *shutdown) requestSwitchover(ctx context.Context, v shard.View) (id string, err error) {
	for v.Row.Primary == s.id && v.Row.Request == nil && v.Row.Plan == nil {
		row := v.Row.Copy()
		row.Request = &shard.Request{ID: lease.NewID(), Kind: shard.Switchover, By: "the agent of " + s.cfg.Announced + ", which stops", At: v.Now}
		if _, err := s.cfg.Registry.UpdateRow(ctx, shard.RowUpdate{Row: row}); !errors.Is(err, shard.ErrChanged) {
			return row.Request.ID, err
		}
		if v, err = s.cfg.Registry.ReadView(ctx, s.cfg.Shard); err != nil {
			return "", err
		}
	}
	return "", nil
}

// step reports whether nothing keeps the agent any more. Of a primary it requests a switchover, as soon as no plan is under
// way and if a replica can take its place.
func (s *shutdown) step(now time.Duration) (done bool) {
	if s.since == 0 {
		return false
	}
	s.wakeBy(now + stopPoll)
	row := s.view.Row
	storeIsAway := s.report.failing != 0 && now-s.report.failing > s.cfg.Timing.Interval // one slow answer is no reason
	switch last := row.Last; {
	// A switchover that has started pauses writes for at most DefaultPause; as much again is for finding an orchestrator, and
	// a plan that is under way before it gets as long.
	// One that still waits for its replica to come near (awaitReplica in shard/plan_start.go: up to four times DefaultPause)
	// is not waited for: the node is closed, and the others fail over.
	case s.done || now-s.since > 2*shard.DefaultPause || storeIsAway || s.process.goneSince != 0:
		return true
	case last != nil && s.request != "" && last.Request == s.request && last.Failed != "":
		return true // the switchover was refused or failed: nobody takes over
	case s.busy[workHandOver] || row.Request != nil || row.Plan != nil:
		return false
	case s.request == "" && s.view.isPrimary():
		if best, _ := s.view.Successor(s.id); best != "" {
			s.requestHandOver()
			return false
		}
		return true
	}
	return row.Primary != "" && s.reconcile.task == nil && s.reconcile.lease.held == nil
}

// releaseHeld ends what the agent holds. The loop has ended.
func (a *Agent) releaseHeld(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timing.Timeout)
	defer cancel()
	now := a.now()
	if t := a.reconcile.task; t != nil {
		t.cancel(errStopped)
	}
	if a.cfg.Process != nil && a.fence.isOpen() && a.process.goneSince == 0 {
		// Closed before the lease is released, as always.
		if err := a.fence.closeAndWait(ctx); err != nil {
			a.log.Warn("fence could not be closed; the session lapses by itself", "err", err)
			return
		}
		a.probe.state.Fence = shard.Closed
	}
	if a.report.isRegistered() {
		a.report.trouble = "its agent has stopped"
		r := a.record(now)
		r.Timeout = shard.TimeoutStopped
		if _, err := a.cfg.Registry.Report(ctx, r, false); err != nil {
			a.log.Debug("last report was not accepted", "err", err)
		}
	}
	if l := a.lock; l.heldValue != "" {
		_ = a.cfg.Registry.Unlock(ctx, shard.Lock{Shard: a.cfg.Shard, Primary: l.primary, Instead: l.heldValue})
	}
	if held := a.lease.held; held != nil {
		a.lease.held = nil
		a.lease.release(ctx, held, "", "its agent has stopped")
	}
}
