package dispatch

import (
	"cmp"
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
		case s.phase != awaitsSender:
		case m.stopping:
			m.recordUnsent(s, "the instance stopped before it was sent")
		case now > m.sendDeadline(s):
			// This process was paused since the start. A submission could end after the
			// second window, when another instance may have the key.
			m.recordUnsent(s, unsentInTime)
		default:
			m.setPhase(s, sending)
			out = append(out, effect{send: s})
		}
	}
	m.toSend = m.toSend[passed:]
	return out
}

// unsentInTime is why a started message was not sent: this process was paused, or its senders were busy.
const unsentInTime = "it was not sent in time after its start"

// sendDeadline is the last moment at which a started message may be sent, also by a sender that was paused since: its
// deadline must pass within the second window, which counts from the start.
func (m *machine) sendDeadline(s *slot) time.Duration {
	return s.stepSent + m.window - m.cfg.SubmitTimeout
}

// handleAnswer classifies the answer to a submission, or to the status query before it;
// a is the assignment as it was carried out.
func (m *machine) handleAnswer(now time.Duration, s *slot, a Assignment, answer Answer, took time.Duration) {
	m.observed.Submissions++
	m.observed.Latency += took
	m.fast = took < fastAnswer
	a.Refused = m.refusals.record(now, a, answer.Permanent)
	if a.Work == Resolve && (answer.Outcome == Uncertain || answer.Outcome == Busy || answer.Outcome == Misconfigured) {
		a.Unanswered = m.unanswered.count(now, a)
	} else {
		delete(m.unanswered, a.Key)
	}
	a.Link = cmp.Or(answer.Link, a.Link) // as in the store: the polls ask there
	s.assignment = a
	s.since, s.asked = now, 0
	r := m.rule.Classify(a, answer, m.cfg.Jitter())
	if a.Work == Send && r.State == Unknown && r.After == RetryLater && !answer.RequestEnded && (!m.rule.Semantics.Deduplicates || m.rule.isLast(a)) {
		// The target may still be executing it, until the deadline. Before that, "not
		// found" proves nothing, and the next message could overtake. Where it is sent again, one that deduplicates
		// drops it.
		r.Wait = max(r.Wait, m.cfg.SubmitTimeout-took)
	}
	m.queueResult(s, r)
}
