package protocol

import (
	"cmp"
	"container/list"
	"slices"
	"time"
)

// key is what a peer knows of a key while something continues.
type key struct {
	name  string
	state State

	// term is that of the candidacy, of the fetch, or of the peer that this one follows.
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
	newestCopyPeer string // who has the newest copy, newer than ours, or a fresh one
	newestExpire   int64  // when the newest expires
	copyElsewhere  bool   // someone has said in this term that it has a copy; kept while fetching

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
	// copyRequestAt is when a copy that has expired here may be asked for again: it may be large, and under way.
	copyRequestAt time.Duration
	// unbelievedExpire is the latest expiry of a copy elsewhere that was too late to be believed (isBelievable).
	unbelievedExpire int64
	// wanted: fetch even if nobody waits.
	wanted          bool
	highestAnswered int64 // the highest term in an answer
	failure         failure
	waiters         []*waiter
	keepAliveAt     time.Duration // when to run checkWaiters
	timerAt         time.Duration // its place in the heap of timers follows from it
	heapIndex       int           // -1: not in the heap, since nothing is due
	inFailures      *list.Element // nil: more than its failure is remembered
	electionBegan   time.Duration
}

// question is one that could not be answered with yes because of a promise.
type question struct {
	from string
	q    Question
	at   time.Duration
}

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

func (m *Machine) key(name string) *key {
	k := m.keys[name]
	if k == nil {
		k = &key{name: name, heapIndex: -1}
		m.keys[name] = k
	}
	return k
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
		k.votesRequested, k.votes, k.awaitingCopy, k.outbid, k.newestCopyPeer, k.newestExpire = false, nil, false, false, "", 0
	}
	if to < Candidate {
		k.copyElsewhere = false
	}
	if to != Fetching {
		k.promised = nil
	}
	if why != "" {
		m.emit(StateChanged{Key: k.name, From: from, To: to, Term: k.term, Peer: boundTo, Why: why})
	}
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
