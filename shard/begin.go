package shard

import (
	"cmp"
	"fmt"
	"slices"
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
	// Only a failover that did something counts, not a request that was refused.
	if last := row.Last; last != nil && last.Failed != "" && last.Kind == Failover && len(last.Steps) > 0 {
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
		r.Epoch = t.v.nextEpoch()
		p.Epoch, p.By, p.ByNode, p.Began = r.Epoch, t.s.Instance, t.s.Node, t.v.Now
		r.Plan = &p
		if r.Request != nil && p.Request == r.Request.id() {
			r.Request = nil
		}
	}, nil)
}

// requested begins what a person asked for, or refuses it.
func (t turn) requested(q Request) Action {
	row := t.v.Row
	force := q.Force && q.Kind == Failover
	plan := Plan{Kind: q.Kind, From: row.Primary, Wanted: q.To, Force: force, Request: q.id(),
		Reason: "asked for by " + q.By, Timeout: cmp.Or(q.Timeout, DefaultPause)}
	old, _ := t.v.Node(row.Primary)
	best, unfit := choose(t.v, choice{from: row.Primary, wanted: q.To, force: force, maxLag: t.p.MaxLag})
	switch {
	case q.Kind != Failover && q.Kind != Switchover:
		return t.refuse(plan, fmt.Sprintf("the request is for a %.20q, which this version does not know", q.Kind))
	case row.Primary == "":
		return t.refuse(plan, "the shard has no primary yet")
	case q.To == row.Primary && force && lives(old) && t.found.Health == Over:
		plan.Kind, plan.Phase, plan.To, plan.Wanted, plan.Anew = Return, Promoting, q.To, "", row.alien(old)
	case q.To == row.Primary:
		return t.refuse(plan, old.Label()+" is the primary already")
	case best == "":
		return t.refuse(plan, because(row.Name, unfit))
	case q.Kind == Switchover && (t.found.Health != Fine || !old.Live() || old.Condition != Up):
		help := "Use: understudy shard failover " + row.Name
		if t.found.Health == Unattended {
			help = "Start its agent, or wait until that has the lease again"
		}
		return t.refuse(plan, fmt.Sprintf("the primary %s is not well (%s: %s); a switchover needs it. %s",
			old.Label(), t.found.Health, t.found.Why, help))
	case q.Kind == Switchover:
		plan.Phase, plan.To, plan.Run = Pausing, best, old.Run
	case t.found.Health == Over:
		plan.Phase = Detaching
	case !force:
		gentle := ""
		if t.found.Health == Fine {
			gentle = " To replace it without loss: understudy shard switchover " + row.Name + "."
		}
		return t.refuse(plan, fmt.Sprintf("the primary is %s: %s.%s To replace it all the same, losing what no replica has: understudy shard failover %s --force",
			t.found.Health, t.found.Why, gentle, row.Name))
	default:
		plan.Phase = Fencing
	}
	return t.begin(plan)
}

// id is never "", so that a plan shows that somebody asked for it.
func (q Request) id() string { return cmp.Or(q.ID, "?") }

// lives tells that both the node and its agent do.
func lives(r Record) bool { return r.Live() && (r.Condition == Up || r.Condition == Refused) }

// refuse ends a request without a plan having begun; it is shown as the last one.
func (t turn) refuse(p Plan, why string) Action {
	p.Failed, p.Began, p.Ended, p.Epoch = why, t.v.Now, t.v.Now, t.v.Row.Epoch
	return t.decide(func(r *Row) { r.Request, r.Last = nil, &p }, t.event(p))
}

const (
	// instead parts the reason of the first of several plans from that of the latest.
	instead = "; in place of epoch "
	// attempts is how many nodes, or how often one, a plan and those in its place try to promote.
	attempts = 3
)

// replace begins a plan under a new epoch in the place of one that got stuck. Nothing
// that was sent under the old epoch counts any more; a node that was named by it and
// did not become the primary is tried last.
func (t turn) replace(why, tried string) Action {
	old := *t.v.Row.Plan
	next := old
	next.Steps, next.Took = nil, 0
	reason, _, _ := strings.Cut(old.Reason, instead)
	next.Reason = fmt.Sprintf("%s%s%d: %s", reason, instead, old.Epoch, why)
	if tried != "" {
		next.Tried = append(next.Tried[:len(next.Tried):len(next.Tried)], tried)
	}
	switch {
	case old.Phase == Following:
		next.Kind, next.Phase, next.To = Repair, Following, t.v.Row.Primary
	case len(next.Tried) > attempts:
		return t.finish(why, "")
	case old.Kind == Switchover || old.Kind == Return:
		return t.goBack(old, next, why)
	default:
		next.Kind, next.Phase, next.To, next.Anew = Failover, Detaching, "", false
		if old.Phase == Fencing {
			next.Phase = Fencing
		}
	}
	return t.begin(next)
}

// goBack is the way on of a switchover that could not finish: back to the old primary while that
// lives, and otherwise a failover, once it is proved that it can be replaced. One that had not been
// paused is left as it is.
func (t turn) goBack(old, next Plan, why string) Action {
	from, _ := t.v.Node(old.From)
	// A person who forced the primary that there is did so whatever its condition.
	well := lives(from) && (from.Condition == Up || old.Kind == Return && old.Force)
	wait := old.Phase != Pausing && t.s.PhaseFor < max(8*t.p.Patience, 4*from.Timeout) && t.v.Row.Request == nil
	why = fmt.Sprintf("%s; the old primary %s is %s: %s", why, from.Label(), t.found.Health, t.found.Why)
	switch {
	case well && (slices.Contains(next.Tried, old.From) || old.Run != "" && from.Run != old.Run):
		return t.finish(why, "") // its own agent knows best what to do then
	case well:
		next.Kind, next.Phase, next.To, next.Wanted = Return, Promoting, old.From, ""
	case t.found.Health == Over, old.Phase == Promoting && t.s.Over && t.s.Fenced && !from.Live():
		next.Kind, next.Phase, next.To, next.Wanted, next.Anew = Failover, Detaching, "", "", false
	case wait && t.found.Health != Stuck:
		return Action{Lock: true, Wait: t.p.Patience / 4, Blocked: why}
	default:
		return t.finish(why, "")
	}
	return t.begin(next)
}

// String is the plan as one line for people.
func (p Plan) String() string {
	s := string(p.Kind)
	if p.Failed != "" {
		if p.Kind == Return && !p.Force {
			s = string(Switchover)
		}
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
