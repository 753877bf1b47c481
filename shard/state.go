package shard

import (
	"cmp"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// state is what the loop knows. Times are readings of the agent's clock.
type state struct {
	busy map[string]bool // jobs under way
	next time.Duration   // when to go round at the latest

	// Of the node.
	node       State
	answered   bool // the latest probe was
	known      bool // any probe was
	fresh      bool // it has not been looked at since it came, or came back
	access     string
	gone       time.Duration // since when its process is known to be over; 0: it is not
	condition  Condition
	adopted    Process // of a node that somebody else started
	unwatched  string  // why it could not be adopted, as it was said last
	probeAt    time.Duration
	answeredAt time.Duration // when the last probe was begun that it answered
	rebornAt   time.Duration // when its process was last found to be another
	led        time.Duration // when it was last led to another primary
	probedAt   time.Duration // when the node was asked what is known of it

	// Of the store.
	view       View
	viewAt     time.Duration
	without    time.Duration // since when there is no such shard
	stale      bool          // nothing is decided from this view any more: a decision was not taken
	viewed     chan struct{} // closed and replaced with each view
	rev        int64         // of the newest decision of our own
	revAt      time.Duration
	registered bool
	refused    string        // why the store does not take the record
	failing    time.Duration // since when the store does not answer; 0: it does
	heard      time.Duration // when the latest request to the store was begun that was answered
	wellSince  time.Duration // since when it has answered, outages below T apart
	steady     time.Duration // since when every call was answered
	lease      lease.Lease
	patience   lease.Patience
	over       bool
	overSince  time.Duration

	// Of reports.
	look      bool
	report    bool
	tell      bool
	begun     int64
	notBefore time.Duration // after a failure
	lull      time.Duration
	waiters   []waiter
	told      Record // the latest that was accepted
	opinion   Opinion
	knocked   time.Duration
	mute      time.Duration // since when no knock was answered; 0: the last was
	shut      time.Duration // since when each found the fence closed; 0: the last did not
	willOpen  Fence         // told before the fence is opened, until a probe has seen it
	results   []Result
	armed     bool
	trouble   string
	unarmed   said     // of arming
	pendings  []Member // of an admission whose outcome is not known

	// Of being the primary.
	tenure    *tenure
	heldSince time.Duration
	ready     int // rounds in which the replicas that arming needs were seen
	cut       bool
	pause     struct {
		epoch int64
		until time.Duration
	}
	promised time.Duration // until when this agent has promised not to act
	asked    time.Duration
	alone    said // of promises that are not given

	// Of deeds.
	bearing  Bearing
	shunned  string
	ill      string // why the node cannot write, once it was given up for that
	deed     *deed
	queue    []Command
	heeded   time.Duration // when the latest command came
	raised   int64         // the highest epoch that was obeyed, and when
	raisedAt time.Duration
	retry    time.Duration
	backoff  time.Duration
	began    time.Duration // when the agent did
	kept     time.Duration // when the memory was last written
	unkept   said          // of what could not be

	// Of plans.
	phase struct {
		epoch int64
		phase Phase
		since time.Duration
	}
	lock     lockState
	sent     map[string]time.Duration
	action   Action
	blocked  said          // of a primary that is over, about which nothing can be done
	leaving  time.Duration // since when; 0: not
	letGo    bool          // nothing is left to hand over
	handover string        // request of a switchover away from here, while stopping
	fencedAt time.Duration // when the orchestrator last tried to fence the old primary
	fenced   struct {      // … and when it began to and did, under which epoch
		epoch int64
		at    time.Duration
	}
	arming   time.Duration // when the fence was last tried to be armed
	disarmed time.Duration // … and disarmed
	admitted time.Duration // when members were last changed
	stats    Stats
}

// waiter waits for a report that begins after it came.
type waiter struct {
	after int64
	done  chan struct{}
}

type lockState struct {
	seen    string        // in the view
	since   time.Duration // when that changed
	mine    string
	primary string // on whose lock
	try     string
	renewed time.Duration
	count   int64
	pick    time.Duration // when to try
}

func newState(m Memory) state {
	return state{
		busy: map[string]bool{}, sent: map[string]time.Duration{}, viewed: make(chan struct{}), fresh: true,
		node: State{Role: Replica}, condition: Silent, promised: m.Promised,
	}
}

// by makes the loop go round at the given time, if not before.
func (s *state) by(at time.Duration) { s.next = min(s.next, at) }

// see takes in the lease as a reply showed it that was received at now.
func (s *state) see(a *Agent, l lease.Lease, now time.Duration) {
	if l.Seen() != s.lease.Seen() {
		s.over = false
	}
	s.lease = l
	reserved := l.Reserved > 0 && !a.instance.Named(l.Successor)
	s.patience.Observe(l, now, reserved, a.cfg.Timing.Timeout)
	s.judgeLease(now)
}

// judgeLease notes since when the lease is believed to be over.
func (s *state) judgeLease(now time.Duration) {
	switch {
	case s.tenure != nil && s.tenure.live.Valid():
		s.over = false
	case s.lease.Free():
		if !s.over {
			s.over, s.overSince = true, now
		}
	case now >= s.patience.Due():
		if !s.over {
			s.over, s.overSince = true, min(now, s.patience.Due())
		}
	default:
		s.over = false
		s.by(s.patience.Due())
	}
}

// takeView takes in what the store showed at now.
func (a *Agent) takeView(v View, now time.Duration) {
	s := &a.s
	if v.Row.Rev < s.rev && now-s.revAt < a.cfg.Timing.Timeout {
		s.look = true // it was read before our own decision
		return
	}
	if v.Row.Rev == 0 && (s.view.Row.Rev != 0 || s.viewAt == 0) {
		s.without = now
	}
	if s.viewAt != 0 && now-s.viewAt > a.cfg.Timing.Timeout {
		s.wellSince = now
	}
	s.view, s.viewAt, s.stale, s.pendings = v, now, false, nil
	s.see(a, v.Lease, now)
	s.trackPlan(now)
	close(s.viewed)
	s.viewed = make(chan struct{})
	if s.lock.try != "" && v.Lock == s.lock.try {
		s.lock.mine = s.lock.try
	}
	a.publish(now)
}

// trackPlan notes when the plan and the lock last moved.
func (s *state) trackPlan(now time.Duration) {
	var epoch int64
	var phase Phase
	if p := s.view.Row.Plan; p != nil {
		epoch, phase = p.Epoch, p.Phase
	}
	if s.phase.epoch != epoch || s.phase.phase != phase {
		s.phase.epoch, s.phase.phase, s.phase.since = epoch, phase, now
	}
	l := &s.lock
	if l.seen != s.view.Lock || l.since == 0 {
		l.seen, l.since, l.pick = s.view.Lock, now, 0
	}
}

// holding tells that the node may be open: the lease is held and trusted, or everybody has promised.
func (a *Agent) holding() bool {
	return a.trust.remaining() > 0 && (a.s.tenure != nil || a.gate.isOpen())
}

// holds tells the same to other goroutines, of the lease alone.
func (a *Agent) holds() bool {
	var held bool
	a.ask(func() { held = a.s.tenure != nil && a.s.tenure.live.Valid() })
	return held
}

// idOf returns the node at a private address.
func (s *state) idOf(address string) string {
	for _, r := range s.view.Nodes {
		if r.Address == address {
			return r.ID
		}
	}
	for _, m := range s.view.Row.Members {
		if m.Address == address {
			return m.ID
		}
	}
	return ""
}

// addressOf returns the private address of a node, "" if it is not known.
func (s *state) addressOf(id string) string {
	if r, ok := s.view.Node(id); ok {
		return r.Address
	}
	m, _ := s.view.Row.Member(id)
	return m.Address
}

// record is the node as it is reported.
func (a *Agent) record(now time.Duration) Record {
	s := &a.s
	n := s.node
	r := Record{
		Shard: a.cfg.Shard, ID: a.id, Address: a.cfg.Private, Announced: a.cfg.Announced,
		Role: n.Role, Txn: n.Txn, Condition: s.condition, Trouble: lease.CutReason(cmp.Or(s.access, s.trouble)),
		Lineage: n.Lineage, Before: n.Before, Synced: a.folder.memory().Whole(n), Fence: cmp.Or(s.willOpen, n.Fence), Armed: s.armed,
		Priority: *a.cfg.Priority, Epoch: max(a.folder.memory().Epoch, s.view.Row.Epoch),
		Results: slices.Clone(s.results), Instance: a.instance.ID, Agent: a.cfg.AgentAddress,
		Interval: a.cfg.Timing.Interval, Timeout: a.cfg.Timing.Timeout,
		Run: n.Run, Engine: a.cfg.Engines.Name(), Version: n.Version, Keys: n.Keys,
	}
	since := now - s.answeredAt // what it said then has aged, whether it answers or not
	if n.Link != nil {
		link := *n.Link
		if link.Input >= 0 {
			link.Input += since
		}
		r.Link = &link
		if n.Role == Replica {
			r.PrimaryID = s.idOf(link.Address)
		}
	}
	if n.Role == Primary {
		for _, f := range n.Followers[:min(len(n.Followers), MaxMembers)] {
			f.Lag += since
			if f.ID == "" {
				f.ID = s.idOf(f.Address)
			}
			r.Followers = append(r.Followers, f)
		}
	}
	if s.opinion.Of != "" {
		o := s.opinion
		o.Age = now - s.knocked
		if s.mute != 0 {
			o.Silence = now - s.mute
		}
		r.Opinion = &o
	}
	return r
}
