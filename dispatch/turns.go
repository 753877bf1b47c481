package dispatch

import (
	"slices"
	"time"

	"github.com/understudy-ha/understudy/claim"
)

// ahead is how many batches are begun at most, sent or not. While submissions
// are answered quickly, the next are begun before a sender is free: a turn with
// the store takes longer than they do.
func (m *machine) ahead() int {
	n := m.cfg.Concurrency
	if m.fast {
		n *= 2
	}
	return n - m.counts[beginning] - m.counts[begun] - m.counts[sending]
}

// begins tells whether a turn would begin something.
func (m *machine) begins(now time.Duration) bool {
	return m.counts[ready] > 0 && m.ahead() > 0 && m.limiter.allow(now, 1) > 0
}

// exchange makes up a turn: the results of one session, and the keys whose turn
// it is. A key whose batch has just been settled goes on with its next one while
// its streak lasts: the store then writes its row once instead of twice.
func (m *machine) exchange(now time.Duration) *exchange {
	x := &exchange{sent: now, turn: Turn{Queue: m.cfg.Name, Session: m.session, Window: m.second}}
	if !m.rule.Semantics.Alone() {
		x.turn.Window = 0
	}
	if len(m.results) > 0 {
		x.turn.Session = m.results[0].slot.session
	}
	var rest []finding
	for _, f := range m.results {
		if f.slot.session != x.turn.Session || len(x.findings) == claim.MaxKeys {
			rest = append(rest, f)
			continue
		}
		x.findings = append(x.findings, f)
		x.turn.Results = append(x.turn.Results, f.result)
	}
	m.results = rest
	if m.session != "" && x.turn.Session == m.session && !m.stopping {
		m.addBegins(x, now)
	}
	m.observed.Turns++
	m.observed.Keys += int64(len(x.findings) + len(x.begins))
	return x
}

func (m *machine) addBegins(x *exchange, now time.Duration) {
	most := m.limiter.allow(now, min(m.ahead(), claim.MaxKeys-len(x.findings)))
	begin := func(s *slot) {
		x.begins = append(x.begins, s)
		x.turn.Begin = append(x.turn.Begin, claim.Claim{Key: s.key, Term: s.term})
	}
	// Keys whose begin got no answer have a turn of their own.
	if again := m.unanswered(most); len(again) > 0 {
		x.turn.Anew = true
		for _, s := range again {
			begin(s)
		}
	} else {
		for _, f := range x.findings {
			if len(x.begins) < most && f.result.After == Next && f.slot.streak < m.cfg.Streak && m.shed == 0 {
				begin(f.slot)
			}
		}
		taken := 0
		for _, s := range m.waiting {
			if len(x.begins) >= most {
				break
			}
			if taken++; s.phase == ready {
				s.streak = 0
				begin(s)
			}
		}
		m.waiting = slices.Delete(m.waiting, 0, taken)
	}
	for _, s := range x.begins {
		if s.phase == ready {
			m.move(s, beginning)
		}
	}
	m.limiter.use(len(x.begins))
}

func (m *machine) unanswered(most int) (out []*slot) {
	for _, s := range m.waiting {
		if s.phase == ready && s.anew && len(out) < most {
			out = append(out, s)
		}
	}
	if len(out) > 0 {
		m.waiting = slices.DeleteFunc(m.waiting, func(s *slot) bool { return slices.Contains(out, s) })
	}
	return out
}

// turned is the store's answer to a turn.
func (m *machine) turned(now time.Duration, x *exchange, out Turned, err error, unknown bool) {
	if err != nil {
		m.failure(now)
		m.results = append(x.findings, m.results...)
		for _, s := range x.begins {
			s.anew = s.anew || unknown
			if s.phase == beginning {
				m.line(s)
			}
		}
		return
	}
	m.success()
	for i, f := range x.findings {
		m.settled(f, i < len(out.Settled) && out.Settled[i].Accepted)
	}
	begun := make(map[string]Assignment, len(out.Begun))
	for _, a := range out.Begun {
		begun[a.Key] = a
	}
	for _, f := range x.findings {
		if _, again := begun[f.slot.key]; !again {
			m.stands(now, f.slot, out.Standing[f.slot.key])
		}
	}
	for _, s := range x.begins {
		a, ok := begun[s.key]
		switch {
		case ok && a.Term == s.term:
			m.assigned(now, x, s, a)
		case s.phase == beginning:
			// Held, yet nothing was begun: it is in a step that we know nothing of.
			s.anew = out.Standing[s.key] == Held
			m.stands(now, s, out.Standing[s.key])
		}
	}
}

func (m *machine) settled(f finding, accepted bool) {
	if !accepted {
		// What we knew of the key is wrong; a begin tells what is right.
		f.slot.state, f.slot.anew = "", true
		m.observed.Ignored++
		return
	}
	m.observed.Recorded[f.result.State]++
	f.slot.state = f.result.State
	for _, o := range m.cfg.Observers {
		o.Changed(f.result)
	}
}

func (m *machine) assigned(now time.Duration, x *exchange, s *slot, a Assignment) {
	s.a, s.since, s.anew, s.state = a, x.sent, false, ""
	s.streak++
	switch {
	case a.Todo != Poll:
		m.move(s, begun)
		m.queued = append(m.queued, s)
	case m.rule.Semantics.Asks:
		s.state = Pending
		m.pend(s, now)
	default:
		// The queue had another target when it was taken.
		m.settle(s, m.rule.Judge(a, Answer{Outcome: Silent, Detail: unaskable}, m.cfg.Jitter()))
	}
}

// unaskable is the detail of a batch that another target has, for people.
const unaskable = "an earlier target took it and had not decided; the present one cannot be asked what became of it"

// stands puts a slot where the store says it stands.
func (m *machine) stands(now time.Duration, s *slot, standing Standing) {
	switch {
	case s.session != m.session || standing == Given || standing == Lost || standing == "":
		m.move(s, gone)
	case standing == Held && !s.anew && (s.state == Pending || s.state == Valid):
		s.a.Todo = Poll
		m.pend(s, now+m.cfg.PollEvery)
	case m.shed > 0 && !s.anew:
		m.shed--
		m.back(s)
	default:
		m.line(s)
	}
}
