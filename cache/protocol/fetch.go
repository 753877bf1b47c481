package protocol

import (
	"slices"
	"time"
)

// startFetch makes this peer the one that calls the origin: those who voted for it are
// bound since it asked.
func (m *Machine) startFetch(k *key) {
	// From when the question was sent, not from when the vote came: the voter counts from the arrival of the
	// question, which is later, so that this peer's trust ends before the promise does.
	promised := make(map[string]time.Duration, len(m.peers))
	for peer, yes := range k.votes {
		if yes {
			promised[peer] = k.requestedAt + m.setup.Timings.AnnounceTimeout
		}
	}
	best := k.newestCopyPeer
	m.setState(k, Fetching, "", "fetches")
	k.promised, k.round, k.restartedOnce = promised, 0, false
	k.fetchBegan = m.now.Wall // the value may be as old as the start of its fetch: it expires from then
	k.fetchUntil = m.now.Boot + m.setup.Timings.FetchTimeout
	m.announce(k, "")
	k.trustEnd = m.trustedUntil(k)
	m.emit(StartFetch{Key: k.name, Term: k.term, Stale: m.setup.Table.Get(k.name), Until: min(k.trustEnd, k.fetchUntil), Deadline: k.fetchUntil})
	if best != "" {
		m.send(best, EntryReq{k.name}) // something to serve meanwhile
	}
	m.schedule(k)
}

// trustedUntil is until when a majority votes for nobody else, and with it the fetch may run.
func (m *Machine) trustedUntil(k *key) time.Duration {
	ends := make([]time.Duration, 0, MaxMembers)
	for _, member := range m.members {
		switch {
		case member.URL == m.setup.Self: // it knows itself when its promise ends
			ends = append(ends, never)
		case m.isOriginal(member.URL) && m.peers[member.URL].link == Up:
			// It sends no Ack (see Setup.Mixed), and follows this long after an announcement. A peer that was paused for
			// longer finds its trust at an end: the originals may have elected another meanwhile.
			ends = append(ends, k.announcedAt+m.setup.Timings.AnnounceTimeout)
		default:
			ends = append(ends, k.promised[member.URL])
		}
	}
	// The majority-th latest end: until then a majority is promised.
	slices.Sort(ends)
	end := ends[len(ends)-m.members.Majority()]
	if end == never {
		return never
	}
	return end - m.setup.Timings.margin()
}

// announce tells everyone, or the one who asked, that this peer fetches.
func (m *Machine) announce(k *key, to string) {
	if to == "" {
		k.announcedAt, k.announceAt = m.now.Boot, m.now.Boot+m.setup.Timings.Announce
	}
	m.send(to, Announce{Key: k.name, Term: k.term, Expire: m.setup.Table.Get(k.name).Expire, Stamp: max(1, m.now.Boot.Milliseconds()), ListNumber: FixedListNumber})
}

// handleAck extends the trust: the follower is bound from the announcement on.
func (m *Machine) handleAck(from string, a Ack) {
	k := m.keys[a.Key]
	if k == nil || k.state != Fetching || k.term != a.Term {
		m.send(from, Release{a.Key, a.Term, true}) // the fetch has ended
		return
	}
	// The stamp is this peer's own clock, from the announcement. One from the future would stretch the trust.
	stamp := time.Duration(min(a.Stamp, m.now.Boot.Milliseconds())) * time.Millisecond
	k.promised[from] = max(k.promised[from], stamp+m.setup.Timings.AnnounceTimeout)
	m.updateTrust(k)
	m.schedule(k)
}

// updateTrust recomputes the end of trust after a promise has changed.
func (m *Machine) updateTrust(k *key) {
	trust := m.trustedUntil(k)
	switch {
	case trust <= m.now.Boot:
		m.abortFetch(k, "no majority is promised any more")
		m.startCandidacyIfWanted(k)
	case trust != k.trustEnd:
		k.trustEnd = trust
		m.emit(Trust{k.name, k.term, min(trust, k.fetchUntil)})
	}
}

// handleAnnounce follows a peer that fetches, unless its fetch is older than a removal, a copy, a failure or another
// fetch that is known here, or this peer has promised otherwise.
func (m *Machine) handleAnnounce(from string, a Announce) {
	if m.isAbsurdTerm(a.Term) {
		m.counters.Ignored++
		return
	}
	e := m.setup.Table.Get(a.Key)
	switch {
	case m.removals.floor(a.Key) > a.Term:
		m.send(from, Remove{m.removals.covering(a.Key)}) // its fetch began before a removal
		return
	case e.Held() && e.Term >= a.Term:
		m.send(from, Update{a.Key, e}) // that fetch has ended, or is obsolete
		return
	case a.Expire > e.Expire && m.isBelievable(a.Expire):
		m.send(from, EntryReq{a.Key})
	}
	if !m.hasRoom(a.Key) {
		return
	}
	k := m.key(a.Key)
	defer m.schedule(k)
	switch k.state {
	case Fetching:
		// Two peers fetch, which one of the conditions in the package's documentation rules out: the lower one gives up.
		if !outranks(k.name, a.Term, from, k.term, m.setup.Self) {
			m.announce(k, from)
			return
		}
		m.abortFetch(k, "another peer fetches in a higher term")
	case Candidate:
		m.endCandidacy(k, "")
	case Follower:
		// A late announcement of an earlier fetch. Or the vote is promised to another candidate: an Ack would promise
		// it twice. From another fetch a follower may change to this one: see the package's documentation.
		if a.Term < k.term || k.boundTo != from && !k.boundToFetch {
			return
		}
	case Idle:
		if k.failure.count > 0 && a.Term <= k.failure.term {
			return // that fetch has ended
		}
	}
	m.follow(k, from, a)
}

// follow waits for a peer that fetches, and binds this one's vote to it.
func (m *Machine) follow(k *key, fetcher string, a Announce) {
	why := ""
	if k.state != Follower || !k.boundToFetch || k.boundTo != fetcher {
		why = "follows"
	}
	k.term, k.reusableTerm = a.Term, 0
	m.setState(k, Follower, fetcher, why)
	k.boundToFetch, k.votedAt, k.boundUntil = true, m.now.Boot, m.now.Boot+m.setup.Timings.AnnounceTimeout
	m.markUsed(k.name, a.Term)
	switch {
	// An Ack is a promise. Peers of the original want none, and while it abstains this peer may give none.
	case a.Stamp == 0 || m.isAbstaining():
	case !m.knowsList(fetcher, a.ListNumber):
		m.sendHello(fetcher) // it greets in return, and says its list
	case m.ensureCeiling(a.Term):
		m.send(fetcher, Ack{k.name, a.Term, a.Stamp})
	}
}

// handleFetched is the end of a fetch, if it is still this peer's to make.
func (m *Machine) handleFetched(in Fetched) {
	k := m.keys[in.Key]
	if k == nil || k.state != Fetching || k.term != in.Term {
		return // it was aborted: another peer may have fetched meanwhile
	}
	switch {
	case in.Stopped:
		m.abandonFetch(k, "this peer stops")
		return
	case in.TrustEnded: // a promise that came just before has prolonged the fetch here, and its Trust was too late for the call
		m.abandonFetch(k, "its call has ended: no majority was promised in time")
		return
	case in.Err != "":
		m.recordFailure(k, in)
		return
	case in.NoStore:
		m.serveUncached(k, in)
		return
	}
	ttl := m.setup.Timings.TTL
	if in.TTL > 0 {
		ttl = min(max(in.TTL, time.Second), m.setup.Timings.MaxTTL)
	}
	ttl -= time.Duration(m.setup.Jitter * m.setup.Rand() * float64(ttl))
	e := Entry{
		Term: k.term, Expire: k.fetchBegan + max(1, ttl.Milliseconds()), Made: k.fetchBegan,
		Digest: Digest(in.Value), Value: in.Value, Used: m.setup.Table.Get(k.name).Used,
	}
	m.put(k.name, e)
	m.send("", Update{k.name, e})
	k.wanted, k.failure = false, failure{}
	m.setState(k, Idle, "", "fetched")
	m.serve(k, e)
	m.answerSome(k, func(w *waiter) bool {
		if w.minTerm >= e.Term {
			return false // it asked for a fetch that starts later
		}
		m.emit(Refuse{w.token, OriginFailed, "the origin takes longer than its value lives", m.setup.Timings.FailMin})
		return true
	})
	m.startCandidacyIfWanted(k)
	m.schedule(k)
}

// abandonFetch ends a fetch whose call has ended without a word of the origin: the next one waits for no back-off.
func (m *Machine) abandonFetch(k *key, why string) {
	m.abortFetch(k, why)
	m.startCandidacyIfWanted(k)
	m.schedule(k)
}

// serveUncached answers the requests that wait here with a value of which no copy may be kept. Requests that wait at
// other peers make them fetch their own.
func (m *Machine) serveUncached(k *key, in Fetched) {
	e := Entry{Term: k.term, Expire: m.now.Wall + 1, Made: k.fetchBegan, Digest: Digest(in.Value), Value: in.Value}
	// A copy from before would be served in its place, here or elsewhere.
	stale := k.copyElsewhere || m.setup.Table.Get(k.name).Held()
	m.send("", Release{k.name, k.term, true}) // Used: the origin was called in this term
	k.wanted, k.failure = false, failure{}
	m.setState(k, Idle, "", "fetched, not kept")
	// It is new by its term, whatever expiry is asked for. By a clock that was set back meanwhile it would not be, and this
	// peer would fetch again at once, and again, until the clock has caught up.
	m.answerSome(k, func(w *waiter) bool {
		if w.rejectIfTooOld(e) || e.Term <= w.minTerm {
			return false
		}
		m.emit(Reply{w.token, e})
		return true
	})
	if stale {
		m.handleRemoveKeys(RemoveKeys{Scope: OneKey, Name: k.name, Until: m.now.Boot})
	}
	m.startCandidacyIfWanted(k)
	m.schedule(k)
}

// abortFetch ends this peer's fetch before its time. One that this very step began is not
// begun at all.
func (m *Machine) abortFetch(k *key, why string) {
	before := len(m.effects)
	m.effects = slices.DeleteFunc(m.effects, func(e Effect) bool {
		f, ok := e.(StartFetch)
		return ok && f.Key == k.name && f.Term == k.term
	})
	if len(m.effects) == before {
		m.emit(Abort{k.name, k.term, why})
	}
	m.send("", Release{k.name, k.term, true}) // Used: the origin may have been called in this term
	m.setState(k, Idle, "", "gives up its fetch: "+why)
}
