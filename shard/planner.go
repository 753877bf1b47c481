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
	// be chosen without a person; 0: any number.
	MaxLag int64
	// Parallel is how many replicas copy from a new primary at once. Default 1.
	Parallel int
	// FenceDelay of the engine.
	FenceDelay time.Duration
	// Patience with a node that does not carry out a command. Default 2 s.
	Patience time.Duration
	// FollowWait is how long a plan waits for its replicas to follow. Default 1 min;
	// those that need longer go on by themselves.
	FollowWait time.Duration
	// FlapLimit is how many automatic failovers may happen within FlapWindow. Default 5 in
	// 10 min.
	FlapLimit  int
	FlapWindow time.Duration
}

// WithDefaults fills what is zero.
func (p Policy) WithDefaults() Policy {
	p.Parallel = cmp.Or(p.Parallel, 1)
	p.Patience = cmp.Or(p.Patience, 2*time.Second)
	p.FollowWait = cmp.Or(p.FollowWait, time.Minute)
	p.FlapLimit = cmp.Or(p.FlapLimit, 5)
	p.FlapWindow = cmp.Or(p.FlapWindow, 10*time.Minute)
	return p
}

// Action is what the planner wants done next.
type Action struct {
	// Lock: there is something to do, for whoever holds the failover lock.
	Lock bool
	// Decide, if not nil, is the next decision.
	Decide *Decision
	// Send are the commands of the present phase that have no answer yet. Those sent a
	// moment ago need not be sent again.
	Send []Command
	// FenceAt is the address of a node to be fenced from here, as its agent does not live.
	FenceAt string
	// Blocked is why nothing is done about a primary that is over, and what a person can do.
	Blocked string
	// Wait is after how long to look again, 0 when only a change is worth it.
	Wait time.Duration
	// Finding about the primary.
	Finding Finding
}

// Next is the planner: from a view to what comes next. It has no state of its own.
func Next(v View, s Sight, p Policy) Action {
	p = p.WithDefaults()
	t := turn{v: v, s: s, p: p, found: Judge(v, s, p.FenceDelay)}
	a := t.next()
	a.Finding = t.found
	if a.Wait == 0 || t.found.Wait > 0 && t.found.Wait < a.Wait {
		a.Wait = t.found.Wait
	}
	if !s.Orchestrating {
		a.Decide, a.Send, a.FenceAt = nil, nil, ""
	}
	return a
}

// turn is one call of Next.
type turn struct {
	v     View
	s     Sight
	p     Policy
	found Finding
}

func (t turn) next() Action {
	row := t.v.Row
	if _, member := row.Member(t.s.Node); !member {
		return Action{}
	}
	switch {
	case row.Plan == nil && row.Request != nil:
		return t.requested(*row.Request)
	case row.Plan == nil && (t.found.Health == Over || t.found.Health == Stuck):
		return t.automatic()
	case row.Plan == nil:
		return Action{}
	case row.Plan.By != t.s.Instance:
		if t.orchestrated(*row.Plan) {
			return Action{Wait: t.p.Patience}
		}
		return t.replace("its orchestrator died", "")
	}
	return t.phase(*row.Plan)
}

// orchestrated tells that the plan's orchestrator lives, and has not had more time than any
// phase may take.
func (t turn) orchestrated(p Plan) bool {
	limit := 4*t.p.Patience + p.Timeout
	if p.Phase == Following {
		limit += t.p.FollowWait
	}
	r, ok := t.v.Node(p.ByNode)
	return ok && p.ByNode != t.s.Node && r.Live() && r.Instance == p.By && t.s.PhaseFor < limit
}

// decide changes the row as edit says and sends the commands of the phase that the plan
// is in then.
func (t turn) decide(edit func(*Row), event *history.Event, drop ...string) Action {
	row := t.v.Row.Copy()
	edit(&row)
	d := Decision{Row: row, Event: event, Drop: drop}
	if row.Plan != nil {
		then := t
		then.v.Row = row
		d.Commands = then.outstanding(*row.Plan)
	}
	return Action{Lock: true, Decide: &d}
}

// advance ends the plan's phase and begins another.
func (t turn) advance(to Phase, note string, edit func(*Plan)) Action {
	return t.decide(func(r *Row) {
		r.Plan.Steps = append(r.Plan.Steps, Step{Phase: r.Plan.Phase, Took: t.s.PhaseFor, Note: note})
		r.Plan.Phase = to
		if edit != nil {
			edit(r.Plan)
		}
	}, nil)
}

// finish ends the plan; failed is why it reached nothing. The record of an old primary
// that is gone is retired with it; it makes itself anew when it returns.
func (t turn) finish(failed, note string) Action {
	p := *t.v.Row.Plan
	p.Steps = append(p.Steps[:len(p.Steps):len(p.Steps)], Step{Phase: p.Phase, Took: t.s.PhaseFor, Note: note})
	p.Ended, p.Failed = t.v.Now, failed
	for _, s := range p.Steps {
		p.Took += s.Took
	}
	var drop []string
	old, ok := t.v.Node(p.From)
	if ok && failed == "" && p.From != t.v.Row.Primary && (!old.Live() || old.Condition == Down) {
		drop = append(drop, p.From)
	}
	return t.decide(func(r *Row) {
		r.Plan, r.Last = nil, &p
		for i := range r.Members {
			if slices.Contains(drop, r.Members[i].ID) {
				r.Members[i].Since = t.v.Now
			}
		}
	}, t.event(p), drop...)
}

func (r Row) recent(now time.Time, window time.Duration) []time.Time {
	var out []time.Time
	for _, at := range r.Failovers {
		if d := now.Sub(at); d < window && d > -window {
			out = append(out, at)
		}
	}
	return out
}

// event is a plan that is over, for the history.
func (t turn) event(p Plan) *history.Event {
	label := func(id string) string {
		if r, ok := t.v.Node(id); ok {
			return r.Label()
		}
		return id[:min(8, len(id))]
	}
	e := &history.Event{Part: Space, Subject: t.v.Row.Name, From: label(p.From), To: label(p.To), Term: p.Epoch, Reason: p.String(), Duration: p.Took}
	if p.Failed != "" || p.Kind == Repair || p.Kind == Return {
		e.From, e.To = "", ""
	}
	return e
}
