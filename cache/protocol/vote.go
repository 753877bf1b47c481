package protocol

import "time"

// question answers a candidate.
func (m *Machine) question(from string, q Question) {
	if m.absurd(q.Term) {
		m.counters.Ignored++
		return
	}
	e := m.Table.Get(q.Key)
	if q.Config != m.config.Number && (q.Config != 0 || !m.Mixed) {
		m.no(from, q, e)
		m.greet(from) // one of the two learns the other's configuration
		return
	}
	k := m.keys[q.Key]
	if k != nil && k.state == Sourcing {
		m.announce(k, from)
		return
	}
	if e.Expire > max(m.now.Wall, q.Since) || m.abstaining() || k == nil && len(m.keys) >= maxActive {
		m.no(from, q, e)
		return
	}
	if k != nil && k.failure.until > m.now.Boot {
		m.send(from, k.failure.message(k.name, m.now.Boot))
		m.no(from, q, e)
		return
	}
	if !m.raise(q.Term) {
		if len(m.parked) < maxActive {
			m.parked = append(m.parked, Heard{from, q})
		}
		return
	}
	k = m.key(q.Key)
	m.decide(k, from, q, e)
	m.arm(k)
}

// maxActive bounds the keys of which anything is remembered besides the copy.
const maxActive = 1 << 18

// decide gives the vote or not, when nothing but other candidates stands against it.
func (m *Machine) decide(k *key, from string, q Question, e Entry) {
	switch k.state {
	case Candidate:
		if k.asked && !outranks(k.name, q.Term, from, k.term, m.Self) {
			m.no(from, q, e)
			return
		}
		// Equal candidates settle it at once: the lower one gives its vote away,
		// by giving up its candidacy.
		m.counters.Yielded++
		own := k.asked && k.term == q.Term
		m.giveUp(k, "")
		if own {
			m.vote(k, from, q, e) // the vote for itself in this very term counts no more
			return
		}
	case Follower:
		if k.leader == from && !k.source && q.Term == k.term {
			m.vote(k, from, q, e) // the answer was lost
			return
		}
		if k.leader != from {
			if p := k.pending; p == nil || !outranks(k.name, p.q.Term, p.from, q.Term, from) {
				k.pending = &question{from, q, m.now.Boot}
			}
			m.no(from, q, e)
			return
		}
	}
	if used := m.used(k.name); q.Term > used || used == 0 || q.Term == used && q.Term == k.free {
		m.vote(k, from, q, e)
		return
	}
	m.no(from, q, e)
	m.standIfWanted(k)
}

// vote promises to vote for nobody else until the candidate has had its time, or
// gives it up.
func (m *Machine) vote(k *key, from string, q Question, e Entry) {
	k.term, k.free = q.Term, 0
	m.move(k, Follower, from, "votes")
	k.source, k.boundAt, k.until = false, m.now.Boot, m.now.Boot+m.binding(from)
	m.see(k.name, q.Term)
	m.send(from, Answer{Key: k.name, Term: q.Term, Expire: e.Expire, Yes: true})
}

// binding is how long a vote binds: a candidate of the original's never releases
// its voters, but it needs no longer than this.
func (m *Machine) binding(who string) time.Duration {
	if m.original(who) {
		return m.Timings.Candidate
	}
	return m.Timings.Source
}

func (m *Machine) no(from string, q Question, e Entry) {
	m.send(from, Answer{Key: q.Key, Term: max(q.Term, m.used(q.Key)), Expire: e.Expire})
}

// released frees the vote that this peer gave to a candidate that gave up, or to a
// peer that fetches no more.
func (m *Machine) released(from string, r Release) {
	k := m.keys[r.Key]
	if k == nil {
		return
	}
	if p := k.pending; p != nil && p.from == from && p.q.Term <= r.Term {
		k.pending = nil
	}
	if k.state != Follower || k.leader != from || k.term > r.Term {
		return
	}
	if !k.source && k.term == r.Term && !r.Used {
		k.free = r.Term
	}
	m.unbound(k, "released")
}
