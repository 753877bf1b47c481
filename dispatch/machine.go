package dispatch

import (
	"cmp"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/claim"
)

// machine decides what an instance does for one queue: it has no goroutine, no
// clock and no randomness of its own, and never waits. What it knows of the
// keys are hints, which each answer of the store corrects.
//
// Its runner tells it what happened, and then carries out what step returns.
// One request to the store is under way at a time; submissions go on beside it.
type machine struct {
	cfg    Config
	rule   Rule
	second time.Duration

	session  string // "" while there is none
	slots    map[ref]*slot
	waiting  []*slot // held, with more to send, in the order of their turns; gone ones are skipped
	queued   []*slot // begun, and not yet sent
	results  []finding
	give     []*slot // to be given back
	shed     int     // how many more to give back once their step is over
	limiter  limiter
	stopping bool

	lane   lane
	last   lane // what it was used for last
	failed int  // requests in a row that failed
	pause  time.Duration

	share    claim.Share
	found    finder
	joinAt   time.Duration
	takeAt   time.Duration
	look     time.Duration // pause between looks while work goes on
	woken    bool
	sleepy   bool // the last look found nothing
	asleep   bool // the store has been told that we sleep
	counts   [phases]int
	fast     bool          // submissions are answered quickly
	asking   int           // inquiries under way
	pollAt   time.Duration // when the first of them is due
	observed Stats
}

// ref names a claim: a key may be held anew while a step of an older claim on it
// is still under way.
type ref struct {
	key  string
	term int64
}

// phase of a slot.
type phase int

const (
	ready     phase = iota // waits for its turn, and has nothing under way
	beginning              // named in the turn that is under way
	begun                  // waits for a sender
	sending                // a sender has it
	settling               // its result is not recorded yet
	held                   // pending at the target
	gone
	phases
)

// slot is a claimed key.
type slot struct {
	ref
	session string
	phase   phase
	a       Assignment
	state   State         // of the head, as far as it was told
	since   time.Duration // when the turn that began the step was sent
	streak  int
	anew    bool // its begin got no answer
	pollAt  time.Duration
	polling bool
}

// finding is a result that is to be recorded.
type finding struct {
	slot   *slot
	result Result
}

// lane is what the one request to the store is for.
type lane int

const (
	laneFree lane = iota
	laneJoin
	laneTake
	laneTurn
	laneGive
	laneFind
)

// effect is what the runner has to do; exactly one field is set.
type effect struct {
	join *claim.Member
	take *claim.Want
	turn *exchange
	give *giving
	find *claim.Query
	send *slot
	ask  []*slot
}

// exchange is a turn with the slots it is about.
type exchange struct {
	turn     Turn
	findings []finding
	begins   []*slot
	sent     time.Duration
}

// giving is claims that go back.
type giving struct {
	session string
	claims  []claim.Claim
}

// Pauses of the machine.
const (
	joinEvery = time.Second           // membership, fair shares, rotation
	takeBusy  = 5 * time.Millisecond  // looks for keys while there is room and work goes on,
	takeLong  = 15 * time.Millisecond // less often when it finds nothing
	quick     = 50 * time.Millisecond // a submission that is answered quickly
)

func newMachine(cfg Config) *machine {
	return &machine{
		cfg: cfg, rule: cfg.rule(), second: cfg.Windows.Second,
		slots: map[ref]*slot{}, look: takeBusy, limiter: limiter{rate: cfg.Rate},
		observed: Stats{Queue: cfg.Name, Target: cfg.Target.Name(), Recorded: map[State]int64{}},
	}
}

// move puts a slot into another phase.
func (m *machine) move(s *slot, p phase) {
	if s.phase != gone {
		m.counts[s.phase]--
	}
	if s.phase = p; p != gone {
		m.counts[p]++
		return
	}
	delete(m.slots, s.ref)
}

func (m *machine) add(s *slot) {
	m.slots[s.ref] = s
	m.counts[s.phase]++
}

// line up for a turn.
func (m *machine) line(s *slot) {
	m.move(s, ready)
	m.waiting = append(m.waiting, s)
}

// live begins work under a session, and gone ends it: what was under way goes on,
// and its results still count for as long as nobody has taken the keys.
func (m *machine) live(session string) {
	if m.session = session; session == "" {
		m.asleep, m.sleepy = false, false
		for _, s := range m.slots {
			if s.phase == ready || s.phase == held {
				m.move(s, gone)
			}
		}
		return
	}
	m.joinAt, m.takeAt, m.woken = 0, 0, true
}

// wake says that a key may have become ready.
func (m *machine) wake() { m.woken, m.asleep = true, false }

// stop ends new work. What was sent goes on until its sender is told to end.
func (m *machine) stop() { m.stopping = true }

// done tells that everything has been given back.
func (m *machine) done() bool {
	return m.stopping && len(m.slots)+len(m.results)+len(m.give)+m.asking == 0 && m.lane == laneFree
}

// unsent records that this attempt was certainly not sent. What had to be asked
// about still has.
func (m *machine) unsent(s *slot, why string) {
	r := Result{Key: s.key, Term: s.term, Seq: s.a.Seq, State: Unknown, After: Again, Attempt: s.a.Attempt, Detail: why}
	if s.a.Todo == Send {
		r.State, r.Attempt = Delayed, max(0, s.a.Attempt-1)
	}
	m.settle(s, r)
}

func (m *machine) settle(s *slot, r Result) {
	m.move(s, settling)
	m.results = append(m.results, finding{s, r})
}

// step returns what is to be done now.
func (m *machine) step(now time.Duration) (out []effect) {
	out = m.sends(now, out)
	out = m.polls(now, out)
	if m.stopping {
		m.leave()
	}
	if m.lane != laneFree || now < m.pause {
		return out
	}
	e, used := m.request(now)
	if used == laneFree {
		return out
	}
	m.lane, m.last = used, used
	return append(out, e)
}

// leave gives back all that has nothing under way.
func (m *machine) leave() {
	var free []*slot
	for _, s := range m.slots {
		if s.phase == ready || s.phase == held && !s.polling {
			free = append(free, s)
		}
	}
	slices.SortFunc(free, func(a, b *slot) int { return cmp.Compare(a.key, b.key) })
	for _, s := range free {
		m.back(s)
	}
}

// back marks a slot to be given back.
func (m *machine) back(s *slot) {
	m.move(s, gone)
	m.give = append(m.give, s)
}

// request chooses what to ask of the store next.
func (m *machine) request(now time.Duration) (effect, lane) {
	joins := m.session != "" && !m.stopping && now >= m.joinAt
	takes := m.takes(now)
	turns := len(m.results) > 0 || m.session != "" && !m.stopping && m.begins(now)
	switch {
	case joins && m.last != laneJoin:
		return m.join(now), laneJoin
	case m.found.wanted && m.session != "" && m.last != laneFind:
		return effect{find: m.find()}, laneFind
	case len(m.give) > 0 && m.last != laneGive:
		return effect{give: m.giving()}, laneGive
	case turns && (m.last != laneTurn || !takes):
		return effect{turn: m.exchange(now)}, laneTurn
	case takes:
		return effect{take: m.want()}, laneTake
	case len(m.give) > 0:
		return effect{give: m.giving()}, laneGive
	case turns:
		return effect{turn: m.exchange(now)}, laneTurn
	case joins:
		return m.join(now), laneJoin
	}
	return effect{}, laneFree
}

func (m *machine) join(now time.Duration) effect {
	m.joinAt = now + joinEvery
	m.asleep = m.sleepy && m.idle()
	return effect{join: &claim.Member{Space: Space(m.cfg.Name), Session: m.session, Asleep: m.asleep}}
}

// idle tells that nothing is under way but what the target decides.
func (m *machine) idle() bool {
	return m.counts[ready]+m.counts[beginning]+m.counts[begun]+m.counts[sending]+m.counts[settling] == 0
}

func (m *machine) giving() *giving {
	g := &giving{session: m.give[0].session}
	var rest []*slot
	for _, s := range m.give {
		if s.session != g.session || len(g.claims) == claim.MaxKeys {
			rest = append(rest, s)
			continue
		}
		g.claims = append(g.claims, claim.Claim{Key: s.key, Term: s.term})
	}
	m.give = rest
	return g
}

// failure of a request: the next waits a little, longer each time.
func (m *machine) failure(now time.Duration) {
	m.lane = laneFree
	m.failed++
	m.observed.Failures++
	pause := Backoff{First: 20 * time.Millisecond, Most: 2 * time.Second}.Pause(m.failed, m.cfg.Jitter())
	m.pause = now + pause
}

func (m *machine) success() {
	m.lane, m.failed, m.pause = laneFree, 0, 0
}

// next is when step is to be called again if nothing happens before.
func (m *machine) next(now time.Duration) time.Duration {
	at := now + joinEvery
	if m.counts[held] > 0 && m.asking < m.cfg.Concurrency {
		at = min(at, m.pollAt)
	}
	if m.lane != laneFree {
		return max(at, now) // its answer comes first
	}
	if m.session != "" && !m.stopping {
		at = min(at, m.joinAt)
		if m.room() > 0 {
			at = min(at, m.takeAt)
		}
		if m.cfg.Rate > 0 && m.counts[ready] > 0 && m.ahead() > 0 {
			at = min(at, m.limiter.next(now))
		}
	}
	return max(at, m.pause, now)
}
