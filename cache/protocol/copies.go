package protocol

// isBelievable is whether a copy may expire so late: a clock that is far ahead would
// pin a value for ever.
func (m *Machine) isBelievable(expire int64) bool {
	return expire <= m.now.Wall+m.setup.Timings.MaxTTL.Milliseconds()+m.setup.Timings.Skew.Milliseconds()
}

func (m *Machine) put(name string, e Entry) {
	m.setup.Table.Put(name, e)
	m.emit(Save{name, e})
}

// handleUpdate takes a copy that is newer than the one that is here.
func (m *Machine) handleUpdate(from string, u Update) {
	e, old := u.Entry, m.setup.Table.Get(u.Key)
	if m.isAbsurdTerm(e.Term) || !m.isBelievable(e.Expire) || !e.Held() {
		m.counters.Ignored++
		return
	}
	if e.Term < m.removals.owed[from] {
		m.counters.Ignored++ // it has not been told of removals
		return
	}
	if r := m.removals.covering(u.Key); e.Term < r.Term {
		m.counters.Ignored++
		m.send(from, Remove{r})
		return
	}
	if e.Newer(old) {
		e.Used = max(old.Used, e.Term)
		m.put(u.Key, e)
	} else {
		switch {
		case !old.Newer(e):
		case old.Held():
			m.send(from, Update{u.Key, old}) // it missed ours
		default: // it missed a removal, and refuses votes for as long as it holds the copy
			m.send(from, Remove{Removal{OneKey, u.Key, old.Term}})
		}
		e = old
	}
	k := m.keys[u.Key]
	if k == nil {
		return
	}
	if e.Term > k.failure.term {
		k.failure = failure{}
	}
	m.serve(k, e)
	enough := e.Expire > max(m.now.Wall, k.minPeerExpire())
	if enough && len(k.waiters) == 0 {
		k.wanted = false
	}
	switch {
	case k.state == Fetching && u.Entry.Term > k.term:
		m.abortFetch(k, "another peer has fetched in a higher term")
	case k.state == Candidate && enough:
		m.endCandidacy(k, "")
	case k.state == Candidate && k.awaitingCopy && !k.restartedOnce && u.Entry.Expire > m.now.Wall:
		m.restartElection(k) // what was promised is no better than what is here
		k.restartedOnce = true
	case k.state == Follower && u.Entry.Term >= k.term:
		m.endFollowing(k, "") // what it waited for has ended
	}
	m.startCandidacyIfWanted(k)
	m.schedule(k)
}
