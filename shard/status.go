package shard

import "time"

// Status is an agent as it is now. JSON leaves its durations out: GET /status of package shard/checks gives them in
// milliseconds.
type Status struct {
	NodeID   string  `json:"node_id"`
	Shard    string  `json:"shard"`
	Instance string  `json:"instance"`
	View     View    `json:"view"`    // as the store showed it last
	Finding  Finding `json:"finding"` // about the primary
	// State of the node, and its condition.
	State      State      `json:"state"`
	Condition  Condition  `json:"condition"`
	Assignment Assignment `json:"assignment"`
	// Holding: the node may be open: its lease is held and trusted, or all others have promised.
	Holding bool `json:"holding"`
	// Open: the fence was opened or armed under that.
	Open  bool  `json:"open"`
	Epoch int64 `json:"epoch"` // the highest known
	// Blocked is why nothing is done about a primary that is lost.
	Blocked string `json:"blocked,omitempty"`
	// Trouble is what an operator should know about this node.
	Trouble string `json:"trouble,omitempty"`
	// StoreDown is for how long the store has not answered; 0: it does.
	StoreDown time.Duration `json:"-"`
	// PromisedFor is for how much longer the agent has promised not to act.
	PromisedFor time.Duration `json:"-"`
	// Registered: the store has accepted a record of this run.
	Registered bool `json:"registered"`
	// LoopAge is how long ago the agent's loop last ran.
	LoopAge time.Duration `json:"-"`
	// Timeout of the session and of records.
	Timeout time.Duration `json:"-"`
	Stats   Stats         `json:"stats"`
}

// IsUp reports whether the node answers, and has loaded its data.
func (s Status) IsUp() bool { return s.Condition == Up && !s.State.Loading }

// IsPrimary reports whether writes go to the node. That the agent holds the lease is not enough: it takes it before it opens the node.
func (s Status) IsPrimary() bool {
	return s.Holding && s.Open && s.IsUp() && s.State.Role == Primary && s.View.Row.Primary == s.NodeID
}

// IsUnattended reports whether the node goes on as the primary that it was while its agent has not taken it under guard again, with the
// lease or before it has it back.
func (s Status) IsUnattended() bool {
	return !(s.Holding && s.Open) && s.IsUp() && s.State.Role == Primary && s.State.Fence != Closed && s.View.Row.Primary == s.NodeID
}

// Stats counts what an agent has done since it started.
type Stats struct {
	Plans    int64 `json:"plans"`    // started as the orchestrator
	Opened   int64 `json:"opened"`   // times that the fence was opened
	Fenced   int64 `json:"fenced"`   // times that trust ended with the node open
	Deaths   int64 `json:"deaths"`   // of the node, seen
	Kills    int64 `json:"kills"`    // of a hung node
	Promised int64 `json:"promised"` // rounds in which all others promised
	Commands int64 `json:"commands"` // carried out
}
