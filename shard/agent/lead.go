package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// lead makes the node the primary that it is to be, or keeps it one.
func (r *reconciler) lead(d shard.Decision, now time.Duration) {
	if r.task != nil || r.busy[workStepDown] || r.giveUpUnwritable(now) {
		return
	}
	if now < r.retryAt {
		r.wakeBy(r.retryAt)
		return
	}
	if r.fence.isOpen() && r.probe.state.Fence == shard.Closed && r.probe.isFenceCurrent() && r.pausedBy == 0 {
		r.log.Warn("fence was closed by somebody else")
		r.fence.requestClose() // and then opened in order
		return
	}
	if d.Assignment == shard.AssignLead && r.lease.isValid() && r.fence.isOpen() && r.pausedBy == 0 {
		r.trustEnded = false
		return
	}
	if r.trustEnded {
		// A store that comes and goes must not open and close the node in turn.
		if steady := r.report.steadySince + 2*r.cfg.Timing.Interval; r.report.failing != 0 || now < steady {
			r.wakeBy(max(steady, now+r.cfg.Timing.Interval/4))
			return
		}
	}
	within := 4 * r.cfg.Timing.Timeout
	switch d.Assignment {
	case shard.AssignLead:
		r.startTask("lead the shard", nil, within, r.takeShard)
	case shard.AssignBootstrap:
		r.startTask("bootstrap the shard", nil, within, r.bootstrapShard)
	case shard.AssignResume:
		r.startTask("resume the shard", nil, within, r.resumeShard)
	}
}

// giveUpUnwritable gives the lease up for a node that answers and has not been able to write for T, as long
// as a replica can take its place. Behind a closed fence nobody can report whether it could write again.
func (r *reconciler) giveUpUnwritable(now time.Duration) bool {
	if r.unwritable == "" {
		since, why := r.sessions.writeFailure()
		if since == 0 || now-since < r.cfg.Timing.Timeout {
			return false
		}
		r.unwritable = why
	}
	// While failover is paused no other would be started: the shard would stay closed until somebody resumes it.
	if r.view.Row.Paused != nil || !r.view.HasSuccessor(r.id, r.cfg.Policy) {
		r.unwritable = "" // a primary that can only be read is better than none
		return false
	}
	r.report.trouble = r.unwritable
	r.probe.setQuarantine(r.unwritable)
	r.stepDown(r.unwritable)
	r.keepClosed()
	return true
}

// takeShard takes the lease for a primary that the row names, and opens it.
func (r *reconciler) takeShard(ctx context.Context) error {
	if err := r.lease.acquire(ctx, false); err != nil {
		return err
	}
	// Read again: the row may have changed while the lease was waited for, and cannot any more without it.
	v, err := r.report.readNow(ctx)
	if err != nil {
		return err
	}
	if d := shard.Decide(v, r.selfNow()); d.Assignment != shard.AssignLead {
		return fmt.Errorf("the node is not to be the primary any more: %s", d.Why)
	}
	return r.openNode(ctx, true)
}

// bootstrapShard makes the shard, with this node as its first primary.
func (r *reconciler) bootstrapShard(ctx context.Context) error {
	if err := r.lease.acquire(ctx, false); err != nil {
		return err
	}
	// It was closed when it was found; opening it before that is acknowledged would fail.
	if err := r.fence.closeAndWait(ctx); err != nil {
		return err
	}
	if r.selfNow().State.Role == shard.Replica { // of nobody: it was started so
		if _, err := r.promoteNode(ctx, shard.Row{}, false); err != nil {
			return err
		}
	}
	secret := rand.Text()
	return r.updateRowAndOpen(ctx, func(v shard.View) (shard.RowUpdate, error) {
		if v.Row.Rev != 0 {
			return shard.RowUpdate{}, fmt.Errorf("%w: the shard has been made by another", shard.ErrChanged)
		}
		me, _ := v.Node(r.id)
		now := r.selfNow().State
		me.Lineage, me.Before = now.Lineage, now.Before
		return shard.RowUpdate{Row: v.BootstrapRow(me, secret)}, nil
	}, func(row shard.Row) bool { return row.Secret == secret })
}

// resumeShard continues as the primary under a new epoch.
func (r *reconciler) resumeShard(ctx context.Context) error {
	if err := r.fence.closeAndWait(ctx); err != nil {
		return err
	}
	if err := r.lease.acquire(ctx, false); err != nil {
		return err
	}
	mayGoOn := func(v shard.View) error {
		if d := shard.Decide(v, r.selfNow()); d.Assignment != shard.AssignResume && d.Assignment != shard.AssignLead {
			return fmt.Errorf("the node is not to go on as the primary any more: %s", d.Why)
		}
		return nil
	}
	// Others copy from a primary, a closed one too: who has more may have reported while the lease was waited for.
	v, err := r.report.readNow(ctx)
	if err == nil {
		err = mayGoOn(v)
	}
	if err == nil {
		_, err = r.promoteNode(ctx, shard.Row{}, false)
	}
	if err != nil {
		r.releaseAfterFailedStart(ctx, err)
		return err
	}
	return r.updateRowAndOpen(ctx, func(v shard.View) (shard.RowUpdate, error) {
		if err := mayGoOn(v); err != nil {
			return shard.RowUpdate{}, err
		}
		me := r.selfNow()
		row := v.ResumeRow(me.State)
		e := history.Event{Part: shard.Space, Subject: row.Name, Term: row.Epoch, Reason: lease.TruncateReason(fmt.Sprintf(
			"%s goes on after a restart; what it had not kept on disk is lost (it had %d keys, and has %d)", r.cfg.Announced, me.Saved.Keys, me.State.Keys))}
		return shard.RowUpdate{Row: row, Event: &e}, nil
	}, nil)
}

// updateRowAndOpen writes the node into the row and opens it. When it fails, the lease is given up and the
// node stays closed. isDone recognises a row that an earlier try wrote whose answer was lost; nil: none can.
func (r *reconciler) updateRowAndOpen(ctx context.Context, edit func(v shard.View) (shard.RowUpdate, error), isDone func(shard.Row) bool) error {
	// In this order: a node that is opened before the row names it could be open beside another.
	err := r.updateRow(ctx, edit, isDone)
	if err == nil {
		err = r.openNode(ctx, false)
	}
	if err != nil {
		r.releaseAfterFailedStart(ctx, err)
	}
	return err
}

// updateRow updates the row as edit says about the view as it is, until an update is accepted.
func (r *reconciler) updateRow(ctx context.Context, edit func(v shard.View) (shard.RowUpdate, error), isDone func(shard.Row) bool) error {
	for {
		v, err := r.report.readNow(ctx)
		if err != nil {
			return err
		}
		if isDone != nil && isDone(v.Row) {
			return nil
		}
		u, err := edit(v)
		if err != nil {
			return err
		}
		if !r.lease.isHeldNow() {
			return fmt.Errorf("%w: the shard's lease", lease.ErrLost)
		}
		rev, err := r.tryUpdateRow(ctx, u)
		switch {
		case err == nil:
			u.Row.Rev = rev
			if !r.runInLoop(func() { r.onRow(u.Row) }) {
				return errStopped
			}
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, lease.ErrInvalid):
			return err
		case isDone == nil && errors.Is(err, lease.ErrUnknown):
			return err // it cannot be recognised: the next read decides
		}
		if !lease.Sleep(ctx, r.clock, r.cfg.Jitter(r.cfg.Timing.Interval/8)) {
			return context.Cause(ctx)
		}
	}
}

func (r *reconciler) tryUpdateRow(ctx context.Context, u shard.RowUpdate) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.storeTimeout())
	defer cancel()
	return r.cfg.Registry.UpdateRow(ctx, u)
}

// openNode opens or arms the fence of the primary, under trust, once the store knows what holds. With
// adoptOpen, a node that was never closed is taken over as it is.
func (r *reconciler) openNode(ctx context.Context, adoptOpen bool) error {
	fence, n := shard.Open, 0
	if r.cfg.MinReplicas > 0 {
		fence, n = shard.Armed, r.cfg.MinReplicas
	}
	var open bool
	ok := r.runInLoop(func() {
		seen := r.probe.state.Fence
		open = adoptOpen && (seen == shard.Open || seen == shard.Armed && r.arm.armed) && r.probe.isFenceCurrent() &&
			r.probe.state.Role == shard.Primary && r.pausedBy == 0
		if !open {
			r.arm.armed, r.probe.announcedFence = false, fence
		}
	})
	if !ok {
		return errStopped
	}
	// A record that says "closed" is a promise: the store must know better before the fence opens.
	if err := r.report.waitAccepted(ctx); err != nil {
		return fmt.Errorf("reporting before the fence is opened: %w", err)
	}
	if open {
		return r.fence.adoptOpen()
	}
	if err := r.fence.open(ctx, fence, n); err != nil {
		return fmt.Errorf("opening the fence: %w", err)
	}
	err := r.withNodeTimeout(ctx, func(ctx context.Context) error { return r.node.Pause(ctx, 0) })
	if err != nil && !errors.Is(err, shard.ErrUnsupported) {
		r.log.Warn("pause of writes could not be ended; it ends by itself", "err", err)
	}
	_, err = r.probe.probeNow(ctx)
	r.runInLoop(func() {
		r.arm.setArmed(fence == shard.Armed)
		r.pausedBy = 0
		r.sessions.pausedUntil.Store(0)
		r.stats.Opened++
	})
	return err
}
