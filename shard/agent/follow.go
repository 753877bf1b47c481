package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// follow makes the node follow the primary, and keeps it closed, so that it is when it is promoted.
func (r *reconciler) follow(d shard.Decision, now time.Duration) {
	r.keepClosed()
	n := r.probe.state
	follows := n.Role == shard.Replica && n.Link != nil && n.Link.Address == d.Address
	if out, _ := r.isWithoutStore(now); out {
		return // it has left the primary for that
	}
	if follows && n.Link.Stalled {
		me, _ := r.view.Node(r.id)
		first, waits := r.view.FirstToCopy(me)
		r.report.trouble = "its primary does not list it any more: it follows it again, with a full copy"
		if waits {
			r.report.trouble += ", after " + first.Label()
		}
		follows = waits
	}
	if follows || r.task != nil || now < r.retryAt || now < r.promises.givenUntil {
		return
	}
	was := n.Role
	epoch, primary := r.view.Row.PrimaryEpoch, r.view.Row.Primary
	r.startTask("follow "+d.Address, nil, 4*r.cfg.Timing.Timeout, func(ctx context.Context) error {
		if was == shard.Primary {
			if err := r.confirmFollow(ctx); err != nil {
				return err
			}
		}
		return r.attach(ctx, d.Address, was, epoch, primary)
	})
}

// isWithoutStore reports whether the agent has had no answer of the store for T, and has given no primary a promise: others
// may be replacing the primary. due is when that will be so.
func (r *reconciler) isWithoutStore(now time.Duration) (out bool, due time.Duration) {
	due = max(r.startedAt, r.report.answeredAt, r.promises.givenAt) + r.cfg.Timing.Timeout
	return now >= due, due
}

// detachWithoutStore detaches a replica of an agent that is without the store: its acknowledgements would keep the armed
// fence of a primary open that has lost its agent, on the same side of a cut. A primary whose agent lives asks for
// promises, and its replicas stay.
func (r *reconciler) detachWithoutStore(now time.Duration) {
	n := r.probe.state
	// Nothing is known of a shard yet: whom it follows is not ours to change.
	if !r.probe.answered || n.Role != shard.Replica || n.Link.Detached() || r.knownEpoch(r.view.Row) == 0 {
		return
	}
	out, due := r.isWithoutStore(now)
	if !out {
		r.wakeBy(due)
		return
	}
	if r.task != nil || now < r.retryAt {
		return
	}
	r.log.Warn("store does not answer, and no promise was given; the replica leaves its primary")
	r.startTask("leave the primary", nil, r.cfg.Timing.Timeout, func(ctx context.Context) error {
		return r.attach(ctx, "", shard.Replica, 0, "")
	})
}

// confirmFollow decides again about a primary that is to lose what it has, now that it is closed: it may have
// accepted a write since it was found to have nothing.
func (r *reconciler) confirmFollow(ctx context.Context) error {
	if err := r.fence.closeAndWait(ctx); err != nil {
		return err
	}
	if _, err := r.probe.probeNow(ctx); err != nil {
		return err
	}
	v, err := r.report.readNow(ctx)
	if err != nil {
		return err
	}
	if d := shard.Decide(v, r.selfNow()); d.Assignment != shard.AssignFollow {
		return fmt.Errorf("it is not to follow any more: %s", d.Why)
	}
	return nil
}

// attach makes the node a replica of the one at the address; of nobody if that is "".
func (r *reconciler) attach(ctx context.Context, address string, was shard.Role, epoch int64, primary string) error {
	if address != "" && (address == r.cfg.Private || address == r.cfg.Node) {
		return fmt.Errorf("%s is its own address", address)
	}
	if was == shard.Primary {
		if err := r.fence.closeAndWait(ctx); err != nil {
			return err
		}
		r.lease.giveUp(ctx, "", "the node becomes a replica")
	}
	err := r.withNodeTimeout(ctx, func(ctx context.Context) error { return r.node.Follow(ctx, address) })
	if err != nil {
		return err
	}
	r.runInLoop(func() { r.probe.attachedAt = r.now() })
	if _, err := r.probe.probeNow(ctx); err != nil {
		return err
	}
	if was == shard.Primary {
		r.callHookAfter(shard.HookCall{Event: shard.OnRole, Shard: r.cfg.Shard, Node: r.cfg.Announced, Role: shard.Replica, Epoch: epoch, From: r.id, To: primary})
	}
	return nil
}
