package shard

import (
	"cmp"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/history"
)

// Policy is how an agent orchestrates.
type Policy struct {
	// MaxLag is how many transactions (bytes, on Redis) behind the last known primary a replica may be to
	// be chosen, by an operator's request too, unless that names it and forces it; 0: any number. What is known of both comes
	// from reports of different moments: below what the primary moves on in two intervals it also refuses replicas
	// that lack nothing.
	MaxLag int64
	// Parallel is how many replicas copy from a new primary at once. Default 1.
	Parallel int
	// FenceDelay of the engine.
	FenceDelay time.Duration
	// Patience with a node that does not carry out a command. Default 2 s.
	Patience time.Duration
	// HookTimeout is how much longer a promotion may take, because a hook comes before it. Default 0.
	HookTimeout time.Duration
	// FlapLimit is how many automatic failovers may happen within 10 min, but for those of a primary that is proved
	// to be dead or closed. Default 5.
	FlapLimit int
}

const (
	// followWait is how long a plan waits for its replicas to follow; those that need longer continue by themselves.
	followWait = time.Minute
	flapWindow = 10 * time.Minute
)

// WithDefaults fills what is zero.
func (p Policy) WithDefaults() Policy {
	p.Parallel = cmp.Or(p.Parallel, 1)
	p.Patience = cmp.Or(p.Patience, 2*time.Second)
	p.FlapLimit = cmp.Or(p.FlapLimit, 5)
	return p
}

// Action is what the planner wants done next.
type Action struct {
	// Lock: there is something to do, for whoever holds the failover lock.
	Lock bool
	// Update, if not nil, is the next change of the row.
	Update *RowUpdate
	// Send are the commands of the present phase that have no answer yet. Those sent a
	// moment ago need not be sent again.
	Send []Command
	// FenceAt is the address of a node to be fenced from here, as its agent does not live.
	FenceAt string
	// DetachAt are the addresses of replicas to be detached from here, as their agents do not live.
	DetachAt []string
	// Blocked is why nothing is done about a primary that is lost, and what an operator can do.
	Blocked string
	// Wait is after how long to look again, 0 when only a change is worth it.
	Wait time.Duration
	// Finding about the primary.
	Finding Finding
}

// NextAction is the planner: from a view to what comes next. It has no state of its own.
func NextAction(v View, seen Observation, policy Policy) Action {
	policy = policy.WithDefaults()
	t := planner{view: v, seen: seen, policy: policy, finding: Judge(v, seen, policy.FenceDelay)}
	a := t.next()
	a.Finding = t.finding
	if a.Wait == 0 || t.finding.RecheckAfter > 0 && t.finding.RecheckAfter < a.Wait {
		a.Wait = t.finding.RecheckAfter
	}
	if !seen.Orchestrating {
		a.Update, a.Send, a.FenceAt, a.DetachAt = nil, nil, "", nil
	}
	return a
}

// planner is one call of [NextAction].
type planner struct {
	view    View
	seen    Observation
	policy  Policy
	finding Finding
}

func (t planner) next() Action {
	row := t.view.Row
	if _, member := row.Member(t.seen.Node); !member {
		return Action{}
	}
	switch lost := t.view.lostDecisions(); {
	// What the plan had done, and what was decided after it, may be lost. To go on with it would end in an epoch above all others.
	case row.Plan != nil && len(lost) > 0:
		return t.failPlan(lost[0].Node + ": " + lost[0].Why)
	// An operator's request goes before what the planner would do by itself.
	case row.Plan == nil && row.Request != nil:
		return t.startRequested(*row.Request)
	case row.Plan == nil && len(lost) > 0:
		return Action{Blocked: explainNoCandidate(row.Name, lost)}
	case row.Plan == nil && (t.finding.Health == Replaceable || t.finding.Health == Stuck):
		return t.startAutomatic()
	case row.Plan == nil:
		return Action{}
	// A plan belongs to the run of the agent that started it: what that had sent counts only under its epoch.
	case row.Plan.By != t.seen.Instance:
		if t.hasLiveOrchestrator(*row.Plan) {
			return Action{Wait: t.policy.Patience}
		}
		return t.replacePlan("its orchestrator died", "")
	}
	return t.continuePlan(*row.Plan)
}

// hasLiveOrchestrator reports whether the plan's orchestrator lives, and has not had more time than any
// phase may take.
func (t planner) hasLiveOrchestrator(p Plan) bool {
	limit := 4*t.policy.Patience + t.policy.HookTimeout + p.Timeout + t.waitForLease(p)
	if p.Phase == Following {
		limit += followWait
	}
	r, ok := t.view.Node(p.ByNode)
	return ok && p.ByNode != t.seen.Node && r.Live() && r.Instance == p.By && t.seen.PhaseFor < limit
}

// rowChange is the action that changes the row as edit says and sends the commands of the phase that the plan
// is in then.
func (t planner) rowChange(edit func(*Row), event *history.Event, drop ...string) Action {
	row := t.view.Row.Copy()
	edit(&row)
	u := RowUpdate{Row: row, Event: event, Drop: drop}
	if row.Plan != nil {
		then := t
		then.view.Row = row
		u.Commands = then.unansweredCommands(*row.Plan)
	}
	return Action{Lock: true, Update: &u}
}

// advancePhase ends the plan's phase and starts another.
func (t planner) advancePhase(to Phase, note string, edit func(*Plan)) Action {
	return t.rowChange(func(r *Row) {
		r.Plan.Steps = append(r.Plan.Steps, Step{Phase: r.Plan.Phase, Took: t.seen.PhaseFor, Note: note})
		r.Plan.Phase = to
		if edit != nil {
			edit(r.Plan)
		}
	}, nil)
}

// completePlan ends a plan that reached what it was for.
func (t planner) completePlan(note string) Action { return t.endPlan("", note) }

// failPlan ends a plan that did not.
func (t planner) failPlan(why string) Action { return t.endPlan(why, "") }

// endPlan ends the plan; failed is why it reached nothing. The record of an old primary that is gone is retired with it; it
// is written again when that returns.
func (t planner) endPlan(failed, note string) Action {
	p := *t.view.Row.Plan
	p.Steps = append(p.Steps[:len(p.Steps):len(p.Steps)], Step{Phase: p.Phase, Took: t.seen.PhaseFor, Note: note})
	p.Ended, p.Failed = t.view.Now, failed
	for _, s := range p.Steps {
		p.Took += s.Took
	}
	var drop []string
	old, ok := t.view.Node(p.From)
	if ok && failed == "" && p.From != t.view.Row.Primary && (!old.Live() || old.Condition == Down) {
		drop = append(drop, p.From)
	}
	return t.rowChange(func(r *Row) {
		r.Plan, r.Last = nil, &p
		for i := range r.Members {
			if slices.Contains(drop, r.Members[i].ID) {
				r.Members[i].Since = t.view.Now
			}
		}
	}, t.event(p), drop...)
}

// event is a plan that has ended, for the history.
func (t planner) event(p Plan) *history.Event {
	label := func(id string) string {
		if r, ok := t.view.Node(id); ok {
			return r.Label()
		}
		return id[:min(8, len(id))]
	}
	e := &history.Event{Part: Space, Subject: t.view.Row.Name, From: label(p.From), To: label(p.To), Term: p.Epoch, Reason: p.String(), Duration: p.Took}
	if p.Failed != "" || p.Kind == Repair || p.Kind == Return {
		e.From, e.To = "", ""
	}
	return e
}
