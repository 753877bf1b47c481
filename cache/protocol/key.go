package protocol

import (
	"hash/fnv"
	"slices"
	"time"
)

// key is what a peer knows of a key while something goes on.
type key struct {
	name  string
	state State

	// term is that of the candidacy, the fetch, or whom this peer follows.
	term int64

	// A follower's. The vote binds, and the follower waits, until then.
	leader  string
	source  bool // the leader fetches
	boundAt time.Duration
	until   time.Duration
	pending *question

	// A candidate's.
	asked    bool // false: it waits for the ceiling
	askedAt  time.Duration
	patience time.Duration // the end of the election
	repeatAt time.Duration
	heard    map[string]bool // who answered; true: yes
	round    int
	hurried  bool   // this election has begun again at once already
	outbid   bool   // somebody refused because its term is higher
	fresh    bool   // a fresh copy is elsewhere and was asked for
	best     string // who has the newest copy, newer than ours, or a fresh one
	bestTime int64  // when the newest expires

	// A fetching peer's.
	made       int64 // Unix milliseconds
	fetchUntil time.Duration
	announceAt time.Duration
	promised   map[string]time.Duration // until when each peer votes for nobody else
	trust      time.Duration

	// free is a term in which this peer's vote was released, and may be given again.
	free int64
	// wanted is that a fetch is wanted, though nobody may wait for it.
	wanted   bool
	highest  int64 // term that others have told
	failure  failure
	waiters  []*waiter
	lookAt   time.Duration // at the waiters
	due      time.Duration
	at       int // in the heap; -1: not there
	electing time.Duration
}

// question is one that could not be answered with yes because of a promise.
type question struct {
	from string
	q    Question
	at   time.Duration
}

// failure is the last fetch's, while its back-off lasts.
type failure struct {
	term  int64
	text  string
	count int64
	until time.Duration
}

// forget is when failures are counted from one again.
func (m *Machine) forget(f failure) time.Duration { return f.until + m.Timings.FailMax }

func (m *Machine) key(name string) *key {
	k := m.keys[name]
	if k == nil {
		k = &key{name: name, at: -1}
		m.keys[name] = k
	}
	return k
}

// next is when something of the key is due.
func (m *Machine) next(k *key) time.Duration {
	next := never
	switch k.state {
	case Follower:
		next = k.until
	case Candidate:
		if k.asked {
			next = min(k.patience, k.repeatAt)
		}
	case Sourcing:
		next = min(k.announceAt, k.fetchUntil, k.trust)
	}
	if len(k.waiters) > 0 {
		next = min(next, k.lookAt)
	}
	if k.failure.count > 0 {
		next = min(next, m.forget(k.failure))
	}
	return next
}

// lapse does what is due for a key.
func (m *Machine) lapse(k *key) {
	now := m.now.Boot
	if len(k.waiters) > 0 && k.lookAt <= now {
		m.lookAtWaiters(k)
	}
	if k.failure.count > 0 && m.forget(k.failure) <= now {
		k.failure = failure{}
	}
	switch {
	case k.state == Follower && k.until <= now:
		m.counters.Silences++
		m.unbound(k, "silent for too long")
	case k.state == Candidate && k.asked && k.patience <= now:
		m.lost(k)
	case k.state == Candidate && k.asked && k.repeatAt <= now:
		m.repeat(k)
	case k.state == Sourcing && k.trust <= now:
		m.abort(k, "no majority has confirmed the fetch")
		m.standIfWanted(k)
	case k.state == Sourcing && k.fetchUntil <= now:
		m.emit(Abort{k.name, k.term, "deadline"})
		m.fetched(Fetched{Key: k.name, Term: k.term, Err: "the source has not answered within " + m.Timings.Fetch.String()})
	case k.state == Sourcing && k.announceAt <= now:
		m.announce(k, "")
	}
	m.arm(k)
}

// move changes a key's state.
func (m *Machine) move(k *key, to State, leader, why string) {
	from := k.state
	if was, is := from >= Candidate, to >= Candidate; was != is {
		if is {
			m.busy++
		} else {
			m.busy--
		}
	}
	k.state, k.leader = to, leader
	if to != Follower {
		k.source, k.until = false, 0
	}
	if to != Candidate {
		k.asked, k.heard, k.fresh, k.outbid, k.best, k.bestTime = false, nil, false, false, "", 0
	}
	if to != Sourcing {
		k.promised = nil
	}
	if why != "" {
		m.emit(Moved{Key: k.name, From: from, To: to, Term: k.term, Peer: leader, Why: why})
	}
}

// used is the highest term in which this peer may have voted, stood or followed.
func (m *Machine) used(name string) int64 {
	e := m.Table.Get(name)
	return max(e.Seen, e.Term, m.floor, m.Table.Forgot(), m.removals.floor(name))
}

// see remembers that a term was used here. Term 0, in which candidates of the
// original's begin, uses up 1 as well: 0 is how nothing looks.
func (m *Machine) see(name string, term int64) {
	term = max(term, 1)
	e := m.Table.Get(name)
	if e.Seen < term {
		e.Seen = term
		m.Table.Put(name, e)
	}
}

// unbound frees a follower from its vote: who asked meanwhile is answered, and
// otherwise this peer stands itself if somebody here wants the value.
func (m *Machine) unbound(k *key, why string) {
	m.move(k, Idle, "", why)
	p := k.pending
	k.pending = nil
	if p != nil && m.now.Boot-p.at < m.Timings.CandidateMax && m.peers[p.from] != nil {
		m.question(p.from, p.q)
	}
	m.standIfWanted(k)
	m.arm(k)
}

func (m *Machine) standIfWanted(k *key) {
	if k.state == Idle && (k.wanted || len(k.waiters) > 0) {
		m.stand(k)
	}
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

// sortedKeys is for what is done to many keys at once: in an order that does not
// change from run to run.
func (m *Machine) sortedKeys(which func(*key) bool) []*key {
	var out []*key
	for _, k := range m.keys {
		if which(k) {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b *key) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	return out
}
