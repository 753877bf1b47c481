package protocol

import "time"

// stand makes this peer a candidate, if it may be one.
func (m *Machine) stand(k *key) {
	switch {
	case k.state != Idle:
		return
	case !m.member():
		m.referAll(k, "not a member")
		return
	case m.Passive:
		m.referAll(k, "this peer does not fetch")
		return
	case k.failure.until > m.now.Boot:
		m.refuseAll(k, SourceFailed, k.failure.text, k.failure.until-m.now.Boot)
		return
	case m.partitioned || !m.quorate():
		if m.grace == 0 || m.partitioned {
			m.refuseAll(k, Partitioned, whyPartitioned, m.Timings.Hello)
		} else {
			m.arm(k) // the links may stand in a moment
		}
		return
	}
	k.wanted = true
	k.term = max(m.used(k.name)+1, k.highest+1, k.above()+1, m.now.Wall)
	k.electing = m.now.Boot
	if m.absurd(k.term) {
		m.refuseAll(k, Broken, "this peer's clock is more than a day behind the others'", m.Timings.FailMin)
		return
	}
	if !m.raise(k.term) {
		m.move(k, Candidate, "", "")
		m.waiting = append(m.waiting, k)
		m.arm(k)
		return
	}
	m.ask(k)
}

const whyPartitioned = "no majority of the peers is connected"

// ask opens the election.
func (m *Machine) ask(k *key) {
	m.move(k, Candidate, "", "stands")
	m.see(k.name, k.term)
	m.counters.Elections++
	k.asked, k.askedAt = true, m.now.Boot
	k.heard = make(map[string]bool, len(m.peers))
	k.patience = m.now.Boot + m.impatience(k.round)
	k.repeatAt = m.now.Boot + m.Timings.Repeat
	if m.won(k) {
		return
	}
	m.send("", m.ballot(k))
	m.arm(k)
}

func (m *Machine) ballot(k *key) Question {
	return Question{Key: k.name, Term: k.term, Config: m.config.Number, Since: k.since()}
}

// impatience is how long an election may take: drawn at random, and longer after
// elections that nobody won.
func (m *Machine) impatience(round int) time.Duration {
	span := m.Timings.CandidateMax - m.Timings.CandidateMin
	patience := m.Timings.CandidateMin + time.Duration(m.Rand()*float64(span))
	return min(patience<<min(round, 2), m.Timings.Source/2)
}

// repeat asks those again who have not answered.
func (m *Machine) repeat(k *key) {
	k.repeatAt = m.now.Boot + m.Timings.Repeat
	if len(k.heard) == 0 {
		m.send("", m.ballot(k))
		return
	}
	for _, member := range m.config.Members {
		if _, heard := k.heard[member.URL]; !heard && member.URL != m.Self {
			m.send(member.URL, m.ballot(k))
		}
	}
}

// answer counts a vote.
func (m *Machine) answer(from string, a Answer) {
	k := m.keys[a.Key]
	standing := k != nil && k.state == Candidate && k.asked
	if a.Yes && (!standing || a.Term < k.term || k.fresh) && (k == nil || k.state != Sourcing || a.Term != k.term) {
		m.send(from, Release{a.Key, a.Term, true}) // a late vote binds for nothing
		return
	}
	if !standing || a.Term < k.term || m.absurd(a.Term) {
		return
	}
	if r := m.removals.covering(a.Key); a.Expire > 0 && r.Term > 0 {
		switch s := m.removals.known[r]; {
		case m.original(from):
			a.Expire = 0 // it knows no removals
		case s != nil && s.forgetAt == 0 && !s.confirmed[from]:
			m.send(from, Remove{r}) // its copy counts for nothing; it is asked again
			return
		}
	}
	k.heard[from] = k.heard[from] || a.Yes && a.Term == k.term
	k.highest = max(k.highest, a.Term)
	k.outbid = k.outbid || !a.Yes && a.Term > k.term
	if a.Expire > max(m.now.Wall, k.since()) && m.believable(a.Expire) {
		if !k.fresh {
			// Nothing is to be fetched: time for the copy to arrive, which may be large.
			k.fresh, k.best, k.patience, k.repeatAt = true, from, m.now.Boot+m.Timings.Source, never
			m.send("", Release{k.name, k.term, false})
			m.send(from, EntryReq{k.name})
			m.arm(k)
		}
		return
	}
	if a.Expire > max(m.Table.Get(k.name).Expire, k.bestTime) && m.believable(a.Expire) {
		k.best, k.bestTime = from, a.Expire
	}
	if m.won(k) {
		return
	}
	if k.outbid && !k.hurried && !k.fresh && len(k.heard) >= m.connected()-1 {
		m.again(k)
		k.hurried = true
	}
}

// won begins the fetch when a majority has voted for this peer.
func (m *Machine) won(k *key) bool {
	votes := 0
	if !m.abstaining() {
		votes++
	}
	for _, yes := range k.heard {
		if yes {
			votes++
		}
	}
	if votes < m.config.Majority() || k.fresh {
		return false
	}
	m.counters.Won++
	m.counters.ElectionTime += m.now.Boot - k.electing
	m.fetch(k)
	return true
}

// again begins a new election in a higher term.
func (m *Machine) again(k *key) {
	m.giveUp(k, "")
	m.stand(k)
}

// giveUp ends a candidacy: whoever voted for it is told, and late votes are ignored,
// because the term is never stood in again.
func (m *Machine) giveUp(k *key, why string) {
	if k.asked && !k.fresh {
		m.send("", Release{k.name, k.term, false})
	}
	m.move(k, Idle, "", why)
}

// lost is the end of an election that nobody won in time.
func (m *Machine) lost(k *key) {
	heard, fresh := len(k.heard), k.fresh
	m.giveUp(k, "nobody won")
	k.round++
	k.hurried = false
	switch {
	case k.round < patientRounds:
	case fresh:
		m.refuseAll(k, Broken, "another peer has a copy, and it does not arrive here", m.Timings.FailMin)
		return
	case heard+1 < m.config.Majority():
		m.cutOff()
		m.refuseAll(k, Partitioned, whyPartitioned, m.Timings.Hello)
		return
	}
	if len(k.waiters) == 0 && k.round >= patientRounds {
		k.wanted, k.round = false, 0
		return
	}
	m.stand(k)
}

// patientRounds is how many elections a refresh that nobody waits for is worth; in
// how many too few must have answered before a peer whose links stand believes that
// it is cut off, for it may have been slow itself; and in how many a copy that was
// promised must have failed to come.
const patientRounds = 3
