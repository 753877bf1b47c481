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
	s.since, s.asked, s.stuck = now, 0, false
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
	for len(due) > 0 && due[0].pollAt <= now && m.pollsInFlight < m.cfg.Concurrency && (along == 0 || now >= m.pace.next()) {
		n := min(len(due), m.rule.Semantics.StatusLimit)
		group := due[:n]
		due = due[n:]
		for _, s := range group {
			s.polling, s.early = true, s.pollAt > now
			s.assignment.Undecided = now - s.since
		}
		m.pollsInFlight++
		m.pace.spend(now)
		out = append(out, effect{poll: group})
	}
	if len(due) > 0 { // as soon as a query is answered, or may be sent
		m.pollAt = max(now, due[0].pollAt)
		if along > 0 {
			m.pollAt = max(m.pollAt, m.pace.next())
		}
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

// nextPoll is when a message that the target has not decided is due again. The first question comes when most messages
// are decided; the later ones are spread.
func (m *machine) nextPoll(now time.Duration, s *slot, retryAfter time.Duration) time.Duration {
	pause := m.pace.pause(s.asked)
	if s.asked > 0 {
		pause += time.Duration(m.cfg.Jitter() * float64(pause/8))
	}
	if retryAfter > 0 {
		pause = max(pause, min(retryAfter, maxRetryAfter)+m.pollAlong())
	}
	if until := s.since + m.cfg.UndecidedAfter; until > now { // operators are shown it then, not when a long pause ends
		return min(now+pause, until)
	}
	return now + pause
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
		if answer.Outcome == NotFound {
			s.assignment.Lost = m.losses.count(now, s.assignment)
		}
		r := m.rule.Classify(s.assignment, answer, m.cfg.Jitter())
		m.learnPace(s, answer.Outcome)
		next := s.pollAt
		if !s.early || next <= now {
			s.asked++
			next = m.nextPoll(now, s, answer.RetryAfter)
		}
		same := r.After == Hold && (r.State == s.state || answer.Outcome == Uncertain)
		if r.After == Hold && now-s.since >= m.cfg.UndecidedAfter {
			r = stuckResult(r, answer, cmp.Or(s.state, Pending), now-s.since)
			same = same && s.stuck
			s.stuck = true
		}
		if same {
			m.schedulePoll(s, next)
			continue
		}
		m.queueResult(s, r)
	}
}

// learnPace learns from the first question about a message. One that came before its time and found nothing says
// nothing.
func (m *machine) learnPace(s *slot, outcome Outcome) {
	decided := outcome == Done || outcome == InvalidMessage
	undecided := outcome == Accepted || outcome == Executed
	if s.asked == 0 && (decided || undecided && !s.early) {
		m.pace.learn(decided)
	}
}
