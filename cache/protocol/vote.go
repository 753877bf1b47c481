package protocol

import (
	"hash/fnv"
	"time"
)

// handleQuestion answers a candidate.
func (m *Machine) handleQuestion(from string, q Question) {
	if m.isAbsurdTerm(q.Term) { // once learned, this peer would have to exceed it for ever
		m.counters.Ignored++
		return
	}
	e := m.setup.Table.Get(q.Key)
	// The candidate's majority may be of a list that shares no peer with this one's majorities.
	if !m.knowsList(from, q.ListNumber) {
		m.refuseVote(from, q, e)
		m.sendHello(from) // it greets in return, and says its list
		return
	}
	k := m.keys[q.Key]
	if k != nil && k.state == Fetching { // a fetch is under way: the candidate must follow it
		m.announce(k, from)
		return
	}
	// A copy that is good enough needs no fetch. While this peer abstains it may be bound by a promise that it
	// has forgotten. And keys beyond maxActive would not be remembered with their promise.
	if e.Expire > max(m.now.Wall, q.MinExpire) || m.isAbstaining() || !m.hasRoom(q.Key) {
		m.refuseVote(from, q, e)
		return
	}
	if k != nil && k.failure.until > m.now.Boot {
		m.send(from, k.failure.message(k.name, m.now.Boot))
		m.refuseVote(from, q, e)
		return
	}
	// A vote is kept in memory only. The stored ceiling makes its term count as used after a restart, so the
	// answer waits for it.
	if !m.ensureCeiling(q.Term) {
		if len(m.questionsAwaitingCeiling) < maxActive {
			m.questionsAwaitingCeiling = append(m.questionsAwaitingCeiling, Received{from, q})
		}
		return
	}
	k = m.key(q.Key)
	m.decideVote(k, from, q, e)
	m.schedule(k)
}

// decideVote gives the vote or not, when nothing but other candidates speaks against it.
func (m *Machine) decideVote(k *key, from string, q Question, e Entry) {
	// At most one vote in a term: a higher term, or the last one if its vote was released before any fetch. With
	// nothing used at all any term will do: candidates of the original start in term 0.
	used := m.usedTerm(k.name)
	votable := q.Term > used || used == 0 || q.Term == used && q.Term == k.reusableTerm
	switch k.state {
	case Candidate:
		// Its vote is with itself. Every peer ranks two candidates alike, so exactly one of them yields. It does not yield
		// to whom it cannot vote for, in a term that other, forgotten keys have used up: it would stand again at once, in a
		// higher term, the other likewise, and both without a pause.
		own := k.votesRequested && k.term == q.Term
		if k.votesRequested && !outranks(k.name, q.Term, from, k.term, m.setup.Self) || !own && !votable {
			m.refuseVote(from, q, e)
			return
		}
		// Equal candidates settle it at once: the lower one gives its vote away,
		// by giving up its candidacy.
		m.counters.Yielded++
		m.endCandidacy(k, "")
		if own {
			m.giveVote(k, from, q, e) // the vote for itself in this very term counts no more
			return
		}
	case Follower:
		if k.boundTo == from && !k.boundToFetch && q.Term == k.term {
			m.giveVote(k, from, q, e) // the answer was lost
			return
		}
		if k.boundTo != from {
			// The promise binds. The best of the other candidates is answered when it ends (endFollowing).
			if p := k.pending; p == nil || !outranks(k.name, p.q.Term, p.from, q.Term, from) {
				k.pending = &question{from, q, m.now.Boot}
			}
			m.refuseVote(from, q, e)
			return
		}
	}
	if votable {
		m.giveVote(k, from, q, e)
		return
	}
	m.refuseVote(from, q, e)
	m.startCandidacyIfWanted(k)
}

// giveVote promises to vote for nobody else until the candidate has had its time, or
// gives it up.
func (m *Machine) giveVote(k *key, from string, q Question, e Entry) {
	k.term, k.reusableTerm = q.Term, 0
	m.setState(k, Follower, from, "votes")
	k.boundToFetch, k.votedAt, k.boundUntil = false, m.now.Boot, m.now.Boot+m.voteDuration(from)
	m.markUsed(k.name, q.Term) // before the answer: no second vote in this term, whatever follows
	m.send(from, Answer{Key: k.name, Term: q.Term, Expire: e.Expire, Yes: true})
}

// voteDuration is how long a vote binds: a candidate of the original's never releases
// its voters, but it needs no longer than this.
func (m *Machine) voteDuration(who string) time.Duration {
	if m.isOriginal(who) {
		return m.setup.Timings.OriginalVote
	}
	return m.setup.Timings.AnnounceTimeout
}

func (m *Machine) refuseVote(from string, q Question, e Entry) {
	m.send(from, Answer{Key: q.Key, Term: max(q.Term, m.usedTerm(q.Key)), Expire: e.Expire})
}

// handleRelease frees the vote that this peer gave to a candidate that gave up, or to a
// peer that fetches no more.
func (m *Machine) handleRelease(from string, r Release) {
	k := m.keys[r.Key]
	if k == nil {
		return
	}
	if p := k.pending; p != nil && p.from == from && p.q.Term <= r.Term {
		k.pending = nil
	}
	if k.state != Follower || k.boundTo != from || k.term > r.Term {
		return // a late release of an earlier term must not end a newer promise
	}
	// If the sender may have fetched in this term, a second vote in it could lead to a second fetch.
	if !k.boundToFetch && k.term == r.Term && !r.Used {
		k.reusableTerm = r.Term
	}
	m.endFollowing(k, "released")
}

// endFollowing frees a follower from its vote: who asked meanwhile is answered, and
// otherwise this peer stands itself if someone here wants the value.
func (m *Machine) endFollowing(k *key, why string) {
	m.setState(k, Idle, "", why)
	p := k.pending
	k.pending = nil
	if p != nil && m.now.Boot-p.at < m.setup.Timings.CandidateMax {
		m.handleMessage(Received{p.from, p.q}) // which ignores it if its sender has left or has another list by now
	}
	m.startCandidacyIfWanted(k)
	m.schedule(k)
}

// outranks tells which of two candidates wins, the same on every peer: the higher
// term, and of equal ones the one that rendezvous hashing of the key puts first.
func outranks(key string, term int64, who string, term2 int64, who2 string) bool {
	if term != term2 {
		return term > term2
	}
	a, b := weight(key, who), weight(key, who2)
	return a > b || a == b && who > who2
}

// weight is the rendezvous hash of a peer for a key: FNV-1a with the finalizer of
// splitmix64, whose last bits depend on all of the first.
func weight(key, who string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(who))
	h.Write([]byte{0})
	h.Write([]byte(key))
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
