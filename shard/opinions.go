package shard

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Reachability is the result of probing a node from another host.
type Reachability string

// Results of a probe. Their values are older than their names: agents of two versions exchange them.
const (
	Reachable Reachability = "answers"
	Refused   Reachability = "refuses" // nothing listens at its address
	TimedOut  Reachability = "mute"    // no answer in time
)

// Opinion is what an agent thinks of another node.
type Opinion struct {
	Of           string        `json:"of"` // node id
	Reachability Reachability  `json:"verdict"`
	Age          time.Duration `json:"age_ns"` // at the time of the report
	// Silence is how long no probe was answered, at the time of the report: since the first
	// of those without an answer was started. 0 when the last was answered. A refused
	// connection does not count as an answer.
	Silence time.Duration `json:"silence_ns,omitempty"`
	// Closed is for how long every probe has found its fence closed. That is looked at while its own
	// agent is silent; 0 otherwise, and when the last found it open.
	Closed time.Duration `json:"closed_ns,omitempty"`
	// Link is whom the node said it follows, of one whose own agent is silent; nil if it did not say, or is a primary.
	Link *Upstream `json:"link,omitempty"`
}

func (o Opinion) gist() Opinion {
	o.Age, o.Silence, o.Closed, o.Link = 0, 0, 0, o.Link.gist()
	return o
}

const (
	// inputPrecision is the precision in which replicas know when they last heard of their
	// primary: they may have heard that much earlier than they say, never later.
	inputPrecision = time.Second
	// opinionPoll is when opinions that were asked for are looked for again.
	opinionPoll = 20 * time.Millisecond
)

// opinions are what the live agents of the other members think of a node, formed
// after its session had lapsed.
type opinions struct {
	veto              string
	refused, timedOut int
	silentFor         time.Duration // how long nobody had an answer
	missing           []string
}

func gatherOpinions(v View, seen Observation, id string) opinions {
	o := opinions{silentFor: -1}
	for _, r := range v.Nodes {
		if _, member := v.Row.Member(r.ID); r.ID == id || !member {
			continue
		}
		if !r.Live() {
			// After an outage of the store all records are old: they get the time to be renewed. One that was silent
			// already while the primary was well has had that time.
			silentFor := min(r.Age, r.Timeout+seen.StoreSeenFor)
			if seen.TakeableFor < r.Timeout && silentFor < 2*r.Timeout {
				o.missing = append(o.missing, r.Label())
			}
			// Its agent cannot say that it has heard from the primary, but the node itself has.
			if op, ok := v.opinionOf(r.ID, seen); ok && op.hasInputFrom(v.AddressOf(id), seen.TakeableFor) {
				o.veto = fmt.Sprintf("replica %s has heard from it since", r.Label())
				return o
			}
			continue
		}
		since, certain := r.hasInputFrom(id, seen.TakeableFor)
		op, fresh := r.freshOpinion(id, seen.TakeableFor)
		switch {
		// A byte from it that came after the lapse, whatever the precision of the clock.
		case since && certain:
			o.veto = fmt.Sprintf("replica %s has heard from it since", r.Label())
			return o
		// It lives; only its agent does not.
		case fresh && op.Reachability == Reachable:
			o.veto = fmt.Sprintf("it answers the agent of %s", r.Label())
			return o
		// It may have heard from it, or was not asked since the lapse: ask again.
		case since || !fresh:
			o.missing = append(o.missing, r.Label())
			continue
		case op.Reachability == Refused:
			o.refused++
		default:
			o.timedOut++
		}
		if silentFor := op.Silence + r.Age; o.silentFor < 0 || silentFor < o.silentFor {
			o.silentFor = silentFor
		}
	}
	return o
}

// hasInputFrom reports whether a replica may have heard from the node lately and since its session had
// lapsed, and whether it certainly has. A link that has fallen silent says nothing.
func (r Record) hasInputFrom(id string, lapsedFor time.Duration) (since, certain bool) {
	l := r.Link
	if r.Condition != Up || r.Role != Replica || r.PrimaryID != id || l == nil || !l.Up || l.Input < 0 {
		return false, false
	}
	ago := l.Input + r.Age
	return ago <= min(lapsedFor, r.Timeout), ago+inputPrecision <= lapsedFor && ago <= r.Timeout
}

// freshOpinion returns the opinion of a node that was formed within takeableFor: since its session had lapsed, say.
func (r Record) freshOpinion(id string, takeableFor time.Duration) (o Opinion, fresh bool) {
	if r.Opinion == nil || r.Opinion.Of != id || r.Opinion.Age+r.Age > min(takeableFor, r.Timeout) {
		return Opinion{}, false
	}
	return *r.Opinion, true
}

// closedFor is for how long a node was found closed, at every probe, by the agent of a member. The node's own
// agent may have died before it could say so; one that lives may open it again only under the lease.
func (v View) closedFor(seen Observation, id string) (longest time.Duration) {
	for _, r := range v.Nodes {
		if _, member := v.Row.Member(r.ID); !member || r.ID == id || !r.Live() {
			continue
		}
		if op, fresh := r.freshOpinion(id, seen.TakeableFor); fresh {
			longest = max(longest, op.Closed)
		}
	}
	return longest
}

// knowsMore reports whether an opinion counts rather than another of the same node: whoever reaches it knows more than whoever was refused, who may have met a
// firewall, and that one more than whoever had no answer. Of two that agree, the later.
func (o Opinion) knowsMore(than Opinion) bool {
	rank := []Reachability{TimedOut, Refused, Reachable}
	return cmp.Or(cmp.Compare(slices.Index(rank, o.Reachability), slices.Index(rank, than.Reachability)), cmp.Compare(than.Age, o.Age)) > 0
}

// opinionOf returns the opinion that counts of a node whose own agent is silent, formed by an agent that lives since
// the primary's session had lapsed.
func (v View) opinionOf(id string, seen Observation) (latest Opinion, ok bool) {
	for _, r := range v.Nodes {
		if _, member := v.Row.Member(r.ID); !member || !r.Live() {
			continue
		}
		for _, op := range r.Unattended {
			op.Age += r.Age
			if op.Of == id && op.Age <= min(seen.TakeableFor, r.Timeout) && (!ok || op.knowsMore(latest)) {
				latest, ok = op, true
			}
		}
	}
	return latest, ok
}

// hasInputFrom reports whether the node has certainly heard from the one at the address since that one's session lapsed.
func (o Opinion) hasInputFrom(address string, lapsedFor time.Duration) bool {
	l := o.Link
	return l != nil && l.Up && l.Address == address && l.Input >= 0 && l.Input+o.Age+inputPrecision <= lapsedFor
}
