package protocol

import (
	"slices"
	"time"
)

// peer is what a machine knows of another.
type peer struct {
	link      LinkState
	linkSince time.Duration
	unusable  string // [Unusable]
	hello     Hello  // the last; its Incarnation is 0 while there was none
	// skew is by how many milliseconds, within a day, its wall clock seemed ahead: the
	// lesser of the last two measurements, because a greeting that was late makes it
	// seem behind.
	skew, measured int64
	// prevIncarnation is the incarnation before: its late Hellos are ignored.
	prevIncarnation uint64
	// listDigest is of its list of members, 0 when it has said none on the present
	// connection, and listSince when that last changed. list is the list, where it differs
	// from this peer's; nil: not known.
	listDigest uint64
	listSince  time.Duration
	list       Members
	// incompatible: its list of members rules out working together, and its messages are ignored (compareList).
	incompatible bool
	// lostStorage: its life before had storage, and this one found it empty.
	lostStorage bool
	// noPriorVotes: nothing that the other peer does can rest on a vote that this one (the machine's own) gave before its restart.
	noPriorVotes bool
}

// handleLink takes in what the transport has found out.
func (m *Machine) handleLink(in Link) {
	p := m.peers[in.Peer]
	if p == nil {
		if in.State == Up && in.Peer != m.setup.Self { // it has this peer in its list, and is not in this one's
			m.sendMembers(in.Peer)
		}
		return
	}
	if p.link != in.State {
		p.link, p.linkSince = in.State, m.now.Boot
	}
	if in.State != Up {
		// The next connection may be to a new process with another list, whose question
		// may come before its greeting.
		p.listDigest, p.list = 0, nil
		m.compareList(p)
	}
	switch in.State {
	case Up:
		m.sendHello(in.Peer)
		if m.partitioned {
			m.ping()
		}
	case Dead:
		m.forgetDead(in.Peer, m.now.Boot+1)
	}
	m.linksChanged()
}

// isOriginal reports whether a peer counts as a peer of the original.
func (m *Machine) isOriginal(url string) bool {
	p := m.peers[url]
	return m.setup.Mixed && p != nil && p.hello.Incarnation == 0
}

// linksChanged does what follows when a majority is connected, or no longer is.
func (m *Machine) linksChanged() {
	without := !m.hasQuorum()
	if without && !m.noLinkMajority {
		m.counters.Partitions++
		m.emit(StateChanged{Why: whyPartitioned})
	}
	m.noLinkMajority = without
	if m.setup.Mixed { // peers of the original's count as long as they are connected
		for _, k := range m.sortedKeys(func(k *key) bool { return k.state == Fetching }) {
			m.updateTrust(k)
			m.schedule(k)
		}
	}
	if without && m.linkGraceUntil != 0 {
		return
	}
	for _, k := range m.sortedKeys(func(k *key) bool { return k.state == Idle && (k.wanted || len(k.waiters) > 0) }) {
		m.startCandidacy(k)
		m.schedule(k)
	}
}

// forgetDead forgets what, since before a time, binds this peer to one whose process has
// ended: it cannot be fetching any more.
func (m *Machine) forgetDead(url string, before time.Duration) {
	m.questionsAwaitingCeiling = slices.DeleteFunc(m.questionsAwaitingCeiling, func(h Received) bool { return h.From == url })
	for _, k := range m.keys {
		if p := k.pending; p != nil && p.from == url && p.at < before {
			k.pending = nil
		}
	}
	for _, k := range m.sortedKeys(func(k *key) bool { return k.state == Candidate && k.awaitingCopy && k.newestCopyPeer == url }) {
		m.restartElection(k) // its copy will not come
	}
	for _, k := range m.sortedKeys(func(k *key) bool { return k.state == Follower && k.boundTo == url && k.votedAt < before }) {
		m.endFollowing(k, "the peer that it followed has ended")
	}
}

// connected counts the members that can vote, and this peer.
func (m *Machine) connected() int {
	n := 1
	for _, p := range m.peers {
		if p.link == Up && !p.incompatible && m.hasVote(p) {
			n++
		}
	}
	return n
}

// hasVote reports whether a peer's votes count: it has greeted, or the cluster is mixed. A peer of the original never
// greets, and its vote binds it to nothing that a fetch of this peer could rely on.
func (m *Machine) hasVote(p *peer) bool { return m.setup.Mixed || p != nil && p.hello.Incarnation != 0 }

func (m *Machine) hasQuorum() bool { return m.connected() >= m.members.Majority() }

// declarePartitioned is that an election heard of too few, whatever the links say.
func (m *Machine) declarePartitioned() {
	if !m.partitioned {
		m.partitioned = true
		m.counters.Partitions++
		m.emit(StateChanged{Why: "too few peers answer"})
		m.ping()
	}
}

func (m *Machine) ping() {
	m.pingAt = m.now.Boot + m.setup.Timings.Ping
	clear(m.pongs)
	m.send("", Ping{})
}

func (m *Machine) handlePong(from string) {
	if !m.partitioned {
		return
	}
	m.pongs[from] = true
	if len(m.pongs)+1 >= m.members.Majority() {
		m.partitioned = false
		m.linksChanged()
	}
}
