package dispatch

import (
	"slices"
	"time"

	"github.com/understudy-ha/understudy/claim"
)

// startBudget is how many more messages may be started, sent or not. While the target
// answers quickly, the next ones are started before a sender is free, because an
// exchange with the store takes longer than a submission.
func (m *machine) startBudget() int {
	n := m.cfg.Concurrency
	if m.fast {
		n *= 2
	}
	return n - m.counts[starting] - m.counts[awaitsSender] - m.counts[sending]
}

// hasStarts reports whether an exchange would start something.
func (m *machine) hasStarts(now time.Duration) bool {
	return m.counts[ready] > 0 && m.startBudget() > 0 && m.limiter.allow(now, 1) > 0
}

// nextExchange collects the results of one session and the keys to start. A key whose
// message has a result in it continues with its next message while its streak lasts:
// the store then writes the key's row once instead of twice. An exchange names a key
// under one claim; what there is of it under another waits for the next exchange.
func (m *machine) nextExchange(now time.Duration) *exchangeRequest {
	x := &exchangeRequest{sent: now, body: Exchange{Queue: m.cfg.Name, Session: m.session, Window: m.window}}
	if !m.rule.Semantics.NeedsSecondWindow() {
		// Two submissions at once do no harm: the first window alone protects the key.
		x.body.Window = 0
	}
	if len(m.results) > 0 {
		// Results of an earlier session first: they count as long as no other instance
		// has taken the keys, and that gets less likely with time.
		x.body.Session = m.results[0].slot.session
	}
	named := make(map[string]bool, len(m.results)) // keys
	var rest []unrecordedResult
	for _, r := range m.results {
		if r.slot.session != x.body.Session || len(x.results) == claim.MaxKeys || named[r.slot.key] {
			rest = append(rest, r)
			continue
		}
		named[r.slot.key] = true
		x.results = append(x.results, r)
		x.body.Results = append(x.body.Results, r.result)
	}
	m.results = rest
	if m.session != "" && x.body.Session == m.session && !m.stopping {
		m.addStarts(x, now, named)
	}
	m.observed.Exchanges++
	m.observed.Keys += int64(len(x.results) + len(x.starts))
	return x
}

// addStarts adds the keys to start. A key that the exchange names already is added only if its result is in the same exchange.
func (m *machine) addStarts(x *exchangeRequest, now time.Duration, named map[string]bool) {
	most := m.limiter.allow(now, min(m.startBudget(), claim.MaxKeys-len(x.results)))
	start := func(s *slot) {
		named[s.key] = true
		x.starts = append(x.starts, s)
		x.body.Begin = append(x.body.Begin, claim.Claim{Key: s.key, Term: s.term})
	}
	// Keys whose start got no answer have an exchange of their own: Restart applies to
	// all keys that it names, and would start a step again that is being sent.
	if again := m.popUnanswered(most, named); len(again) > 0 {
		x.body.Restart = true
		for _, s := range again {
			start(s)
		}
	} else {
		for _, r := range x.results {
			// Not while keys are to be released: a streak would keep this one for ever.
			if len(x.starts) < most && r.result.After == Next && r.slot.streak < m.cfg.Streak && m.surplus == 0 {
				start(r.slot)
			}
		}
		passed := 0
		var later []*slot
		for _, s := range m.readySlots {
			if len(x.starts) >= most {
				break
			}
			passed++
			switch {
			case s.phase != ready:
			case named[s.key]:
				later = append(later, s)
			default:
				s.streak = 0
				start(s)
			}
		}
		m.readySlots = slices.Replace(m.readySlots, 0, passed, later...)
	}
	for _, s := range x.starts {
		if s.phase == ready {
			m.setPhase(s, starting)
		}
	}
	m.limiter.spend(len(x.starts))
}

// popUnanswered takes slots out of readySlots whose start got no answer, and names their keys.
func (m *machine) popUnanswered(most int, named map[string]bool) (out []*slot) {
	for _, s := range m.readySlots {
		if s.phase == ready && s.restart && len(out) < most && !named[s.key] {
			named[s.key] = true
			out = append(out, s)
		}
	}
	if len(out) > 0 {
		m.readySlots = slices.DeleteFunc(m.readySlots, func(s *slot) bool { return slices.Contains(out, s) })
	}
	return out
}

// handleExchange applies the store's answer to an exchange.
func (m *machine) handleExchange(now time.Duration, x *exchangeRequest, out ExchangeResult, err error, unknown bool) {
	if !m.requestEnded(now, err) {
		m.results = append(x.results, m.results...)
		m.limiter.spend(-len(x.starts))
		for _, s := range x.starts {
			// Unknown: the store may have started the step. Nothing was sent for it, so
			// the next exchange may start it again.
			s.restart = s.restart || unknown
			if s.phase == starting {
				m.makeReady(s)
			}
		}
		return
	}
	for i, r := range x.results {
		m.handleReceipt(now, r, i < len(out.Receipts) && out.Receipts[i].Accepted)
	}
	started := make(map[string]Assignment, len(out.Begun))
	for _, a := range out.Begun {
		started[a.Key] = a
	}
	m.limiter.spend(len(started) - len(x.starts)) // a key that had nothing to start costs nothing of the rate
	for _, r := range x.results {
		if _, again := started[r.slot.key]; !again {
			m.applyHolding(now, r.slot, out.Holdings[r.slot.key])
		}
	}
	for _, s := range x.starts {
		a, ok := started[s.key]
		switch {
		case ok && a.Term == s.term:
			m.handleAssignment(now, x, s, a)
		case s.phase == starting:
			// In progress, yet not started: it is in a step that this instance does not know,
			// from an exchange whose answer was lost.
			s.restart = out.Holdings[s.key] == InProgress
			m.applyHolding(now, s, out.Holdings[s.key])
		}
	}
}

func (m *machine) handleReceipt(now time.Duration, r unrecordedResult, accepted bool) {
	if !accepted {
		// What this instance knew of the key is wrong; the next start shows what is
		// right.
		r.slot.state, r.slot.restart = "", true
		m.observed.Ignored++
		return
	}
	m.observed.Recorded[r.result.State]++
	r.slot.state = r.result.State
	m.setStuck(r.slot, 0) // any other result unblocks the key
	switch r.result.After {
	case RetryLater:
		m.retries.add(now + r.result.Wait)
	case Next, Block:
		delete(m.losses, r.result.Key)
	case Stuck:
		m.setStuck(r.slot, now)
	}
	if m.onRecorded != nil {
		m.onRecorded(r.slot.assignment.ID, r.result)
	}
}

func (m *machine) handleAssignment(now time.Duration, x *exchangeRequest, s *slot, a Assignment) {
	s.assignment, s.stepSent, s.restart, s.state = a, x.sent, false, ""
	m.setStuck(s, 0)
	s.streak++
	switch {
	case a.Work != Poll:
		m.setPhase(s, awaitsSender)
		m.toSend = append(m.toSend, s)
	case m.rule.Semantics.HasStatus:
		s.state = Pending
		s.since, s.asked = now-a.Undecided, 1 // not the first question
		m.schedulePoll(s, now)
	default:
		// Pending at an earlier target of this queue, and the present one cannot be
		// asked.
		m.queueResult(s, m.rule.Classify(a, Answer{Outcome: Uncertain, Detail: otherTarget}, m.cfg.Jitter()))
	}
}

// otherTarget is the detail of a message that another target has.
const otherTarget = "an earlier target took it and had not decided; the present one cannot be asked what became of it"

// applyHolding moves a slot to the phase that the store's answer says.
func (m *machine) applyHolding(now time.Duration, s *slot, holding Holding) {
	switch {
	case s.session != m.session || holding == Released || holding == Lost || holding == "":
		m.setPhase(s, gone)
	case holding == InProgress && !s.restart && (s.state == Pending || s.state == Valid):
		// Not released, though it may be surplus: another instance could only poll it too.
		s.assignment.Work = Poll
		m.schedulePoll(s, m.nextPoll(now, s, 0))
	case m.surplus > 0 && !s.restart:
		m.surplus--
		m.observed.Released++
		m.releaseLater(s)
	default:
		m.makeReady(s)
	}
}
