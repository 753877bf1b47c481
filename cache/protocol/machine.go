package protocol

import (
	"container/list"
	"time"
)

// Setup is what a machine starts with.
type Setup struct {
	// Self is the peer's url.
	Self string
	// Members are all peers, as configured, and Stored is the list as stored in the
	// peer's last life; without members when nothing was.
	Members Members
	Stored  MembersState
	// HasStorage reports whether what is saved outlives a restart.
	HasStorage bool
	// Incarnation is random at every start, and not 0.
	Incarnation uint64
	// Ceiling and Removals are as stored.
	Ceiling int64
	// Floor counts as used at the start, without being stored: where nothing was, the
	// wall clock and [Timings.Reach], because a removal reaches so far ahead.
	Floor    int64
	Removals []Removal
	// Timings are complete and valid.
	Timings Timings
	// Jitter is the part of a time to live that is taken off at random, 0 to 0.5.
	Jitter float64
	// Mixed counts peers that never said Hello as peers of the original, whose votes
	// bind as long as their link is up. It weakens what is promised.
	Mixed bool
	// Passive is that this peer has no origin and never fetches. It votes, follows, and serves copies.
	Passive bool
	// MaxWaiting bounds the Gets that wait.
	MaxWaiting int
	Table      Table
	// Rand is a source of numbers from 0 up to 1.
	Rand func() float64
}

// Machine is one peer's side of the protocol. It is not safe for concurrent use.
type Machine struct {
	setup Setup // of the start; what has changed since, such as the members and the ceiling, is below

	members     Members
	listDigest  uint64        // of the list
	listAt      time.Duration // when the list was taken, or the peer started
	listSettled bool          // nothing rests on an earlier list: see settleList

	now          Now
	effects      []Effect
	startEffects []Effect // of the start, for the first step

	keys     map[string]*key
	failures list.List // of the keys of which only a failure is remembered, the oldest first
	timers   timers
	waiters  map[Token]*waiter
	peers    map[string]*peer
	busy     int // keys for which this peer stands or fetches

	floor                      int64 // terms up to it may have been used before the start
	ceiling                    int64
	raising                    int64  // asked for and not answered; 0: nothing
	ceilingFailure             string // why it could not be stored the last time; empty: it was
	questionsAwaitingCeiling   []Received
	candidaciesAwaitingCeiling []*key

	stopping       bool          // [Stop]
	abstain        time.Duration // votes for nobody before
	lostUntil      time.Duration // its storage was lost: it neither votes, stands nor fetches before
	lostKnownBy    string        // who remembers the life that had it
	linkGraceUntil time.Duration // requests wait for the links until then; 0: no longer
	helloAt        time.Duration
	partitioned    bool // an election got too few answers; ends when a majority answers pings
	pingAt         time.Duration
	pongs          map[string]bool
	// noLinkMajority: when the links last changed, fewer than a majority were connected. It follows the links alone,
	// and serves to count and report each loss once; partitioned is about answers, and can be true of links that
	// look connected.
	noLinkMajority bool

	removals removals
	counters Counters
}

// New is a machine at its start: the first Step may come at any time.
func New(now Now, s Setup) *Machine {
	m := &Machine{
		setup:          s,
		now:            now,
		keys:           map[string]*key{},
		waiters:        map[Token]*waiter{},
		peers:          map[string]*peer{},
		floor:          max(s.Ceiling, s.Floor),
		ceiling:        s.Ceiling,
		pongs:          map[string]bool{},
		helloAt:        now.Boot,
		linkGraceUntil: now.Boot + s.Timings.AnnounceTimeout,
	}
	m.members = NewMembers(s.Members)
	m.listDigest, m.listAt = m.members.Digest(), now.Boot
	for _, member := range m.members {
		if member.URL != s.Self {
			m.peers[member.URL] = &peer{linkSince: now.Boot}
		}
	}
	if len(m.peers) > 0 {
		m.abstain = now.Boot + s.Timings.AnnounceTimeout
	}
	m.removals.restore(s.Removals)
	m.restoreMembers(s.Stored)
	for _, r := range s.Removals {
		m.dropCopies(r) // what was removed, and stored again at a crash
	}
	m.noLinkMajority = !m.hasQuorum()
	m.startEffects, m.effects = m.effects, nil
	return m
}

// Step tells the machine what happened and returns what to do about it. The slice
// is valid until the next Step. What has become due comes first: a peer that was
// paused learns what it may no longer do before it does anything.
func (m *Machine) Step(now Now, in Input) []Effect {
	now.Boot = max(now.Boot, m.now.Boot)
	clear(m.effects)
	m.now, m.effects, m.startEffects = now, append(m.effects[:0], m.startEffects...), nil
	m.dropFailures()
	m.runDue()
	switch in := in.(type) {
	case Get:
		m.handleGet(in)
	case Cancel:
		m.handleCancel(in.Token)
	case Received:
		m.handleMessage(in)
	case Fetched:
		m.handleFetched(in)
	case Raised:
		m.handleRaised(in)
	case Link:
		m.handleLink(in)
	case Unusable:
		if p := m.peers[in.Peer]; p != nil {
			p.unusable = in.Why
		}
	case RemoveKeys:
		m.handleRemoveKeys(in)
	case ChangeMembers:
		m.handleChangeMembers(in)
	case Stop:
		m.handleStop()
	case Tick:
	}
	return m.effects
}

// Next is when, on the boot clock, a [Tick] is wanted.
func (m *Machine) Next() time.Duration {
	next := m.helloAt
	if len(m.timers) > 0 {
		next = min(next, m.timers[0].timerAt)
	}
	if m.partitioned {
		next = min(next, m.pingAt)
	}
	if m.isAbstaining() {
		next = min(next, m.abstain)
	}
	if m.linkGraceUntil > m.now.Boot {
		next = min(next, m.linkGraceUntil)
	}
	return min(next, m.removals.next())
}

// runDue does what the passing of time asks for.
func (m *Machine) runDue() {
	for len(m.timers) > 0 && m.timers[0].timerAt <= m.now.Boot {
		m.runKeyTimer(m.timers[0])
	}
	if m.helloAt <= m.now.Boot {
		m.helloAt = m.now.Boot + m.setup.Timings.Hello
		if m.ceilingFailure != "" {
			m.ensureCeiling(m.now.Wall) // a peer that is not ready gets no requests that would try
		}
		m.settleList()
		m.sendHello("")
	}
	if m.partitioned && m.pingAt <= m.now.Boot {
		m.ping()
	}
	if m.linkGraceUntil != 0 && m.linkGraceUntil <= m.now.Boot {
		m.linkGraceUntil = 0
		m.linksChanged()
	}
	m.spreadRemovals()
}

func (m *Machine) handleMessage(in Received) {
	from, known := m.peers[in.From]
	switch msg := in.Message.(type) {
	case Hello:
		if known {
			m.handleHello(in.From, from, msg)
		}
		return
	case MembersList:
		m.handleMembersList(in.From, msg.Members)
		return
	case Pong:
		if known {
			m.handlePong(in.From)
		}
		return
	case Ping:
		if known {
			m.send(in.From, Pong{})
		}
		return
	}
	if !known || from.incompatible {
		m.counters.Ignored++
		return
	}
	switch msg := in.Message.(type) {
	case Question:
		m.handleQuestion(in.From, msg)
	case Answer:
		m.handleAnswer(in.From, msg)
	case Announce:
		m.handleAnnounce(in.From, msg)
	case Ack:
		m.handleAck(in.From, msg)
	case Release:
		m.handleRelease(in.From, msg)
	case Failed:
		m.handleFailed(in.From, msg)
	case Update:
		m.handleUpdate(in.From, msg)
	case EntryReq:
		if e := m.setup.Table.Get(msg.Key); e.Held() {
			m.send(in.From, Update{msg.Key, e})
		}
	case FetchReq:
		m.handleFetchReq(in.From, msg.Key)
	case Remove:
		m.handleRemove(in.From, msg.Removal)
	case Removed:
		m.handleRemoved(in.From, msg.Removal)
	}
}

func (m *Machine) emit(e Effect) { m.effects = append(m.effects, e) }

func (m *Machine) send(to string, msg Message) {
	if to != "" || len(m.peers) > 0 {
		m.emit(Send{to, msg})
	}
}

func (m *Machine) isAbstaining() bool { return m.now.Boot < m.abstain }
