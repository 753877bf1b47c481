package protocol

import "time"

// dayAhead bounds the terms that are believed: they start from wall clocks.
const dayAhead = int64(24 * time.Hour / time.Millisecond)

// isAbsurdTerm reports whether a term cannot be genuine. If it were believed, every later term would have to exceed it.
func (m *Machine) isAbsurdTerm(term int64) bool { return term < 0 || term > m.now.Wall+dayAhead }

// ensureCeiling sees to it that terms up to need, and those of the near future, are safe
// from a restart; it reports whether need is so already. Terms that are ahead of the
// clock get no lead but a few: every restart starts above the ceiling, and a peer that
// restarts again and again would run away from the clock.
//
// With an announce timeout of 2000 ms and the clock at 1,000,000: term 1,000,000 under a ceiling of 1,001,000 is safe, and
// 1,004,000 is stored ahead, as the ceiling would be reached within the 2000. Term 1,050,000, which is ahead of the clock,
// is not: 1,050,100 is stored first.
func (m *Machine) ensureCeiling(need int64) bool {
	lead := m.setup.Timings.AnnounceTimeout.Milliseconds()
	if soon := max(need+fewTerms/2, min(need, m.now.Wall)+lead); m.raising == 0 && soon > m.ceiling {
		m.raising = max(need+fewTerms, m.now.Wall+2*lead)
		m.emit(Raise{m.raising})
	}
	return need <= m.ceiling
}

// fewTerms are what a ceiling that is ahead of the clock has in reserve.
const fewTerms = 100

// handleRaised continues with what waited for the ceiling.
func (m *Machine) handleRaised(in Raised) {
	m.raising = 0
	questions, candidacies := m.questionsAwaitingCeiling, m.candidaciesAwaitingCeiling
	m.questionsAwaitingCeiling, m.candidaciesAwaitingCeiling = nil, nil
	m.ceilingFailure = in.Err
	if in.Err != "" {
		for _, k := range candidacies {
			if k.state == Candidate && !k.votesRequested {
				m.setState(k, Idle, "", "terms cannot be stored")
				m.refuseAll(k, Broken, "this peer cannot store what it must not forget: "+in.Err, m.setup.Timings.FailMin)
				m.schedule(k)
			}
		}
		return
	}
	m.ceiling = max(m.ceiling, in.To)
	for _, h := range questions {
		m.handleMessage(h)
	}
	for _, k := range candidacies { // a key that has stood twice meanwhile is in it twice; its votes are requested once
		if k.state == Candidate && !k.votesRequested {
			// In the term that has waited, where it still is new: the clock, which has
			// gone on, may be above the ceiling again.
			if k.term > max(m.usedTerm(k.name), k.highestAnswered) && k.term <= m.ceiling && m.hasQuorum() && !m.partitioned {
				m.requestVotes(k)
			} else {
				m.setState(k, Idle, "", "")
				m.startCandidacy(k)
			}
			m.schedule(k)
		}
	}
}

// usedTerm is the highest term in which this peer may have voted, stood or followed.
func (m *Machine) usedTerm(name string) int64 {
	e := m.setup.Table.Get(name)
	return max(e.Used, e.Term, m.floor, m.setup.Table.Forgot(), m.removals.floor(name))
}

// unseenTerm is a term up to which others may have used any that this peer has not seen; see [Timings.Reach].
func (m *Machine) unseenTerm() int64 { return m.now.Wall + m.setup.Timings.Reach().Milliseconds() }

// markUsed remembers that a term was used here. Term 0, in which candidates of the
// original begin, uses up 1 as well: 0 means unset.
func (m *Machine) markUsed(name string, term int64) {
	term = max(term, 1)
	e := m.setup.Table.Get(name)
	if e.Used < term {
		e.Used = term
		m.setup.Table.Put(name, e)
	}
}
