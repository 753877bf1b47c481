package protocol

import (
	"cmp"
	"container/list"
	"hash/fnv"
	"slices"
	"time"
)

// key is what a peer knows of a key while something continues.
type key struct {
	name  string
	state State

	// term is that of the candidacy, the fetch, or whom this peer follows.
	term int64

	// A follower's. Until boundUntil its vote is promised to boundTo, and it waits for that peer.
	boundTo      string
	boundToFetch bool // that peer fetches; false: it is a candidate
	votedAt      time.Duration
	boundUntil   time.Duration
	pending      *question

	// A candidate's.
	votesRequested bool // false: it waits for the ceiling
	requestedAt    time.Duration
	electionEnd    time.Duration // the end of the election
	repeatAt       time.Duration
	votes          map[string]bool // by voter; false: refused
	round          int
	restartedOnce  bool   // this election has started again at once already
	outbid         bool   // someone refused because its term is higher
	awaitingCopy   bool   // a fresh copy is elsewhere and was asked for
	best           string // who has the newest copy, newer than ours, or a fresh one
	bestTime       int64  // when the newest expires

	// A fetching peer's.
	fetchBegan int64 // Unix milliseconds
	fetchUntil time.Duration
	announceAt time.Duration
	// announcedAt is when the fetch was last announced to everyone.
	announcedAt time.Duration
	promised    map[string]time.Duration // until when each peer votes for nobody else
	trustEnd    time.Duration

	// reusableTerm is a term in which this peer's vote was released, and may be given again.
	reusableTerm int64
	// wanted is that a fetch is wanted, though nobody may wait for it.
	wanted        bool
	highest       int64 // term that others have told
	failure       failure
	waiters       []*waiter
	keepAliveAt   time.Duration // when to run checkWaiters
	timerAt       time.Duration // its place in the heap of timers follows from it
	heapIndex     int           // -1: not in the heap, since nothing is due
	inFailures    *list.Element // nil: more than its failure is remembered
	electionBegan time.Duration
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

// maxActive bounds the keys for which something continues, maxFailures those of which only a failure is
// remembered: at 20,000 failures a second it is three times the first back-off.
const (
	maxActive   = 1 << 18
	maxFailures = 1 << 16
)

// hasRoom reports whether something may continue for this key, which is remembered then.
func (m *Machine) hasRoom(name string) bool {
	return m.keys[name] != nil || len(m.keys)-m.failures.Len() < maxActive
}

// isActive reports whether something continues, besides that a failure may be remembered.
func (k *key) isActive() bool { return k.state != Idle || len(k.waiters) > 0 || k.wanted }

// placeInFailures puts a key into the list of failures, or takes it out, after its state has changed.
func (m *Machine) placeInFailures(k *key) {
	switch only := !k.isActive() && k.failure.count > 0; {
	case only && k.inFailures == nil:
		k.inFailures = m.failures.PushBack(k)
	case !only && k.inFailures != nil:
		m.failures.Remove(k.inFailures)
		k.inFailures = nil
	}
}

// dropFailures forgets the oldest failures beyond maxFailures: their next fetch does not wait. It runs between steps,
// when nothing refers to these keys.
func (m *Machine) dropFailures() {
	for m.failures.Len() > maxFailures {
		k := m.failures.Front().Value.(*key)
		k.failure = failure{}
		m.schedule(k)
	}
}

func (m *Machine) key(name string) *key {
	k := m.keys[name]
	if k == nil {
		k = &key{name: name, heapIndex: -1}
		m.keys[name] = k
	}
	return k
}

// next is when something of the key is due.
func (m *Machine) next(k *key) time.Duration {
	next := never
	switch k.state {
	case Follower:
		next = k.boundUntil
	case Candidate:
		if k.votesRequested {
			next = min(k.electionEnd, k.repeatAt)
		}
	case Fetching:
		next = min(k.announceAt, k.fetchUntil, k.trustEnd)
	}
	if len(k.waiters) > 0 {
		next = min(next, k.keepAliveAt)
	}
	if k.failure.count > 0 {
		next = min(next, m.forget(k.failure))
	}
	return next
}

// runKeyTimer does what is due for a key.
func (m *Machine) runKeyTimer(k *key) {
	now := m.now.Boot
	if len(k.waiters) > 0 && k.keepAliveAt <= now {
		m.checkWaiters(k)
	}
	if k.failure.count > 0 && m.forget(k.failure) <= now {
		k.failure = failure{}
	}
	switch {
	case k.state == Follower && k.boundUntil <= now:
		m.counters.Silences++
		m.endFollowing(k, "silent for too long")
	case k.state == Candidate && k.votesRequested && k.electionEnd <= now:
		m.electionTimedOut(k)
	case k.state == Candidate && k.votesRequested && k.repeatAt <= now:
		m.repeatQuestion(k)
	case k.state == Fetching && k.trustEnd <= now:
		m.abortFetch(k, "no majority has confirmed the fetch")
		m.startCandidacyIfWanted(k)
	case k.state == Fetching && k.fetchUntil <= now:
		m.emit(Abort{k.name, k.term, "deadline"})
		m.handleFetched(Fetched{Key: k.name, Term: k.term, Err: "the origin has not answered within " + m.Timings.Fetch.String()})
	case k.state == Fetching && k.announceAt <= now:
		m.announce(k, "")
		if m.Mixed { // peers of the original's follow from this announcement on
			m.updateTrust(k)
		}
	}
	m.schedule(k)
}

// setState changes a key's state.
func (m *Machine) setState(k *key, to State, boundTo, why string) {
	from := k.state
	if was, is := from >= Candidate, to >= Candidate; was != is {
		if is {
			m.busy++
		} else {
			m.busy--
		}
	}
	k.state, k.boundTo = to, boundTo
	if to != Follower {
		k.boundToFetch, k.boundUntil = false, 0
	}
	if to != Candidate {
		k.votesRequested, k.votes, k.awaitingCopy, k.outbid, k.best, k.bestTime = false, nil, false, false, "", 0
	}
	if to != Fetching {
		k.promised = nil
	}
	if why != "" {
		m.emit(StateChanged{Key: k.name, From: from, To: to, Term: k.term, Peer: boundTo, Why: why})
	}
}

// usedTerm is the highest term in which this peer may have voted, stood or followed.
func (m *Machine) usedTerm(name string) int64 {
	e := m.Table.Get(name)
	return max(e.Seen, e.Term, m.floor, m.Table.Forgot(), m.removals.floor(name))
}

// markUsed remembers that a term was used here. Term 0, in which candidates of the
// original begin, uses up 1 as well: 0 means unset.
func (m *Machine) markUsed(name string, term int64) {
	term = max(term, 1)
	e := m.Table.Get(name)
	if e.Seen < term {
		e.Seen = term
		m.Table.Put(name, e)
	}
}

// endFollowing frees a follower from its vote: who asked meanwhile is answered, and
// otherwise this peer stands itself if someone here wants the value.
func (m *Machine) endFollowing(k *key, why string) {
	m.setState(k, Idle, "", why)
	p := k.pending
	k.pending = nil
	if p != nil && m.now.Boot-p.at < m.Timings.CandidateMax && m.peers[p.from] != nil {
		m.handleQuestion(p.from, p.q)
	}
	m.startCandidacyIfWanted(k)
	m.schedule(k)
}

func (m *Machine) startCandidacyIfWanted(k *key) {
	if k.state == Idle && (k.wanted || len(k.waiters) > 0) {
		m.startCandidacy(k)
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
	slices.SortFunc(out, func(a, b *key) int { return cmp.Compare(a.name, b.name) })
	return out
}
