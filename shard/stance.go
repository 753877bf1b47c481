package shard

import (
	"cmp"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// Memory is what an agent keeps on disk beside its node, so that a node which comes back
// is known again.
type Memory struct {
	NodeID  string  `json:"node_id"`
	Shard   string  `json:"shard"`
	Epoch   int64   `json:"epoch"` // the highest that was seen
	Run     string  `json:"run,omitempty"`
	Lineage Lineage `json:"lineage"`
	Txn     int64   `json:"txn"`
	Keys    int64   `json:"keys"`
	// Copying: a full copy was begun, and has not ended.
	Copying bool `json:"copying,omitempty"`
	// Promised until this reading of the boot clock of this boot, not to replace
	// the primary; see [Promise].
	Promised time.Duration `json:"promised_ns,omitempty"`
	Boot     string        `json:"boot,omitempty"`
	// Asked is the Promise.Seq of the latest question that was answered, under AskedEpoch.
	Asked      int64 `json:"asked,omitempty"`
	AskedEpoch int64 `json:"asked_epoch,omitempty"`
}

// Stance is what an agent does with its node as long as no command tells it otherwise.
type Stance string

// Stances. Where the lease is given up, the fence is closed before.
const (
	// Hold: be the primary: take the lease, look again, and open or arm the fence if it still says so.
	Hold   Stance = "hold"
	Found  Stance = "found"  // make the shard, with this node as its first primary
	Resume Stance = "resume" // be the primary again under a new epoch: its history was cut by a restart; a replica is promoted first
	Trail  Stance = "trail"  // follow the primary, as it does, or by leading it there; give the lease up
	Close  Stance = "close"  // keep the fence closed, give the lease up
	Stay   Stance = "stay"   // leave the node, its fence and the lease as they are
	Shun   Stance = "shun"   // keep the fence closed, give the lease up, and say why: Condition Refused
)

// Bearing is a stance, with what it needs.
type Bearing struct {
	Stance Stance
	Why    string
	// Address to follow, on Trail.
	Address string
}

// Self is an agent and its node, as they are now.
type Self struct {
	ID     string
	State  State
	Memory Memory
	// Holding: the agent holds the shard's lease and trusts it.
	Holding bool
	// Address of the node, as others know it.
	Address string
	// For is how long the agent has seen this run of the node's process.
	For time.Duration
	// Without is how long the agent has seen that there is no such shard.
	Without time.Duration
	// Discard: a person said that whatever the node holds may be lost.
	Discard bool
}

// Stand tells what an agent does about its node, given the view. It is pure.
func Stand(v View, me Self) Bearing {
	row := v.Row
	switch {
	case row.Rev == 0:
		return standAlone(v, me)
	case me.Memory.Epoch > row.Epoch:
		return Bearing{Stance: Close, Why: fmt.Sprintf("the store knows epoch %d, and %d has begun here: it has lost what was decided last. To go on with the node that has the newest data: understudy shard failover %s --to NODE --force",
			row.Epoch, me.Memory.Epoch, row.Name)}
	case !row.Settled():
		return standBy(*row.Plan, row.Primary, me)
	case row.Primary == me.ID:
		return standFirst(v, me)
	}
	return standBehind(v, me)
}

// standBy is about every node while a plan decides by commands. The primary that there
// is stays one, with its fence as the commands leave it, as long as it has the lease; so does
// the one that is being promoted. No other has a use for the lease.
func standBy(p Plan, primary string, me Self) Bearing {
	const why = "a plan is under way"
	ours := me.ID == primary || me.ID == p.To && p.Phase == Promoting
	if me.Holding && !ours || !me.Holding && me.State.Role == Primary {
		return Bearing{Stance: Close, Why: why}
	}
	return Bearing{Stance: Stay, Why: why}
}

// standAlone is about a shard that does not exist yet.
func standAlone(v View, me Self) Bearing {
	if me.State.Role == Replica && !me.State.Link.Detached() {
		return Bearing{Stance: Stay, Why: "the shard has no primary yet; this node is a replica"}
	}
	if me.State.Loading {
		return Bearing{Stance: Close, Why: "it is loading its data"}
	}
	if me.unheard(v) {
		return Bearing{Stance: Stay, Why: "the shard does not exist yet, and not all who follow this node have reported"}
	}
	if me.State.Keys > 0 {
		return Bearing{Stance: Found}
	}
	if m := me.Memory; m.Keys > 0 && !me.Discard {
		return Bearing{Stance: Close, Why: fmt.Sprintf("the store knows nothing of the shard, and this node came back empty; it had %d keys", m.Keys)}
	}
	for _, r := range v.Nodes {
		if r.ID != me.ID && r.Live() && r.Condition == Up && r.Keys > 0 {
			return Bearing{Stance: Close, Why: fmt.Sprintf("the shard has no primary yet, and %s has data; this node has none", r.Label())}
		}
	}
	if len(me.State.Followers) > 0 {
		return Bearing{Stance: Found}
	}
	for _, r := range v.Nodes {
		better := len(r.Followers) > 0 || r.ID < me.ID
		if r.ID != me.ID && r.Live() && r.Condition == Up && (r.Role == Primary || r.Link.Detached()) && better {
			return Bearing{Stance: Close, Why: fmt.Sprintf("the shard has no primary yet; %s has more of a claim", r.Label())}
		}
	}
	return Bearing{Stance: Found}
}

// unheard tells that the node has followers which may be members of the shard from its first moment on,
// and of which the store does not know that yet. It is waited for as long as a record is believed.
func (me Self) unheard(v View) bool {
	own, _ := v.Node(me.ID)
	followers, joined := 0, 0
	for _, f := range me.State.Followers {
		if f.Online {
			followers++
		}
	}
	for _, n := range v.Nodes {
		if n.joined(own) {
			joined++
		}
	}
	return joined < followers && me.Without < cmp.Or(own.Timeout, lease.DefaultTimeout)
}

// standFirst is about the node that the row names.
func standFirst(v View, me Self) Bearing {
	last := Lineage{}
	if n := len(v.Row.Lineages); n > 0 {
		last = v.Row.Lineages[n-1]
	}
	s, m := me.State, me.Memory
	// A node that its agent starts is a replica of nobody at first, and a configuration file that
	// calls it a replica is heard again at every restart.
	restarted := m.NodeID == me.ID && m.Run != "" && s.Run != m.Run
	switch {
	case s.Loading:
		return Bearing{Stance: Close, Why: "it is loading its data"}
	case s.Role == Replica && s.Link.Detached() && m.Whole(s) && s.Lineage.ID == last.ID && s.Txn >= m.Txn:
		return Bearing{Stance: Resume, Why: "it follows nobody, and has all that it had"}
	case s.Role == Replica && !restarted:
		return Bearing{Stance: Shun, Why: "the shard names it as its primary, but it was made a replica"}
	case s.Role == Replica && m.Whole(s) && s.Lineage.ID == last.ID:
		return Bearing{Stance: Resume, Why: "it was restarted as a replica, and has all that it had"}
	case s.Role == Replica && !s.Link.Detached():
		return Bearing{Stance: Shun, Why: "the shard names it as its primary, but it was restarted as a replica, and may have lost data"}
	case s.Role == Primary && s.Lineage.ID == last.ID && (me.Holding || s.Txn >= m.Txn || m.Lineage.ID != last.ID):
		return Bearing{Stance: Hold}
	case s.Role == Primary && last.ID != "" && s.Before.ID == last.ID && s.Txn == s.Before.End && s.Txn >= m.Txn:
		return Bearing{Stance: Resume, Why: "it was promoted, and has all that it had"}
	case m.GoesOn(s):
		return Bearing{Stance: Hold}
	case s.Keys == 0 && m.Keys > 0 && !me.Discard:
		return Bearing{Stance: Shun, Why: fmt.Sprintf("it came back empty, and had %d keys", m.Keys)}
	case s.Keys == 0 && m.NodeID != me.ID && !me.Discard:
		return Bearing{Stance: Shun, Why: "it is empty, and nothing is known of what it had"}
	}
	if best, _ := choose(v, choice{from: me.ID}); best != "" {
		return Bearing{Stance: Shun, Why: "it was restarted, and a replica that was not has all that it may have lost"}
	}
	if why := v.wanting(me); why != "" {
		return Bearing{Stance: Close, Why: why}
	}
	return Bearing{Stance: Resume, Why: "it was restarted, and no replica has a better copy"}
}

// wanting is what a primary that may have lost data waits for before it goes on with what is left:
// the reports of others that may have more. After a minute those who are silent are taken to
// be dead.
func (v View) wanting(me Self) string {
	own, _ := v.Node(me.ID)
	if me.For < 3*own.Timeout {
		return "it was restarted; its replicas have not reported yet"
	}
	for _, m := range v.Row.Members {
		if r, known := v.Node(m.ID); m.ID != me.ID && !(known && r.Live()) && me.For < max(patient, 3*own.Timeout) {
			return fmt.Sprintf("it was restarted, and may lack data; it waits up to %v for node %.8s at %s, which may have more. To go on now: understudy shard failover %s --to %.8s --force",
				patient, m.ID, m.Address, v.Row.Name, me.ID)
		}
	}
	return ""
}

// patient is how long a primary that may have lost data waits for members that do not report.
const patient = time.Minute

// standBehind is about every other node.
func standBehind(v View, me Self) Bearing {
	row, s := v.Row, me.State
	p, known := v.Node(row.Primary)
	_, member := row.Member(me.ID)
	ours, _ := row.holds(Record{Lineage: s.Lineage, Before: s.Before, Txn: s.Txn})
	address := p.Address
	if m, ok := row.Member(row.Primary); !known && ok {
		address = m.Address
	}
	switch {
	case address != "" && address == me.Address:
		return Bearing{Stance: Close, Why: fmt.Sprintf("its address is that of the primary, node %.8s, whose data folder is not this one: start the agent with that folder, or: understudy shard failover %s --force", row.Primary, row.Name)}
	case s.Role == Replica && s.Link != nil && s.Link.Address == address:
		return Bearing{Stance: Trail, Address: address}
	case s.Loading:
		return Bearing{Stance: Close, Why: "it is loading its data"}
	case address == "":
		return Bearing{Stance: Close, Why: "the primary's address is not known"}
	case member && row.Plan != nil && s.Role == Replica:
		return Bearing{Stance: Stay, Why: "the plan under way leads it to the new primary when it is its turn"}
	case member && row.Plan != nil:
		return Bearing{Stance: Close, Why: "the plan under way leads it to the new primary when it is its turn"}
	case member || ours || s.Keys == 0 || me.Discard:
		return Bearing{Stance: Trail, Address: address}
	case s.Role == Replica && s.Link != nil && s.Link.Address != "":
		return Bearing{Stance: Shun, Why: fmt.Sprintf("it follows %s, and its %d keys were never this shard's; to lose them and join: --discard-data", s.Link.Address, s.Keys)}
	}
	return Bearing{Stance: Shun, Why: fmt.Sprintf("its %d keys were never this shard's (lineage %.8s); to lose them and join: --discard-data", s.Keys, s.Lineage.ID)}
}
