package shardtest

import (
	"slices"

	"github.com/understudy-ha/understudy/shard"
)

// Snapshot is what a node had on disk once.
type Snapshot struct {
	data    []write
	file    int64
	lineage shard.Lineage
	txn     int64
}

// Data returns the ids of the writes in it, oldest first.
func (s Snapshot) Data() []int64 { return ids(s.data) }

func ids(data []write) []int64 {
	ids := make([]int64, len(data))
	for i, w := range data {
		ids[i] = w.id
	}
	return ids
}

// Snapshot returns what the node has now, as a save to disk keeps it: with its place in its lineage.
func (n *Node) Snapshot() Snapshot {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.w.replicate()
	return Snapshot{slices.Clone(n.data), n.file, n.lineage, n.txn}
}

// StartFrom starts a node that does not run with what it had on disk once: at that place of that lineage, as a replica
// that is to be one of nobody, and as the primary of a new one otherwise.
func (n *Node) StartFrom(s Snapshot) {
	n.change(func() {
		if n.running {
			return
		}
		n.data, n.file = slices.Clone(s.data), s.file
		n.boot()
		n.txn = s.txn
		if n.alone {
			n.lineage = s.lineage
		} else {
			n.before = shard.Lineage{ID: s.lineage.ID, End: s.txn}
		}
	})
}

// StartFromLog is StartFrom for a node that keeps a log: that does not tell its place in a lineage.
func (n *Node) StartFromLog(s Snapshot) {
	n.change(func() {
		if n.running {
			return
		}
		n.data, n.file = slices.Clone(s.data), s.file
		n.boot()
	})
}

// Data returns the ids of the writes that the node has, oldest first.
func (n *Node) Data() []int64 {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.w.replicate()
	return ids(n.data)
}

// Hung tells that the node's process is stopped.
func (n *Node) Hung() bool {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return n.hung
}

// Accepts reports whether the node would accept a write now.
func (n *Node) Accepts() bool {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.w.replicate()
	return n.running && !n.hung && n.refuses() == nil
}
