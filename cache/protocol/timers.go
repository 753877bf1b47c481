package protocol

import (
	"container/heap"
	"math"
	"time"
)

// never is the time of what is not due.
const never = time.Duration(math.MaxInt64)

// schedule sets when a key is looked at next, and forgets a key of which nothing is left
// to remember.
func (m *Machine) schedule(k *key) {
	k.timerAt = m.next(k)
	switch {
	case k.timerAt == never && k.heapIndex >= 0:
		heap.Remove(&m.timers, k.heapIndex)
	case k.timerAt == never:
	case k.heapIndex >= 0:
		heap.Fix(&m.timers, k.heapIndex)
	default:
		heap.Push(&m.timers, k)
	}
	m.placeInFailures(k)
	if k.timerAt == never && !k.isActive() {
		delete(m.keys, k.name)
	}
}

// next is when something of the key is due. No timer starts the candidacy of an idle key: whoever
// leaves one waiting must know what wakes it.
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
		m.handleFetched(Fetched{Key: k.name, Term: k.term, Err: "the origin has not answered within " + m.setup.Timings.FetchTimeout.String()})
	case k.state == Fetching && k.announceAt <= now:
		m.announce(k, "")
		if m.setup.Mixed { // peers of the original's follow from this announcement on
			m.updateTrust(k)
		}
	}
	m.schedule(k)
}

// timers is a heap of keys by what is due first.
type timers []*key

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].timerAt < t[j].timerAt }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i]; t[i].heapIndex, t[j].heapIndex = i, j }

// Push implements [heap.Interface].
func (t *timers) Push(x any) {
	k := x.(*key)
	k.heapIndex = len(*t)
	*t = append(*t, k)
}

// Pop implements [heap.Interface].
func (t *timers) Pop() any {
	old := *t
	k := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	k.heapIndex = -1
	return k
}
