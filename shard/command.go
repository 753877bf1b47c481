package shard

import (
	"fmt"
	"slices"
	"time"
)

// Order is what a command tells a node's agent to do.
type Order string

// Orders. Each can be carried out any number of times.
const (
	OrderFence   Order = "fence"   // close the fence
	OrderDetach  Order = "detach"  // leave the primary, keep what was copied, and report the frozen txn id
	OrderPause   Order = "pause"   // let writes wait, report the txn id, and close the fence before the pause ends by itself
	OrderCatchUp Order = "catch"   // wait until the copy has reached Txn
	OrderYield   Order = "yield"   // give the shard's lease up for Node To
	OrderPromote Order = "promote" // become the primary: see package agent, "How a failover goes"
	OrderFollow  Order = "follow"  // copy from the node To at Address
)

// Command waits in the queue of a node until its agent takes it.
type Command struct {
	ID    string `json:"id"`
	Shard string `json:"shard"`
	Node  string `json:"node"` // whose queue
	Epoch int64  `json:"epoch"`
	Order Order  `json:"order"`
	// To and Address name a node.
	To      string `json:"to,omitempty"`
	Address string `json:"address,omitempty"`
	Txn     int64  `json:"txn,omitempty"`
	// For is how long a pause lasts at most.
	For time.Duration `json:"for_ns,omitempty"`
	// Within is how long the command may wait before it is dropped unread, counted by
	// the store; 1 s to MaxWithin.
	Within time.Duration `json:"within_ns"`
	By     string        `json:"by"` // instance of the orchestrator's agent
}

// Limits of commands.
const (
	MinWithin = time.Second     // the shortest that a command may wait in its queue
	MaxWithin = time.Hour       // … and the longest
	MaxWait   = 5 * time.Second // the longest that Commands.Next waits
	MaxQueue  = 64              // commands of a node; of more, the oldest are dropped
)

// CommandID is the same for the same order of the same plan, so that one that is sent again is
// known.
func CommandID(epoch int64, node string, o Order) string {
	return fmt.Sprintf("%d/%.12s/%s", epoch, node, o)
}

// Result is a command's acknowledgement, in the record of the node that carried it out.
type Result struct {
	ID    string `json:"id"`
	Epoch int64  `json:"epoch"`
	Order Order  `json:"order"`
	// Error is why it could not be done; "" if it was.
	Error string `json:"error,omitempty"`
	// Txn, Lineage and Before are the node's afterwards.
	Txn     int64         `json:"txn"`
	Lineage Lineage       `json:"lineage"`
	Before  Lineage       `json:"lineage_before,omitzero"`
	Took    time.Duration `json:"took_ns"`
}

// Check reports whether an agent may carry the command out: known is the highest epoch
// that it has seen, of which it keeps a copy on disk. The text says why not.
func (c Command) Check(shard, node string, known int64) (why string, ok bool) {
	switch {
	case c.Shard != shard || c.Node != node:
		return fmt.Sprintf("it is for node %.8s of shard %q", c.Node, c.Shard), false
	case c.Epoch < known:
		return fmt.Sprintf("epoch %d has ended, %d has begun", c.Epoch, known), false
	case c.Epoch <= 0:
		return "it has no epoch", false
	}
	return "", true
}

// ResultOf returns the node's result of an order under an epoch.
func (r Record) ResultOf(epoch int64, o Order) (Result, bool) {
	for _, done := range slices.Backward(r.Results) {
		if done.Epoch == epoch && done.Order == o {
			return done, true
		}
	}
	return Result{}, false
}
