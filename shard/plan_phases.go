package shard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// continuePlan continues with a plan of our own.
func (t planner) continuePlan(p Plan) Action {
	var a Action
	switch p.Phase {
	case Pausing:
		a = t.pausing(p)
	case Catching:
		a = t.catching(p)
	case Fencing:
		a = t.fencing(p)
	case Detaching:
		a = t.detaching(p)
	case Promoting:
		a = t.promoting(p)
	case Following:
		a = t.following(p)
	default:
		a = t.failPlan(fmt.Sprintf("the phase %q is not known to this version", p.Phase))
	}
	a.Lock = true
	if a.Update == nil {
		a.Send, a.FenceAt, a.DetachAt = t.unansweredCommands(p), t.fenceAt(p), t.detachAt(p)
	}
	return a
}

// unansweredCommands are the commands of the plan's phase that have no answer.
func (t planner) unansweredCommands(p Plan) []Command {
	var out []Command
	send := func(node string, o Order, edit func(*Command)) {
		if node == "" {
			return
		}
		if r, ok := t.view.Node(node); ok {
			if _, done := r.ResultOf(p.Epoch, o); done {
				return
			}
		}
		c := Command{ID: CommandID(p.Epoch, node, o), Shard: t.view.Row.Name, Node: node, Epoch: p.Epoch, Order: o, By: t.seen.Instance, Within: max(5*t.policy.Patience, time.Second)}
		if edit != nil {
			edit(&c)
		}
		out = append(out, c)
	}
	switch p.Phase {
	case Pausing:
		send(p.From, OrderPause, func(c *Command) { c.For, c.To = p.Timeout, p.To })
	case Catching:
		send(p.To, OrderCatchUp, func(c *Command) { c.Txn = p.Txn })
	case Fencing:
		send(p.From, OrderFence, nil)
	case Detaching:
		for _, r := range t.mustDetach(p.From) {
			send(r.ID, OrderDetach, nil)
		}
	case Promoting:
		send(p.To, OrderPromote, nil)
		if holder, ok := t.view.holder(); ok && holder.ID != p.To {
			send(holder.ID, OrderYield, func(c *Command) { c.To = p.To })
		} else if p.Kind == Switchover {
			send(p.From, OrderYield, func(c *Command) { c.To = p.To })
		}
	case Following:
		to, _ := t.view.Node(p.To)
		notYetFollowing := t.notFollowing(p)
		for _, r := range notYetFollowing[:min(t.policy.Parallel, len(notYetFollowing))] {
			send(r.ID, OrderFollow, func(c *Command) { c.To, c.Address = to.ID, to.Address })
		}
	}
	return out
}

// liveMembers are the nodes of the shard whose agents live, but for one.
func (t planner) liveMembers(but string) []Record {
	return slices.DeleteFunc(slices.Clone(t.view.Nodes), func(r Record) bool {
		_, member := t.view.Row.Member(r.ID)
		return r.ID == but || !r.Live() || !member
	})
}

// mustDetach are the nodes that must leave the old primary: the members, and whoever else
// acknowledges its writes or was named by an operator, with an agent that lives.
func (t planner) mustDetach(from string) []Record {
	return slices.DeleteFunc(slices.Clone(t.view.Nodes), func(r Record) bool {
		_, member := t.view.Row.Member(r.ID)
		return r.ID == from || !r.Live() || !member && r.PrimaryID != from && r.ID != t.view.Row.Plan.Wanted
	})
}

// isOverdue reports whether the phase has taken as long as an agent that lives would need.
func (t planner) isOverdue() bool { return t.seen.PhaseFor >= t.policy.Patience }

func (t planner) pausing(p Plan) Action {
	from, _ := t.view.Node(p.From)
	done, ok := from.ResultOf(p.Epoch, OrderPause)
	switch {
	// Writes wait from here on: what the primary has now is what the replica must reach.
	case ok && done.Error == "":
		return t.advancePhase(Catching, "", func(p *Plan) { p.Txn = done.Txn })
	// Nothing was changed: go back.
	case ok:
		return t.replacePlan("the primary could not be paused: "+done.Error, "")
	// It died while it was to be paused: that is a failover.
	case from.Live() && from.Condition == Down:
		return t.replacePlan("the primary's process ended", "")
	// It may be paused without our knowing; the pause ends by itself.
	case t.isOverdue():
		return t.replacePlan("the primary's agent did not pause it in time", "")
	}
	return Action{Wait: t.policy.Patience - t.seen.PhaseFor}
}

func (t planner) catching(p Plan) Action {
	to, _ := t.view.Node(p.To)
	done, ok := to.ResultOf(p.Epoch, OrderCatchUp)
	// The pause began before this phase; a third of it is kept for the promotion.
	limit := p.Timeout * 2 / 3
	caught := to
	caught.Txn, caught.Lineage, caught.Before = done.Txn, done.Lineage, done.Before
	switch {
	// The number alone proves nothing: data of another history may have the same one.
	case ok && done.Error == "" && done.Txn >= p.Txn && !t.view.Row.isForeignData(caught):
		return t.advancePhase(Promoting, fmt.Sprintf("at %d", p.Txn), nil)
	case ok:
		return t.replacePlan("the replica could not catch up: "+cmp.Or(done.Error, "its data is another now"), "")
	// Writes wait: rather go back than keep them waiting longer.
	case t.seen.PhaseFor >= limit || !to.Live() || to.Condition == Down:
		return t.replacePlan(fmt.Sprintf("the replica did not reach %d in time", p.Txn), "")
	}
	return Action{Wait: limit - t.seen.PhaseFor}
}

func (t planner) fencing(p Plan) Action {
	from, _ := t.view.Node(p.From)
	done, ok := from.ResultOf(p.Epoch, OrderFence)
	switch {
	// It acknowledged, or is known to be closed anyway.
	case ok && done.Error == "" || t.finding.Proved:
		return t.advancePhase(Detaching, "", nil)
	// An operator forced this failover: it continues, and the plan says what it could not do.
	case ok || t.isOverdue():
		return t.advancePhase(Detaching, "the old primary could not be fenced", nil)
	}
	return Action{Wait: t.policy.Patience - t.seen.PhaseFor}
}

// fenceAt is the address of an old primary whose agent cannot close it, unless it is another
// node's by now.
func (t planner) fenceAt(p Plan) string {
	from, known := t.view.Node(p.From)
	if !known || p.From == p.To || from.Live() || p.Phase != Fencing && p.Phase != Detaching && p.Phase != Promoting {
		return ""
	}
	for _, r := range t.view.Nodes {
		if r.ID != from.ID && r.Address == from.Address {
			return ""
		}
	}
	return from.Address
}

// oldPrimaryReturned reports whether the old primary has come back of itself: its agent holds the lease
// again. Nobody else could be promoted then, nor need be.
func (t planner) oldPrimaryReturned(p Plan) bool {
	r, _ := t.view.Node(p.From)
	return p.Kind == Failover && !p.Force && p.From == t.view.Row.Primary && t.view.isLed() && r.Live() && r.Condition == Up
}

func (t planner) detaching(p Plan) Action {
	// Before the first promotion: the least that can be done is nothing.
	if t.oldPrimaryReturned(p) {
		return t.failPlan("the old primary is back")
	}
	waits := slices.ContainsFunc(t.mustDetach(p.From), func(r Record) bool {
		_, ok := r.ResultOf(p.Epoch, OrderDetach)
		forced := p.Force && r.ID == p.Wanted && r.Condition == Quarantined // its agent takes an operator's word for it
		return !ok && (r.Condition == Up || forced)
	})
	// One that answers late may have more. After the patience it is taken to be dead.
	if waits && !t.isOverdue() {
		return Action{Wait: t.policy.Patience - t.seen.PhaseFor}
	}
	if a, wait := t.awaitDetached(p); wait {
		return a
	}
	best, unfit := choosePrimary(t.view, choice{from: p.From, wanted: p.Wanted, force: p.Force, tried: p.Tried, maxLag: t.policy.MaxLag, frozen: p.Epoch})
	if best == "" {
		return t.failPlan(explainNoCandidate(t.view.Row.Name, unfit))
	}
	r, _ := t.view.Node(best)
	done, _ := r.ResultOf(p.Epoch, OrderDetach)
	r.Txn, r.Lineage, r.Before = done.Txn, done.Lineage, done.Before
	return t.advancePhase(Promoting, fmt.Sprintf("chose %s at %d", r.Label(), done.Txn), func(p *Plan) { p.To, p.NewHistory = best, t.view.Row.isForeignData(r) })
}

// awaitDetached waits until it is certain that the old primary is closed, and gives up where that does not become so:
// whoever is promoted beside an open one is a second primary. Of one that is only silent, so many replicas must have left
// that its armed fence is closed without them. What was certain when the plan started may not be so any more.
func (t planner) awaitDetached(p Plan) (a Action, wait bool) {
	own, _ := t.view.Node(p.From)
	// An operator who forces it says that it is dead.
	if p.Force || t.finding.Proved || t.isClosedWithoutLease(own) {
		return Action{}, false
	}
	left := t.view.notDetached(t.seen, p, t.policy.FenceDelay)
	certain, limit, why := t.finding.Health == Replaceable, t.policy.Patience, t.finding.Why
	switch {
	case certain && (!t.finding.RestsOnFence || len(left) < max(1, own.Needs)):
		return Action{}, false
	case certain:
		labels := make([]string, len(left))
		for i, r := range left {
			labels[i] = fmt.Sprintf("%.8s at %s", r.ID, r.Address)
		}
		why = "the old primary is silent, and its armed fence may be kept open by " + strings.Join(labels, ", ")
	// Opinions are missing, or it was heard from again. There is time for them to come, and to close it from here.
	case t.finding.Health != Stuck:
		limit, why = 2*t.policy.Patience, fmt.Sprintf("the old primary is %s: %s", t.finding.Health, why)
	}
	if t.seen.PhaseFor < limit {
		return Action{Wait: limit - t.seen.PhaseFor}, true
	}
	return t.failPlan(why), true
}

// isClosedWithoutLease reports whether the old primary is closed, as its own agent says or the orchestrator has seen to, and
// its agent has no lease under which it could open it again.
func (t planner) isClosedWithoutLease(own Record) bool {
	return t.seen.LeaseTakeable && (t.seen.Fenced || own.Fence == Closed)
}

// detachAt are the addresses of nodes that the orchestrator detaches from its own host, as they answer and their
// agents are silent.
func (t planner) detachAt(p Plan) (addresses []string) {
	// Only a primary that is silent needs it: what a proved one had may still be copied from its replicas.
	if p.Phase != Detaching || !t.finding.RestsOnFence {
		return nil
	}
	for _, r := range t.view.notDetached(t.seen, p, t.policy.FenceDelay) {
		if op, asked := t.view.opinionOf(r.ID, t.seen); asked && op.Reachability == Reachable && r.Address != "" {
			addresses = append(addresses, r.Address)
		}
	}
	return addresses
}

// promoting waits until the chosen node has written itself into the row, which also
// begins the next phase.
func (t planner) promoting(p Plan) Action {
	to, _ := t.view.Node(p.To)
	done, ok := to.ResultOf(p.Epoch, OrderPromote)
	from, _ := t.view.Node(p.From)
	yield, _ := from.ResultOf(p.Epoch, OrderYield)
	// Longer than an order: it must promote, get the lease and write the row.
	why, limit := "", 2*t.policy.Patience+t.policy.HookTimeout+t.waitForLease(p)
	switch {
	// It may have more than the chosen one, and keeps the lease until it leads again.
	case p.Kind == Switchover && yield.Error != "":
		return t.replacePlan(fmt.Sprintf("%s did not give the lease up: %s", from.Label(), yield.Error), p.To)
	// It holds the lease again, so that the chosen one cannot get it.
	case t.oldPrimaryReturned(p):
		return t.failPlan("the old primary is back")
	// It says so itself, and stays closed.
	case ok && done.Error != "":
		why = fmt.Sprintf("%s could not be promoted: %s", to.Label(), done.Error)
	// Nobody else was named yet: choose again.
	case to.Live() && to.Condition == Down:
		why = to.Label() + " died before it became the primary"
	case t.seen.PhaseFor >= limit:
		why = to.Label() + " did not become the primary in time"
	default:
		return Action{Wait: limit - t.seen.PhaseFor}
	}
	return t.replacePlan(why, p.To)
}

// waitForLease is how long of its phase the node that a forced plan promotes could not get the lease: an agent that has
// just died leaves it behind until it lapses. Nobody else could have got it sooner. A plan that is not forced starts when
// the lease can be had, or has it released.
func (t planner) waitForLease(p Plan) time.Duration {
	if !p.Force || p.Phase != Promoting {
		return 0
	}
	to, _ := t.view.Node(p.To)
	holder, known := t.view.holder()
	had := time.Duration(0) // for how long it could
	switch {
	case known && holder.ID == p.To:
		had = t.view.Lease.Age
	case t.seen.LeaseTakeable:
		had = t.seen.TakeableFor
	}
	return min(max(0, t.seen.PhaseFor-had), max(to.Timeout, t.view.Lease.Timing.Timeout))
}

// following leads the others to the new primary. It continues being watched meanwhile.
func (t planner) following(p Plan) Action {
	switch left := t.notFollowing(p); {
	// The new primary died: a new plan must not wait for copies from it.
	case t.finding.Health == Replaceable && t.view.Row.Primary == p.To:
		return t.completePlan("the new primary is lost already: " + t.finding.Why)
	case p.Kind == Return && !p.Force:
		// Its own replicas never left it, but for the one that was to be the next.
		return t.failPlan("it went back to the old primary: " + p.Reason)
	case len(left) == 0:
		return t.completePlan("")
	// Copies may take hours. Agents continue by themselves without a plan.
	case t.seen.PhaseFor >= followWait:
		return t.completePlan(fmt.Sprintf("%d still copying", len(left)))
	}
	return Action{Wait: min(t.policy.Patience, followWait-t.seen.PhaseFor)}
}

// notFollowing are the members that live and do not follow the new primary yet, those that
// have started first. One that cannot is left to its own agent.
func (t planner) notFollowing(p Plan) []Record {
	out := slices.DeleteFunc(t.liveMembers(p.To), func(r Record) bool {
		done, begun := r.ResultOf(p.Epoch, OrderFollow)
		// It followed, and has left again: its agent was without the store.
		left := begun && r.Role == Replica && r.Link.Detached()
		return done.Error != "" || left || r.Condition != Up || r.Role == Replica && r.PrimaryID == p.To && r.Link != nil && r.Link.Up
	})
	// The old primary comes first, as long as it is one: clients wait there for its pause to end.
	rank := func(r Record) int {
		_, begun := r.ResultOf(p.Epoch, OrderFollow)
		switch {
		case r.ID == p.From && r.Role == Primary:
			return 0
		case begun:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(out, func(a, b Record) int { return rank(a) - rank(b) })
	return out
}
