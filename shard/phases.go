package shard

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// phase goes on with a plan of our own.
func (t turn) phase(p Plan) Action {
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
		a = t.finish(fmt.Sprintf("the phase %q is not known to this version", p.Phase), "")
	}
	a.Lock = true
	if a.Decide == nil {
		a.Send, a.FenceAt = t.outstanding(p), t.fenceAt(p)
	}
	return a
}

// outstanding are the commands of the plan's phase that have no answer.
func (t turn) outstanding(p Plan) []Command {
	var out []Command
	send := func(node string, o Order, edit func(*Command)) {
		if node == "" {
			return
		}
		if r, ok := t.v.Node(node); ok {
			if _, done := r.Done(p.Epoch, o); done {
				return
			}
		}
		c := Command{ID: CommandID(p.Epoch, node, o), Shard: t.v.Row.Name, Node: node, Epoch: p.Epoch, Order: o, By: t.s.Instance, Within: max(5*t.p.Patience, time.Second)}
		if edit != nil {
			edit(&c)
		}
		out = append(out, c)
	}
	switch p.Phase {
	case Pausing:
		send(p.From, DoPause, func(c *Command) { c.For = p.Timeout })
	case Catching:
		send(p.To, DoCatch, func(c *Command) { c.Txn = p.Txn })
	case Fencing:
		send(p.From, DoFence, nil)
	case Detaching:
		for _, r := range t.attached(p.From) {
			send(r.ID, DoDetach, nil)
		}
	case Promoting:
		send(p.To, DoPromote, nil)
		if holder, ok := t.v.holder(); ok && holder.ID != p.To {
			send(holder.ID, DoYield, func(c *Command) { c.To = p.To })
		} else if p.Kind == Switchover {
			send(p.From, DoYield, func(c *Command) { c.To = p.To })
		}
	case Following:
		to, _ := t.v.Node(p.To)
		unled := t.unled(p)
		for _, r := range unled[:min(t.p.Parallel, len(unled))] {
			send(r.ID, DoFollow, func(c *Command) { c.To, c.Address = to.ID, to.Address })
		}
	}
	return out
}

// members are the nodes of the shard whose agents live, but for one.
func (t turn) members(but string) []Record {
	return slices.DeleteFunc(slices.Clone(t.v.Nodes), func(r Record) bool {
		_, member := t.v.Row.Member(r.ID)
		return r.ID == but || !r.Live() || !member
	})
}

// attached are the nodes that must leave the old primary: the members, and whoever else
// acknowledges its writes or was named by a person, with an agent that lives.
func (t turn) attached(from string) []Record {
	return slices.DeleteFunc(slices.Clone(t.v.Nodes), func(r Record) bool {
		_, member := t.v.Row.Member(r.ID)
		return r.ID == from || !r.Live() || !member && r.PrimaryID != from && r.ID != t.v.Row.Plan.Wanted
	})
}

// late tells that the phase has taken as long as an agent that lives would need.
func (t turn) late() bool { return t.s.PhaseFor >= t.p.Patience }

func (t turn) pausing(p Plan) Action {
	from, _ := t.v.Node(p.From)
	done, ok := from.Done(p.Epoch, DoPause)
	switch {
	case ok && done.Error == "":
		return t.advance(Catching, "", func(p *Plan) { p.Txn = done.Txn })
	case ok:
		return t.replace("the primary could not be paused: "+done.Error, "")
	case from.Live() && from.Condition == Down:
		return t.replace("the primary's process ended", "")
	case t.late():
		return t.replace("the primary's agent did not pause it in time", "")
	}
	return Action{Wait: t.p.Patience - t.s.PhaseFor}
}

func (t turn) catching(p Plan) Action {
	to, _ := t.v.Node(p.To)
	done, ok := to.Done(p.Epoch, DoCatch)
	// The pause began before this phase; a third of it is kept for the promotion.
	limit := p.Timeout * 2 / 3
	caught := to
	caught.Txn, caught.Lineage, caught.Before = done.Txn, done.Lineage, done.Before
	switch {
	case ok && done.Error == "" && done.Txn >= p.Txn && !t.v.Row.alien(caught):
		return t.advance(Promoting, fmt.Sprintf("at %d", p.Txn), nil)
	case ok:
		return t.replace("the replica could not catch up: "+cmp.Or(done.Error, "its data is another now"), "")
	case t.s.PhaseFor >= limit || !to.Live() || to.Condition == Down:
		return t.replace(fmt.Sprintf("the replica did not reach %d in time", p.Txn), "")
	}
	return Action{Wait: limit - t.s.PhaseFor}
}

func (t turn) fencing(p Plan) Action {
	from, _ := t.v.Node(p.From)
	done, ok := from.Done(p.Epoch, DoFence)
	switch {
	case ok && done.Error == "" || t.found.Proved:
		return t.advance(Detaching, "", nil)
	case ok || t.late():
		return t.advance(Detaching, "the old primary could not be fenced", nil)
	}
	return Action{Wait: t.p.Patience - t.s.PhaseFor}
}

// fenceAt is the address of an old primary whose agent cannot close it, unless it is another
// node's by now.
func (t turn) fenceAt(p Plan) string {
	from, known := t.v.Node(p.From)
	if !known || p.From == p.To || from.Live() || p.Phase != Fencing && p.Phase != Detaching && p.Phase != Promoting {
		return ""
	}
	for _, r := range t.v.Nodes {
		if r.ID != from.ID && r.Address == from.Address {
			return ""
		}
	}
	return from.Address
}

// back tells that the old primary has come back of itself: its agent holds the lease
// again. Nobody else could be promoted then, nor need be.
func (t turn) back(p Plan) bool {
	r, ok := t.v.holder()
	return ok && p.Kind == Failover && !p.Force && r.ID == p.From && r.ID == t.v.Row.Primary &&
		t.v.Lease.Held() && r.Live() && r.Condition == Up
}

func (t turn) detaching(p Plan) Action {
	if t.back(p) {
		return t.finish("the old primary is back", "")
	}
	waits := slices.ContainsFunc(t.attached(p.From), func(r Record) bool {
		_, ok := r.Done(p.Epoch, DoDetach)
		forced := p.Force && r.ID == p.Wanted && r.Condition == Refused // its agent takes a person's word for it
		return !ok && (r.Condition == Up || forced)
	})
	if waits && !t.late() {
		return Action{Wait: t.p.Patience - t.s.PhaseFor}
	}
	best, unfit := choose(t.v, choice{from: p.From, wanted: p.Wanted, force: p.Force, tried: p.Tried, maxLag: t.p.MaxLag, frozen: p.Epoch})
	if best == "" {
		return t.finish(because(t.v.Row.Name, unfit), "")
	}
	r, _ := t.v.Node(best)
	done, _ := r.Done(p.Epoch, DoDetach)
	r.Txn, r.Lineage, r.Before = done.Txn, done.Lineage, done.Before
	return t.advance(Promoting, fmt.Sprintf("chose %s at %d", r.Label(), done.Txn), func(p *Plan) { p.To, p.Anew = best, t.v.Row.alien(r) })
}

// promoting waits until the chosen node has written itself into the row, which also
// begins the next phase.
func (t turn) promoting(p Plan) Action {
	to, _ := t.v.Node(p.To)
	done, ok := to.Done(p.Epoch, DoPromote)
	why := ""
	switch {
	case t.back(p):
		return t.finish("the old primary is back", "")
	case ok && done.Error != "":
		why = fmt.Sprintf("%s could not be promoted: %s", to.Label(), done.Error)
	case to.Live() && to.Condition == Down:
		why = to.Label() + " died before it became the primary"
	case t.s.PhaseFor >= 2*t.p.Patience:
		why = to.Label() + " did not become the primary in time"
	default:
		return Action{Wait: 2*t.p.Patience - t.s.PhaseFor}
	}
	return t.replace(why, p.To)
}

// following leads the others to the new primary. It goes on being watched meanwhile.
func (t turn) following(p Plan) Action {
	switch left := t.unled(p); {
	case t.found.Health == Over && t.v.Row.Primary == p.To:
		return t.finish("", "the new primary is over already: "+t.found.Why)
	case p.Kind == Return && !p.Force:
		// Its own replicas never left it, but for the one that was to be the next.
		return t.finish("it went back to the old primary: "+p.Reason, "")
	case len(left) == 0:
		return t.finish("", "")
	case t.s.PhaseFor >= t.p.FollowWait:
		return t.finish("", fmt.Sprintf("%d still copying", len(left)))
	}
	return Action{Wait: min(t.p.Patience, t.p.FollowWait-t.s.PhaseFor)}
}

// unled are the members that live and do not follow the new primary yet, those that
// have begun first. One that cannot is left to its own agent.
func (t turn) unled(p Plan) []Record {
	out := slices.DeleteFunc(t.members(p.To), func(r Record) bool {
		done, _ := r.Done(p.Epoch, DoFollow)
		return done.Error != "" || r.Condition != Up || r.Role == Replica && r.PrimaryID == p.To && r.Link != nil && r.Link.Up
	})
	// The old primary comes first, as long as it is one: clients wait there for its pause to end.
	rank := func(r Record) int {
		_, begun := r.Done(p.Epoch, DoFollow)
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

// Install is the last step of a promotion, for the agent of the node that a plan names: the row in
// which it is the primary, for [Registry.Decide]. The state is what the node shows after
// its promotion, and took how long that took. It is ErrChanged when the plan is not in force any more.
func (r Row) Install(node string, epoch int64, s State, took time.Duration) (Row, error) {
	p := r.Plan
	if p == nil || p.Epoch != epoch || p.To != node || p.Phase != Promoting {
		return Row{}, fmt.Errorf("%w: the plan of epoch %d does not name node %.8s any more", ErrChanged, epoch, node)
	}
	r = r.Copy()
	r.Primary, r.PrimaryEpoch = node, epoch
	r.Plan.Steps = append(r.Plan.Steps, Step{Phase: Promoting, Took: took})
	r.Plan.Phase = Following
	if p.Anew {
		r.Lineages = nil
	}
	r.Lineages = extend(r.Lineages, s.Lineage.ID, s.promotedAt())
	if _, member := r.Member(node); !member {
		r.Members = append(r.Members, Member{ID: node, Since: p.Began})
	}
	if p.Kind == Failover && p.Request == "" {
		r.Failovers = append(r.Failovers, p.Began)
		r.Failovers = r.Failovers[max(0, len(r.Failovers)-MaxFailovers):]
	}
	return r, nil
}

// extend ends the lineages at txn, where the new primary stood, and begins another, unless
// it goes on with the present one. What anybody has of them beyond that was never its.
func extend(all []Lineage, id string, txn int64) []Lineage {
	if n := len(all); n > 0 && all[n-1].ID == id {
		return all
	}
	if txn <= 0 {
		return []Lineage{{ID: id}}
	}
	all = slices.DeleteFunc(all, func(l Lineage) bool { return l.ID == id })
	for i := range all {
		if all[i].End == 0 || all[i].End > txn {
			all[i].End = txn
		}
	}
	all = append(all, Lineage{ID: id})
	return all[max(0, len(all)-MaxLineages):]
}
