package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// promotePoll is the pause between looks at a node that becomes a primary.
const promotePoll = 5 * time.Millisecond

// errRestarted: what was judged and promoted was another run of the node.
var errRestarted = errors.New("it was restarted meanwhile, and may lack data")

// promote makes the node the primary that a plan names. The order is the promise of the package: the hook, closed,
// promoted, under the lease, in the row, and only then open.
func (r *reconciler) promote(ctx context.Context, c shard.Command, row shard.Row) error {
	var plan shard.Plan
	if row.Plan != nil {
		plan = *row.Plan
	}
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
	// Only an operator who has named the node takes it whatever it has; a Return goes to the one that they named before.
	named := plan.Force && (plan.Wanted == r.id || plan.Kind == shard.Return)
	n, err := r.promoteNode(ctx, row, !named)
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
		if now, err := r.probe.probeNow(ctx); err != nil || now.Run != n.Run {
			return shard.RowUpdate{}, cmp.Or(err, errRestarted)
		}
		if why := plan.LaterBetterCandidate(v, n); why != "" {
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

// promoteNode makes the node a primary and returns what it is then. With mustHaveAllData it refuses one that lacks some. row is the
// shard's, if it has one.
func (r *reconciler) promoteNode(ctx context.Context, row shard.Row, mustHaveAllData bool) (shard.State, error) {
	n, err := r.probe.probeNow(ctx)
	if err != nil {
		return n, err
	}
	// In a switchover it follows its primary until here, and may be copying it again from the start. In a failover it was chosen for
	// what it had when it left its primary, and in a Return for what it had as the primary: restarted since, it may have lost
	// that. A primary whose engine names no run is not judged: a promotion that is repeated has changed its lineage.
	switch {
	case n.Role != shard.Primary && n.Link != nil && n.Link.Syncing:
		return n, errors.New("it has begun another copy of its primary's data, which is not complete")
	case mustHaveAllData && (n.Role != shard.Primary || n.Run != "") && !r.folder.state().HasAllData(n):
		return n, errors.New("it was restarted, or lost its primary during a copy, and may lack data")
	}
	// One that led before, was replaced and has followed nobody since still shows where it was promoted then. It has to begin a new
	// lineage, or the row would give that place as all that it has. (Where a node's lineage is its name, it has only that one.)
	if n.Role == shard.Primary && n.Run != "" && row.Ended(n.Lineage.ID) > 0 {
		if err := r.withNodeTimeout(ctx, func(ctx context.Context) error { return r.node.Follow(ctx, "") }); err != nil {
			return n, err
		}
		if n, err = r.probe.probeNow(ctx); err != nil {
			return n, err
		}
	}
	if n.Role != shard.Primary {
		if err := r.withNodeTimeout(ctx, r.node.Promote); err != nil {
			return n, err
		}
	}
	for run := n.Run; ; {
		n, err := r.probe.probeNow(ctx)
		switch {
		case err == nil && n.Run != run:
			return n, errRestarted
		case err == nil && n.Role == shard.Primary && !n.Loading:
			return n, nil
		}
		if !lease.Sleep(ctx, r.clock, promotePoll) {
			return n, fmt.Errorf("waiting for the node to become a primary: %w", context.Cause(ctx))
		}
	}
}
