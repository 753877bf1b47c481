package protocol

import (
	"math"
	"slices"
	"time"
)

const never = time.Duration(math.MaxInt64)

// fetch makes this peer the one that calls the source: those who voted for it are
// bound since it asked.
func (m *Machine) fetch(k *key) {
	promised := make(map[string]time.Duration, len(m.peers))
	for peer, yes := range k.heard {
		if yes {
			promised[peer] = k.askedAt + m.Timings.Source
		}
	}
	best := k.best
	m.move(k, Sourcing, "", "fetches")
	k.promised, k.round, k.hurried = promised, 0, false
	k.made = m.now.Wall
	k.fetchUntil = m.now.Boot + m.Timings.Fetch
	k.trust = m.trust(k)
	m.announce(k, "")
	m.emit(Fetch{Key: k.name, Term: k.term, Stale: m.Table.Get(k.name), Until: min(k.trust, k.fetchUntil)})
	if best != "" {
		m.send(best, EntryReq{k.name}) // something to serve meanwhile
	}
	m.arm(k)
}

// trust is until when a majority votes for nobody else, and with it the fetch may run.
func (m *Machine) trust(k *key) time.Duration {
	ends := make([]time.Duration, 0, MaxMembers)
	for _, member := range m.config.Members {
		switch {
		case member.URL == m.Self:
			ends = append(ends, never)
		case m.original(member.URL) && m.peers[member.URL].link == Up:
			ends = append(ends, never)
		default:
			ends = append(ends, k.promised[member.URL])
		}
	}
	slices.Sort(ends)
	end := ends[len(ends)-m.config.Majority()]
	if end == never {
		return never
	}
	return end - m.Timings.margin()
}

// announce tells everybody, or the one who asked, that this peer fetches.
func (m *Machine) announce(k *key, to string) {
	if to == "" {
		k.announceAt = m.now.Boot + m.Timings.Announce
	}
	m.send(to, Announce{Key: k.name, Term: k.term, Expire: m.Table.Get(k.name).Expire, Stamp: max(1, m.now.Boot.Milliseconds()), Config: m.config.Number})
}

// acknowledged extends the trust: the follower is bound from the announcement on.
func (m *Machine) acknowledged(from string, a Ack) {
	k := m.keys[a.Key]
	if k == nil || k.state != Sourcing || k.term != a.Term {
		m.send(from, Release{a.Key, a.Term, true}) // it follows what is over
		return
	}
	stamp := time.Duration(min(a.Stamp, m.now.Boot.Milliseconds())) * time.Millisecond
	k.promised[from] = max(k.promised[from], stamp+m.Timings.Source)
	m.retrust(k)
	m.arm(k)
}

// retrust takes in that somebody's promise has changed.
func (m *Machine) retrust(k *key) {
	trust := m.trust(k)
	switch {
	case trust <= m.now.Boot:
		m.abort(k, "no majority is promised any more")
		m.standIfWanted(k)
	case trust != k.trust:
		k.trust = trust
		m.emit(Trust{k.name, k.term, min(trust, k.fetchUntil)})
	}
}

// announced follows a peer that fetches, whatever its term, unless this peer has
// promised otherwise.
func (m *Machine) announced(from string, a Announce) {
	if m.absurd(a.Term) {
		m.counters.Ignored++
		return
	}
	e := m.Table.Get(a.Key)
	switch {
	case m.removals.floor(a.Key) > a.Term:
		m.send(from, Remove{m.removals.covering(a.Key)}) // its fetch began before a removal
		return
	case e.Held() && e.Term >= a.Term:
		m.send(from, Update{a.Key, e}) // that fetch is over, or obsolete
		return
	case a.Expire > e.Expire && m.believable(a.Expire):
		m.send(from, EntryReq{a.Key})
	}
	k := m.keys[a.Key]
	if k == nil && len(m.keys) >= maxActive {
		return
	}
	k = m.key(a.Key)
	defer m.arm(k)
	switch k.state {
	case Sourcing:
		if !outranks(k.name, a.Term, from, k.term, m.Self) {
			m.announce(k, from)
			return
		}
		m.abort(k, "another peer fetches in a higher term")
	case Candidate:
		m.giveUp(k, "")
	case Follower:
		if a.Term < k.term || k.leader != from && !k.source {
			return
		}
	case Idle:
		if k.failure.count > 0 && a.Term <= k.failure.term {
			return // that fetch is over
		}
	}
	m.follow(k, from, a)
}

// follow waits for a peer that fetches, and binds this one's vote to it.
func (m *Machine) follow(k *key, leader string, a Announce) {
	why := ""
	if k.state != Follower || !k.source || k.leader != leader {
		why = "follows"
	}
	k.term, k.free = a.Term, 0
	m.move(k, Follower, leader, why)
	k.source, k.boundAt, k.until = true, m.now.Boot, m.now.Boot+m.Timings.Source
	m.see(k.name, a.Term)
	switch {
	case a.Stamp == 0 || m.abstaining():
	case a.Config != m.config.Number:
		m.greet(leader) // one of the two learns the other's configuration
	case m.raise(a.Term):
		m.send(leader, Ack{k.name, a.Term, a.Stamp})
	}
}

// fetched is the end of a fetch, if it is still this peer's to make.
func (m *Machine) fetched(in Fetched) {
	k := m.keys[in.Key]
	if k == nil || k.state != Sourcing || k.term != in.Term {
		return
	}
	if in.Err != "" {
		m.failed(k, in)
		return
	}
	ttl := m.Timings.TTL
	if in.TTL > 0 {
		ttl = min(max(in.TTL, time.Second), m.Timings.MaxTTL)
	}
	ttl -= time.Duration(m.Jitter * m.Rand() * float64(ttl))
	e := Entry{
		Term: k.term, Expire: k.made + max(1, ttl.Milliseconds()), Made: k.made,
		Digest: Digest(in.Value), Value: in.Value, Seen: m.Table.Get(k.name).Seen,
	}
	m.put(k.name, e)
	m.send("", Update{k.name, e})
	k.wanted, k.failure = false, failure{}
	m.move(k, Idle, "", "fetched")
	m.serve(k, e)
	m.answerSome(k, func(w *waiter) bool {
		if w.term >= e.Term {
			return false // it asked for a fetch that begins later
		}
		m.emit(Refuse{w.token, SourceFailed, "the source takes longer than its value lives", m.Timings.FailMin})
		return true
	})
	m.standIfWanted(k)
	m.arm(k)
}

// failed tells everybody that the fetch has failed, and when the next may start.
func (m *Machine) failed(k *key, in Fetched) {
	count := k.failure.count + 1
	wait := m.Timings.FailMax
	if doublings := count - 1; doublings < 30 {
		wait = min(wait, m.Timings.FailMin<<doublings)
	}
	wait += time.Duration((m.Rand() - 0.5) * 0.2 * float64(wait))
	if in.Wait > 0 {
		wait = min(in.Wait, longestWait)
	}
	m.counters.Failures++
	m.move(k, Idle, "", "failed: "+in.Err)
	k.failure = failure{term: k.term, text: in.Err, count: count, until: m.now.Boot + wait}
	m.send("", k.failure.message(k.name, m.now.Boot))
	m.refuseAll(k, SourceFailed, in.Err, wait)
	m.arm(k)
}

// longestWait bounds what a source or a peer may ask for.
const longestWait = time.Hour

func (f failure) message(name string, now time.Duration) Failed {
	return Failed{Key: name, Term: f.term, Wait: max(1, (f.until - now).Milliseconds()), Text: f.text, Count: f.count}
}

// failedElsewhere takes over another peer's back-off.
func (m *Machine) failedElsewhere(from string, f Failed) {
	if m.absurd(f.Term) || f.Term < m.Table.Get(f.Key).Term || f.Count < 1 || f.Wait < 1 {
		m.counters.Ignored++
		return
	}
	k := m.keys[f.Key]
	if k == nil && len(m.keys) >= maxActive {
		return
	}
	k = m.key(f.Key)
	switch {
	case k.state == Sourcing, k.state == Follower && (k.leader != from || f.Term < k.term):
		m.arm(k)
		return
	case k.state == Candidate:
		m.giveUp(k, "")
	}
	wait := min(time.Duration(min(f.Wait, longestWait.Milliseconds()))*time.Millisecond, longestWait)
	k.failure = failure{term: f.Term, text: f.Text, count: f.Count, until: m.now.Boot + wait}
	m.move(k, Idle, "", "failed at "+from+": "+f.Text)
	k.pending = nil
	m.refuseAll(k, SourceFailed, f.Text, wait)
	m.arm(k)
}

// abort ends this peer's fetch before its time. One that this very step began is not
// begun at all.
func (m *Machine) abort(k *key, why string) {
	m.counters.Aborted++
	begun := len(m.effects)
	m.effects = slices.DeleteFunc(m.effects, func(e Effect) bool {
		f, ok := e.(Fetch)
		return ok && f.Key == k.name && f.Term == k.term
	})
	if len(m.effects) == begun {
		m.emit(Abort{k.name, k.term, why})
	}
	m.send("", Release{k.name, k.term, true})
	m.move(k, Idle, "", "gives up its fetch: "+why)
}
