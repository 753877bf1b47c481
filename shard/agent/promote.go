package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// promotePoll is the pause between looks at a node that becomes a primary.
const promotePoll = 5 * time.Millisecond

// promote makes the node the primary that a plan names. The order is the promise of the package: the hook, closed,
// promoted, under the lease, in the row, and only then open.
func (r *reconciler) promote(ctx context.Context, c shard.Command, plan shard.Plan) error {
	started := r.now()
	plan.To = r.id // the row that this agent has read may be in the phase before, which names nobody
	call := shard.HookCall{Event: shard.OnPromote, Shard: r.cfg.Shard, Node: r.cfg.Announced, Role: shard.Primary, Epoch: c.Epoch, From: plan.From, To: r.id}
	if err := r.callHookBefore(ctx, call); err != nil {
		return err
	}
	if err := r.fence.closeAndWait(ctx); err != nil {
		return err
	}
	r.sessions.start() // it takes a moment; the node is promoted meanwhile
	n, err := r.promoteNode(ctx, plan.Kind == shard.Switchover || plan.Kind == shard.Failover && !plan.Force)
	if err != nil {
		r.releaseAfterFailedStart(ctx, err)
		return err
	}
	// In a switchover the old primary releases the lease for this agent, if it was closed before its pause ended. That it
	// lapsed, or was released for nobody, proves nothing: it may have accepted what this node lacks.
	if err := r.lease.acquire(ctx, plan.Kind == shard.Switchover); err != nil {
		r.releaseAfterFailedStart(ctx, err)
		return err
	}
	err = r.updateRowAndOpen(ctx, func(v shard.View) (shard.RowUpdate, error) {
		if why := plan.LaterBetterCandidate(v, n.PromotedAt()); why != "" {
			return shard.RowUpdate{}, errors.New(why)
		}
		row, err := v.Row.WithNewPrimary(r.id, c.Epoch, n, r.now()-started)
		return shard.RowUpdate{Row: row}, err
	}, func(row shard.Row) bool { return row.Primary == r.id && row.PrimaryEpoch == c.Epoch })
	if err == nil {
		r.runInLoop(func() { r.promotedRun = n.Run }) // before the command ends, and the decision counts again
		r.callHookAfter(call)
	}
	return err
}

// releaseAfterFailedStart gives the lease up after a promotion, bootstrap or resumption that failed. The node stays closed.
func (r *reconciler) releaseAfterFailedStart(ctx context.Context, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.Timing.Timeout)
	defer cancel()
	if closed := r.fence.closeAndWait(ctx); closed == nil {
		r.lease.giveUp(ctx, "", "it did not become the primary: "+err.Error())
	}
}

// promoteNode makes the node a primary and returns what it is then. With mustHaveAllData it refuses one that lacks some.
func (r *reconciler) promoteNode(ctx context.Context, mustHaveAllData bool) (shard.State, error) {
	n, err := r.probe.probeNow(ctx)
	if err != nil {
		return n, err
	}
	if n.Role != shard.Primary {
		// In a switchover it follows its primary until here. If that was restarted meanwhile, it may be copying again
		// from the start, or have lost that primary during the copy. In a failover it was chosen for what it had when it left
		// its primary: restarted since, it may have lost that.
		if n.Link != nil && n.Link.Syncing || mustHaveAllData && !r.folder.state().HasAllData(n) {
			return n, errors.New("it has begun another copy of its primary's data, which is not complete")
		}
		if err := r.withNodeTimeout(ctx, r.node.Promote); err != nil {
			return n, err
		}
	}
	for {
		n, err := r.probe.probeNow(ctx)
		if err == nil && n.Role == shard.Primary && !n.Loading {
			return n, nil
		}
		if !lease.Sleep(ctx, r.clock, promotePoll) {
			return n, fmt.Errorf("waiting for the node to become a primary: %w", context.Cause(ctx))
		}
	}
}
