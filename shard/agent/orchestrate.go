package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// orchestrator carries out what the planner ([shard.NextAction]) wants done next, if this agent is the one to
// do it. Times are readings of the agent's clock.
type orchestrator struct {
	*common
	view     *viewCache
	watch    *leaseWatch
	report   *reporter
	promises *promises
	lock     *failoverLock
	peer     *peerProbe

	action  shard.Action
	blocked logLimiter
	phase   struct { // of the plan, and since when
		epoch int64
		phase shard.Phase
		since time.Duration
	}
	sent          map[string]time.Duration // commands, by id
	fenceTriedAt  time.Duration            // when closing the old primary's fence was last tried
	detachTriedAt time.Duration            // … and detaching replicas whose agents are silent
	fenced        struct {                 // the last try that succeeded: under which epoch, and when it was started
		epoch     int64
		startedAt time.Duration
	}
}

// trackPhase records when the plan and the lock last moved.
func (o *orchestrator) trackPhase(now time.Duration) {
	var epoch int64
	var phase shard.Phase
	if p := o.view.Row.Plan; p != nil {
		epoch, phase = p.Epoch, p.Phase
	}
	if o.phase.epoch != epoch || o.phase.phase != phase {
		o.phase.epoch, o.phase.phase, o.phase.since = epoch, phase, now
	}
	o.lock.observe(now)
}

// step asks the planner, and does what it says.
func (o *orchestrator) step(now time.Duration) {
	if !o.mayAct(now) {
		return
	}
	seen := o.observation(now)
	act := shard.NextAction(o.view.View, seen, o.cfg.Policy)
	switch {
	case act.Blocked == "":
		o.blocked.end()
	case o.blocked.shouldLog(withoutDigits(act.Blocked), now):
		o.log.Error("primary is not replaced", "why", act.Blocked)
	}
	o.action = act
	if act.Wait > 0 {
		o.wakeBy(now + max(act.Wait, time.Millisecond))
		if act.Finding.RecheckAfter > 0 && act.Finding.RecheckAfter <= act.Wait {
			// Opinions are missing: read often at first, and less often the longer it takes.
			age := max(act.Finding.RecheckAfter, (now-o.watch.takeableSince)/8)
			o.report.rereadAfter(min(age, o.cfg.Timing.Interval/2), now)
		}
	}
	switch {
	case !act.Lock:
		o.lock.release()
	case !seen.Orchestrating:
		o.lock.tryTake(now)
	default:
		o.carryOut(act, now)
	}
}

// mayAct reports whether the planner may be asked.
func (o *orchestrator) mayAct(now time.Duration) bool {
	row := o.view.Row
	fresh := o.view.at != 0 && now-o.view.at <= o.cfg.Timing.Timeout
	// Do not act on an old view.
	if row.Rev == 0 || !fresh || o.view.stale || o.report.failing != 0 {
		return false
	}
	// A promise forbids it, unless an operator forced a failover.
	if now < o.promises.givenUntil && !row.IsForced() {
		return false
	}
	if since := o.view.unbrokenSince + o.cfg.Timing.Timeout; row.Plan == nil && row.Request == nil && o.view.wasAway && now < since {
		o.wakeBy(since) // first everyone has to report again
		return false
	}
	return true
}

// observation is what this agent knows besides the view.
func (o *orchestrator) observation(now time.Duration) shard.Observation {
	seen := shard.Observation{Node: o.id, Instance: o.instance.ID, LeaseTakeable: o.watch.takeable, StoreSeenFor: now - o.view.unbrokenSince,
		PhaseFor: now - o.phase.since, Orchestrating: o.lock.isHeld()}
	if o.watch.takeable {
		seen.TakeableFor = now - o.watch.takeableSince
		// Only what was closed after the lapse stays closed: its agent may not open it without the lease.
		seen.Fenced = o.fenced.epoch == o.view.Row.Epoch && o.fenced.startedAt >= o.watch.takeableSince
	}
	return seen
}

// carryOut does what the planner says, as the orchestrator.
func (o *orchestrator) carryOut(act shard.Action, now time.Duration) {
	o.lock.renew(now)
	if u := act.Update; u != nil && !o.busy[workUpdateRow] {
		o.updateRow(*u)
		return
	}
	if due := o.fenceTriedAt + o.cfg.Timing.Interval/2; act.FenceAt != "" && now < due {
		o.wakeBy(due)
	} else if act.FenceAt != "" && !o.busy[workFenceOldPrimary] {
		o.fenceOldPrimary(act.FenceAt, now)
	}
	if due := o.detachTriedAt + o.cfg.Timing.Interval/4; len(act.DetachAt) > 0 && now < due {
		o.wakeBy(due)
	} else if len(act.DetachAt) > 0 && !o.busy[workDetachReplicas] {
		o.detachReplicas(act.DetachAt, now)
	}
	o.send(act.Send, now)
}

// detachReplicas has nodes whose agents are silent leave the old primary, so that they do not keep its armed fence
// open. The next peerProbe sees that they left; their agents lead them on when they are back.
func (o *orchestrator) detachReplicas(addresses []string, now time.Duration) {
	o.detachTriedAt = now
	o.background(workDetachReplicas, o.cfg.nodeTimeout(), func(ctx context.Context) func() {
		var all sync.WaitGroup
		for _, address := range addresses {
			all.Go(func() {
				node := o.cfg.Engines.At(address)
				defer func() { _ = node.Close() }()
				if err := node.Follow(ctx, ""); err != nil {
					o.log.Warn("replica could not be detached from here", "address", address, "err", err)
				}
			})
		}
		all.Wait()
		return func() { o.peer.probeSoon() }
	})
}

// fenceOldPrimary closes the fence of a node whose agent does not live.
func (o *orchestrator) fenceOldPrimary(address string, now time.Duration) {
	o.fenceTriedAt = now
	epoch := o.view.Row.Epoch
	o.background(workFenceOldPrimary, o.cfg.Policy.Patience, func(ctx context.Context) func() {
		node := o.cfg.Engines.At(address)
		defer func() { _ = node.Close() }()
		err := o.withNodeTimeout(ctx, func(ctx context.Context) error { return node.SetFence(ctx, shard.Closed, 0) })
		if err != nil {
			o.log.Warn("old primary could not be fenced from here", "address", address, "err", err)
			return nil
		}
		return func() { o.fenced.epoch, o.fenced.startedAt = epoch, now }
	})
}

// send sends the commands that have had no answer for a while.
func (o *orchestrator) send(all []shard.Command, now time.Duration) {
	again := o.cfg.Policy.Patience / 4
	var due []shard.Command
	for _, c := range all {
		at, was := o.sent[c.ID]
		if !was || now >= at+again {
			due = append(due, c)
			o.wakeBy(now + again)
		} else {
			o.wakeBy(at + again)
		}
	}
	if len(due) == 0 || o.busy[workSendCommands] {
		return
	}
	o.recordSent(due, now)
	o.background(workSendCommands, o.cfg.storeTimeout(), func(ctx context.Context) func() {
		if err := o.cfg.Commands.Send(ctx, due...); err != nil {
			o.log.Warn("commands could not be sent; trying again", "err", err)
		}
		return nil
	})
}

// recordSent remembers when commands were sent, those of a few epochs at most.
func (o *orchestrator) recordSent(sent []shard.Command, now time.Duration) {
	for id := range o.sent {
		if len(o.sent) > 4*shard.MaxMembers {
			delete(o.sent, id)
		}
	}
	for _, c := range sent {
		o.sent[c.ID] = now
	}
}

// updateRow writes the row as the planner says.
func (o *orchestrator) updateRow(u shard.RowUpdate) {
	before := o.view.Row.Plan
	phaseFor := o.now() - o.phase.since
	o.background(workUpdateRow, o.cfg.storeTimeout(), func(ctx context.Context) func() {
		rev, err := o.cfg.Registry.UpdateRow(ctx, u)
		return func() {
			o.report.reread = true
			switch {
			case err == nil:
				u.Row.Rev = rev
				o.logPlan(before, u.Row, phaseFor)
				o.recordSent(u.Commands, o.now()) // the store sent them with the update
				o.onRow(u.Row)
			case errors.Is(err, shard.ErrChanged):
				o.view.stale = true
				o.log.Debug("row was changed by another")
			default:
				o.view.stale = true
				o.log.Warn("row could not be updated; reading it again", "err", err)
				o.report.notBefore = o.now() + o.cfg.Jitter(o.cfg.Timing.Interval/8)
			}
		}
	})
}

// logPlan logs what became of the plan.
func (o *orchestrator) logPlan(before *shard.Plan, row shard.Row, took time.Duration) {
	p := row.Plan
	switch {
	case p == nil && row.Last != nil && before != nil:
		o.log.Info("plan ended", "epoch", row.Last.Epoch, "phase", before.Phase, "took", took, "plan", row.Last.String())
	case p == nil:
	case before == nil || before.Epoch != p.Epoch:
		o.log.Warn("plan started", "epoch", p.Epoch, "kind", p.Kind, "phase", p.Phase, "from", p.From, "to", p.To, "why", p.Reason)
		o.stats.Plans++
	default:
		o.log.Info("plan entered its next phase", "epoch", p.Epoch, "phase", p.Phase, "to", p.To, "before", before.Phase, "took", took)
	}
}
