package protocol

import (
	"container/heap"
	"time"
)

// Setup is what a machine starts with.
type Setup struct {
	// Self is the peer's url.
	Self string
	// State is the membership as stored, or, at the first start, the configuration
	// that the peer was started with. Number 0: it is no member yet, and its
	// members are whom to reach.
	State MembershipState
	// Keeps is that what is saved outlives a restart.
	Keeps bool
	// Incarnation is random at every start, and not 0.
	Incarnation uint64
	// Ceiling and Removals are as stored.
	Ceiling int64
	// Floor counts as used at the start, without being stored: where nothing was, the
	// wall clock and [Timings.Reach], because a removal reaches so far ahead.
	Floor    int64
	Removals []Removal
	// Timings are complete and valid.
	Timings Timings
	// Jitter is the part of a time to live that is taken off at random, 0 to 0.5.
	Jitter float64
	// Mixed counts peers that never said Hello as peers of the original, whose votes
	// bind as long as their link is up. It weakens what is promised.
	Mixed bool
	// Passive is that this peer never fetches.
	Passive bool
	// MaxWaiting bounds the Gets that wait.
	MaxWaiting int
	Table      Table
	// Rand is a source of numbers from 0 up to 1.
	Rand func() float64
}

// Machine is one peer's side of the protocol. It is not safe for concurrent use.
type Machine struct {
	Setup

	council *council
	config  Config
	digest  uint64 // of its members

	now     Now
	effects []Effect
	kept    []Effect // of the start, for the first step

	keys    map[string]*key
	timers  timers
	waiters map[Token]*waiter
	peers   map[string]*peer
	busy    int // keys for which this peer stands or fetches

	floor   int64 // terms up to it may have been used before the start
	ceiling int64
	raising int64   // asked for and not answered; 0: nothing
	parked  []Heard // questions that wait for the ceiling
	waiting []*key  // candidacies that wait for the ceiling

	abstain     time.Duration // votes for nobody before
	grace       time.Duration // whoever asks waits for the links until then
	helloAt     time.Duration
	partitioned bool
	pingAt      time.Duration
	pongs       map[string]bool
	behind      time.Duration // since when others have said a higher configuration; 0: they do not
	alone       bool          // no majority was connected at the last look

	removals removals
	counters Counters
}

// New is a machine at its start: the first Step may come at any time.
func New(now Now, s Setup) *Machine {
	m := &Machine{
		Setup:   s,
		now:     now,
		keys:    map[string]*key{},
		waiters: map[Token]*waiter{},
		peers:   map[string]*peer{},
		floor:   max(s.Ceiling, s.Floor),
		ceiling: s.Ceiling,
		pongs:   map[string]bool{},
		helloAt: now.Boot,
		grace:   now.Boot + s.Timings.Source,
		alone:   true,
	}
	terms := func() int64 { return max(m.ceiling, m.floor) }
	m.council = newCouncil(s.Self, s.State, s.Keeps, s.Timings.Source, terms, s.Rand)
	m.adopt(s.State.Config)
	for _, member := range m.config.Members {
		if member.URL != s.Self {
			m.peers[member.URL] = &peer{since: now.Boot}
		}
	}
	if len(m.peers) > 0 {
		m.abstain = now.Boot + s.Timings.Source
	}
	m.removals.restore(s.Removals)
	for _, r := range s.Removals {
		m.clean(r) // what was removed, and stored again at a crash
	}
	m.alone = !m.quorate()
	m.kept, m.effects = m.effects, nil
	return m
}

// Step tells the machine what happened and returns what to do about it. The slice
// is valid until the next Step. What has become due comes first: a peer that was
// paused learns what it may no longer do before it does anything.
func (m *Machine) Step(now Now, in Input) []Effect {
	now.Boot = max(now.Boot, m.now.Boot)
	clear(m.effects)
	m.now, m.effects, m.kept = now, append(m.effects[:0], m.kept...), nil
	m.due()
	switch in := in.(type) {
	case Get:
		m.get(in)
	case Cancel:
		m.cancel(in.Token)
	case Heard:
		m.heard(in)
	case Fetched:
		m.fetched(in)
	case Raised:
		m.raised(in)
	case Link:
		m.link(in)
	case RemoveKeys:
		m.removeKeys(in)
	case Change:
		m.agree(m.council.propose(m.now, in))
	case Tick:
	}
	return m.effects
}

// Next is when, on the boot clock, a [Tick] is wanted.
func (m *Machine) Next() time.Duration {
	next := m.helloAt
	if len(m.timers) > 0 {
		next = min(next, m.timers[0].due)
	}
	if m.partitioned {
		next = min(next, m.pingAt)
	}
	if m.abstaining() {
		next = min(next, m.abstain)
	}
	if m.grace > m.now.Boot {
		next = min(next, m.grace)
	}
	if at, ok := m.council.next(); ok {
		next = min(next, at)
	}
	return min(next, m.removals.next())
}

// due does what the passing of time asks for.
func (m *Machine) due() {
	for len(m.timers) > 0 && m.timers[0].due <= m.now.Boot {
		m.lapse(m.timers[0])
	}
	if m.helloAt <= m.now.Boot {
		m.helloAt = m.now.Boot + m.Timings.Hello
		m.greet("")
	}
	if m.partitioned && m.pingAt <= m.now.Boot {
		m.ping()
	}
	if m.grace != 0 && m.grace <= m.now.Boot {
		m.grace = 0
		m.links()
	}
	if at, ok := m.council.next(); ok && at <= m.now.Boot {
		m.agree(m.council.tick(m.now))
	}
	m.spreadRemovals()
}

func (m *Machine) heard(in Heard) {
	from, known := m.peers[in.From]
	switch msg := in.Message.(type) {
	case Hello:
		if known {
			m.hello(in.From, from, msg)
		} else {
			m.agree(m.council.hello(m.now, in.From, msg.Config, msg.Keeps))
		}
		return
	case Membership:
		m.agree(m.council.heard(m.now, in.From, msg))
		return
	case Pong:
		if known {
			m.pong(in.From)
		}
		return
	case Ping:
		if known {
			m.send(in.From, Pong{})
		}
		return
	}
	if !known || from.stranger || !m.member() {
		m.counters.Ignored++
		return
	}
	switch msg := in.Message.(type) {
	case Question:
		m.question(in.From, msg)
	case Answer:
		m.answer(in.From, msg)
	case Announce:
		m.announced(in.From, msg)
	case Ack:
		m.acknowledged(in.From, msg)
	case Release:
		m.released(in.From, msg)
	case Failed:
		m.failedElsewhere(in.From, msg)
	case Update:
		m.update(in.From, msg)
	case EntryReq:
		if e := m.Table.Get(msg.Key); e.Held() {
			m.send(in.From, Update{msg.Key, e})
		}
	case Remove:
		m.remove(in.From, msg.Removal)
	case Removed:
		m.confirmed(in.From, msg.Removal)
	}
}

func (m *Machine) emit(e Effect) { m.effects = append(m.effects, e) }

func (m *Machine) send(to string, msg Message) {
	if to != "" || len(m.peers) > 0 {
		m.emit(Send{to, msg})
	}
}

// member is whether this peer is one of those that agree.
func (m *Machine) member() bool { return m.config.Number > 0 && m.config.Has(m.Self) }

func (m *Machine) abstaining() bool { return m.now.Boot < m.abstain }

// dayAhead bounds the terms that are believed: they start from wall clocks.
const dayAhead = int64(24 * time.Hour / time.Millisecond)

// absurd is whether a term cannot be: learned, it would stay for ever.
func (m *Machine) absurd(term int64) bool { return term < 0 || term > m.now.Wall+dayAhead }

// raise sees to it that terms up to need, and those of the near future, are safe
// from a restart; it reports whether need is so already. Terms that are ahead of the
// clock get no lead but a few: every restart begins above the ceiling, and a peer that
// restarts again and again would run away from the clock.
func (m *Machine) raise(need int64) bool {
	lead := m.Timings.Source.Milliseconds()
	if soon := max(need+fewTerms/2, min(need, m.now.Wall)+lead); m.raising == 0 && soon > m.ceiling {
		m.raising = max(need+fewTerms, m.now.Wall+2*lead)
		m.emit(Raise{m.raising})
	}
	return need <= m.ceiling
}

// fewTerms are what a ceiling that is ahead of the clock has in reserve.
const fewTerms = 100

// raised goes on with what waited for the ceiling.
func (m *Machine) raised(in Raised) {
	m.raising = 0
	parked, waiting := m.parked, m.waiting
	m.parked, m.waiting = nil, nil
	if in.Err != "" {
		for _, k := range waiting {
			if k.state == Candidate && !k.asked {
				m.move(k, Idle, "", "terms cannot be stored")
				m.refuseAll(k, Broken, "this peer cannot store what it must not forget: "+in.Err, m.Timings.FailMin)
				m.arm(k)
			}
		}
		return
	}
	m.ceiling = max(m.ceiling, in.To)
	for _, h := range parked {
		m.heard(h)
	}
	for _, k := range waiting {
		if k.state == Candidate && !k.asked {
			// In the term that has waited, where it still is new: the clock, which has
			// gone on, may be above the ceiling again.
			if k.term > max(m.used(k.name), k.highest) && k.term <= m.ceiling && m.quorate() && !m.partitioned && m.member() {
				m.ask(k)
			} else {
				m.move(k, Idle, "", "")
				m.stand(k)
			}
			m.arm(k)
		}
	}
}

// timers is a heap of keys by what is due first.
type timers []*key

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].due < t[j].due }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i]; t[i].at, t[j].at = i, j }

// Push implements [heap.Interface].
func (t *timers) Push(x any) {
	k := x.(*key)
	k.at = len(*t)
	*t = append(*t, k)
}

// Pop implements [heap.Interface].
func (t *timers) Pop() any {
	old := *t
	k := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	k.at = -1
	return k
}

// arm sets when a key is looked at next, and forgets a key of which nothing is left
// to remember.
func (m *Machine) arm(k *key) {
	k.due = m.next(k)
	switch {
	case k.due == never && k.at >= 0:
		heap.Remove(&m.timers, k.at)
	case k.due == never:
	case k.at >= 0:
		heap.Fix(&m.timers, k.at)
	default:
		heap.Push(&m.timers, k)
	}
	if k.due == never && k.state == Idle && len(k.waiters) == 0 && !k.wanted {
		delete(m.keys, k.name)
	}
}
