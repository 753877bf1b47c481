package apitype

import "time"

// Shard is a database: a primary and its replicas.
type Shard struct {
	Name string `json:"shard"`
	// Primary is where clients find it; missing while there is none, and then Why says why.
	Primary *ShardPrimary `json:"primary,omitempty"`
	Why     string        `json:"why,omitempty"`
	Health  string        `json:"health" enum:"fine,unattended,doubtful,failed,stuck,none"` // of the primary
	Reason  string        `json:"reason"`                                                   // for the health
	// Blocked is why a primary that has failed is not replaced, and what to do. An agent with a limit on the lag may have
	// other reasons; its log says which.
	Blocked string `json:"blocked,omitempty"`
	Alarm   int    `json:"alarm"` // how soon it needs attention: 0 calm, 1 minor, 2 a plan is under way, 3 major, 4 severe
	// Successor is the node id of the replica that would be promoted now; without one NoSuccessor is why, and what to do.
	Successor   string             `json:"successor,omitempty"`
	NoSuccessor string             `json:"no_successor,omitempty"`
	Epoch       int64              `json:"epoch"`
	Paused      *ShardPause        `json:"paused,omitempty"`
	Request     *ShardRequestAsked `json:"request,omitempty"` // that no agent has started on
	Plan        *ShardPlan         `json:"plan,omitempty"`    // under way
	Last        *ShardPlan         `json:"last,omitempty"`    // the latest that has ended
	// Holder is the agent that holds the shard's lease, under Term, for another LeftMS.
	Holder string      `json:"holder,omitempty"`
	Term   int64       `json:"term,omitempty"`
	LeftMS int64       `json:"left_ms,omitempty"`
	Nodes  []ShardNode `json:"nodes"`
}

// Shards is a list of shards.
type Shards struct {
	Shards []Shard `json:"shards"`
	Next   string  `json:"next,omitempty"`
}

// ShardPrimary is where the primary of a shard is.
type ShardPrimary struct {
	Shard   string `json:"shard"`
	NodeID  string `json:"node_id"`
	Address string `json:"address"` // for clients
	Epoch   int64  `json:"epoch"`
}

// ShardPause keeps a shard from failing over by itself.
type ShardPause struct {
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`
}

// ShardNode is a database server of a shard.
type ShardNode struct {
	ID         string `json:"node_id"`
	Address    string `json:"address"`         // for clients
	Private    string `json:"private_address"` // for the other nodes
	Agent      string `json:"agent_address,omitempty"`
	Role       string `json:"role,omitempty" enum:"primary,replica"`
	Primary    bool   `json:"is_primary"` // the primary of record
	Condition  string `json:"condition,omitempty" enum:"up,loading,silent,down,refused"`
	Trouble    string `json:"trouble,omitempty"` // what needs attention
	Member     bool   `json:"member"`            // it may be promoted
	AgentLives bool   `json:"agent_lives"`       // its agent has reported within its timeout
	AgeMS      int64  `json:"age_ms"`            // since its agent reported
	Txn        int64  `json:"txn_id"`
	// Lag is how many transactions (bytes, on Redis) the primary was ahead at its last report.
	Lag     int64  `json:"lag"`
	InStep  bool   `json:"same_lineage"` // as the primary; otherwise lag means nothing
	Lineage string `json:"lineage,omitempty"`
	LinkUp  *bool  `json:"link_up,omitempty"` // missing on a primary
	Syncing bool   `json:"syncing,omitempty"` // a full copy is under way
	// CopyMS and CopyBytes are of its latest full copy, where the engine knows them (SableDB).
	CopyMS    int64  `json:"copy_ms,omitempty"`
	CopyBytes int64  `json:"copy_bytes,omitempty"`
	Follows   string `json:"primary_node_id,omitempty"`
	Fence     string `json:"fence,omitempty" enum:"open,armed,closed"`
	Armed     bool   `json:"armed"`
	Priority  int    `json:"priority"`
	Epoch     int64  `json:"epoch"`
	Keys      int64  `json:"keys"`
	Engine    string `json:"engine,omitempty"`
	Version   string `json:"version,omitempty"`
}

// ShardPlan is a change of primary, under way or ended.
type ShardPlan struct {
	Epoch   int64    `json:"epoch"`
	Kind    string   `json:"kind" enum:"failover,switchover,return,repair"`
	From    string   `json:"from,omitempty"`   // node id of the old primary
	To      string   `json:"to,omitempty"`     // node id of the new one, once chosen
	Wanted  string   `json:"wanted,omitempty"` // node id that an operator named
	Phase   string   `json:"phase" enum:",pausing,catching,fencing,detaching,promoting,following"`
	By      string   `json:"by"`      // instance of the agent that carries it out
	ByNode  string   `json:"by_node"` // node id of that agent
	Reason  string   `json:"reason"`
	Force   bool     `json:"force,omitempty"`
	Anew    bool     `json:"anew,omitempty"` // the new primary's data is not the shard's: a new history starts
	Request string   `json:"request,omitempty"`
	Run     string   `json:"run,omitempty"`   // of the old primary's process when a switchover started
	Txn     int64    `json:"txn,omitempty"`   // where the old primary stood when it was paused
	Tried   []string `json:"tried,omitempty"` // nodes that did not become primary under an earlier epoch
	// TimeoutMS is how long a switchover may pause writes.
	TimeoutMS int64           `json:"timeout_ms,omitempty"`
	Began     time.Time       `json:"began"`
	Steps     []ShardPlanStep `json:"steps,omitempty"` // that are done
	// Ended, TookMS and Failed are of a plan that has ended; Failed is why it did not reach its end.
	Ended  time.Time `json:"ended,omitzero"`
	TookMS int64     `json:"took_ms,omitempty"`
	Failed string    `json:"failed,omitempty"`
}

// ShardPlanStep is a phase of a plan that is done.
type ShardPlanStep struct {
	Phase  string `json:"phase"`
	TookMS int64  `json:"took_ms"`
	Note   string `json:"note,omitempty"`
}

// SwitchoverRequest asks for another primary while the present one is well.
type SwitchoverRequest struct {
	To        string `json:"to,omitempty"`         // node id, the start of it, or an address; "" is the best node
	TimeoutMS int64  `json:"timeout_ms,omitempty"` // how long writes may wait; 0 is 5 s
	By        string `json:"by,omitempty"`
}

// FailoverRequest asks for another primary in place of one that has failed.
type FailoverRequest struct {
	To    string `json:"to,omitempty"`
	Force bool   `json:"force,omitempty"` // even if that loses writes
	By    string `json:"by,omitempty"`
}

// PauseRequest keeps a shard from failing over by itself.
type PauseRequest struct {
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
}

// ShardRequestAsked is a request that no agent has started on.
type ShardRequestAsked struct {
	ID        string    `json:"id"`
	Kind      string    `json:"kind" enum:"failover,switchover"`
	To        string    `json:"to,omitempty"` // node id; missing: the best node
	Force     bool      `json:"force,omitempty"`
	By        string    `json:"by"`
	TimeoutMS int64     `json:"timeout_ms,omitempty"`
	At        time.Time `json:"at"`
}

// ShardRequest is a request and what has become of it.
type ShardRequest struct {
	Shard   string     `json:"shard"`
	Request string     `json:"request"`
	State   string     `json:"state" enum:"waiting,running,done,failed"`
	Error   string     `json:"error,omitempty"` // why it failed
	Plan    *ShardPlan `json:"plan,omitempty"`
}

// States of a [ShardRequest].
const (
	RequestWaiting = "waiting" // no agent has started on it
	RequestRunning = "running"
	RequestDone    = "done"   // the shard has its new primary
	RequestFailed  = "failed" // it was refused, or could not be done
)

// HasEnded reports whether nothing more will become of the request.
func (r ShardRequest) HasEnded() bool { return r.State == RequestDone || r.State == RequestFailed }
