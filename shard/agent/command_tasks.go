package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// startCommand starts to carry out the oldest command that waits.
func (r *reconciler) startCommand() {
	if r.task != nil || len(r.inbox.queue) == 0 {
		return
	}
	c, now := r.inbox.queue[0], r.now()
	if r.needsPlan(c) && r.view.Row.Epoch < c.Epoch {
		// The command was faster than the row, and what it orders depends on the plan there. If no such row
		// comes, the orchestrator sends it again, or its update was refused.
		if now < r.inbox.acceptedAt+r.cfg.Timing.Timeout {
			r.report.rereadAfter(rereadSoon, now)
		} else {
			r.inbox.drop()
		}
		return
	}
	// An operator who forces a plan takes the promise back.
	if c.Order == shard.OrderPromote && now < r.promises.givenUntil && !r.view.Row.IsForced() {
		r.wakeBy(r.promises.givenUntil) // a plan that cannot wait for the end of the promise is replaced
		return
	}
	r.inbox.drop()
	if _, ok := c.Check(r.cfg.Shard, r.id, r.knownEpoch(r.view.Row)); !ok || r.hasPlanEnded(c) {
		return
	}
	if why := r.refusal(c); why != "" {
		r.inbox.acknowledge(c, errors.New(why), 0)
		return
	}
	r.obeyedEpoch, r.obeyedAt = max(r.obeyedEpoch, c.Epoch), now
	within := max(2*r.cfg.Policy.Patience, r.cfg.Timing.Timeout) + r.cfg.Policy.HookTimeout
	f := r.taskFor(c)
	r.startTask(fmt.Sprintf("%s (epoch %d)", c.Order, c.Epoch), &c, within, func(ctx context.Context) error {
		// On disk first: after a restart no command of an earlier epoch may be carried out.
		if err := r.folder.raise(c.Epoch, 0); err != nil {
			return err
		}
		return f(ctx)
	})
}

// needsPlan reports whether what a command orders depends on the plan in the row.
func (r *reconciler) needsPlan(c shard.Command) bool {
	return c.Order == shard.OrderPromote || c.Order == shard.OrderCatchUp || c.Order == shard.OrderDetach && r.probe.quarantine != ""
}

// refusal is why a command is not carried out by a node that is quarantined.
func (r *reconciler) refusal(c shard.Command) string {
	why, p := r.probe.quarantine, r.view.Row.Plan
	switch {
	case why == "" || c.Order != shard.OrderPromote && c.Order != shard.OrderFollow && c.Order != shard.OrderDetach:
		return ""
	// An operator forced this plan, and named this node.
	case p != nil && p.Epoch == c.Epoch && p.Force && (c.Order == shard.OrderPromote || c.Order == shard.OrderDetach && p.Wanted == r.id):
		return ""
	}
	return why
}

// taskFor is what a command orders, with what is known now.
func (r *reconciler) taskFor(c shard.Command) func(ctx context.Context) error {
	role, pause, successor := r.probe.state.Role, shard.DefaultPause, ""
	var plan shard.Plan
	row := r.view.Row
	if p := row.Plan; p != nil {
		pause, plan = cmp.Or(p.Timeout, pause), *p
	}
	if to, ok := r.view.Node(c.To); ok {
		successor = to.Instance
	}
	held := r.lease.held != nil
	switch c.Order {
	case shard.OrderFence:
		return r.closeFence
	case shard.OrderDetach:
		return func(ctx context.Context) error {
			if role == shard.Primary { // it copies from nobody: promoteNode looks at what it led as
				_, err := r.probe.probeNow(ctx)
				return err
			}
			return r.attach(ctx, "", role, c.Epoch, "")
		}
	case shard.OrderPause:
		next, _ := r.view.Node(c.To)
		return func(ctx context.Context) error {
			if err := r.awaitNear(ctx, next); err != nil {
				return err
			}
			return r.pauseWrites(ctx, c)
		}
	case shard.OrderCatchUp:
		// A third of the pause is kept for the promotion.
		return func(ctx context.Context) error { return r.catchUp(ctx, c, pause*2/3) }
	case shard.OrderYield:
		by := time.Duration(math.MaxInt64)
		if plan.Kind == shard.Switchover && held {
			if by = 0; r.pausedBy == c.Epoch {
				by = time.Duration(r.sessions.pausedUntil.Load())
			}
		}
		return func(ctx context.Context) error { return r.yieldLease(ctx, successor, held, by) }
	case shard.OrderPromote:
		return func(ctx context.Context) error { return r.promote(ctx, c, row) }
	case shard.OrderFollow:
		return func(ctx context.Context) error {
			if c.Address == "" {
				return errors.New("it does not name an address")
			}
			return r.attach(ctx, c.Address, role, c.Epoch, c.To)
		}
	}
	return func(context.Context) error {
		return fmt.Errorf("the order %q is not known to this version", c.Order)
	}
}

// closeFence closes the fence. The lease stays.
func (r *reconciler) closeFence(ctx context.Context) error {
	if err := r.fence.closeAndWait(ctx); err != nil {
		return err
	}
	_, err := r.probe.probeNow(ctx)
	return err
}

// nearWithin is longer than the second that may pass between two acknowledgements of a replica.
const nearWithin = 1200 * time.Millisecond

// awaitNear refuses a pause for a replica that fell behind after the reports by which it was chosen: writes would
// wait in vain.
func (r *reconciler) awaitNear(ctx context.Context, next shard.Record) error {
	for until := r.now() + nearWithin; ; {
		n, err := r.probe.probeNow(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(n.Followers, func(f shard.Follower) bool {
			return f.Address == next.Address || f.ID != "" && f.ID == next.ID
		})
		if i < 0 || n.Txn-n.Followers[i].Txn <= shard.MaxSwitchoverLag {
			return nil
		}
		if r.now() >= until || !lease.Sleep(ctx, r.clock, attachProbe) {
			return fmt.Errorf("%s is %d behind the primary; ask again when LAG is small", next.Label(), n.Txn-n.Followers[i].Txn)
		}
	}
}

// pauseWrites lets writes wait. As a pause ends by itself, the fence is closed before it does, and in any
// case before the lease is given up; until then clients that write wait and see no error.
func (r *reconciler) pauseWrites(ctx context.Context, c shard.Command) error {
	if c.For <= r.cfg.margin() {
		return fmt.Errorf("a pause of %v is too short to close the fence in", c.For)
	}
	// The node's clock may run faster than this one.
	until := r.now() + time.Duration(float64(c.For)*(1-r.cfg.Timing.RateTolerance()))
	// Before the node pauses: a write probe that waits would look like a hang.
	r.sessions.pausedUntil.Store(int64(until))
	if !r.runInLoop(func() { r.pausedBy = c.Epoch }) {
		return errStopped
	}
	err := r.withNodeTimeout(ctx, func(ctx context.Context) error { return r.node.Pause(ctx, c.For) })
	switch {
	case err == nil:
		r.fence.closeAt(until - r.cfg.margin())
	case !errors.Is(err, shard.ErrUnsupported):
		return err
	default:
		if err := r.fence.closeAndWait(ctx); err != nil {
			return err
		}
	}
	n, err := r.probe.probeNow(ctx)
	if err == nil && n.Role != shard.Primary {
		err = errors.New("the node is not a primary")
	}
	return err
}

// catchUp waits until the node has what its primary had when it was paused.
func (r *reconciler) catchUp(ctx context.Context, c shard.Command, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if e, ok := r.node.(shard.CatchUpper); ok {
		if err := e.CatchUp(ctx, c.Txn); err != nil {
			return err
		}
		_, err := r.probe.probeNow(ctx)
		return err
	}
	for {
		var n shard.State
		err := r.withNodeTimeout(ctx, func(ctx context.Context) (err error) {
			n, err = r.node.Probe(ctx)
			return err
		})
		// Without its link it may be at a number that is not the primary's.
		linked := n.Role == shard.Replica && n.Synced && n.Link != nil && n.Link.Up && !n.Link.Syncing
		if err == nil && linked && n.Txn >= c.Txn {
			_, err = r.probe.probeNow(ctx)
			return err
		}
		if !lease.Sleep(ctx, r.clock, time.Millisecond) { // writes wait meanwhile
			return fmt.Errorf("it is at %d, and has to reach %d (in touch with its primary: %v)", n.Txn, c.Txn, linked)
		}
	}
}

// yieldLease gives the lease of a closed primary up for its successor. In a switchover that one has what the primary had when its writes were
// paused: a primary that was closed only after its pause had ended, because its node or its agent hung, may have accepted more, and
// keeps the lease.
func (r *reconciler) yieldLease(ctx context.Context, successor string, held bool, pauseEnds time.Duration) error {
	if err := r.fence.closeAndWait(ctx); err != nil {
		return err
	}
	if r.fence.closedSince() >= pauseEnds {
		return errors.New("it was closed only after its pause had ended, and may have accepted writes meanwhile")
	}
	if held {
		r.lease.giveUp(ctx, successor, "switchover")
	}
	return nil
}
