package shard

import (
	"fmt"
	"strings"
	"time"
)

// Observation is what an agent knows besides the view, all on its own clock.
type Observation struct {
	Node     string // beside which it stands
	Instance string
	// LeaseTakeable: the lease is free, or its holder's session has lapsed also by the agent's own
	// count (lease.TakeoverPolicy). TakeableFor is for how long.
	LeaseTakeable bool
	TakeableFor   time.Duration
	// StoreSeenFor is for how long the agent has read the view without a gap: an agent whose record is old may have been
	// silent only as long as that, since before nobody could report.
	StoreSeenFor time.Duration
	// PhaseFor is how long the plan has been in its phase, as far as the agent saw it: it
	// starts again with every epoch and phase.
	PhaseFor time.Duration
	// Orchestrating: the agent holds the failover lock.
	Orchestrating bool
	// Fenced: the agent has closed the fence of the old primary itself under the present plan, after
	// its session had lapsed. Its own agent, without the lease, cannot open it again.
	Fenced bool
}

// Health of a shard's primary.
type Health string

// Healths.
const (
	Fine Health = "fine" // its agent holds the lease
	// Unattended: its session has lapsed, but the node lives. Nothing is replaced; its
	// agent should be started again.
	Unattended  Health = "unattended"
	Doubtful    Health = "doubtful" // its session has lapsed; opinions or time are missing
	Replaceable Health = "failed"   // it can be replaced
	// Stuck: it is silent, and nothing proves that it is closed for writes. An operator has to decide.
	Stuck Health = "stuck"
	None  Health = "none" // the shard never had one
)

// Finding is what is believed about the primary.
type Finding struct {
	Health Health `json:"health"`
	Why    string `json:"why"`
	// Proved: nothing can be written to it any more; it need not be fenced.
	Proved bool `json:"proved"`
	// RestsOnFence: it is replaceable only because its armed fence closes without acknowledgements. So the replicas must have
	// left it before another is promoted.
	RestsOnFence bool `json:"silent,omitempty"`
	// RecheckAfter is after how long it is worth another look, 0 when only a change is.
	RecheckAfter time.Duration `json:"-"`
}

// Judge reports whether the primary of the view can be replaced: on one signal that is proof ([Finding].Proved), or by
// the rule of two signals. fenceDelay is the engine's.
func Judge(v View, seen Observation, fenceDelay time.Duration) Finding {
	id := v.Row.Primary
	if id == "" {
		return Finding{Health: None, Why: "the shard has had no primary yet"}
	}
	own, known := v.Node(id)
	holder, heldByOther := v.holder()
	heldByOther = heldByOther && holder.ID != id
	if known && own.Live() && (seen.LeaseTakeable || v.Lease.Free() || heldByOther) {
		switch {
		// The process ended on its own host: nothing can be written to it, and silence need not be waited for.
		case own.Condition == Down:
			return Finding{Health: Replaceable, Proved: true, Why: "its agent saw the node's process end"}
		// Its agent lives, and will not open it: it came back empty, say, or cannot write.
		case own.Condition == Quarantined && own.Fence == Closed:
			return Finding{Health: Replaceable, Proved: true, Why: "its agent keeps it closed: " + own.Trouble}
		}
	}
	switch {
	// Somebody was promoted and did not finish, or has not written the row yet. Its agent gives the lease up.
	case heldByOther && !v.Lease.Free() && !seen.LeaseTakeable:
		return Finding{Health: Doubtful, Why: fmt.Sprintf("its lease is held by the agent of %s, which is not the primary", holder.Label())}
	// When a lapse is believed is package lease's rule: [lease.TakeoverPolicy].
	case !seen.LeaseTakeable:
		return Finding{Health: Fine, Why: "its agent holds the lease"}
	// It reports, but serves nobody, and cannot get the lease: after T nothing is lost by replacing it.
	case known && own.Live() && own.Age < seen.TakeableFor && own.Condition == Loading && own.Fence == Closed && seen.TakeableFor >= own.Timeout:
		return Finding{Health: Replaceable, Proved: true, Why: "its session has lapsed, and it loads its data behind a closed fence"}
	// Its agent has reported since the lapse: it lives, and takes the lease again by itself.
	case known && own.Live() && own.Age < seen.TakeableFor && (own.Condition == Up || own.Condition == Loading):
		return Finding{Health: Unattended, Why: "its session has lapsed, but its agent sees it up"}
	// A record that says "closed" is a promise, and without the lease no agent opens it again. Its agent had T
	// to come back.
	case known && !own.Live() && seen.TakeableFor >= own.Timeout && (own.Fence == Closed || v.closedFor(seen, id) >= own.Timeout):
		return Finding{Health: Replaceable, Proved: true, Why: "its agent closed its fence, and is gone"}
	}
	return secondOpinion(v, seen, own, fenceDelay)
}

// secondOpinion is about a primary whose session has lapsed.
func secondOpinion(v View, seen Observation, own Record, fenceDelay time.Duration) Finding {
	o := gatherOpinions(v, seen, v.Row.Primary)
	switch {
	// The second signal contradicts the first: someone hears from it.
	case o.veto != "":
		return Finding{Health: Unattended, Why: "its session has lapsed, but " + o.veto}
	// An agent that is asked has not answered: it might be the one that hears from it.
	case len(o.missing) > 0:
		return Finding{Health: Doubtful, Why: "not heard yet: " + strings.Join(o.missing, ", "), RecheckAfter: opinionPoll}
	// Without any opinion there is only one signal.
	case o.refused+o.timedOut == 0:
		return Finding{Health: Doubtful, Why: "no agent has tried to reach it", RecheckAfter: opinionPoll}
	// Refused to all of them: nothing listens, unless a device refuses in its place. No fence needs time to close.
	case o.timedOut == 0:
		return Finding{Health: Replaceable, Why: fmt.Sprintf("its session has lapsed, and it refuses connections (%d of %d)", o.refused, o.refused)}
	}
	return judgeSilence(v, seen, own, fenceDelay, o)
}

// judgeSilence is about a primary of which nobody hears anything. One that answered after
// its session had lapsed, as its agent had died before, has to be silent for a timeout of its own.
func judgeSilence(v View, seen Observation, own Record, fenceDelay time.Duration, o opinions) Finding {
	why := fmt.Sprintf("its session has lapsed, and it does not answer (%d silent, %d refused)", o.timedOut, o.refused)
	// Cut off with clients beside it, it would continue accepting writes.
	if !own.Armed {
		return Finding{Health: Stuck, Why: why + "; its fence was not armed, so it may still accept writes from others"}
	}
	// It answered after the lapse, as its agent had died before: silence counts from then on, for a whole T.
	// An agent that was stopped has told none, and its lease none either: the others' is the shard's.
	timeout := v.Lease.Timing.Timeout
	for _, r := range v.Nodes {
		timeout = max(timeout, r.Timeout)
	}
	if wait := timeout - o.silentFor; o.silentFor < seen.TakeableFor && wait > 0 {
		return Finding{Health: Doubtful, Why: why + "; it answered after that, and may again", RecheckAfter: wait}
	}
	// Its agent has reported since it fell silent: it stands beside a node that hangs, and kills it within T.
	if wait := own.Timeout - o.silentFor; own.Live() && own.Age < o.silentFor && wait > 0 {
		return Finding{Health: Doubtful, Why: why + "; its agent lives, and may end it", RecheckAfter: wait}
	}
	// The armed fence closes only so long after the last acknowledgement.
	if wait := fenceDelay - o.silentFor; wait > 0 {
		return Finding{Health: Doubtful, Why: why + "; its fence needs time to close", RecheckAfter: wait}
	}
	// A replica that still acknowledges keeps it open, on its side of a cut that nobody here can look behind.
	if left := v.possibleAcknowledgers(seen, own, fenceDelay); len(left) >= max(1, own.Needs) {
		return Finding{Health: Stuck, Why: fmt.Sprintf("%s; %s may still acknowledge its writes, which keeps its armed fence open", why, strings.Join(left, ", "))}
	}
	return Finding{Health: Replaceable, RestsOnFence: true, Why: why}
}
