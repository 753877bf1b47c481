package shard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// startAutomatic starts a failover that nobody asked for, unless something speaks against it.
func (t planner) startAutomatic() Action {
	row := t.view.Row
	name := row.Name
	// Maintenance: an operator said so.
	if row.Paused != nil {
		return Action{Blocked: fmt.Sprintf("failover of shard %q is paused by %s; go on with: understudy shard resume %s", name, row.Paused.By, name)}
	}
	// It may accept writes from others: replacing it would make two primaries.
	if t.finding.Health == Stuck {
		return Action{Blocked: fmt.Sprintf("%s. Make sure that it is dead, then: understudy shard failover %s --force", t.finding.Why, name)}
	}
	// What keeps failing is not made better by moving it around. One that is proved to be dead or closed serves nobody:
	// leaving it in its place helps nobody.
	if n := len(row.recentFailovers(t.view.Now, flapWindow)); n >= t.policy.FlapLimit && !t.finding.Proved {
		return Action{Blocked: fmt.Sprintf("shard %q failed over %d times within %v; find out why, then: understudy shard failover %s", name, n, flapWindow, name)}
	}
	// Only a failover that did something counts, not a request that was refused.
	if last := row.Last; last != nil && last.Failed != "" && last.Kind == Failover && len(last.Steps) > 0 {
		if since := t.view.Now.Sub(last.Ended); since >= 0 && since < t.policy.Patience {
			return Action{Blocked: last.Failed, Wait: t.policy.Patience - since}
		}
	}
	// Rather no plan than one that ends without a primary: the replicas would be detached for nothing.
	if best, unfit := choosePrimary(t.view, choice{from: row.Primary, maxLag: t.policy.MaxLag}); best == "" {
		return Action{Blocked: explainNoCandidate(name, unfit)}
	}
	return t.startPlan(Plan{Kind: Failover, From: row.Primary, Phase: Detaching, Reason: t.finding.Why})
}

// startPlan starts a plan under an epoch of its own.
func (t planner) startPlan(p Plan) Action {
	return t.rowChange(func(r *Row) {
		r.Epoch = t.view.nextEpoch()
		p.Epoch, p.By, p.ByNode, p.Began = r.Epoch, t.seen.Instance, t.seen.Node, t.view.Now
		r.Plan = &p
		if r.Request != nil && p.Request == r.Request.id() {
			r.Request = nil
		}
	}, nil)
}

// startRequested starts what an operator asked for, or refuses it.
func (t planner) startRequested(q Request) Action {
	row := t.view.Row
	force := q.Force && q.Kind == Failover
	plan := Plan{Kind: q.Kind, From: row.Primary, Wanted: q.To, Force: force, Request: q.id(),
		Reason: "asked for by " + q.By, Timeout: cmp.Or(q.Timeout, DefaultPause)}
	old, _ := t.view.Node(row.Primary)
	best, unfit := choosePrimary(t.view, choice{from: row.Primary, wanted: q.To, force: force, maxLag: t.policy.MaxLag})
	switch {
	// A newer version may know more kinds.
	case q.Kind != Failover && q.Kind != Switchover:
		return t.refuseRequest(plan, fmt.Sprintf("the request is for a %.20q, which this version does not know", q.Kind))
	case row.Primary == "":
		return t.refuseRequest(plan, "the shard has no primary yet")
	// Its agent keeps it closed, because it may have lost data. An operator who names it takes what it has. Not every one
	// that is kept closed can be replaced: its agent may wait, and say that an operator has to choose.
	case q.To == row.Primary && force && isAnswering(old) && (t.finding.Health == Replaceable || old.Fence == Closed && !t.view.isLed()):
		plan.Kind, plan.Phase, plan.To, plan.Wanted, plan.NewHistory = Return, Promoting, q.To, "", row.isForeignData(old)
	case q.To == row.Primary:
		return t.refuseRequest(plan, old.Label()+" is the primary already")
	// Before anything is changed.
	case best == "" && t.finding.Health == Fine && !force:
		return t.refuseRequest(plan, listUnfit(row.Name, unfit)) // nothing is to be forced while the primary is well
	case best == "":
		return t.refuseRequest(plan, explainNoCandidate(row.Name, unfit))
	// A switchover loses nothing because the primary takes part in it.
	case q.Kind == Switchover && (t.finding.Health != Fine || !old.Live() || old.Condition != Up):
		return t.refuseRequest(plan, fmt.Sprintf("the primary %s is not well (%s: %s); a switchover needs it. %s",
			old.Label(), t.finding.Health, t.finding.Why, t.switchoverHelp(old)))
	// Writes would wait for long, and then in vain.
	case q.Kind == Switchover && old.Txn-lastTxn(t.view, best) > MaxSwitchoverLag:
		return t.awaitReplica(q, plan, best)
	case q.Kind == Switchover:
		plan.Phase, plan.To, plan.Run = Pausing, best, old.Run
	// It is closed or dead already: no need to fence it.
	case t.finding.Health == Replaceable:
		plan.Phase = Detaching
	// It may accept writes: only an operator may decide that they are lost.
	case !force:
		alternative := ""
		if t.finding.Health == Fine {
			alternative = " To replace it without loss: understudy shard switchover " + row.Name + "."
		}
		return t.refuseRequest(plan, fmt.Sprintf("the primary is %s: %s.%s To replace it anyway, losing what no replica has: understudy shard failover %s --force",
			t.finding.Health, t.finding.Why, alternative, row.Name))
	default:
		plan.Phase = Fencing
	}
	return t.startPlan(plan)
}

// switchoverHelp is what an operator can do about a primary that is not well enough for a switchover. A failover is
// advised only where it loses nothing that is not lost already.
func (t planner) switchoverHelp(old Record) string {
	switch t.finding.Health {
	case Fine:
		return fmt.Sprintf("Wait until it is up (it is %s)", cmp.Or(old.Condition, Silent))
	case Unattended:
		return "Start its agent, or wait until that has the lease again"
	case Replaceable:
		return "Use: understudy shard failover " + t.view.Row.Name
	}
	return "See: understudy shard show " + t.view.Row.Name
}

// MaxSwitchoverLag is how far behind the primary (bytes, on Redis) a replica may be when writes are paused: what it can
// copy in a part of the pause, and more than a busy primary moves on between two reports.
const MaxSwitchoverLag = 16 << 20

// awaitReplica lets a request for a switchover wait until the replica is near, before anything is changed, and refuses
// it when that takes too long.
func (t planner) awaitReplica(q Request, plan Plan, best string) Action {
	r, _ := t.view.Node(best)
	limit := 4 * plan.Timeout
	why := fmt.Sprintf("%s is %d behind the primary, more than %d, with which a switchover starts", r.Label(), lastTxn(t.view, t.view.Row.Primary)-r.Txn, MaxSwitchoverLag)
	if waited := t.view.Now.Sub(q.At); waited >= 0 && waited < limit {
		return Action{Lock: true, Wait: min(t.policy.Patience/4, limit-waited)}
	}
	return t.refuseRequest(plan, fmt.Sprintf("%s, and was not nearer after %v. Nothing was changed. Wait until LAG is small, or name another: understudy shard switchover %s --to NODE", why, limit, t.view.Row.Name))
}

// id is never "", so that a plan shows that somebody asked for it.
func (q Request) id() string { return cmp.Or(q.ID, "?") }

// isAnswering reports whether both the node and its agent do.
func isAnswering(r Record) bool { return r.Live() && (r.Condition == Up || r.Condition == Quarantined) }

// refuseRequest ends a request without a plan having started; it is shown as the last one.
func (t planner) refuseRequest(p Plan, why string) Action {
	p.Failed, p.Began, p.Ended, p.Epoch = why, t.view.Now, t.view.Now, t.view.Row.Epoch
	return t.rowChange(func(r *Row) { r.Request, r.Last = nil, &p }, t.event(p))
}

const (
	// insteadOf parts the reason of the first of several plans from that of the latest.
	insteadOf = "; in place of epoch "
	// maxAttempts is how often a promotion that failed is tried again, of another node or the same, by the plans in its place.
	maxAttempts = 3
)

// replacePlan starts a plan under a new epoch in the place of one that got stuck. Nothing
// that was sent under the old epoch counts any more; a node that was tried, and did not become the primary, goes
// behind its equals, and after a second try behind all. That the orchestrator died says nothing about its node.
func (t planner) replacePlan(why, tried string) Action {
	old := *t.view.Row.Plan
	next := old
	next.Steps, next.Took = nil, 0
	reason, _, _ := strings.Cut(old.Reason, insteadOf)
	next.Reason = fmt.Sprintf("%s%s%d: %s", reason, insteadOf, old.Epoch, why)
	if tried != "" {
		next.Tried = append(next.Tried[:len(next.Tried):len(next.Tried)], tried)
	}
	switch {
	// The row names the new primary already: only its replicas are left to lead there.
	case old.Phase == Following:
		next.Kind, next.Phase, next.To = Repair, Following, t.view.Row.Primary
	// No node could be promoted.
	case len(next.Tried) > maxAttempts:
		return t.failPlan(why)
	// Its old primary is paused, not lost.
	case old.Kind == Switchover || old.Kind == Return:
		return t.returnToOldPrimary(old, next, why)
	default:
		next.Kind, next.Phase, next.To, next.NewHistory = Failover, Detaching, "", false
		if old.Phase == Fencing {
			next.Phase = Fencing
		}
	}
	return t.startPlan(next)
}

// returnToOldPrimary is the way on of a switchover that could not finish: back to the old primary while that
// lives, and otherwise a failover, once it is proved that it can be replaced. One that had not been
// paused is left as it is.
func (t planner) returnToOldPrimary(old, next Plan, why string) Action {
	from, _ := t.view.Node(old.From)
	// An operator who forced this primary accepted its condition.
	well := isAnswering(from) && (from.Condition == Up || old.Kind == Return && old.Force)
	wait := old.Phase != Pausing && t.seen.PhaseFor < max(8*t.policy.Patience, 4*from.Timeout) && t.view.Row.Request == nil
	why = fmt.Sprintf("%s; the old primary %s is %s: %s", why, from.Label(), t.finding.Health, t.finding.Why)
	switch {
	// It was tried already, or was restarted since, and may have lost data.
	case well && (slices.Contains(next.Tried, old.From) || old.Run != "" && from.Run != old.Run):
		return t.failPlan(why) // its own agent knows best what to do then
	// It was only paused: nothing is lost by going back.
	case well:
		next.Kind, next.Phase, next.To, next.Wanted = Return, Promoting, old.From, ""
	// It died on the way. In the phase promoting it has given the lease up and was closed from here.
	case t.finding.Health == Replaceable, old.Phase == Promoting && t.seen.LeaseTakeable && t.seen.Fenced && !from.Live():
		next.Kind, next.Phase, next.To, next.Wanted, next.NewHistory = Failover, Detaching, "", "", false
	// It may answer again, or be proved dead. Giving up now would leave the shard paused and without a plan.
	case wait && t.finding.Health != Stuck:
		return Action{Lock: true, Wait: t.policy.Patience / 4, Blocked: why}
	default:
		return t.failPlan(why)
	}
	return t.startPlan(next)
}

// String is the plan as one line for operators.
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
