package dispatch

import (
	"time"

	"github.com/understudy-ha/understudy/claim"
)

// room is how many more keys may be claimed.
func (m *machine) room() int { return min(claim.MaxKeys, m.cfg.Most-len(m.slots)) }

// takes tells whether to look for keys.
func (m *machine) takes(now time.Duration) bool {
	if m.session == "" || m.stopping || m.room() <= 0 {
		return false
	}
	return m.woken || now >= m.takeAt
}

func (m *machine) want() *claim.Want {
	m.woken = false
	room := m.room()
	return &claim.Want{
		Space: Space(m.cfg.Name), Session: m.session, Most: room, Fresh: m.share.Fresh(room), Linger: claim.Linger,
	}
}

// taken is the store's answer to take.
func (m *machine) taken(now time.Duration, w claim.Want, claims []claim.Claim, err error) {
	if err != nil {
		m.woken = true
		m.failure(now)
		return
	}
	m.success()
	if m.sleepy = len(claims) == 0; m.sleepy {
		m.look = min(2*m.look, takeLong)
	} else {
		m.look = takeBusy
	}
	m.asleep = m.asleep && m.sleepy
	for _, c := range claims {
		if c.Interrupted {
			m.observed.TakenOver++
		}
		s := &slot{ref: ref{c.Key, c.Term}, session: w.Session, phase: ready}
		m.add(s)
		m.waiting = append(m.waiting, s)
	}
	switch {
	case len(claims) == w.Most:
		m.takeAt = now // there may be more
	case m.counts[ready] >= m.cfg.Concurrency:
		m.takeAt = now + claim.Linger
	case !m.idle():
		m.takeAt = now + m.look
	case w.Fresh < w.Most && m.share.Free:
		m.takeAt = now + claim.Linger
	default:
		m.takeAt = now + claim.LookEvery
		if !m.asleep {
			m.joinAt = now // to say that we sleep, and to look once more
		}
	}
}

// joined is the store's answer to join: fair shares are struck here, and keys that
// had their turn make room for others that wait.
func (m *machine) joined(now time.Duration, share claim.Share, err error) {
	if err != nil {
		m.asleep = false
		m.failure(now)
		return
	}
	m.success()
	m.share, m.shed = share, 0
	m.found.compare(share.Mine, m.mine())
	if m.asleep {
		m.woken = true // what became ready before the store knew that we sleep
	}
	surplus := share.Surplus()
	if surplus == 0 && share.Free && m.room() <= 0 {
		m.rotate()
		return
	}
	given := m.giveBack(surplus, func(*slot) bool { return true })
	m.shed = surplus - given
	m.observed.GivenBack += int64(surplus)
}

// rotate gives back keys that had their turn, for others that wait unclaimed.
func (m *machine) rotate() {
	m.giveBack(max(1, m.cfg.Most/4), func(s *slot) bool { return s.streak > 0 })
}

// giveBack gives up to n of the keys back that wait, those whose turn is last
// first, and returns how many.
func (m *machine) giveBack(n int, may func(*slot) bool) (given int) {
	for i := len(m.waiting) - 1; i >= 0 && given < n; i-- {
		if s := m.waiting[i]; s.phase == ready && may(s) {
			m.back(s)
			given++
		}
	}
	return given
}

// gave is the store's answer to give.
func (m *machine) gave(now time.Duration, g giving, err error) {
	if err == nil {
		m.success()
		return
	}
	m.failure(now)
	for _, c := range g.claims { // once more; what was done already has no effect
		m.give = append(m.give, &slot{ref: ref{c.Key, c.Term}, session: g.session, phase: gone})
	}
}

// finder notices keys that the store has given to this session in an answer
// that never came. Nobody else may take them while the session lives.
type finder struct {
	more   int    // times in a row that the store counted more keys than are known
	wanted bool   // look which they are
	after  string // where the look goes on
}

func (f *finder) compare(counted, known int) {
	if f.more++; counted <= known {
		f.more = 0
	}
	// Twice: a request that was given up may still be carried out.
	f.wanted = f.more > 1
}

// mine is how many keys the store should count as held by the session.
func (m *machine) mine() (n int) {
	for _, s := range m.slots {
		if s.session == m.session {
			n++
		}
	}
	for _, s := range m.give {
		if s.session == m.session {
			n++
		}
	}
	return n
}

func (m *machine) find() *claim.Query {
	m.found.wanted = false
	return &claim.Query{Space: Space(m.cfg.Name), Session: m.session, After: m.found.after, Limit: claim.MaxKeys}
}

// listed is the store's answer to find. A step on a key that nobody here knows
// of was begun by a turn without an answer: nothing was sent for it.
func (m *machine) listed(now time.Duration, q claim.Query, rows []claim.Row, err error) {
	if err != nil {
		m.failure(now)
		return
	}
	m.success()
	m.found.after = ""
	if len(rows) == q.Limit {
		m.found.after = rows[len(rows)-1].Key
	}
	giving := map[ref]bool{}
	for _, s := range m.give {
		giving[s.ref] = true
	}
	for _, row := range rows {
		at := ref{row.Key, row.Term}
		if m.slots[at] != nil || giving[at] || q.Session != m.session {
			continue
		}
		s := &slot{ref: at, session: q.Session, phase: ready, anew: row.InStep}
		m.add(s)
		m.waiting = append(m.waiting, s)
	}
}

// limiter bounds how many submissions begin in a second. Its zero rate does not.
type limiter struct {
	rate   float64
	tokens float64
	at     time.Duration
	ran    bool
}

// allow tells how many may begin now, at most n.
func (l *limiter) allow(now time.Duration, n int) int {
	if l.rate == 0 {
		return n
	}
	l.fill(now)
	return min(n, int(l.tokens))
}

func (l *limiter) fill(now time.Duration) {
	if !l.ran {
		l.ran, l.at, l.tokens = true, now, 1
	}
	burst := max(1, l.rate/10)
	l.tokens = min(burst, l.tokens+(now-l.at).Seconds()*l.rate)
	l.at = now
}

func (l *limiter) use(n int) { l.tokens -= float64(n) }

// next is when one more may begin.
func (l *limiter) next(now time.Duration) time.Duration {
	if l.rate == 0 {
		return now
	}
	l.fill(now)
	if l.tokens >= 1 {
		return now
	}
	return now + time.Duration((1-l.tokens)/l.rate*float64(time.Second)) + time.Millisecond
}
