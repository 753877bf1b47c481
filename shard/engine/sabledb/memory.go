package sabledb

import (
	"sync"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

const (
	// linkLife is how long a link counts as up after the primary last listed the replica.
	linkLife = 2 * time.Second
	// firstCopy is how long a replica may take to be listed for the first time before it is led there again; twice as
	// long after each try.
	firstCopy = time.Minute
)

// memory is what the nodes themselves do not tell. It is shared by all engines of one address.
type memory struct {
	mu sync.Mutex
	// acts counts what was done to the node: an answer that was asked for before may be older.
	acts int64
	// standing: it is to be a primary, and is detached because its fence is closed.
	standing bool
	detached bool
	follows  string    // address that it was last led to, or found to follow
	led      time.Time // when this process led it there; zero: another did
	before   place     // what changes.seq said then
	patience time.Duration
	took     time.Duration // of the latest full copy
	size     int64         // of the database then, in bytes; 0: not known yet
	// What the primary last said of it; "" before it listed it.
	primary string
	txn     int64
	heard   time.Time
	missing time.Time // since when the primary answers without listing it
}

// closing records that a primary is about to be led nowhere. REPLICAOF may be carried out although its answer does not come in
// time, and then nothing else tells that the node is more than a replica of nobody. A probe that finds it a primary takes it back.
func (m *memory) closing() { m.standing, m.detached, m.follows = true, true, "" }

// opened records that the node is a primary that is open: what it followed before counts no more.
func (m *memory) opened() {
	m.standing, m.detached, m.primary, m.txn, m.led = false, false, "", 0, time.Time{}
}

// hear records that the primary listed the replica.
func (m *memory) hear(primary string, txn int64, at time.Time) {
	if m.primary == "" && !m.led.IsZero() {
		m.took, m.size = at.Sub(m.led), 0
	}
	m.primary, m.txn, m.heard, m.missing, m.patience = primary, txn, at, time.Time{}, 0
}

// miss records that the primary answered, and did not list it.
func (m *memory) miss(at time.Time) {
	if m.missing.IsZero() {
		m.missing = at
	}
}

// isCopying reports whether it was led to a primary that has not listed it yet.
func (m *memory) isCopying() bool {
	return m.follows != "" && !m.led.IsZero() && m.primary == "" && time.Since(m.led) < m.patience
}

// isStalled reports whether its primary has answered for long without listing it.
func (m *memory) isStalled() bool {
	return !m.missing.IsZero() && time.Since(m.missing) >= linkLife && !m.isCopying()
}

// LearnPeers implements [shard.PeerLearner].
func (e *engines) LearnPeers(peers []shard.Peer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range peers {
		if p.NodeID != "" {
			e.addresses[p.NodeID] = p.Address
		}
		if p.Replication != "" {
			e.replication[p.Address] = p.Replication
		}
	}
}

// addressOf returns where a node is, by SableDB's own id; "" if no agent has reported it.
func (e *engines) addressOf(id string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.addresses[id]
}
