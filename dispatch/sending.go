package dispatch

import (
	"cmp"
	"slices"
	"time"
)

// startSends gives started messages to senders.
func (m *machine) startSends(now time.Duration, out []effect) []effect {
	passed := 0
	for _, s := range m.toSend {
		if m.counts[sending] >= m.cfg.Concurrency {
			break
		}
		passed++
		switch {
		case s.phase != begun:
		case m.stopping:
			m.recordUnsent(s, "the instance stopped before it was sent")
		case now > m.sendDeadline(s):
			// This process was paused since the start. A submission could end after the
			// second window, when another instance may have the key.
			m.recordUnsent(s, "it was not sent in time after its begin")
		default:
			m.setPhase(s, sending)
			out = append(out, effect{send: s})
		}
	}
	m.toSend = m.toSend[passed:]
	return out
}

// sendDeadline is the last moment at which a started message may be sent: its deadline
// must pass within the second window, which counts from the start.
func (m *machine) sendDeadline(s *slot) time.Duration {
	return s.stepSent + m.window - m.cfg.SubmitTimeout
}

// handleAnswer classifies the answer to a submission, or to the status query before it;
// a is the assignment as it was carried out.
func (m *machine) handleAnswer(now time.Duration, s *slot, a Assignment, answer Answer, took time.Duration) {
	m.observed.Submissions++
	m.observed.Latency += took
	m.fast = took < fastAnswer
	a.Refused = m.refusals.note(now, a, answer.Permanent)
	s.assignment = a
	r := m.rule.Classify(a, answer, m.cfg.Jitter())
	if a.Work == Send && r.State == Unknown && r.After == RetryLater && !answer.RequestEnded && !m.rule.Semantics.Deduplicates {
		// The target may still be executing it, until the deadline. Before that, "not
		// found" proves nothing, and the next message could overtake.
		r.Wait = max(r.Wait, m.cfg.SubmitTimeout-took)
	}
	m.queueResult(s, r)
}

// startPolls queries the status of messages that the target has, many at once.
func (m *machine) startPolls(now time.Duration, out []effect) []effect {
	if m.counts[atTarget] == 0 || m.stopping || now < m.pollAt {
		return out
	}
	var due []*slot
	m.pollAt = now + m.cfg.PollInterval
	along := m.pollAlong()
	for _, s := range m.slots {
		switch {
		case s.phase != atTarget || s.polling:
		case now+along >= s.pollAt:
			due = append(due, s)
		default:
			m.pollAt = min(m.pollAt, s.pollAt)
		}
	}
	slices.SortFunc(due, func(a, b *slot) int { return cmp.Or(cmp.Compare(a.pollAt, b.pollAt), cmp.Compare(a.key, b.key)) })
	for len(due) > 0 && m.pollsInFlight < m.cfg.Concurrency {
		n := min(len(due), m.rule.Semantics.StatusLimit)
		group := due[:n]
		due = due[n:]
		for _, s := range group {
			s.polling = true
		}
		m.pollsInFlight++
		out = append(out, effect{poll: group})
	}
	if len(due) > 0 {
		m.pollAt = now // as soon as a query is answered
	}
	return out
}

// pollAlong is how much too early a message is asked about when another is due: one query names many, so that few
// are made.
func (m *machine) pollAlong() time.Duration {
	if m.rule.Semantics.StatusLimit == 1 {
		return 0
	}
	return m.cfg.PollInterval / 2
}

// nextPoll is when a message that the target has not decided is due again.
func (m *machine) nextPoll(now, retryAfter time.Duration) time.Duration {
	along := m.pollAlong()
	spread := time.Duration(m.cfg.Jitter() * float64(m.cfg.PollInterval/2))
	return now + max(min(retryAfter, maxRetryAfter)+along, m.cfg.PollInterval+spread)
}

// schedulePoll keeps a key whose head the target has, to be polled at the given time.
func (m *machine) schedulePoll(s *slot, at time.Duration) {
	if m.counts[atTarget] == 0 {
		m.pollAt = at
	}
	s.pollAt, m.pollAt = at, min(m.pollAt, at)
	m.setPhase(s, atTarget)
}

// handlePollAnswers classifies the answers to a poll, one for each slot. What has not
// changed is not recorded.
func (m *machine) handlePollAnswers(now time.Duration, group []*slot, answers []Answer) {
	m.pollsInFlight--
	m.observed.StatusQueries++
	for i, s := range group {
		if s.polling = false; s.phase != atTarget {
			continue
		}
		answer := answers[i]
		r := m.rule.Classify(s.assignment, answer, m.cfg.Jitter())
		if r.After == Hold && (r.State == s.state || answer.Outcome == Uncertain) {
			m.schedulePoll(s, m.nextPoll(now, answer.RetryAfter))
			continue
		}
		m.queueResult(s, r)
	}
}
