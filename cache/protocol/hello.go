package protocol

// sendHello says who this peer is: to one, or to every other.
func (m *Machine) sendHello(to string) {
	h := m.newHello()
	for _, member := range m.members {
		if p := m.peers[member.URL]; p != nil && (to == "" || to == member.URL) {
			h.Echo, h.Lost = p.hello.Incarnation, p.lostStorage
			m.send(member.URL, h)
			if p.listDigest != 0 && p.listDigest != m.listDigest {
				m.sendMembers(member.URL)
			}
		}
	}
}

func (m *Machine) newHello() Hello {
	return Hello{
		Incarnation: m.setup.Incarnation, ListNumber: FixedListNumber, Members: m.listDigest, Wall: m.now.Wall,
		Busy: m.busy > 0 || !m.listSettled, HasStorage: m.setup.HasStorage, Empty: m.isEmpty(),
	}
}

// isEmpty reports whether this peer has storage and found nothing in it at its start.
func (m *Machine) isEmpty() bool {
	return m.setup.HasStorage && m.setup.Ceiling == 0 && len(m.setup.Stored.Members) == 0
}

// handleLost notes that another peer remembers a life of this one that had storage. What that life promised and used is
// forgotten here: this peer waits until nothing can rest on it.
func (m *Machine) handleLost(from string) {
	if m.lostUntil != 0 || !m.isEmpty() {
		return
	}
	m.lostKnownBy = from
	m.lostUntil = m.now.Boot + m.setup.Timings.lossWait()
	m.abstain = max(m.abstain, m.lostUntil)
	// What it began before it knew. Votes that are under way have no effect, and who waits here is told.
	for _, k := range m.sortedKeys(func(k *key) bool { return k.state == Candidate || k.state == Fetching }) {
		if k.state == Fetching {
			m.abortFetch(k, "the data of this peer is gone")
		} else {
			m.endCandidacy(k, "")
		}
		m.startCandidacyIfWanted(k)
		m.schedule(k)
	}
}

func (m *Machine) handleHello(from string, p *peer, h Hello) {
	if h.Incarnation == 0 || h.Incarnation == p.prevIncarnation {
		m.counters.Ignored++
		return
	}
	news := p.hello.Incarnation != h.Incarnation
	restarted := p.hello.Incarnation != 0 && p.hello.Incarnation != h.Incarnation
	if restarted {
		p.prevIncarnation = p.hello.Incarnation
		p.lostStorage = p.hello.HasStorage && h.Empty
	}
	p.hello = h
	measured := max(-dayAhead, min(dayAhead, h.Wall-m.now.Wall))
	p.skew = measured
	if !news && max(p.measured, -p.measured) < max(measured, -measured) {
		p.skew = p.measured
	}
	p.measured = measured
	reply := m.handleDigest(p, h.Members)
	if restarted {
		p.noPriorVotes = false
		m.forgetDead(from, p.linkSince) // a connection is one process: what it said on this one counts
	}
	if h.Echo != m.setup.Incarnation || news || reply {
		m.sendHello(from)
	}
	if h.Echo == m.setup.Incarnation && h.Lost {
		m.handleLost(from)
	}
	if h.Echo == m.setup.Incarnation && !h.Busy {
		p.noPriorVotes = true
		m.endAbstentionEarly()
	}
	m.linksChanged()
}

// endAbstentionEarly ends the abstention early, once every other member has the same list,
// knows of this life and neither stands nor fetches: nothing rests on a vote of the
// last life. After a change of the list something may rest on a vote for a peer that
// is no member any more, and does not greet: then the abstention lasts its time.
func (m *Machine) endAbstentionEarly() {
	if !m.isAbstaining() || !m.listSettled || m.now.Boot < m.lostUntil {
		return
	}
	for _, p := range m.peers {
		if !p.noPriorVotes || p.listDigest != m.listDigest {
			return
		}
	}
	m.abstain = m.now.Boot
}

// knowsList is whether a peer has said its list of members, so that its questions
// may be answered; number is what its message says. Peers of the original, which say 0,
// have no list to compare: they count only where Mixed allows them.
func (m *Machine) knowsList(url string, number int64) bool {
	if number == 0 {
		return m.setup.Mixed
	}
	p := m.peers[url]
	return p != nil && p.listDigest != 0
}
