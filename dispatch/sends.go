package dispatch

import (
	"cmp"
	"slices"
	"time"
)

// sends hands begun batches to senders.
func (m *machine) sends(now time.Duration, out []effect) []effect {
	taken := 0
	for _, s := range m.queued {
		if m.counts[sending] >= m.cfg.Concurrency {
			break
		}
		taken++
		switch {
		case s.phase != begun:
		case m.stopping:
			m.unsent(s, "the instance stopped before it was sent")
		case now > m.latest(s):
			// This process was held up. Others may have the key by the time that a
			// submission would be over.
			m.unsent(s, "it was not sent in time after its begin")
		default:
			m.move(s, sending)
			for _, o := range m.cfg.Observers {
				o.Begun(s.a)
			}
			out = append(out, effect{send: s})
		}
	}
	m.queued = m.queued[taken:]
	return out
}

// latest is the last moment at which a begun batch may be sent.
func (m *machine) latest(s *slot) time.Duration {
	return s.since + m.second - m.cfg.SubmitTimeout
}

// answered is what came of a submission, or of an inquiry that a send begins with:
// a is the assignment as it was carried out.
func (m *machine) answered(s *slot, a Assignment, answer Answer, took time.Duration) {
	m.observed.Submissions++
	m.observed.Latency += took
	m.fast = took < quick
	for _, o := range m.cfg.Observers {
		o.Answered(a, answer)
	}
	s.a = a
	r := m.rule.Judge(a, answer, m.cfg.Jitter())
	if a.Todo == Send && r.State == Unknown && r.After == Again && !answer.Over && !m.rule.Semantics.Recognises {
		// The target may be at it until the deadline. Until then, that it does not
		// know the batch proves nothing, and the next one could overtake.
		r.Wait = max(r.Wait, m.cfg.SubmitTimeout-took)
	}
	m.settle(s, r)
}

// polls asks about batches that the target has, many at once.
func (m *machine) polls(now time.Duration, out []effect) []effect {
	if m.counts[held] == 0 || m.stopping || now < m.pollAt {
		return out
	}
	var due []*slot
	m.pollAt = now + m.cfg.PollEvery
	for _, s := range m.slots {
		switch {
		case s.phase != held || s.polling:
		case now >= s.pollAt:
			due = append(due, s)
		default:
			m.pollAt = min(m.pollAt, s.pollAt)
		}
	}
	slices.SortFunc(due, func(a, b *slot) int { return cmp.Or(cmp.Compare(a.pollAt, b.pollAt), cmp.Compare(a.key, b.key)) })
	for len(due) > 0 && m.asking < m.cfg.Concurrency {
		n := min(len(due), m.rule.Semantics.AskMany)
		group := due[:n]
		due = due[n:]
		for _, s := range group {
			s.polling = true
		}
		m.asking++
		out = append(out, effect{ask: group})
	}
	if len(due) > 0 {
		m.pollAt = now // once an inquiry is answered
	}
	return out
}

// pend keeps a key whose head the target has, and asks about it at the given time.
func (m *machine) pend(s *slot, at time.Duration) {
	if m.counts[held] == 0 {
		m.pollAt = at
	}
	s.pollAt, m.pollAt = at, min(m.pollAt, at)
	m.move(s, held)
}

// told is the target's answer to a poll, one for each of the group. What has not
// changed is not recorded.
func (m *machine) told(now time.Duration, group []*slot, answers []Answer) {
	m.asking--
	m.observed.Inquiries++
	for i, s := range group {
		if s.polling = false; s.phase != held {
			continue
		}
		answer := answers[i]
		r := m.rule.Judge(s.a, answer, m.cfg.Jitter())
		if r.After == Hold && (r.State == s.state || answer.Outcome == Silent) {
			m.pend(s, now+max(answer.RetryAfter, m.cfg.PollEvery/2+time.Duration(m.cfg.Jitter()*float64(m.cfg.PollEvery))))
			continue
		}
		for _, o := range m.cfg.Observers {
			o.Answered(s.a, answer)
		}
		m.settle(s, r)
	}
}
