package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/shard"
)

// reconciler makes the node what [shard.Decide] says it is to be, or what a command orders: one task at a
// time. Times are readings of the agent's clock. Its methods: the decision and the fence are here, what it starts in
// lead.go (be the primary), follow.go (be a replica), promote.go and command_tasks.go (commands), and how in task.go.
type reconciler struct {
	*common
	probe    *nodeProbe
	view     *viewCache
	lease    *shardLease
	sessions *sessions
	fence    *fence
	trust    *trust
	arm      *armer
	report   *reporter
	process  *supervisor
	promises *promises
	inbox    *inbox

	startedAt time.Duration // when the agent made its first turn
	decision  shard.Decision
	task      *task
	retryAt   time.Duration
	retry     backoff.Backoff
	// unwritable is why the node could not write for T, once it was given up for that.
	unwritable string
	// trustEnded: trust ended with the node open, and it was not opened again since.
	trustEnded bool
	// promotedRun is the run of the node's process that a plan made the primary. The data folder says so later, or never on a full disk.
	promotedRun string
	pausedBy    int64 // epoch of the plan that paused writes; 0: none
	obeyedEpoch int64 // the highest epoch whose command was carried out, and when
	obeyedAt    time.Duration
}

// step carries out what the agent has to do about its node.
func (r *reconciler) step(now time.Duration) {
	if !r.probe.answered || r.probe.condition == shard.Down || r.view.at == 0 {
		return // nothing is known of the node, or of the shard
	}
	if why := r.mistakenIdentity(); why != "" {
		r.report.trouble = why
		return
	}
	if r.obeyedEpoch > r.view.Row.Epoch && r.view.at < r.obeyedAt+r.cfg.Timing.Timeout {
		// The row is older than the command that was carried out and does not count, unless the store goes
		// on showing it for T: then it has lost the later one.
		r.report.rereadAfter(rereadSoon, now)
		r.cancelOutdatedTask()
		r.startCommand()
		return
	}
	d := shard.Decide(r.view.View, r.self(now))
	if d.Assignment != r.decision.Assignment {
		r.log.Info("assignment changed", "assignment", d.Assignment, "why", d.Why)
		r.report.urgent = true
	}
	r.decision = d
	r.report.trouble = ""
	r.closeUnlessSameRun(d)
	r.cancelOutdatedTask()
	r.startCommand()
	if r.runningCommand() != nil {
		return // the command decides
	}
	r.carryOut(d, now)
	if r.task == nil && now >= r.retryAt {
		r.report.taskFailed = "" // there is nothing left to do that could fail
	}
}

// carryOut does what the decision says, as no command says otherwise.
func (r *reconciler) carryOut(d shard.Decision, now time.Duration) {
	if !r.view.isPrimary() {
		r.unwritable = ""
	}
	if d.Assignment != shard.AssignQuarantine && r.unwritable == "" {
		r.probe.setQuarantine("")
	}
	switch d.Assignment {
	case shard.AssignLead, shard.AssignBootstrap, shard.AssignResume:
		r.lead(d, now)
	case shard.AssignFollow:
		r.stepDown("another is the primary")
		r.follow(d, now)
	case shard.AssignKeep:
		if r.view.Row.Rev == 0 {
			r.report.trouble = d.Why // otherwise a plan says what continues
		}
	case shard.AssignFence:
		r.report.trouble = d.Why
		r.stepDown(d.Why)
		r.keepClosed()
	case shard.AssignQuarantine:
		r.report.trouble = d.Why
		r.probe.setQuarantine(d.Why)
		r.stepDown(d.Why)
		r.keepClosed()
	}
}

// self is the agent and its node for [shard.Decide].
func (r *reconciler) self(now time.Duration) shard.Self {
	m := r.folder.state()
	if m.Lineage.ID == "" {
		m = shard.SavedState{} // nothing is known of what the node had
	}
	return shard.Self{ID: r.id, State: r.probe.state, Saved: m, Holding: r.isTrusted(), Address: r.cfg.Private, PromotedRun: r.promotedRun,
		NoShardFor: now - r.view.noShardSince, RunSeenFor: now - max(r.startedAt, r.probe.restarted), DiscardData: r.cfg.DiscardData}
}

// selfNow is self for other goroutines.
func (r *reconciler) selfNow() (me shard.Self) {
	r.runInLoop(func() { me = r.self(r.now()) })
	return me
}

// isTrusted reports whether the node may be open: the lease is held and trust lasts, or all others have promised. Without the
// lease, trust (in promises, say) lets a node stay open, but does not let one be opened.
func (r *reconciler) isTrusted() bool {
	return r.trust.remaining() > 0 && (r.lease.held != nil || r.fence.isOpen())
}

// mistakenIdentity tells why the node is not the one it was said to be; nothing is done with it then.
func (r *reconciler) mistakenIdentity() string {
	run := r.probe.state.Run
	for _, o := range r.view.Nodes {
		same := run != "" && o.ID != r.id && o.Run == run && o.Live() && (o.Condition == shard.Up || o.Condition == shard.Loading)
		if same && !r.view.Row.HasPrecedence(r.id, o.ID) {
			return fmt.Sprintf("%s is the same node as that of %s; check the addresses", r.cfg.Node, o.Label())
		}
	}
	return ""
}

// closeUnlessSameRun closes a node that came, or came back, unless it is the same run of the primary that the row
// names: any other may have been replaced.
func (r *reconciler) closeUnlessSameRun(d shard.Decision) {
	if !r.probe.unclassified {
		return
	}
	r.probe.unclassified = false
	n := r.probe.state
	sameRun := r.folder.state().Run == n.Run
	mayStayOpen := d.Assignment == shard.AssignLead || d.Assignment == shard.AssignKeep
	switch named := r.view.isPrimary() && n.Role == shard.Primary && mayStayOpen && sameRun; {
	case named && n.Fence == shard.Armed:
		r.arm.setArmed(true)
	case named:
	default:
		r.fence.requestClose()
	}
}

// stepDown closes the fence, and then gives the lease up.
func (r *reconciler) stepDown(why string) {
	if r.lease.held == nil && r.sessions.get() == nil || r.busy[workStepDown] {
		return
	}
	if r.runningCommand() != nil {
		return // the command does so itself
	}
	r.fence.requestClose()
	r.arm.armed = false
	r.background(workStepDown, 2*r.cfg.Timing.Timeout, func(ctx context.Context) func() {
		// In this order: a successor may be opened as soon as the lease is free.
		if err := r.fence.closeAndWait(ctx); err != nil {
			return nil // the session lapses by itself
		}
		r.lease.giveUp(ctx, "", why)
		return func() { r.report.reread = true }
	})
}

// keepClosed closes the fence of a node that is found open.
func (r *reconciler) keepClosed() {
	seenOpen := r.probe.state.Fence != shard.Closed && r.probe.isFenceCurrent()
	if r.fence.isClosing() || !r.fence.isOpen() && (!seenOpen || r.task != nil) {
		return
	}
	r.fence.requestClose()
}

// declareDeath reports the death of the node once it has had its time to be back, and gives the lease up.
func (r *reconciler) declareDeath(now time.Duration) {
	gone := r.process.goneSince
	if gone == 0 {
		return
	}
	if due := gone + r.cfg.RestartGrace; now < due {
		r.wakeBy(due)
		return
	}
	if r.probe.condition == shard.Down && r.lease.held == nil {
		return
	}
	if r.probe.condition != shard.Down {
		r.probe.condition, r.probe.unclassified = shard.Down, true
		r.arm.setArmed(false)
		r.stats.Deaths++
	}
	r.fence.nodeEnded()
	if r.lease.held != nil || r.sessions.get() != nil {
		r.cancelTask("the node's process ended")
		r.background(workStepDown, r.cfg.Timing.Timeout, func(ctx context.Context) func() {
			r.lease.giveUp(ctx, "", "the node's process ended")
			return nil
		})
	}
}

// closeWithoutLease closes an open primary that this agent was started beside, once neither the session of
// the agent before it nor a record of its own can keep others from replacing the node any more.
func (r *reconciler) closeWithoutLease(now time.Duration) {
	p := r.probe
	if r.fence.isOpen() || p.condition == shard.Down || p.state.Role != shard.Primary || p.state.Fence == shard.Closed {
		return
	}
	// Also while its fence is being closed: it may have begun to hang just before that.
	if !p.answered {
		r.closeSilent(now)
		return
	}
	t := r.cfg.Timing
	// What was seen before the fence was closed says nothing of it any more.
	if r.lease.held != nil || r.fence.isClosing() || !p.isFenceCurrent() {
		return
	}
	if due := max(r.startedAt, r.report.lastOK) + t.Timeout - t.Interval; now < due {
		r.wakeBy(due)
		return
	}
	r.log.Warn("store does not answer, and the node is open without a lease; closing its fence")
	r.fence.requestClose()
}

// closeSilent closes a primary that stopped to answer before this agent had opened it, or has it killed: what it has received
// would be accepted when it goes on. Others wait for T of its silence while this agent reports, and until the lease of the
// agent before has lapsed.
func (r *reconciler) closeSilent(now time.Duration) {
	if !r.view.isPrimary() {
		return
	}
	until := r.probe.answeredAt + r.cfg.Timing.Timeout
	if left := r.view.Lease.Remaining; left > 0 {
		until = max(until, r.view.at+left)
	}
	until -= r.cfg.nodeTimeout()
	if due := until - r.cfg.margin(); now < due {
		r.wakeBy(due)
		return
	}
	r.log.Warn("node does not answer, and is open without a lease; closing its fence")
	r.fence.closeSilent(until)
}

// onTrustEnded: trust in the session has ended, and the fence closes.
func (r *reconciler) onTrustEnded() {
	r.trustEnded, r.report.urgent = true, true
	r.report.steadySince = r.now()
	r.stats.Fenced++
}

// isPromoting reports whether the node is being promoted, or is to be.
func (r *reconciler) isPromoting() bool {
	c := r.runningCommand()
	return c != nil && c.Order == shard.OrderPromote || r.inbox.hasPromotion()
}
