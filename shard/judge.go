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
	// PhaseFor is how long the plan has been in its phase, as far as the agent saw it.
	PhaseFor time.Duration
	// Orchestrating: the agent holds the failover lock.
	Orchestrating bool
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
	Health Health
	Why    string
	// Proved: nothing can be written to it any more; it need not be fenced.
	Proved bool
	// Wait is after how long it is worth another look, 0 when only a change is.
	Wait time.Duration
}

// recency is the precision in which replicas know when they last heard of their
// primary.
const recency = time.Second

// Judge tells whether the primary of the view can be replaced: the rule of two
// signals. fenceDelay is the engine's.
func Judge(v View, s Sight, fenceDelay time.Duration) Finding {
	id := v.Row.Primary
	if id == "" {
		return Finding{Health: None, Why: "the shard has had no primary yet"}
	}
	own, known := v.Node(id)
	if known && own.Condition == Down && v.Lease.Free() {
		return Finding{Health: Over, Proved: true, Why: "its agent saw the node's process end"}
	}
	if known && own.Condition == Refused && own.Live() && v.Lease.Free() {
		return Finding{Health: Over, Proved: true, Why: "its agent keeps it closed: " + own.Trouble}
	}
	if !s.Over {
		return Finding{Health: Fine, Why: "its agent holds the lease"}
	}
	if known && own.Live() && (own.Condition == Up || own.Condition == Loading) && own.Age < s.OverFor {
		return Finding{Health: Unattended, Why: "its session is over, but its agent sees it up"}
	}
	o := gather(v, s, id)
	switch {
	case o.veto != "":
		return Finding{Health: Unattended, Why: "its session is over, but " + o.veto}
	case len(o.missing) > 0:
		return Finding{Health: Doubtful, Why: "not heard yet: " + strings.Join(o.missing, ", "), Wait: 20 * time.Millisecond}
	case o.refused+o.mute == 0:
		return Finding{Health: Doubtful, Why: "nobody has tried to reach it", Wait: 20 * time.Millisecond}
	case o.mute == 0:
		return Finding{Health: Over, Why: fmt.Sprintf("its session is over, and it refuses connections (%d of %d)", o.refused, o.refused)}
	}
	return silent(v, s, own, known, fenceDelay, o)
}

// silent is about a primary of which nobody hears anything. Its silence began with the
// last renewal, at the latest one timeout before the session was over.
func silent(v View, s Sight, own Record, known bool, fenceDelay time.Duration, o opinions) Finding {
	why := fmt.Sprintf("its session is over, and it does not answer (%d silent, %d refused)", o.mute, o.refused)
	if !known || !own.Armed {
		return Finding{Health: Stuck, Why: why + "; its fence was not armed, so it may still accept writes from others"}
	}
	quiet := s.OverFor + v.Lease.Timing.Timeout
	if wait := fenceDelay - quiet; wait > 0 {
		return Finding{Health: Doubtful, Why: why + "; its fence needs time to close", Wait: wait}
	}
	return Finding{Health: Over, Why: why}
}

// opinions are what the live agents of the other members think of a node, formed
// after its session was over.
type opinions struct {
	veto          string
	refused, mute int
	missing       []string
}

func gather(v View, s Sight, id string) opinions {
	var o opinions
	for _, r := range v.Nodes {
		if _, member := v.Row.Member(r.ID); r.ID == id || !member || !r.Live() {
			continue
		}
		if l := r.Link; r.Role == Replica && r.PrimaryID == id && l != nil && l.Up && l.Input >= 0 && l.Input+r.Age+recency <= s.OverFor {
			o.veto = fmt.Sprintf("replica %s has heard from it since", r.Label())
			return o
		}
		switch {
		case r.Opinion == nil || r.Opinion.Of != id || r.Opinion.Age+r.Age > s.OverFor:
			o.missing = append(o.missing, r.Label())
		case r.Opinion.Verdict == Answers:
			o.veto = fmt.Sprintf("it answers the agent of %s", r.Label())
			return o
		case r.Opinion.Verdict == Refuses:
			o.refused++
		default:
			o.mute++
		}
	}
	return o
}
