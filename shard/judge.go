package shard

import (
	"fmt"
	"strings"
	"time"
)

// Sight is what an agent knows besides the view, all on its own clock.
type Sight struct {
	Node     string // beside which it stands
	Instance string
	// Over: the lease is free, or its holder's session is over also by the agent's own
	// count (lease.Patience); OverFor is since when.
	Over    bool
	OverFor time.Duration
	// PhaseFor is how long the plan has been in its phase, as far as the agent saw it: it
	// begins anew with every epoch and phase.
	PhaseFor time.Duration
	// Orchestrating: the agent holds the failover lock.
	Orchestrating bool
	// Fenced: the agent has closed the fence of the old primary itself under the present plan, after
	// its session was over. Its own agent, without the lease, cannot open it again.
	Fenced bool
}

// Health of a shard's primary.
type Health string

// Healths.
const (
	Fine Health = "fine" // its agent holds the lease
	// Unattended: its session is over, but the node lives. Nothing is replaced; its
	// agent should be started again.
	Unattended Health = "unattended"
	Doubtful   Health = "doubtful" // its session is over; opinions or time are wanting
	Over       Health = "over"     // it can be replaced
	// Stuck: it is silent, and nothing proves that it is closed for writes. A person has to decide.
	Stuck Health = "stuck"
	None  Health = "none" // the shard never had one
)

// Finding is what is believed about the primary.
type Finding struct {
	Health Health `json:"health"`
	Why    string `json:"why"`
	// Proved: nothing can be written to it any more; it need not be fenced.
	Proved bool `json:"proved"`
	// Wait is after how long it is worth another look, 0 when only a change is.
	Wait time.Duration `json:"wait_ns"`
}

const (
	// recency is the precision in which replicas know when they last heard of their
	// primary: they may have heard that much earlier than they say, never later.
	recency = time.Second
	// soon is when opinions that were asked for are looked for again.
	soon = 20 * time.Millisecond
)

// Judge tells whether the primary of the view can be replaced: the rule of two
// signals. fenceDelay is the engine's.
func Judge(v View, s Sight, fenceDelay time.Duration) Finding {
	id := v.Row.Primary
	if id == "" {
		return Finding{Health: None, Why: "the shard has had no primary yet"}
	}
	own, known := v.Node(id)
	holder, usurped := v.holder()
	usurped = usurped && holder.ID != id
	if known && own.Live() && (s.Over || v.Lease.Free() || usurped) {
		switch {
		case own.Condition == Down:
			return Finding{Health: Over, Proved: true, Why: "its agent saw the node's process end"}
		case own.Condition == Refused && own.Fence == Closed:
			return Finding{Health: Over, Proved: true, Why: "its agent keeps it closed: " + own.Trouble}
		}
	}
	switch {
	case usurped && !v.Lease.Free() && !s.Over:
		return Finding{Health: Doubtful, Why: fmt.Sprintf("its lease is held by the agent of %s, which is not the primary", holder.Label())}
	case !s.Over:
		return Finding{Health: Fine, Why: "its agent holds the lease"}
	case known && own.Live() && own.Age < s.OverFor && own.Condition == Loading && own.Fence == Closed && s.OverFor >= own.Timeout:
		return Finding{Health: Over, Proved: true, Why: "its session is over, and it loads its data behind a closed fence"}
	case known && own.Live() && own.Age < s.OverFor && (own.Condition == Up || own.Condition == Loading):
		return Finding{Health: Unattended, Why: "its session is over, but its agent sees it up"}
	case known && !own.Live() && s.OverFor >= own.Timeout && (own.Fence == Closed || v.shut(s, id) >= own.Timeout):
		return Finding{Health: Over, Proved: true, Why: "its agent closed its fence, and is gone"}
	}
	return secondOpinion(v, s, own, fenceDelay)
}

// shut is for how long a node was found closed, at every knock, by the agent of a member. The node's own
// agent may have died before it could say so; one that lives may open it again only under the lease.
func (v View) shut(s Sight, id string) (longest time.Duration) {
	for _, r := range v.Nodes {
		if _, member := v.Row.Member(r.ID); !member || r.ID == id || !r.Live() {
			continue
		}
		if op, fresh := r.thinks(id, s.OverFor); fresh {
			longest = max(longest, op.Closed)
		}
	}
	return longest
}

// thinks returns the opinion of a node that was formed since its session was over.
func (r Record) thinks(id string, over time.Duration) (o Opinion, fresh bool) {
	if r.Opinion == nil || r.Opinion.Of != id || r.Opinion.Age+r.Age > min(over, r.Timeout) {
		return Opinion{}, false
	}
	return *r.Opinion, true
}

// holder returns the node whose agent has the shard's lease, as far as that is known.
func (v View) holder() (Record, bool) {
	for _, r := range v.Nodes {
		if v.Lease.Session != "" && r.Instance != "" && r.Instance == v.Lease.Holder.ID {
			return r, true
		}
	}
	return Record{}, false
}

// secondOpinion is about a primary whose session is over.
func secondOpinion(v View, s Sight, own Record, fenceDelay time.Duration) Finding {
	o := gather(v, s, v.Row.Primary)
	switch {
	case o.veto != "":
		return Finding{Health: Unattended, Why: "its session is over, but " + o.veto}
	case len(o.missing) > 0:
		return Finding{Health: Doubtful, Why: "not heard yet: " + strings.Join(o.missing, ", "), Wait: soon}
	case o.refused+o.mute == 0:
		return Finding{Health: Doubtful, Why: "nobody has tried to reach it", Wait: soon}
	case o.mute == 0:
		return Finding{Health: Over, Why: fmt.Sprintf("its session is over, and it refuses connections (%d of %d)", o.refused, o.refused)}
	}
	return silent(v, s, own, fenceDelay, o)
}

// silent is about a primary of which nobody hears anything. One that answered after
// its session was over, as its agent had died before, has to be silent for a timeout of its own.
func silent(v View, s Sight, own Record, fenceDelay time.Duration, o opinions) Finding {
	why := fmt.Sprintf("its session is over, and it does not answer (%d silent, %d refused)", o.mute, o.refused)
	if !own.Armed {
		return Finding{Health: Stuck, Why: why + "; its fence was not armed, so it may still accept writes from others"}
	}
	if wait := max(own.Timeout, v.Lease.Timing.Timeout) - o.quiet; o.quiet < s.OverFor && wait > 0 {
		return Finding{Health: Doubtful, Why: why + "; it answered after that, and may again", Wait: wait}
	}
	if wait := fenceDelay - o.quiet; wait > 0 {
		return Finding{Health: Doubtful, Why: why + "; its fence needs time to close", Wait: wait}
	}
	return Finding{Health: Over, Why: why}
}

// opinions are what the live agents of the other members think of a node, formed
// after its session was over.
type opinions struct {
	veto          string
	refused, mute int
	quiet         time.Duration // how long nobody had an answer
	missing       []string
}

func gather(v View, s Sight, id string) opinions {
	o := opinions{quiet: -1}
	for _, r := range v.Nodes {
		if _, member := v.Row.Member(r.ID); r.ID == id || !member {
			continue
		}
		if !r.Live() {
			// After an outage of the store all records are old: they get the time to be renewed.
			if s.OverFor < r.Timeout {
				o.missing = append(o.missing, r.Label())
			}
			continue
		}
		since, certain := r.heard(id, s.OverFor)
		op, fresh := r.thinks(id, s.OverFor)
		switch {
		case since && certain:
			o.veto = fmt.Sprintf("replica %s has heard from it since", r.Label())
			return o
		case fresh && op.Verdict == Answers:
			o.veto = fmt.Sprintf("it answers the agent of %s", r.Label())
			return o
		case since || !fresh:
			o.missing = append(o.missing, r.Label())
			continue
		case op.Verdict == Refuses:
			o.refused++
		default:
			o.mute++
		}
		if quiet := op.Silence + r.Age; o.quiet < 0 || quiet < o.quiet {
			o.quiet = quiet
		}
	}
	return o
}

// heard tells whether a replica may have heard from the node lately and since its session
// was over, and whether it certainly has. A link that has fallen silent says nothing.
func (r Record) heard(id string, over time.Duration) (since, certain bool) {
	l := r.Link
	if r.Condition != Up || r.Role != Replica || r.PrimaryID != id || l == nil || !l.Up || l.Input < 0 {
		return false, false
	}
	ago := l.Input + r.Age
	return ago <= min(over, r.Timeout), ago+recency <= over && ago <= r.Timeout
}
