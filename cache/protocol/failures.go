package protocol

import "time"

// failure is the last fetch's, while its back-off lasts.
type failure struct {
	term  int64
	text  string
	count int64
	until time.Duration
}

// forget is when failures are counted from one again.
func (m *Machine) forget(f failure) time.Duration { return f.until + m.setup.Timings.FailMax }

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

// recordFailure tells everyone that the fetch has failed, and when the next may start.
func (m *Machine) recordFailure(k *key, in Fetched) {
	count := k.failure.count + 1
	wait := m.setup.Timings.FailMax
	if doublings := count - 1; doublings < 30 {
		wait = min(wait, m.setup.Timings.FailMin<<doublings)
	}
	wait += time.Duration((m.setup.Rand() - 0.5) * 0.2 * float64(wait))
	if in.Wait > 0 {
		wait = min(in.Wait, longestWait)
	}
	m.setState(k, Idle, "", "failed: "+in.Err)
	k.failure = failure{term: k.term, text: in.Err, count: count, until: m.now.Boot + wait}
	m.send("", k.failure.message(k.name, m.now.Boot))
	m.refuseAll(k, OriginFailed, in.Err, wait)
	m.schedule(k)
}

// longestWait bounds what an origin or a peer may ask for.
const longestWait = time.Hour

func (f failure) message(name string, now time.Duration) Failed {
	return Failed{Key: name, Term: f.term, Wait: max(1, (f.until - now).Milliseconds()), Text: f.text, Count: f.count}
}

// handleFailed takes over another peer's back-off.
func (m *Machine) handleFailed(from string, f Failed) {
	// A failure that is older than the copy here says nothing about the origin now.
	if m.isAbsurdTerm(f.Term) || f.Term < m.setup.Table.Get(f.Key).Term || f.Count < 1 || f.Wait < 1 {
		m.counters.Ignored++
		return
	}
	k := m.key(f.Key)
	switch {
	case k.failure.count > 0 && f.Term < k.failure.term, // a later fetch has failed, and its back-off holds
		k.state == Fetching, k.state == Follower && (k.boundTo != from || f.Term < k.term):
		m.schedule(k)
		return
	case k.state == Candidate:
		m.endCandidacy(k, "")
	}
	wait := min(time.Duration(min(f.Wait, longestWait.Milliseconds()))*time.Millisecond, longestWait)
	k.failure = failure{term: f.Term, text: f.Text, count: f.Count, until: m.now.Boot + wait}
	// Not endFollowing: that would answer a question or stand, and nobody may fetch before the back-off has passed.
	m.setState(k, Idle, "", "failed at "+from+": "+f.Text)
	k.pending = nil
	m.refuseAll(k, OriginFailed, f.Text, wait)
	m.schedule(k)
}
