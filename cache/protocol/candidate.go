package protocol

import "time"

// startCandidacy makes this peer a candidate, if it may be one.
func (m *Machine) startCandidacy(k *key) {
	switch {
	case k.state != Idle:
		return // it already stands or fetches, or its vote is promised to another
	case !m.isMember():
		// The members do not count its questions: a client must ask one of them.
		m.refuseAll(k, NotMember, "not a member", 0)
		return
	case m.stopping:
		m.requestFetch(k)
		m.refuseAll(k, Stopping, "this peer stops", 0)
		return
	case m.setup.Passive:
		m.requestFetch(k)
		m.refuseAll(k, Passive, "this peer is passive", 0)
		return
	case m.now.Boot < m.lostUntil:
		m.refuseAll(k, Broken, m.lostStorage(), m.lostUntil-m.now.Boot)
		return
	case k.failure.until > m.now.Boot:
		// The back-off is the cluster's, wherever the fetch failed: another try would load a failing origin.
		m.refuseAll(k, OriginFailed, k.failure.text, k.failure.until-m.now.Boot)
		return
	case m.partitioned || !m.hasQuorum():
		// Without a majority the election could only time out: the client hears so at once.
		if m.linkGraceUntil == 0 || m.partitioned {
			m.refuseAll(k, Partitioned, whyPartitioned, m.setup.Timings.Hello)
		} else {
			m.schedule(k) // the links may be up in a moment
		}
		return
	}
	k.wanted = true
	// Above every term that may have been used here or that others named, so that a term is used once; not
	// below the clock, so that a peer that lost its storage does not reuse its terms.
	k.term = max(m.usedTerm(k.name)+1, k.highestAnswered+1, k.minTerm()+1, m.now.Wall)
	k.electionBegan = m.now.Boot
	if m.isAbsurdTerm(k.term) {
		// The other peers would ignore the question for the same reason.
		m.refuseAll(k, Broken, "terms known here are more than a day ahead of this peer's clock: it is behind, or was ahead before; then empty this peer's data folder", m.setup.Timings.FailMin)
		return
	}
	if !m.ensureCeiling(k.term) {
		// Not before the ceiling is stored: a restart must find that this term may have been used.
		m.setState(k, Candidate, "", "")
		m.candidaciesAwaitingCeiling = append(m.candidaciesAwaitingCeiling, k)
		m.schedule(k)
		return
	}
	m.requestVotes(k)
}

const whyPartitioned = "no majority of the peers is connected"

// requestVotes opens the election.
func (m *Machine) requestVotes(k *key) {
	m.setState(k, Candidate, "", "stands")
	m.markUsed(k.name, k.term)
	m.counters.Elections++
	k.votesRequested, k.requestedAt = true, m.now.Boot
	k.votes = make(map[string]bool, len(m.peers))
	k.electionEnd = m.now.Boot + m.electionTimeout(k.round)
	k.repeatAt = m.now.Boot + m.setup.Timings.Repeat
	if m.fetchIfWon(k) {
		return
	}
	m.send("", m.newQuestion(k))
	m.schedule(k)
}

func (m *Machine) newQuestion(k *key) Question {
	minExpire := k.minPeerExpire()
	// Who has a copy that this peer never takes would refuse its vote until that expires, as late as it does.
	if !m.isBelievable(k.unbelievedExpire) {
		minExpire = max(minExpire, k.unbelievedExpire)
	}
	return Question{Key: k.name, Term: k.term, ListNumber: FixedListNumber, MinExpire: minExpire}
}

// electionTimeout is how long an election may take: drawn at random, so that candidates that collided do not
// collide again, and up to four times as long after elections without a winner. At most half an announce
// timeout, because the votes must outlive the election.
func (m *Machine) electionTimeout(round int) time.Duration {
	span := m.setup.Timings.CandidateMax - m.setup.Timings.CandidateMin
	patience := m.setup.Timings.CandidateMin + time.Duration(m.setup.Rand()*float64(span))
	return min(patience<<min(round, 2), m.setup.Timings.AnnounceTimeout/2)
}

// repeatQuestion asks those again who have not answered.
func (m *Machine) repeatQuestion(k *key) {
	k.repeatAt = m.now.Boot + m.setup.Timings.Repeat
	if len(k.votes) == 0 {
		m.send("", m.newQuestion(k))
		return
	}
	for _, member := range m.members {
		if _, answered := k.votes[member.URL]; !answered && member.URL != m.setup.Self {
			m.send(member.URL, m.newQuestion(k))
		}
	}
}

// handleAnswer counts a vote, releases one that is late, notes that there is a copy, and asks for one that is fresh.
func (m *Machine) handleAnswer(from string, a Answer) {
	if !m.hasVote(m.peers[from]) {
		m.counters.Ignored++
		return
	}
	k := m.keys[a.Key]
	standing := k != nil && k.state == Candidate && k.votesRequested
	// Of a fetch under way, too: the answer of who has the copy may come after those of the majority. A peer of the
	// original would keep it, whatever it is told.
	if k != nil && k.state >= Candidate && a.Expire > 0 && !m.isOriginal(from) {
		k.copyElsewhere = true
	}
	// A yes that cannot win any more still binds its voter: release it, unless it belongs to the fetch under way.
	if a.Yes && (!standing || a.Term < k.term || k.awaitingCopy) && (k == nil || k.state != Fetching || a.Term != k.term) {
		m.send(from, Release{a.Key, a.Term, true}) // a late vote has no effect
		return
	}
	if !standing || a.Term < k.term || m.isAbsurdTerm(a.Term) {
		return
	}
	if r := m.removals.covering(a.Key); a.Expire > 0 && r.Term > 0 {
		switch s := m.removals.known[r]; {
		case m.isOriginal(from):
			a.Expire = 0 // it knows no removals
		case s != nil && s.forgetAt == 0 && !s.confirmed[from]:
			m.send(from, Remove{r}) // its copy counts for nothing; it is asked again
			return
		}
	}
	// A yes is not taken back by a later no: answers may arrive out of order, and the promise was made.
	k.votes[from] = k.votes[from] || a.Yes && a.Term == k.term
	k.highestAnswered = max(k.highestAnswered, a.Term)
	k.outbid = k.outbid || !a.Yes && a.Term > k.term
	if a.Expire > max(m.now.Wall, k.minPeerExpire()) && m.isBelievable(a.Expire) {
		if !k.awaitingCopy {
			// Nothing is to be fetched: time for the copy to arrive, which may be large.
			k.awaitingCopy, k.newestCopyPeer, k.electionEnd, k.repeatAt = true, from, m.now.Boot+m.setup.Timings.AnnounceTimeout, never
			m.send("", Release{k.name, k.term, false})
			m.send(from, EntryReq{k.name})
			m.schedule(k)
		}
		return
	}
	switch {
	case !m.isBelievable(a.Expire):
		k.unbelievedExpire = max(k.unbelievedExpire, a.Expire)
	case a.Expire > max(m.setup.Table.Get(k.name).Expire, k.newestExpire):
		k.newestCopyPeer, k.newestExpire = from, a.Expire
		m.requestOldCopy(k, a)
	}
	if m.fetchIfWon(k) {
		return
	}
	// Every connected peer has answered and one knows a higher term: waiting longer cannot win. Once per
	// election only, or two candidates would outbid each other without end.
	if k.outbid && !k.restartedOnce && !k.awaitingCopy && len(k.votes) >= m.connected()-1 {
		m.restartElection(k)
		k.restartedOnce = true
	}
}

// requestOldCopy asks the peer with the newest copy for it, though it has expired by this peer's clock, when that peer refuses
// its vote and a request waits that the copy will do for. By the others' clocks it may be fresh, and as long as that lasts,
// no election is won and no fetch brings anything.
func (m *Machine) requestOldCopy(k *key, a Answer) {
	if a.Yes || m.now.Boot < k.copyRequestAt || !k.isWaitedFor(a.Expire) {
		return
	}
	m.send(k.newestCopyPeer, EntryReq{k.name})
	k.newestCopyPeer = "" // a fetch that starts need not ask for it
	k.copyRequestAt = m.now.Boot + m.setup.Timings.AnnounceTimeout
}

// fetchIfWon starts the fetch when a majority has voted for this peer.
func (m *Machine) fetchIfWon(k *key) bool {
	yes := 0
	// A peer that abstains does not vote for itself either: it may have promised its vote before its restart.
	if !m.isAbstaining() {
		yes++
	}
	for _, forThisPeer := range k.votes {
		if forThisPeer {
			yes++
		}
	}
	if yes < m.members.Majority() || k.awaitingCopy {
		return false // while a copy is awaited, the voters have been released: their promises do not bind
	}
	m.counters.Won++
	m.counters.ElectionTime += m.now.Boot - k.electionBegan
	m.startFetch(k)
	return true
}

// restartElection starts a new election in a higher term.
func (m *Machine) restartElection(k *key) {
	m.endCandidacy(k, "")
	m.startCandidacy(k)
}

// endCandidacy ends a candidacy: its voters are released, and late votes have no effect,
// because the term is never reused.
func (m *Machine) endCandidacy(k *key, why string) {
	if k.votesRequested && !k.awaitingCopy { // otherwise there are no voters, or they were released when a fresh copy was found
		m.send("", Release{k.name, k.term, false})
	}
	m.setState(k, Idle, "", why)
}

// electionTimedOut is the end of an election that nobody won in time.
func (m *Machine) electionTimedOut(k *key) {
	answered, awaitingCopy := len(k.votes), k.awaitingCopy
	m.endCandidacy(k, "nobody won")
	k.round++
	k.restartedOnce = false
	switch {
	case k.round < maxRounds: // try again
	case awaitingCopy:
		m.refuseAll(k, Broken, "another peer has a copy, and it does not arrive here", m.setup.Timings.FailMin)
		return
	case answered+1 < m.members.Majority():
		m.declarePartitioned()
		m.refuseAll(k, Partitioned, whyPartitioned, m.setup.Timings.Hello)
		return
	}
	// Requests continue waiting until their deadline; a refresh without one gives up and leaves the stale copy.
	if len(k.waiters) == 0 && k.round >= maxRounds {
		k.wanted, k.round = false, 0
		return
	}
	m.startCandidacy(k)
}

// maxRounds is how many elections in a row must fail before one is not repeated as a matter
// of course: one may fail because this peer was slow itself. After them, a copy that was
// promised does not come, a peer whom too few have answered is cut off though its links are up,
// and a refresh that nobody waits for is given up.
const maxRounds = 3

// handleStop ends what would lead to a fetch that this peer does not make any more.
func (m *Machine) handleStop() {
	m.stopping = true
	for _, k := range m.sortedKeys(func(k *key) bool { return k.state == Candidate || k.state == Idle }) {
		if k.state == Candidate {
			m.endCandidacy(k, "")
		}
		m.startCandidacyIfWanted(k)
		m.schedule(k)
	}
}

func (m *Machine) startCandidacyIfWanted(k *key) {
	if k.state == Idle && (k.wanted || len(k.waiters) > 0) {
		m.startCandidacy(k)
	}
}
