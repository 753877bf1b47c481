package shard

import (
	"slices"
	"time"
)

// Row is what is decided about a shard. It changes by [Registry.UpdateRow] alone.
// Stores keep it as JSON; what they look into is Name, Rev, Primary and Members.
type Row struct {
	Name string `json:"name"`
	// Rev grows with each update; 0 is a shard that does not exist yet.
	Rev int64 `json:"rev"`
	// Epoch of the latest plan. Every plan has one of its own, and they only grow.
	Epoch int64 `json:"epoch"`
	// Primary is the node that was last made the primary, under PrimaryEpoch; "" before the first. Its agent writes this
	// before it opens the node, which may fail.
	Primary      string `json:"primary"`
	PrimaryEpoch int64  `json:"primary_epoch"`
	// Lineages of the data, oldest first, the last one going on; at most MaxLineages.
	Lineages []Lineage `json:"lineages,omitempty"`
	// Members are the nodes that may be promoted and whose agents may orchestrate. The
	// primary's agent admits a node after its first full synchronisation.
	Members []Member `json:"members,omitempty"`
	Plan    *Plan    `json:"plan,omitempty"`    // under way
	Request *Request `json:"request,omitempty"` // of an operator, not yet started
	Paused  *Pause   `json:"paused,omitempty"`
	Last    *Plan    `json:"last,omitempty"` // the latest that ended
	// Failovers are when the latest automatic ones began that reached a new primary, by
	// the store's clock; at most MaxFailovers.
	Failovers []time.Time `json:"failovers,omitempty"`
	// Secret authenticates the agents among themselves; made with the row.
	Secret string `json:"secret,omitempty"`
}

// Limits of a row.
const (
	MaxLineages  = 8  // histories that it remembers
	MaxFailovers = 64 // times of failovers
)

// Member is a node that belongs to the shard.
type Member struct {
	ID string `json:"id"`
	// Address and Agent are those of its admission or last change, for those who have to
	// reach it while the store is down.
	Address string `json:"address"`
	Agent   string `json:"agent,omitempty"`
	// Since is its admission, or when a failover retired its record.
	Since time.Time `json:"since"`
}

// Pause keeps the shard from failing over by itself.
type Pause struct {
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`
}

// Kind of a plan.
type Kind string

// Kinds.
const (
	Failover   Kind = "failover"
	Switchover Kind = "switchover"
	Return     Kind = "return" // a switchover that could not finish goes back to where it began
	Repair     Kind = "repair" // replicas are led to the primary that there is, after an orchestrator died
)

// Request is what an operator asks for.
type Request struct {
	ID    string `json:"id"`
	Kind  Kind   `json:"kind"`         // Failover or Switchover
	To    string `json:"to,omitempty"` // node id; "" is the best one
	Force bool   `json:"force,omitempty"`
	By    string `json:"by"`
	// Timeout of a switchover, in which writes are paused; 0 is DefaultPause.
	Timeout time.Duration `json:"timeout_ns,omitempty"`
	At      time.Time     `json:"at"`
}

// How long a switchover may keep writes waiting before it goes back.
const (
	DefaultPause = 5 * time.Second
	MinPause     = time.Second
	MaxPause     = time.Minute
)

// Phase of a plan, in the order in which they follow.
type Phase string

// Phases.
const (
	Pausing   Phase = "pausing"   // switchover: the old primary lets writes wait, and closes its fence before the pause ends
	Catching  Phase = "catching"  // switchover: the chosen replica gets the last of them
	Fencing   Phase = "fencing"   // failover of one that lives: it closes its fence
	Detaching Phase = "detaching" // failover: replicas leave the old primary, so that what they have stands still
	Promoting Phase = "promoting" // the chosen one becomes the primary, and says so in the row
	Following Phase = "following" // the others follow it; the shard has a primary again
)

// Plan is one change of primary. Each has an epoch of its own.
type Plan struct {
	Epoch int64  `json:"epoch"`
	Kind  Kind   `json:"kind"`
	From  string `json:"from,omitempty"` // node id of the old primary
	To    string `json:"to,omitempty"`   // … of the new one, once chosen
	// Wanted is the node that an operator named; "" leaves the choice to the plan.
	Wanted string `json:"wanted,omitempty"`
	Phase  Phase  `json:"phase"`
	By     string `json:"by"`      // instance of the orchestrator's agent
	ByNode string `json:"by_node"` // and the node beside which it stands
	Reason string `json:"reason"`  // why it began
	Force  bool   `json:"force,omitempty"`
	// NewHistory: an operator forced a node whose data is not the shard's; its history starts again.
	NewHistory bool `json:"anew,omitempty"`
	// Request that it carries out, "" when nobody asked.
	Request string `json:"request,omitempty"`
	// Run of the old primary's process when a switchover began: one that was restarted since may
	// have lost anything, and is no place to go back to.
	Run string `json:"run,omitempty"`
	// Txn is what the old primary stood at when it was paused.
	Txn int64 `json:"txn,omitempty"`
	// Tried are nodes that did not become the primary under an earlier epoch.
	Tried   []string      `json:"tried,omitempty"`
	Timeout time.Duration `json:"timeout_ns,omitempty"`
	Began   time.Time     `json:"began"` // by the store's clock
	// Steps that are done, with what each took on its orchestrator's clock.
	Steps []Step `json:"steps,omitempty"`
	// Ended, Took and Failed are of a plan that has ended; Failed is "" if it succeeded.
	Ended  time.Time     `json:"ended,omitzero"`
	Took   time.Duration `json:"took_ns,omitempty"`
	Failed string        `json:"failed,omitempty"`
}

// UntilPrimary is how long a plan that succeeded took until the shard had a primary that takes writes. The plan itself
// continues until the others follow.
func (p Plan) UntilPrimary() time.Duration {
	took := time.Duration(0)
	for _, step := range p.Steps {
		if step.Phase != Following {
			took += step.Took
		}
	}
	return took
}

// Step of a plan that is done.
type Step struct {
	Phase Phase         `json:"phase"`
	Took  time.Duration `json:"took_ns"`
	Note  string        `json:"note,omitempty"`
}

// Member returns the node's membership.
func (r Row) Member(id string) (Member, bool) {
	i := slices.IndexFunc(r.Members, func(m Member) bool { return m.ID == id })
	if i < 0 {
		return Member{}, false
	}
	return r.Members[i], true
}

// Settled reports whether the row names a primary that is not being replaced: agents keep to
// it without being told.
func (r Row) Settled() bool {
	return r.Primary != "" && (r.Plan == nil || r.Plan.Phase == Following)
}

// IsForced reports whether an operator has asked for a failover whatever is lost by it.
func (r Row) IsForced() bool {
	return r.Request != nil && r.Request.Force || r.Plan != nil && r.Plan.Force && r.Plan.Phase != Following
}

// Copy returns a row that shares nothing with r that an update may change.
func (r Row) Copy() Row {
	r.Lineages, r.Members = slices.Clone(r.Lineages), slices.Clone(r.Members)
	r.Failovers = slices.Clone(r.Failovers)
	if r.Plan != nil {
		p := *r.Plan
		p.Tried, p.Steps = slices.Clone(p.Tried), slices.Clone(p.Steps)
		r.Plan = &p
	}
	return r
}

// HasPrecedence reports which of two agents beside one node continues: the member's, of two members the one
// that was admitted first, and of none that with the lower id.
func (r Row) HasPrecedence(me, other string) bool {
	m, mine := r.Member(me)
	o, others := r.Member(other)
	if mine && others && !m.Since.Equal(o.Since) {
		return m.Since.Before(o.Since)
	}
	return mine && !others || mine == others && me < other
}

func (r Row) recentFailovers(now time.Time, window time.Duration) []time.Time {
	var out []time.Time
	for _, at := range r.Failovers {
		if d := now.Sub(at); d < window && d > -window {
			out = append(out, at)
		}
	}
	return out
}
