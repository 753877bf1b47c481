package shard

import (
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// Role of a node.
type Role string

// Roles.
const (
	Primary Role = "primary"
	Replica Role = "replica"
)

// Condition of a node as its own agent sees it, on the same host.
type Condition string

// Conditions. The value of Quarantined is older than its name: agents of two versions exchange it.
const (
	Up          Condition = "up"      // it answers
	Loading     Condition = "loading" // it answers, but serves nothing yet
	Silent      Condition = "silent"  // it does not answer in time, or the agent has not asked yet
	Down        Condition = "down"    // proved: its process ended, or its own host refuses the connection
	Quarantined Condition = "refused" // it answers, and its agent keeps it closed: see Record.Trouble
)

// Fence is what keeps a node from accepting writes.
type Fence string

// Fences.
const (
	Open   Fence = "open"   // nothing: it accepts writes as long as it is a primary
	Armed  Fence = "armed"  // it refuses writes by itself once its replicas do not acknowledge
	Closed Fence = "closed" // it refuses writes
)

// Upstream is a replica's link to its primary.
type Upstream struct {
	Address string `json:"address,omitempty"`
	Up      bool   `json:"up"`
	Syncing bool   `json:"syncing,omitempty"` // a first or full copy is under way
	// Stalled: its primary answers and does not list it, so that nothing comes any more.
	Stalled bool `json:"stalled,omitempty"`
	// CopyTook and CopyBytes are of its latest full copy, where the engine knows them: another takes about as long.
	CopyTook  time.Duration `json:"copy_ns,omitempty"`
	CopyBytes int64         `json:"copy_bytes,omitempty"`
	// Input is how long ago the last byte came from the primary, at the time of the
	// report; negative when that is not known.
	Input time.Duration `json:"input_ns"`
}

// Detached reports whether a replica was left without a primary on purpose: what it has stands still,
// and nobody can copy from it.
func (l *Upstream) Detached() bool { return l != nil && l.Address == "" }

// Follower is a replica as its primary sees it.
type Follower struct {
	Address string `json:"address"`
	ID      string `json:"id,omitempty"` // where the engine knows it
	Txn     int64  `json:"txn"`
	Online  bool   `json:"online"` // its first full copy is done
	// Lag is how long ago it last acknowledged anything.
	Lag time.Duration `json:"lag_ns"`
}

// Record is a node as its agent reports it: every interval, or less often while it says nothing new. A store keeps the
// latest.
// The names in its JSON are those of the registry's hashes on Redis.
type Record struct {
	Shard string `json:"shard_name"`
	// ID is 40 hexadecimal digits, kept in the agent's data folder.
	ID string `json:"node_id"`
	// Address is the private one: HOST:PORT, used between nodes and by agents.
	Address string `json:"node_address"`
	// Announced is the address for clients; "" is Address.
	Announced string `json:"announced_address,omitempty"`
	Role      Role   `json:"role"`
	// Updated is when the record was written, in microseconds, by the store's clock; the store's to give.
	Updated int64 `json:"last_updated"`
	// Age of the record by the store's clock, when it was read; the store's to give.
	Age time.Duration `json:"-"`
	Txn int64         `json:"last_txn_id"`
	// PrimaryID is the node that it follows, "" on a primary.
	PrimaryID string `json:"primary_node_id"`

	Condition Condition `json:"condition"`
	// Trouble is what an operator should know: why it is refused, held back, or not armed.
	Trouble string    `json:"trouble,omitempty"`
	Lineage Lineage   `json:"lineage"`
	Before  Lineage   `json:"lineage_before,omitzero"` // the one that it was promoted from
	Link    *Upstream `json:"link,omitempty"`          // on a replica
	// Synced reports whether it has a whole copy of the data, of the lineage that it shows.
	Synced    bool       `json:"synced"`
	Followers []Follower `json:"followers,omitempty"` // on a primary; at most MaxMembers
	// Fence: Closed is a promise. A report that says otherwise is accepted by the store
	// before the fence is opened or armed.
	Fence Fence `json:"fence"`
	// Armed promises that the fence of this primary is armed, and stays so until a
	// report without it was accepted by the store.
	Armed bool `json:"armed"`
	// Needs is how many replicas the armed fence needs; 0 is one.
	Needs int `json:"fence_needs,omitempty"`
	// Priority decides between replicas that are equal: the higher. 0 is promoted only where an operator names it.
	Priority int `json:"priority"`
	// Epoch is the highest that the agent has obeyed or seen, Led the latest of which its node was the primary.
	Epoch   int64    `json:"epoch"`
	Led     int64    `json:"led_epoch,omitempty"`
	Opinion *Opinion `json:"opinion,omitempty"`
	// Unattended are opinions of members whose agents are silent, formed once the primary's session has lapsed:
	// they may keep its armed fence open, and can be detached where they answer. At most MaxMembers.
	Unattended []Opinion `json:"unattended,omitempty"`
	// PrimaryLog is the latest that the agent knows of the shard's primary.
	PrimaryLog PrimaryLog `json:"primary_log,omitzero"`
	// Results of commands of the highest epoch, oldest first; at most MaxResults.
	Results []Result `json:"results,omitempty"`

	Instance string `json:"instance"` // the agent's, new at every start
	Agent    string `json:"agent_address,omitempty"`
	// Sentinel is where the agent answers clients that know Redis Sentinel, HOST:PORT; "" is nowhere.
	Sentinel string        `json:"sentinel_address,omitempty"`
	Interval time.Duration `json:"interval_ns"`
	Timeout  time.Duration `json:"timeout_ns"` // [TimeoutStopped] in the last record of an agent that stops
	// Run is the node's own identity for this run of its process, "" if it has none. Two
	// live records with the same one are the same node twice.
	Run string `json:"run,omitempty"`
	// EngineID and Replication are the engine's own id of the node, and the address that replicas copy from, where it
	// has them.
	EngineID    string `json:"engine_node_id,omitempty"`
	Replication string `json:"replication_address,omitempty"`
	Engine      string `json:"engine"`
	Version     string `json:"version,omitempty"` // of the node's program
	Keys        int64  `json:"keys"`
}

// TimeoutStopped is the timeout in the last record of an agent that stops: it does not count as live from then on,
// and the next one need not wait.
const TimeoutStopped = time.Nanosecond

// Limits.
const (
	MaxMembers = 64   // nodes of a shard
	MaxResults = 16   // in a record
	MaxShards  = 1000 // of one List
)

// AgeAt is the age of a record with this timeout, for a store whose clock shows now. One that is
// stamped further ahead than its timeout was written before the clock was stepped back: it counts
// as silent until its agent reports again.
func AgeAt(now, updated time.Time, timeout time.Duration) time.Duration {
	age := now.Sub(updated)
	if age < -timeout {
		return timeout + time.Microsecond
	}
	return max(0, age)
}

// Live reports whether the agent has reported within its timeout.
func (r Record) Live() bool { return r.Age <= r.Timeout }

// IsAt reports whether the node is reached at the address, by clients or other nodes.
func (r Record) IsAt(address string) bool { return address == r.Address || address == r.Client() }

// Client is the address for clients.
func (r Record) Client() string {
	if r.Announced != "" {
		return r.Announced
	}
	return r.Address
}

// Label is the node as operators see it in the history: address and the first characters of its ID.
func (r Record) Label() string { return fmt.Sprintf("%s (%.8s)", r.Client(), r.ID) }

// Gist is what the record says, without the numbers that change all the time.
func (r Record) Gist() Record {
	r.Txn, r.Keys, r.Updated, r.Age = 0, 0, 0, 0
	r.PrimaryLog.At, r.PrimaryLog.Written.Size, r.PrimaryLog.Synced = 0, 0, AppendLog{}
	r.Link = r.Link.gist()
	if r.Opinion != nil {
		opinion := r.Opinion.gist()
		r.Opinion = &opinion
	}
	r.Unattended = slices.Clone(r.Unattended)
	for i, o := range r.Unattended {
		r.Unattended[i] = o.gist()
	}
	r.Followers = slices.Clone(r.Followers)
	for i := range r.Followers {
		r.Followers[i].Txn, r.Followers[i].Lag = 0, 0
	}
	return r
}

func (l *Upstream) gist() *Upstream {
	if l == nil {
		return nil
	}
	link := *l
	link.Input = 0
	return &link
}

// Validate returns an error that wraps lease.ErrInvalid unless a store may keep the record.
func (r Record) Validate() error {
	if err := ValidateName(r.Shard); err != nil {
		return err
	}
	if err := ValidateNodeID(r.ID); err != nil {
		return err
	}
	if err := ValidateAddress("node address", r.Address); err != nil {
		return err
	}
	for _, a := range []struct{ what, address string }{{"announced address", r.Announced}, {"Sentinel address", r.Sentinel}} {
		if a.address == "" {
			continue
		}
		if err := ValidateAddress(a.what, a.address); err != nil {
			return err
		}
	}
	switch {
	case r.Timeout <= 0 || r.Interval <= 0:
		return fmt.Errorf("%w: node %.8s: a record needs its agent's interval and timeout", lease.ErrInvalid, r.ID)
	case len(r.Results) > MaxResults || len(r.Followers) > MaxMembers || len(r.Unattended) > MaxMembers:
		return fmt.Errorf("%w: node %.8s: at most %d results, and %d followers and opinions", lease.ErrInvalid, r.ID, MaxResults, MaxMembers)
	}
	return nil
}

// Why a store does not take a record: what of it belongs to another node or agent.
const (
	TakenShard        = "shard"            // the node is in the shard that what names
	TakenInstance     = "instance"         // another agent that lives reports the node: what is its instance
	TakenAddress      = "address"          // another node of the shard, whose agent lives, has the address
	TakenAddressShard = "address of shard" // … a node of the shard that what names has it
)

// TakenError is the error, which wraps [ErrTaken], for a record that a store does not take: why is one
// of the four reasons, who the id of the node that stands in the way.
func (r Record) TakenError(why, who, what string) error {
	switch why {
	case TakenShard:
		return fmt.Errorf("%w: node %.8s is in shard %q; forget it there first", ErrTaken, who, what)
	case TakenInstance:
		return fmt.Errorf("%w: another agent that lives reports node %.8s (instance %.8s)", ErrTaken, who, what)
	case TakenAddressShard:
		return fmt.Errorf("%w: %s is node %.8s of shard %q; forget it there first", ErrTaken, r.Address, who, what)
	default:
		return fmt.Errorf("%w: %s is node %.8s, whose agent lives", ErrTaken, r.Address, who)
	}
}
