package shard

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// automatic begins a failover that nobody asked for, unless something speaks against it.
func (t turn) automatic() Action {
	row := t.v.Row
	name := row.Name
	if row.Paused != nil {
		return Action{Blocked: fmt.Sprintf("failover of shard %q is paused by %s; go on with: understudy shard resume %s", name, row.Paused.By, name)}
	}
	if t.found.Health == Stuck {
		return Action{Blocked: fmt.Sprintf("%s. Make sure that it is dead, then: understudy shard failover %s --force", t.found.Why, name)}
	}
	if n := len(row.recent(t.v.Now, t.p.FlapWindow)); n >= t.p.FlapLimit {
		return Action{Blocked: fmt.Sprintf("shard %q failed over %d times within %v; find out why, then: understudy shard failover %s", name, n, t.p.FlapWindow, name)}
	}
	if last := row.Last; last != nil && last.Failed != "" {
		if since := t.v.Now.Sub(last.Ended); since >= 0 && since < t.p.Patience {
			return Action{Blocked: last.Failed, Wait: t.p.Patience - since}
		}
	}
	if best, unfit := choose(t.v, choice{from: row.Primary, maxLag: t.p.MaxLag}); best == "" {
		return Action{Blocked: because(name, unfit)}
	}
	return t.begin(Plan{Kind: Failover, From: row.Primary, Phase: Detaching, Reason: t.found.Why})
}

// begin starts a plan under an epoch of its own.
func (t turn) begin(p Plan) Action {
	return t.decide(func(r *Row) {
		r.Epoch++
		p.Epoch, p.By, p.ByNode, p.Began = r.Epoch, t.s.Instance, t.s.Node, t.v.Now
		r.Plan = &p
		r.Request = nil
	}, nil)
}

// requested begins what a person asked for, or refuses it.
func (t turn) requested(q Request) Action {
	row := t.v.Row
	plan := Plan{Kind: q.Kind, From: row.Primary, Wanted: q.To, Force: q.Force, Request: q.ID,
		Reason: "asked for by " + q.By, Timeout: cmp.Or(q.Timeout, DefaultPause)}
	old, _ := t.v.Node(row.Primary)
	best, unfit := choose(t.v, choice{from: row.Primary, wanted: q.To, force: q.Force, maxLag: t.p.MaxLag})
	switch {
	case row.Primary == "":
		return t.refuse(plan, "the shard has no primary yet")
	case q.To == row.Primary && q.Force && lives(old) && t.found.Health == Over:
		plan.Kind, plan.Phase, plan.To, plan.Wanted = Return, Promoting, q.To, ""
	case q.To == row.Primary:
		return t.refuse(plan, old.Label()+" is the primary already")
	case best == "":
		return t.refuse(plan, because(row.Name, unfit))
	case q.Kind == Switchover && (!lives(old) || old.Condition != Up || t.found.Health == Over):
		return t.refuse(plan, fmt.Sprintf("the primary %s is not well (%s); a switchover needs it. Use: understudy shard failover %s", old.Label(), t.found.Why, row.Name))
	case q.Kind == Switchover:
		plan.Phase, plan.To = Pausing, best
	case t.found.Health == Over:
		plan.Phase = Detaching
	case !q.Force:
		return t.refuse(plan, fmt.Sprintf("the primary is %s: %s. To replace it without loss: understudy shard switchover %s. To replace it all the same, losing what no replica has: understudy shard failover %s --force",
			t.found.Health, t.found.Why, row.Name, row.Name))
	default:
		plan.Phase = Fencing
	}
	return t.begin(plan)
}

// lives tells that both the node and its agent do.
func lives(r Record) bool { return r.Live() && (r.Condition == Up || r.Condition == Refused) }

// refuse ends a request without a plan having begun; it is shown as the last one.
func (t turn) refuse(p Plan, why string) Action {
	p.Failed, p.Began, p.Ended, p.Epoch = why, t.v.Now, t.v.Now, t.v.Row.Epoch
	return t.decide(func(r *Row) { r.Request, r.Last = nil, &p }, t.event(p))
}

// instead parts the reason of the first of several plans from that of the latest.
const instead = "; in place of epoch "

// replace begins a plan under a new epoch in the place of one that got stuck. Nothing
// that was sent under the old epoch counts any more; a node that was named by it and
// did not become the primary is tried last.
func (t turn) replace(why, tried string) Action {
	old := *t.v.Row.Plan
	next := old
	next.Steps, next.Took, next.Txn = nil, 0, 0
	reason, _, _ := strings.Cut(old.Reason, instead)
	next.Reason = fmt.Sprintf("%s%s%d: %s", reason, instead, old.Epoch, why)
	if tried != "" {
		next.Tried = append(next.Tried[:len(next.Tried):len(next.Tried)], tried)
	}
	from, _ := t.v.Node(old.From)
	alive := lives(from)
	switch {
	case old.Phase == Following:
		next.Kind, next.Phase, next.To = Repair, Following, t.v.Row.Primary
	case (old.Kind == Switchover || old.Kind == Return) && alive:
		next.Kind, next.Phase, next.To, next.Wanted = Return, Promoting, old.From, ""
	case old.Kind != Failover && t.found.Health != Over:
		return Action{Lock: true, Wait: t.p.Patience / 4}
	default:
		next.Kind, next.Phase, next.To = Failover, Detaching, ""
		if old.Kind != Failover {
			next.Wanted = ""
		}
	}
	return t.begin(next)
}

// String is the plan as one line for people.
func (p Plan) String() string {
	s := string(p.Kind)
	if p.Failed != "" {
		return s + " failed: " + p.Failed
	}
	for i, step := range p.Steps {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		s += fmt.Sprintf("%s%s %v", sep, step.Phase, step.Took.Round(time.Millisecond))
	}
	return s
}
