package dispatch

import (
	"cmp"
	"slices"
	"time"
)

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
			same = same && s.stuckAt > 0
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

// pace is when the target is asked about the messages that it has. A message that is decided early must not wait for a
// query, and one that is never decided must not be asked about each second for ever.
type pace struct {
	scale time.Duration // Config.PollInterval
	first time.Duration // the pause before the first question: learned
	alike int           // first questions in a row that found a fate, or, below 0, that found none
	spent time.Duration // until when the requests that were sent use up what may be sent
}

// slowestPoll is the longest pause between two questions about a message.
const slowestPoll = 30 * time.Second

func newPace(scale time.Duration) pace { return pace{scale: scale, first: scale * 3 / 10} }

// pause before the next question about a message after so many questions.
func (p *pace) pause(asked int) time.Duration {
	if asked == 0 {
		return p.first
	}
	return min(p.scale/4<<min(asked-1, 16), max(slowestPoll, p.scale))
}

// learn moves the first pause to where most fates are there: a question that came too early costs a whole pause, so it
// grows fast, and shrinks slowly while all goes well, until about one in twenty comes too early. A run of the same
// answers makes the steps larger, because the target has become slower, or faster.
func (p *pace) learn(decided bool) {
	if decided != (p.alike > 0) {
		p.alike = 0
	}
	if decided {
		p.alike++
		p.first -= time.Duration(float64(p.first) * min(0.0001*float64(p.alike), 0.03))
	} else {
		p.alike--
		p.first += time.Duration(float64(p.first) * 0.05 * float64(-p.alike))
	}
	p.first = min(max(p.first, p.scale/20), p.scale)
}

// next is when a status query may be sent: two for each Config.PollInterval, one of them ahead of time.
func (p *pace) next() time.Duration { return p.spent - p.scale/2 }

func (p *pace) spend(now time.Duration) { p.spent = max(p.spent, now) + p.scale/2 }
