package shard

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// The model: a store, three nodes and their agents, reduced to what the rules speak of.
// An agent is a crude runner that does one thing at a time, on a view that may be old.
const (
	modelT     = 5 * time.Second
	modelI     = time.Second
	modelTick  = 500 * time.Millisecond
	modelFence = 3 * time.Second
)

type modelNode struct {
	id       string
	up       bool
	role     Role
	lineage  Lineage
	before   Lineage
	data     []int // writes, by number
	base     int   // the transaction id is that of data less this
	fence    Fence
	follows  string
	copying  int
	input    time.Duration // when it last heard of its primary
	acked    time.Duration // when a replica last acknowledged
	run      int
	opened   int64 // epoch under which it was last opened
	detached bool
}

func (n *modelNode) txn() int64 { return int64(len(n.data) - n.base) }

type modelJob struct {
	epoch  int64
	resume bool
	stage  int
}

type modelAgent struct {
	*modelNode
	alive    bool
	instance int
	view     View
	looked   bool
	lookedAt time.Duration
	acted    bool          // since it was started
	troubled time.Duration // when its host was last cut off, or its node down
	seen     lease.Seen
	seenAt   time.Duration
	over     bool
	overAt   time.Duration
	phase    string
	phaseAt  time.Duration
	memory   SavedState
	results  []Result
	known    int64
	holding  bool
	trust    time.Duration
	job      *modelJob
	silence  time.Duration // since when the primary has not answered; -1: it did
	opinion  *Opinion
	shunned  string
	blocked  string
	started  time.Duration
}

func (a *modelAgent) name() string { return fmt.Sprintf("%s.%d", a.id[:1], a.instance) }

type modelWorld struct {
	rand    *rand.Rand
	rules   modelRules
	now     time.Duration
	agents  []*modelAgent
	cut     map[string]bool // hosts that nobody reaches
	apart   map[string]bool // agents that do not reach the store
	row     Row
	records map[string]Record
	reports map[string]time.Duration
	queues  map[string][]Command
	old     []Command // that were delivered once, and may come again
	holder  string    // of the lease: an agent's name
	seq     int64
	renewed time.Duration
	locker  string
	locked  time.Duration
	count   int // of lineages and writes
	truth   []int
	written int64 // the highest epoch under which a write was accepted
	install map[int64]string
	wrong   []string
	asked   bool
	trace   []string
}

// modelRules are the rules under test, or broken ones.
type modelRules struct {
	view    func(View) View                // what the planner sees
	sight   func(*Observation)             // what it knows besides
	decide  func(before Row, d *RowUpdate) // what becomes of its decision
	send    func([]Command) []Command
	install func(r Row, node string, epoch int64, l Lineage, txn int64) (Row, error)
	stand   func(View) View // what an agent's stance is made from
	stale   bool            // a primary opens on the view from before it had the lease
}

func newModel(seed uint64, rules modelRules) *modelWorld {
	w := &modelWorld{rand: rand.New(rand.NewPCG(seed, 1)), rules: rules, cut: map[string]bool{}, apart: map[string]bool{}, records: map[string]Record{},
		reports: map[string]time.Duration{}, queues: map[string][]Command{}, install: map[int64]string{1: sceneID("a")}}
	w.now = time.Hour
	for _, n := range []string{"a", "b", "c"} {
		node := &modelNode{id: sceneID(n), up: true, role: Replica, lineage: Lineage{ID: "L"}, fence: Closed, follows: sceneID("a")}
		w.agents = append(w.agents, &modelAgent{modelNode: node, alive: true, instance: 1, silence: -1})
		w.row.Members = append(w.row.Members, Member{ID: node.id, Address: n + ":1"})
	}
	a := w.agents[0]
	a.role, a.follows, a.fence, a.opened = Primary, "", Armed, 1
	w.row.Name, w.row.Rev, w.row.Epoch, w.row.Primary, w.row.PrimaryEpoch, w.row.Lineages = "s", 1, 1, a.id, 1, []Lineage{{ID: "L"}}
	w.holder, w.renewed, w.written = a.name(), w.now, 1
	a.holding, a.trust = true, w.now+modelT-modelI
	for range 6 {
		w.round()
	}
	return w
}

func (w *modelWorld) fail(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf("at %v: ", w.now-time.Hour)+fmt.Sprintf(format, args...))
}

func (w *modelWorld) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%v ", w.now-time.Hour)+readable(fmt.Sprintf(format, args...)))
}

func (w *modelWorld) agent(id string) *modelAgent {
	for _, a := range w.agents {
		if a.id == id {
			return a
		}
	}
	return nil
}

func (w *modelWorld) reaches(a *modelAgent) bool { return !w.cut[a.id] && !w.apart[a.id] }

// linked reports whether a replica hears from what it follows.
func (w *modelWorld) linked(n *modelNode) (*modelNode, bool) {
	p := w.agent(n.follows)
	if p == nil || n.role != Replica || !n.up || !p.up || w.cut[n.id] || w.cut[p.id] || n.detached {
		return nil, false
	}
	return p.modelNode, true
}

func (n *modelNode) accepts(now time.Duration) bool {
	return n.up && n.role == Primary && (n.fence == Open || n.fence == Armed && now-n.acked < modelFence)
}

// tick lets time pass: sessions, replication, writes.
func (w *modelWorld) tick() {
	w.now += modelTick
	for _, a := range w.agents {
		if a.alive && a.holding && w.now >= a.trust {
			a.fence, a.holding = Closed, false
			w.note("%s loses its trust", a.name())
		}
		if a.alive && !a.holding && w.now-a.started >= modelT-modelI {
			a.fence = Closed // what its predecessor's session was good for has ended
		}
	}
	for _, a := range w.agents {
		if !a.up || w.cut[a.id] {
			a.troubled = w.now
		}
		if p, ok := w.linked(a.modelNode); ok {
			a.input = w.now
			if w.replicate(a.modelNode, p) {
				p.acked = w.now
			}
		}
	}
	for _, a := range w.agents {
		if a.accepts(w.now) {
			w.write(a)
		}
	}
}

func (w *modelWorld) replicate(n, p *modelNode) (acknowledges bool) {
	partial := n.lineage.ID == p.lineage.ID && n.txn() <= p.txn() || p.before.ID != "" && n.lineage.ID == p.before.ID && n.txn() <= p.before.End
	if !partial {
		if n.copying++; n.copying < 3 {
			return false
		}
	}
	n.copying = 0
	n.data, n.base, n.lineage, n.before = slices.Clone(p.data), p.base, p.lineage, Lineage{}
	return true
}

// write accepts one, and checks that no later epoch has started.
func (w *modelWorld) write(a *modelAgent) {
	// The armed fence alone, without an agent that knows the row, is what the package excepts.
	excused := a.fence == Armed && (!a.alive || !a.acted)
	if a.opened < w.written && !excused {
		w.fail("%s accepts a write under epoch %d after one under %d", a.id[:1], a.opened, w.written)
	}
	w.count++
	a.data = append(slices.Clone(a.data), w.count)
	if a.opened >= w.written {
		w.written, w.truth = a.opened, a.data
	}
}

func (w *modelWorld) lapsed() bool { return w.holder == "" || w.now-w.renewed >= modelT }

// look reports and takes the view, unless the store is out of reach.
func (w *modelWorld) look(a *modelAgent) {
	if !a.alive || !w.reaches(a) {
		return
	}
	w.knock(a)
	if a.holding && a.up {
		w.seq++
		w.renewed, a.trust = w.now, w.now+modelT-modelI
	}
	w.arm(a)
	w.records[a.id], w.reports[a.id] = w.record(a), w.now
	if a.up {
		a.memory = a.memory.Updated(w.state(a), a.holding)
		a.memory.NodeID = a.id
	} else if a.holding { // its process has ended: told first, then given up
		w.release(a)
	}
	a.view, a.looked, a.lookedAt = w.take(), true, w.now
	w.counts(a)
}

func (w *modelWorld) take() View {
	v := View{Row: w.row.Copy(), Now: time.Unix(0, 0).Add(w.now)}
	for _, id := range slices.Sorted(maps.Keys(w.records)) {
		r := w.records[id]
		r.Age = w.now - w.reports[id]
		r.Results = slices.Clone(r.Results)
		v.Nodes = append(v.Nodes, r)
	}
	if w.holder != "" {
		v.Lease = lease.Lease{Session: w.holder, Seq: w.seq, Holder: lease.Instance{ID: w.holder}, Remaining: w.renewed + modelT - w.now}
	}
	v.Lease.Timing = lease.Timing{Interval: modelI, Timeout: modelT}
	return v
}

// counts does what lease.TakeoverPolicy does, and how long the plan has been in its phase.
func (w *modelWorld) counts(a *modelAgent) {
	if l := a.view.Lease; l.Seen() != a.seen {
		a.seen, a.seenAt = l.Seen(), w.now
	}
	over := a.view.Lease.Free() || !a.view.Lease.Held() && w.now-a.seenAt >= modelT
	if over && !a.over {
		a.overAt = w.now
	}
	a.over = over
	phase := ""
	if p := a.view.Row.Plan; p != nil {
		phase = fmt.Sprint(p.Epoch, p.Phase)
		a.known = max(a.known, p.Epoch)
	}
	if phase != a.phase {
		a.phase, a.phaseAt = phase, w.now
	}
}

func (w *modelWorld) knock(a *modelAgent) {
	p := w.agent(w.row.Primary)
	if p == a || p == nil {
		a.opinion = nil
		return
	}
	v := Reachable
	switch {
	case w.cut[p.id]:
		v = TimedOut
	case !p.up:
		v = Refused
	}
	if a.opinion == nil || a.opinion.Of != p.id || v == Reachable {
		a.silence = -1
	}
	if v != Reachable && a.silence < 0 {
		a.silence = w.now
	}
	a.opinion = &Opinion{Of: p.id, Reachability: v}
	if a.silence >= 0 {
		a.opinion.Silence = w.now - a.silence
	}
}

func (w *modelWorld) state(a *modelAgent) State {
	s := State{Role: a.role, Txn: a.txn(), Lineage: a.lineage, Before: a.before, Fence: a.fence, Synced: true, Keys: int64(len(a.data)), Run: fmt.Sprint(a.run)}
	if a.role == Replica {
		_, up := w.linked(a.modelNode)
		s.Link = &Upstream{Address: a.follows[:min(1, len(a.follows))] + ":1", Up: up && a.copying == 0, Syncing: a.copying > 0, Input: w.now - a.input}
		if a.detached {
			s.Link.Address = "nowhere:1"
		}
		s.Synced = a.copying == 0
	}
	return s
}

func (w *modelWorld) record(a *modelAgent) Record {
	s := w.state(a)
	r := Record{Shard: "s", ID: a.id, Address: a.id[:1] + ":1", Role: a.role, Txn: s.Txn, Condition: Up, Lineage: s.Lineage, Before: s.Before, Link: s.Link,
		Synced: a.memory.HasAllData(s), Fence: a.fence, Armed: a.fence == Armed, Priority: 100, Opinion: a.opinion, Results: slices.Clone(a.results),
		Instance: a.name(), Interval: modelI, Timeout: modelT, Keys: s.Keys, Epoch: a.known}
	if a.role == Replica && !a.detached {
		r.PrimaryID = a.follows
	}
	switch {
	case !a.up:
		r.Condition, r.Armed, r.Fence = Down, false, Closed
	case a.shunned != "":
		r.Condition, r.Trouble = Quarantined, a.shunned
	}
	return r
}
