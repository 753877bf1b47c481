package shard

import (
	"slices"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// View is a shard as the store shows it, all at one moment.
type View struct {
	Row Row
	// Nodes that report or did, by id.
	Nodes []Record
	// Lock is the value of the failover lock on Row.Primary, "" when it is free.
	Lock string
	// Lease is that of the shard's primary.
	Lease lease.Lease
	// Now is the store's clock: epochs start from it, and by it are judged the ages of what rows have the time of
	// (failovers, failed plans, requests, how long a member has not reported). A primary's silence is not judged by it.
	Now time.Time
	// Stale is why the view may not be believed any more, "" while it may.
	Stale string `json:"-"`
}

// Node returns the record of a node.
func (v View) Node(id string) (Record, bool) {
	for _, r := range v.Nodes {
		if r.ID == id {
			return r, true
		}
	}
	return Record{}, false
}

// answeringMember returns the record of a member, and whether it tells what the member has, or soon will.
func (v View) answeringMember(m Member) (r Record, live bool) {
	r, known := v.Node(m.ID)
	return r, known && r.Live() && r.Condition != Silent
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

// isLed reports whether the primary's agent holds the shard's lease.
func (v View) isLed() bool {
	r, ok := v.holder()
	return ok && r.ID == v.Row.Primary && v.Lease.Held()
}

// AddressOf is where a node answers, "" if that is not known: as it reported, or as the row has it.
func (v View) AddressOf(id string) string {
	if r, ok := v.Node(id); ok {
		return r.Address
	}
	m, _ := v.Row.Member(id)
	return m.Address
}

// FirstToCopy returns the live replica of the same primary that copies everything before a stalled one does: so that
// they do so one at a time.
func (v View) FirstToCopy(me Record) (first Record, found bool) {
	for _, r := range v.Nodes {
		if r.ID == me.ID || !r.Live() || r.Condition != Up || r.PrimaryID != me.PrimaryID || r.Link == nil {
			continue
		}
		if r.Link.Syncing || r.Link.Stalled && r.ID < me.ID {
			return r, true
		}
	}
	return Record{}, false
}

// Peers are the nodes that report, for an engine that must know where they are.
func (v View) Peers() []Peer {
	peers := make([]Peer, len(v.Nodes))
	for i, r := range v.Nodes {
		peers[i] = Peer{NodeID: r.EngineID, Address: r.Address, Replication: r.Replication}
	}
	return peers
}

// isReportedTwice reports whether another agent reports the same node.
func (v View) isReportedTwice(n Record) bool {
	return n.Run != "" && slices.ContainsFunc(v.Nodes, func(r Record) bool { return r.ID != n.ID && r.Run == n.Run && r.Live() })
}

// isSyncedReplicaOf reports whether a replica has the whole of its primary's data.
func (r Record) isSyncedReplicaOf(primary Record) bool {
	return r.Live() && r.Role == Replica && r.Synced && r.PrimaryID == primary.ID && primary.ID != "" &&
		r.Lineage.ID == primary.Lineage.ID && r.Link != nil && r.Link.Up
}

func lastTxn(v View, id string) int64 {
	r, _ := v.Node(id)
	return r.Txn
}
