package dispatch

import (
	"cmp"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/claim"
)

// machine decides what an instance does for one queue. It has no goroutine, no
// clock and no randomness of its own, and never waits. What it knows of the keys is
// a hint, which each answer of the store corrects. Times are readings of the keeper's clock
// ([lease.Clock]), never times of day.
//
// Its runner calls a handle… method for each event, and then carries out the
// effects that step returns. One request to the store is in flight at a time;
// submissions continue beside it.
type machine struct {
	cfg    Config
	rule   Rule
	window time.Duration

	session    string // "" while there is none
	slots      map[ref]*slot
	readySlots []*slot // claimed, with more to send, first in first out; gone ones are skipped
	toSend     []*slot // started, and not yet sent
	results    []unrecordedResult
	toRelease  []*slot // to be released
	surplus    int     // how many more to release once their step has ended
	limiter    limiter
	stopping   bool

	underWay requestKind // the one request to the store
	last     requestKind // the kind of the one before
	failed   int         // requests in a row that failed
	pause    time.Duration

	share         claim.Share
	unknownKeys   keyFinder
	retries       dueTimes
	refusals      refusals
	losses        counters // the target had taken it and then did not know it
	unanswered    counters // status queries in a row that brought nothing
	pace          pace
	joinAt        time.Duration
	claimAt       time.Duration
	claimPause    time.Duration // pause between claims while work continues
	woken         bool
	foundNothing  bool // the last claim found nothing
	asleep        bool // the store was told to wake this instance
	counts        [phases]int
	stuck         int           // slots whose message is stuck
	fast          bool          // submissions are answered quickly
	pollsInFlight int           // status queries in flight
	pollAt        time.Duration // when the first of them is due
	observed      Stats
	onRecorded    func(id string, r Result)
}

// ref names a claim: a key may be claimed again while a step under an older claim
// on it is still in progress.
type ref struct {
	key  string
	term int64
}

// phase of a slot.
type phase int

const (
	ready        phase = iota // waits for its turn, and has nothing in progress
	starting                  // named in the exchange in flight
	awaitsSender              // started; waits for a sender
	sending                   // a sender has it
	recording                 // its result is not recorded yet
	atTarget                  // the target has its head and has not decided: it is polled
	gone
	phases
)

// slot is a claimed key.
type slot struct {
	ref
	session    string
	phase      phase
	assignment Assignment
	state      State         // of the head, as far as it is known
	stepSent   time.Duration // when the exchange that started the step was sent
	streak     int
	restart    bool // its start got no answer
	pollAt     time.Duration
	polling    bool
	early      bool          // asked along with others, before its time
	asked      int           // status queries about the head since this instance has the key
	since      time.Duration // since when the target has the head
	stuckAt    time.Duration // when it was recorded that the target does not decide; 0: it was not
}

// unrecordedResult is a result that is not recorded yet.
type unrecordedResult struct {
	slot   *slot
	result Result
}

// requestKind is what the one request to the store is for.
type requestKind int

const (
	noRequest requestKind = iota
	requestJoin
	requestClaim
	requestExchange
	requestRelease
	requestList
)

// effect is what the runner must do; exactly one field is set.
type effect struct {
	join      *claim.Member
	claimKeys *claim.ClaimRequest
	exchange  *exchangeRequest
	release   *releaseRequest
	list      *claim.Query
	send      *slot
	poll      []*slot
}

// exchangeRequest is an exchange with the slots that it concerns.
type exchangeRequest struct {
	body    Exchange
	results []unrecordedResult
	starts  []*slot
	sent    time.Duration
}

// releaseRequest is claims to release.
type releaseRequest struct {
	session string
	claims  []claim.Claim
}

// Pauses of the machine.
const (
	joinEvery  = time.Second           // membership, fair shares, rotation
	claimBusy  = 5 * time.Millisecond  // claims while there is room and work continues,
	claimSlow  = 15 * time.Millisecond // less often when it finds nothing
	fastAnswer = 50 * time.Millisecond // a submission that is answered quickly
)

func newMachine(cfg Config) *machine {
	return &machine{
		cfg: cfg, rule: cfg.rule(), window: cfg.Windows.Second,
		slots: map[ref]*slot{}, refusals: refusals{}, losses: counters{}, unanswered: counters{}, pace: newPace(cfg.PollInterval), claimPause: claimBusy, limiter: limiter{rate: cfg.Rate},
		observed: Stats{Queue: cfg.Name, Target: cfg.Target.Name(), Recorded: map[State]int64{}},
	}
}

// setPhase puts a slot into another phase.
func (m *machine) setPhase(s *slot, p phase) {
	if p == gone {
		m.setStuck(s, 0)
	}
	if s.phase != gone {
		m.counts[s.phase]--
	}
	if s.phase = p; p != gone {
		m.counts[p]++
		return
	}
	delete(m.slots, s.ref)
}

// setStuck says since when it is recorded that the target does not decide; 0: it is not.
func (m *machine) setStuck(s *slot, at time.Duration) {
	switch {
	case s.phase == gone:
		return
	case at > 0 && s.stuckAt == 0:
		m.stuck++
	case at == 0 && s.stuckAt > 0:
		m.stuck--
	}
	s.stuckAt = at
}

func (m *machine) addSlot(s *slot) {
	m.slots[s.ref] = s
	m.counts[s.phase]++
}

// makeReady queues a slot for its next message.
func (m *machine) makeReady(s *slot) {
	m.setPhase(s, ready)
	m.readySlots = append(m.readySlots, s)
}

// setSession starts work under a session, or ends it (""): what is in flight goes on,
// and its results count as long as no other instance has taken the keys.
func (m *machine) setSession(session string) {
	if m.session = session; session == "" {
		m.asleep, m.foundNothing = false, false
		for _, s := range m.slots {
			if s.phase == ready || s.phase == atTarget {
				m.setPhase(s, gone)
			}
		}
		return
	}
	m.joinAt, m.claimAt, m.woken = 0, 0, true
}

// wakeUp says that a key may have become ready.
func (m *machine) wakeUp() { m.woken, m.asleep = true, false }

// stop ends new work. What was sent continues until its context ends.
func (m *machine) stop() { m.stopping = true }

// isDone reports that everything has been released.
func (m *machine) isDone() bool {
	return m.stopping && len(m.slots)+len(m.results)+len(m.toRelease)+m.pollsInFlight == 0 && m.underWay == noRequest
}

// recordUnsent records that this attempt was certainly not sent. A message whose status
// had to be queried is still unknown, for the reason that it was: it may have been sent before.
func (m *machine) recordUnsent(s *slot, why string) {
	a := s.assignment
	r := Result{Key: s.key, Term: s.term, Seq: a.Seq, State: Unknown, After: RetryLater, Attempt: a.Attempt, Code: a.Code, Detail: a.Detail}
	if a.Work == Send {
		r.State, r.Attempt, r.Code, r.Detail = Delayed, max(0, a.Attempt-1), 0, why
	}
	m.queueResult(s, r)
}

func (m *machine) queueResult(s *slot, r Result) {
	m.setPhase(s, recording)
	m.results = append(m.results, unrecordedResult{s, r})
}

// step returns what to do now.
func (m *machine) step(now time.Duration) (out []effect) {
	out = m.startSends(now, out)
	out = m.startPolls(now, out)
	if m.stopping {
		m.releaseIdle()
	}
	if m.underWay != noRequest || now < m.pause {
		return out
	}
	e, kind := m.nextRequest(now)
	if kind == noRequest {
		return out
	}
	m.underWay, m.last = kind, kind
	return append(out, e)
}

// releaseIdle releases every key that has nothing in flight.
func (m *machine) releaseIdle() {
	var free []*slot
	for _, s := range m.slots {
		if s.phase == ready || s.phase == atTarget && !s.polling {
			free = append(free, s)
		}
	}
	slices.SortFunc(free, func(a, b *slot) int { return cmp.Compare(a.key, b.key) })
	for _, s := range free {
		m.releaseLater(s)
	}
}

// releaseLater marks a slot for release.
func (m *machine) releaseLater(s *slot) {
	m.setPhase(s, gone)
	m.toRelease = append(m.toRelease, s)
}

// nextRequest chooses the next request to the store. Each kind yields to the others
// once it was the last (m.last), so that none starves: a busy queue still joins, and
// releases what others lack.
func (m *machine) nextRequest(now time.Duration) (effect, requestKind) {
	shouldJoin := m.session != "" && !m.stopping && now >= m.joinAt
	shouldClaim := m.shouldClaim(now)
	shouldExchange := len(m.results) > 0 || m.session != "" && !m.stopping && m.hasStarts(now)
	switch {
	case shouldJoin && m.last != requestJoin:
		return m.joinRequest(now), requestJoin
	case m.unknownKeys.wanted && m.session != "" && m.last != requestList:
		return effect{list: m.listRequest()}, requestList
	case len(m.toRelease) > 0 && m.last != requestRelease:
		return effect{release: m.nextRelease()}, requestRelease
	case shouldExchange && (m.last != requestExchange || !shouldClaim):
		return effect{exchange: m.nextExchange(now)}, requestExchange
	case shouldClaim:
		return effect{claimKeys: m.claimRequest(now)}, requestClaim
	case len(m.toRelease) > 0:
		return effect{release: m.nextRelease()}, requestRelease
	case shouldExchange:
		return effect{exchange: m.nextExchange(now)}, requestExchange
	case shouldJoin:
		return m.joinRequest(now), requestJoin
	}
	return effect{}, noRequest
}

func (m *machine) joinRequest(now time.Duration) effect {
	m.joinAt = now + joinEvery
	m.asleep = m.foundNothing && m.isIdle()
	return effect{join: &claim.Member{Space: Space(m.cfg.Name), Session: m.session, Asleep: m.asleep}}
}

// isIdle reports that nothing is in progress but what the target decides.
func (m *machine) isIdle() bool {
	return m.counts[ready]+m.counts[starting]+m.counts[awaitsSender]+m.counts[sending]+m.counts[recording] == 0
}

func (m *machine) nextRelease() *releaseRequest {
	req := &releaseRequest{session: m.toRelease[0].session}
	var rest []*slot
	for _, s := range m.toRelease {
		if s.session != req.session || len(req.claims) == claim.MaxKeys {
			rest = append(rest, s)
			continue
		}
		req.claims = append(req.claims, claim.Claim{Key: s.key, Term: s.term})
	}
	m.toRelease = rest
	return req
}

// requestEnded makes way for the next request and reports whether this one succeeded. After a failure the next one
// waits, longer each time.
func (m *machine) requestEnded(now time.Duration, err error) bool {
	m.underWay = noRequest
	if err == nil {
		m.failed, m.pause = 0, 0
		return true
	}
	m.failed++
	m.observed.Failures++
	m.pause = now + RetryPolicy{Initial: 20 * time.Millisecond, Max: 2 * time.Second}.Pause(m.failed, m.cfg.Jitter())
	return false
}

// nextWake is when step must be called again if nothing happens before.
func (m *machine) nextWake(now time.Duration) time.Duration {
	at := now + joinEvery
	if m.counts[atTarget] > 0 && m.pollsInFlight < m.cfg.Concurrency && !m.stopping {
		at = min(at, m.pollAt)
	}
	if m.underWay != noRequest {
		return max(at, now) // its answer comes first
	}
	if m.session != "" && !m.stopping {
		at = min(at, m.joinAt)
		if m.room() > 0 {
			at = min(at, m.claimAt, m.retries.next())
		}
		if m.cfg.Rate > 0 && m.counts[ready] > 0 && m.startBudget() > 0 {
			at = min(at, m.limiter.next(now))
		}
	}
	return max(at, m.pause, now)
}
