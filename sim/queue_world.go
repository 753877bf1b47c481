package sim

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store/memory"
)

const queueName = "q"

// QueueSetup is one run of a queue: its instances, its target, and what may
// befall them.
type QueueSetup struct {
	Seed   uint64
	Nodes  int
	Keys   int
	Length time.Duration // for which there are faults
	// Dispatch is what the instances are told, save who they are.
	Dispatch dispatch.Config
	// Target is what the target can do and declares.
	Target dispatch.Semantics
	// Compares: the target refuses requests under an older term than it has seen for the key.
	Compares bool
	// Decides later: the chance that a batch is only accepted at first.
	Decides float64
	// Invalid is the chance that the target refuses a batch for good.
	Invalid float64
	// Store and Wire are the networks between an instance and the store, and
	// between it and the target.
	Store, Wire leasetest.Network
	// Breaks is the chance that the sender hears of a broken connection while its
	// request continues.
	Breaks float64
	// Freezes has instances frozen at any point, Steps the store's clock stepped.
	Freezes, Steps bool
	Twin           QueueTwin
	// Trace, when not nil, is told what happens, for whoever replays a seed.
	Trace func(format string, args ...any)
}

// DrawQueue returns the run of a seed.
func DrawQueue(seed uint64) QueueSetup {
	d := newDice(seed, 0x71756575)
	first := []time.Duration{1200 * time.Millisecond, 6 * time.Second}[d.n(2)]
	submit := d.between(500*time.Millisecond, 4*time.Second)
	s := QueueSetup{
		Seed: seed, Nodes: 2 + d.n(4), Keys: 1 + d.n(8), Length: d.between(5*first, 10*first+5*time.Second),
		Target:   dispatch.Semantics{Resend: d.hit(0.5), HasStatus: d.hit(0.6), StatusLimit: 1 + d.n(4)},
		Compares: d.hit(0.3), Invalid: 0.05,
	}
	s.Target.Forgets = d.hit(0.3)
	s.Dispatch = dispatch.Config{
		Name: queueName, SubmitTimeout: submit, StopGrace: d.upTo(submit),
		Windows:     claim.Windows{First: first, Second: max(first, submit+2*time.Second+1) + d.upTo(first)},
		Concurrency: 1 + d.n(6), MaxKeys: 1 + d.n(2*s.Keys), Streak: 1 + d.n(5),
		PollInterval: d.between(100*time.Millisecond, time.Second), KeepFor: -1,
		OnFailure: []dispatch.OnFailure{dispatch.OnFailureDefault, dispatch.OnFailureBlock, dispatch.OnFailureSkip, dispatch.OnFailureRetry}[d.n(4)],
		Retry:     dispatch.RetryPolicy{Initial: d.between(10*time.Millisecond, 500*time.Millisecond), Max: 2 * time.Second, Attempts: []int{-1, 3, 10}[d.n(3)]},
	}
	if s.Dispatch.OnFailure == dispatch.OnFailureRetry {
		s.Invalid = 0 // what is refused for good would be tried for ever
	} else if d.hit(0.2) {
		s.Dispatch.Retry.MaxAge = d.between(time.Second, 20*time.Second)
	}
	if d.hit(0.2) {
		s.Dispatch.Rate = float64(5 + d.n(50))
	}
	if d.hit(0.2) {
		s.Dispatch.KeepFor = first
	}
	s.Target.Deduplicates = s.Target.Resend && d.hit(0.8)
	if s.Target.HasStatus {
		s.Decides = []float64{0, 0.5, 1}[d.n(3)]
	}
	s.Freezes = d.hit(0.4)
	s.Steps = s.Target.Deduplicates && d.hit(0.2)
	s.networks(d)
	return s
}

// networks makes them bad, most of the time. A target that does not recognise ids
// acts on a request within the deadline or never: nothing can be promised of one
// that does not.
func (s *QueueSetup) networks(d *dice) {
	s.Store.MaxDelay = d.upTo(s.Dispatch.Windows.Timing().CallTimeout() / 3)
	s.Wire.MaxDelay = d.upTo(s.Dispatch.SubmitTimeout / 6)
	if d.hit(0.7) {
		s.Store.Lose = 0.1 * float64(d.n(101)) / 100
		s.Store.Refuse, s.Store.Duplicate, s.Store.Late, s.Store.LoseWake = 0.02, 0.04, 0.03, 0.2
	}
	if d.hit(0.7) {
		s.Wire.Lose, s.Wire.Refuse, s.Breaks = 0.05, 0.05, 0.1
	}
	if s.Target.Deduplicates && d.hit(0.7) {
		s.Wire.Duplicate, s.Wire.Late = 0.04, 0.03
	}
}

// QueueResult is what a run came to.
type QueueResult struct {
	Broken    []string // promises, each with what happened
	Messages  int
	Scheduled int // batches that joined their keys at their time
	Submitted int // requests of senders
	Asked     int // batches started whose fate was asked for first
	TakenOver int // keys taken from one who had lapsed
	Blocked   int // times that a key waited for a person
	Apart     int // requests of senders that were past their time
	// Settle is how long after the last fault all was delivered or shown to a person.
	Settle time.Duration
}

type queueWorld struct {
	setup   QueueSetup
	dice    *dice
	store   *memory.Store
	desk    dispatch.Admin
	judge   *queueJudge
	sink    *sink
	server  server
	stepped atomic.Int64 // the store's clock, by so much
	back    time.Duration
	calm    atomic.Bool
	nodes   []*queueNode
	past    []*queueNode
	streams uint64
	adding  sync.WaitGroup
}

// RunQueue runs a queue and its instances in a bubble of its own.
func RunQueue(t *testing.T, setup QueueSetup) (result QueueResult) {
	synctest.Test(t, func(*testing.T) {
		defer countSimulated(time.Now())
		w := newQueueWorld(setup)
		w.adding.Go(w.enqueue)
		w.suffer()
		w.adding.Wait()
		result = w.recover()
		w.end()
	})
	return result
}

func newQueueWorld(setup QueueSetup) *queueWorld {
	w := &queueWorld{setup: setup, dice: newDice(setup.Seed, 0x776f72), nodes: make([]*queueNode, setup.Nodes)}
	storeNow := func() time.Time { return time.Now().Add(time.Duration(w.stepped.Load())) }
	w.store = memory.New(storeNow)
	if w.desk = w.store.QueueAdmin(); setup.Twin.Admin != nil {
		w.desk = setup.Twin.Admin(w.desk)
	}
	if err := w.desk.CreateQueue(context.Background(), queueName); err != nil {
		panic(err) // the name is ours
	}
	w.judge = newQueueJudge(w, storeNow)
	w.sink = &sink{world: w, dice: newDice(setup.Seed, 0x73696e6b), batches: map[string]*taken{}, newest: map[string]int64{}, last: map[string]int64{}}
	w.server = server{w.judge, &gate{dice: w.dice}}
	for i := range w.nodes {
		w.launch(i)
	}
	return w
}

func (w *queueWorld) launch(i int) {
	w.streams++
	w.nodes[i] = w.newNode(fmt.Sprintf("n%d", i), w.streams)
	w.nodes[i].start()
}

func (w *queueWorld) faulty() bool { return !w.calm.Load() }

func (w *queueWorld) networks() (store, wire leasetest.Network) {
	if w.calm.Load() {
		perfect := leasetest.Network{MaxDelay: time.Millisecond}
		return perfect, perfect
	}
	return w.setup.Store, w.setup.Wire
}

// recover ends all faults. All must then be delivered or wait for a person, and
// what waits be delivered once the person has done something about it.
func (w *queueWorld) recover() QueueResult {
	w.calm.Store(true)
	w.server.gate.thaw()
	for i, n := range w.nodes {
		if n == nil {
			w.launch(i)
			continue
		}
		n.gate.thaw()
		n.heal()
	}
	began := time.Now()
	w.settles("after the last fault")
	settle := time.Since(began)
	w.judge.shown()
	for rounds := w.judge.waiting() + 3; w.operate(1) > 0 && rounds > 0; rounds-- {
		pause(w.setup.Dispatch.SubmitTimeout)
		w.settles("after a person looked")
	}
	w.judge.complete()
	w.judge.mu.Lock()
	defer w.judge.mu.Unlock()
	r := w.judge.result
	r.Settle = settle
	return r
}

// settles waits until every key has nothing to do or waits for a person.
func (w *queueWorld) settles(when string) {
	began, within := time.Now(), w.within()
	for {
		why := w.judge.unsettled()
		if why == "" {
			return
		}
		if time.Since(began) > within {
			w.judge.says("%s: %s %v later", when, why, within)
			return
		}
		pause(20 * time.Millisecond)
	}
}

// within is how long that may take: until calls that were under way, and what the
// dead have sent, have ended; the longest takeover; the pauses between attempts; and
// the time that so many batches need.
func (w *queueWorld) within() time.Duration {
	c := w.setup.Dispatch
	_, inStep := c.Windows.WorstTakeover()
	most := 30*time.Second + longestSchedule + 3*c.Windows.First + inStep + 3*c.SubmitTimeout + 5*c.Retry.Max + longestRetryAfter + w.back
	each := 50*time.Millisecond + 2*c.PollInterval
	if c.Rate > 0 {
		each += time.Duration(float64(time.Second) / c.Rate)
	}
	return most + time.Duration(w.judge.waiting())*each
}

// end stops everything. The bubble fails if something does not stop.
func (w *queueWorld) end() {
	for _, n := range w.nodes {
		n.stop()
	}
	for _, n := range append(w.past, w.nodes...) {
		<-n.done
		n.link.Wait()
		n.wire.Wait()
	}
}
