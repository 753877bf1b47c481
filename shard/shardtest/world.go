package shardtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// World is a cluster of nodes in memory, for agents under test: replication, offsets and
// lineages as Redis has them, and fences. Nodes can be killed, hung, cut off and
// slowed down. It goes by package time, so that in a bubble its time is virtual.
type World struct {
	mu    sync.Mutex
	nodes map[string]*Node
	order []string
	cut   map[[2]string]bool
	count int64
	// Lying fences say that they are closed or armed, and let every write through: a broken
	// variant, which checks of what is accepted have to notice.
	Lying bool
	// FenceDelay of its engines.
	FenceDelay time.Duration
	// CopyTime is what a full copy takes; 0 is 20 ms.
	CopyTime time.Duration
	// OnAccept, unless nil, is called for each write that is acknowledged, before anybody
	// can know of it. It must not call the world.
	OnAccept func(Accepted)
	accepted []Accepted
}

// Accepted is a write that a node acknowledged.
type Accepted struct {
	ID   int64
	Node string // address
	At   time.Time
}

type write struct {
	id int64
	at time.Time
}

// Node is one of a [World]. Its fields are under the world's lock.
type Node struct {
	w       *World
	address string

	running bool
	hung    bool
	moved   chan struct{} // closed and replaced when it is continued or ends
	done    chan struct{} // closed when its process ends
	pid     int
	run     string
	fenced  bool // it starts with its fence closed
	alone   bool // it starts as a replica of nobody

	role    shard.Role
	lineage shard.Lineage
	before  shard.Lineage
	data    []write
	file    int64 // of the log in which the data is kept
	txn     int64
	fence   shard.Fence
	need    int
	paused  time.Time
	sick    bool // it cannot write

	primary string // whom it follows; "" is nobody
	linked  bool
	peer    string    // the run of its primary that it is connected to
	dataset int       // … and how many full copies that had taken
	retry   time.Time // when it tries to connect again
	synced  bool
	copying time.Time // until when a full copy takes
	input   time.Time
	lag     time.Duration
	copies  int
	queued  int // writes that came while it hung
}

// NewWorld returns a world without nodes.
func NewWorld() *World {
	return &World{nodes: map[string]*Node{}, cut: map[[2]string]bool{}, FenceDelay: 2 * time.Second}
}

// Add makes a node that runs, an empty primary.
func (w *World) Add(address string) *Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := &Node{w: w, address: address, moved: make(chan struct{}), done: make(chan struct{})}
	w.nodes[address] = n
	w.order = append(w.order, address)
	n.boot()
	return n
}

// At returns the node at an address.
func (w *World) At(address string) *Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodes[address]
}

// Accepted returns the writes that were acknowledged, in order.
func (w *World) Accepted() []Accepted {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.accepted)
}

// Cut cuts or restores the way between two hosts, which are named by the addresses of their nodes.
func (w *World) Cut(a, b string, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replicate()
	w.cut[[2]string{min(a, b), max(a, b)}] = cut
	w.replicate()
}

// IsCut reports whether the way between two hosts is cut.
func (w *World) IsCut(a, b string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.reaches(a, b)
}

func (w *World) reaches(a, b string) bool { return a == b || !w.cut[[2]string{min(a, b), max(a, b)}] }

func (w *World) name() string {
	w.count++
	return fmt.Sprintf("%040x", w.count)
}

// boot starts a run of the node's process, with the data that it has.
func (n *Node) boot() {
	n.running, n.hung, n.run, n.done = true, false, n.w.name(), make(chan struct{})
	n.w.count++
	n.pid = int(n.w.count)
	n.role, n.primary, n.linked, n.synced = shard.Primary, "", false, true
	n.lineage, n.before, n.txn = shard.Lineage{ID: n.w.name()}, shard.Lineage{}, 0
	n.fence, n.need, n.paused, n.queued = shard.Open, 0, time.Time{}, 0
	if n.fenced {
		n.fence = shard.Closed
	}
	if n.alone {
		n.role = shard.Replica
	}
}

func (n *Node) change(f func()) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.w.replicate()
	f()
	n.w.replicate()
	close(n.moved)
	n.moved = make(chan struct{})
}

// Kill ends the node's process.
func (n *Node) Kill() { n.change(n.end) }

func (n *Node) end() {
	if !n.running {
		return
	}
	n.running, n.hung, n.linked = false, false, false
	close(n.done)
}

// Start starts the node again, with what it had, or empty.
func (n *Node) Start(empty bool) {
	n.change(func() {
		if n.running {
			return
		}
		if empty {
			n.data = nil
		}
		n.boot()
	})
}

// Fenced has the node start with its fence closed, now and whenever it is started.
func (n *Node) Fenced() { n.change(func() { n.fenced, n.fence = true, shard.Closed }) }

// Alone has the node start as a replica of nobody, now and whenever it is started, so that no other
// copies from it before its agent has seen it.
func (n *Node) Alone() { n.change(func() { n.alone, n.role = true, shard.Replica }) }

// Hang stops the node's process; Continue lets it continue.
func (n *Node) Hang() { n.change(func() { n.hung = n.running }) }

// Continue lets a node continue that hung. What it received meanwhile comes first.
func (n *Node) Continue() {
	n.change(func() {
		if !n.hung {
			return
		}
		n.drain()
		n.hung = false
	})
}

// drain makes the writes that came while the node hung, unless they wait for the end of a pause.
func (n *Node) drain() {
	if time.Now().Before(n.paused) {
		return
	}
	writes := n.queued
	n.queued = 0
	for range writes {
		_, _ = n.write()
	}
}

// Sick makes the node unable to write.
func (n *Node) Sick(sick bool) { n.change(func() { n.sick = sick }) }

// Lag makes the node get what its primary writes only so much later.
func (n *Node) Lag(lag time.Duration) { n.change(func() { n.lag = lag }) }

// Copies is how many full copies the node has made of others.
func (n *Node) Copies() int {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return n.copies
}

// Has reports whether the node has a write.
func (n *Node) Has(id int64) bool {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.w.replicate()
	return slices.ContainsFunc(n.data, func(w write) bool { return w.id == id })
}

// State of the node, whether anybody can reach it or not.
func (n *Node) State() shard.State {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.w.replicate()
	return n.state()
}

// Running tells that the node's process runs.
func (n *Node) Running() bool {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return n.running
}

// Write writes to the node from its own host, as a client does that gives up at once; one that hangs
// keeps the write for later.
func (n *Node) Write() (id int64, err error) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.w.replicate()
	switch {
	case !n.running:
		return 0, shard.ErrNodeGone
	case n.hung:
		n.queued++
		return 0, context.DeadlineExceeded
	case time.Now().Before(n.paused):
		return 0, context.DeadlineExceeded
	}
	return n.write()
}

func (n *Node) write() (int64, error) {
	if err := n.refuses(); err != nil {
		return 0, err
	}
	n.w.count++
	n.txn++
	n.data = append(n.data, write{n.w.count, time.Now()})
	n.w.accepted = append(n.w.accepted, Accepted{n.w.count, n.address, time.Now()})
	if n.w.OnAccept != nil {
		n.w.OnAccept(n.w.accepted[len(n.w.accepted)-1])
	}
	n.w.replicate()
	return n.w.count, nil
}

func (n *Node) refuses() error {
	switch {
	case n.role != shard.Primary:
		return fmt.Errorf("%w: a replica", shard.ErrNodeRefused)
	case n.sick:
		return fmt.Errorf("%w: its disk is full", shard.ErrNodeUnhealthy)
	case n.w.Lying:
		return nil
	case n.fence == shard.Closed:
		return fmt.Errorf("%w: its fence is closed", shard.ErrNodeRefused)
	case n.fence == shard.Armed && n.acknowledged() < n.need:
		return fmt.Errorf("%w: too few replicas", shard.ErrNodeRefused)
	}
	return nil
}

func (n *Node) state() shard.State {
	s := shard.State{Role: n.role, Txn: n.txn, Lineage: n.lineage, Before: n.before, Fence: n.fence, Synced: n.synced && !n.syncing(),
		Keys: int64(len(n.data)), Run: n.run, PID: n.pid, Version: "world",
		AppendLog: shard.AppendLog{File: n.file, Size: int64(len(n.data))}}
	if n.fence == shard.Armed {
		s.Needs = n.need
	}
	if n.role == shard.Replica {
		s.Link = &shard.Upstream{Address: n.primary, Up: n.linked, Syncing: n.syncing(), Input: -1}
		if n.linked {
			s.Link.Input = time.Since(n.input)
		}
	} else {
		s.Followers = n.followers()
	}
	return s
}
