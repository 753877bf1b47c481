package protocol

import (
	"slices"
	"time"
)

// waiter is a [Get] that has not been answered.
type waiter struct {
	token         Token
	key           *key
	minExpire     int64 // only a copy that expires later will do
	minTerm       int64 // only a copy of a higher term will do; −1: of any
	minPeerExpire int64 // a peer's copy ends the election only when it expires later; a refresh accepts none
	// refreshAt is when a refresh was asked for; 0: not a refresh. A copy whose fetch began earlier is rejected, at most
	// maxRejected times, because clocks may differ.
	refreshAt int64
	rejected  int
	until     time.Duration
}

const maxRejected = 2

// rejectIfTooOld rejects a copy whose fetch began before the refresh was asked for, and counts it; it reports whether it did.
func (w *waiter) rejectIfTooOld(e Entry) bool {
	if e.Made == 0 || e.Made >= w.refreshAt || e.Term <= w.minTerm || w.rejected == maxRejected {
		return false
	}
	w.rejected++
	w.minTerm = e.Term
	return true
}

// isSatisfiedBy is whether a copy is what the waiter asked for.
func (w *waiter) isSatisfiedBy(e Entry) bool {
	return e.Held() && e.Expire > w.minExpire && e.Term > w.minTerm
}

// isWaitedFor reports whether a copy with this expiry, of whatever term, is good enough for a request that waits here.
func (k *key) isWaitedFor(expire int64) bool {
	return slices.ContainsFunc(k.waiters, func(w *waiter) bool { return expire > w.minExpire && w.refreshAt == 0 })
}

// minPeerExpire is the expiry that a peer's copy must exceed to make a fetch unnecessary for all who wait.
func (k *key) minPeerExpire() (expire int64) {
	for _, w := range k.waiters {
		expire = max(expire, w.minPeerExpire)
	}
	return expire
}

// minTerm is the term that a fetch must exceed to be what is waited for.
func (k *key) minTerm() (term int64) {
	for _, w := range k.waiters {
		term = max(term, w.minTerm)
	}
	return term
}

// handleGet answers from what is here, or waits; in both cases it sees to a fetch where
// the copy is not fresh.
func (m *Machine) handleGet(in Get) {
	e := m.setup.Table.Get(in.Key)
	if !m.hasRoom(in.Key) {
		if e.Held() && e.Expire > min(in.MinExpire, m.now.Wall) && !in.Refresh {
			m.emit(Reply{in.Token, e}) // a later request sees to a fetch
			return
		}
		m.emit(Refuse{in.Token, Overloaded, "too many keys are fetched or waited for at this peer", m.setup.Timings.KeepAlive})
		return
	}
	k := m.key(in.Key)
	defer m.schedule(k)
	w := &waiter{token: in.Token, key: k, minExpire: min(in.MinExpire, m.now.Wall), minTerm: -1, until: in.Until}
	w.minPeerExpire = w.minExpire
	if in.Refresh {
		// Only what is fetched from now on, whoever has what.
		w.minTerm, w.minPeerExpire, w.refreshAt = max(m.usedTerm(in.Key), m.now.Wall-1), MaxWireNumber, m.now.Wall
	}
	if w.isSatisfiedBy(e) {
		m.emit(Reply{in.Token, e})
		if !e.Fresh(m.now.Wall) {
			k.wanted = true
			m.startCandidacyIfWanted(k)
		}
		return
	}
	if len(m.waiters) >= m.setup.MaxWaiting {
		m.emit(Refuse{in.Token, Overloaded, "too many requests wait at this peer", m.setup.Timings.KeepAlive})
		return
	}
	if len(k.waiters) == 0 {
		k.keepAliveAt = m.now.Boot + m.setup.Timings.KeepAlive
	}
	k.keepAliveAt = min(k.keepAliveAt, in.Until)
	k.waiters = append(k.waiters, w)
	m.waiters[in.Token] = w
	m.emit(KeepAlive{in.Token})
	m.startCandidacyIfWanted(k)
}

// requestFetch has another peer fetch for one that is passive or stops, and has given a stale copy. One is asked, chosen at random: if it is
// passive too, or the message is lost, the next Get asks again.
func (m *Machine) requestFetch(k *key) {
	if !k.wanted || k.failure.until > m.now.Boot || m.partitioned || !m.hasQuorum() {
		return // nobody was given a stale copy, or no peer may fetch
	}
	var others []string
	for _, member := range m.members {
		if p := m.peers[member.URL]; p != nil && p.link == Up && !p.incompatible && !m.isOriginal(member.URL) {
			others = append(others, member.URL)
		}
	}
	if len(others) > 0 {
		m.send(others[int(m.setup.Rand()*float64(len(others)))], FetchReq{k.name})
	}
}

// handleFetchReq sees to a fetch that a passive or stopping peer asks for. A peer that does not fetch either does not pass it on.
func (m *Machine) handleFetchReq(from, name string) {
	switch e := m.setup.Table.Get(name); {
	case e.Fresh(m.now.Wall):
		m.send(from, Update{name, e})
	case !m.setup.Passive && !m.stopping && m.hasRoom(name):
		k := m.key(name)
		k.wanted = true
		m.startCandidacyIfWanted(k)
		m.schedule(k)
	}
}

// FirstWaiter is the request that has waited the longest for a key; 0 when none waits.
func (m *Machine) FirstWaiter(name string) Token {
	if k := m.keys[name]; k != nil && len(k.waiters) > 0 {
		return k.waiters[0].token
	}
	return 0
}

func (m *Machine) handleCancel(token Token) {
	w := m.waiters[token]
	if w == nil {
		return
	}
	delete(m.waiters, token)
	w.key.waiters = slices.DeleteFunc(w.key.waiters, func(other *waiter) bool { return other == w })
	m.schedule(w.key)
}

// checkWaiters keeps waiters alive and ends waits whose time has passed.
func (m *Machine) checkWaiters(k *key) {
	k.keepAliveAt = m.now.Boot + m.setup.Timings.KeepAlive
	m.answerSome(k, func(w *waiter) bool {
		if w.until <= m.now.Boot {
			m.emit(Refuse{w.token, TimedOut, "no value came in time", 0})
			return true
		}
		k.keepAliveAt = min(k.keepAliveAt, w.until)
		m.emit(KeepAlive{w.token})
		return false
	})
}

// answerSome forgets the waiters for which done is true.
func (m *Machine) answerSome(k *key, done func(*waiter) bool) {
	k.waiters = slices.DeleteFunc(k.waiters, func(w *waiter) bool {
		if !done(w) {
			return false
		}
		delete(m.waiters, w.token)
		return true
	})
}

// serve gives a copy to everyone for whom it is good enough.
func (m *Machine) serve(k *key, e Entry) {
	m.answerSome(k, func(w *waiter) bool {
		if w.rejectIfTooOld(e) || !w.isSatisfiedBy(e) {
			return false
		}
		m.emit(Reply{w.token, e})
		return true
	})
}

// refuseAll ends the waits for a key without a value.
func (m *Machine) refuseAll(k *key, reason Reason, why string, wait time.Duration) {
	k.wanted, k.round, k.restartedOnce = false, 0, false
	m.answerSome(k, func(w *waiter) bool {
		m.emit(Refuse{w.token, reason, why, wait})
		return true
	})
}
