package sim

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store/memory"
)

// Setup is one run: what the cluster is, and what may befall it.
type Setup struct {
	Seed   uint64
	Nodes  int
	Timing lease.Timing
	Grace  time.Duration // that the work takes to stop
	Length time.Duration // for which there are faults
	// RateError is how much of the rate tolerance the clocks make use of.
	RateError float64
	// Network of every node, when it is not cut.
	Network leasetest.Network
	// Fenced runs have freezes; their effects are checked at a ledger.
	Fenced bool
	// Restores has the store restored from backups.
	Restores bool
	// Steps has the store's clock stepped.
	Steps bool
	// Withdraws has a node stop to contend while its process runs on, after all other faults.
	Withdraws bool
	Twin      Twin
	// Trace, when not nil, is told what happens, for whoever replays a seed.
	Trace func(format string, args ...any)
}

// Draw returns the run of a seed.
func Draw(seed uint64) Setup {
	d := newDice(seed, 0x647261)
	interval := []time.Duration{50 * time.Millisecond, time.Second}[d.n(2)]
	timing := lease.Timing{Interval: interval, Timeout: interval*7/2 + d.upTo(5*interval)}
	s := Setup{
		Seed: seed, Nodes: 3 + d.n(3), Timing: timing,
		Grace: d.between(interval/20, interval/2), Length: d.between(8*timing.Timeout, 16*timing.Timeout),
		RateError: 0.98, Fenced: seed%2 == 0,
	}
	s.Restores = s.Fenced && d.hit(0.3)
	s.Steps = !s.Restores && d.hit(0.6)
	s.Withdraws = newDice(seed, 0x776974).hit(0.3) // dice of its own: seeds from before it stay what they were
	s.Network.MaxDelay = d.upTo(timing.CallTimeout() / 3)
	if d.hit(0.7) {
		s.Network.Lose = 0.1 * float64(d.n(101)) / 100
		s.Network.Refuse, s.Network.Duplicate, s.Network.Late = 0.02, 0.04, 0.03
		s.Network.LoseWake = 0.2
	}
	return s
}

// Result is what a run came to.
type Result struct {
	Broken []string // promises, each with what happened
	Grants int
	// Vacant is how long after the end of all faults there was a primary again.
	Vacant time.Duration
}

type world struct {
	setup    Setup
	dice     *dice
	store    *memory.Store
	judge    *judge
	server   server
	stepped  atomic.Int64 // the store's clock, by so much
	lastStep time.Time
	calm     atomic.Bool
	nodes    []*node // by name; nil while there is none
	past     []*node
	backups  []memory.Snapshot
	streams  uint64
}

// Run runs a cluster in a bubble of its own.
func Run(t *testing.T, setup Setup) (result Result) {
	synctest.Test(t, func(*testing.T) {
		defer countSimulated(time.Now())
		w := newWorld(setup)
		w.suffer()
		result = w.recover()
		w.end()
	})
	return result
}

func newWorld(setup Setup) *world {
	w := &world{setup: setup, dice: newDice(setup.Seed, 0x776f72), nodes: make([]*node, setup.Nodes)}
	storeNow := func() time.Time { return time.Now().Add(time.Duration(w.stepped.Load())) }
	w.store = memory.New(storeNow)
	var target leasetest.Target = w.store
	if setup.Twin.Store != nil {
		target = setup.Twin.Store(target)
	}
	w.judge = newJudge(setup, target, storeNow)
	w.server = server{w.judge, &gate{dice: w.dice}}
	if setup.Restores {
		w.yesterday()
	}
	for i := range w.nodes {
		w.launch(i)
	}
	return w
}

// yesterday leaves a backup from an hour ago, in which someone held the role.
func (w *world) yesterday() {
	ctx, id := context.Background(), elect.Leases(roleName, 1)[0]
	s := lease.Session{ID: "yesterday", Instance: lease.NewInstance("yesterday", ""), Timing: w.setup.Timing}
	_, err := w.judge.StartSession(ctx, s)
	if err == nil {
		_, err = w.judge.Acquire(ctx, lease.Expectation{Lease: id, Session: s.ID})
	}
	if err != nil {
		panic(err) // an empty store refuses neither
	}
	w.backups = append(w.backups, w.store.Snapshot())
	pause(time.Hour)
}

func (w *world) launch(i int) {
	w.streams++
	w.nodes[i] = w.newNode(fmt.Sprintf("n%d", i), w.streams)
	w.nodes[i].start()
}

func (w *world) faulty() bool { return !w.calm.Load() }

func (w *world) network() leasetest.Network {
	if w.calm.Load() {
		return leasetest.Network{MaxDelay: time.Millisecond}
	}
	return w.setup.Network
}

// recover ends all faults and waits for a primary, who must come in time and stay.
func (w *world) recover() Result {
	w.calm.Store(true)
	w.server.gate.thaw()
	for i, n := range w.nodes {
		if n == nil {
			w.launch(i)
			continue
		}
		n.gate.thaw()
		n.link.Change(func(l *leasetest.Network) { *l = w.network() })
	}
	began, within := time.Now(), w.within()
	for w.judge.primary() == 0 && time.Since(began) <= within {
		pause(w.setup.Timing.Interval / 50)
	}
	vacant := time.Since(began)
	if vacant > within {
		w.breach("there is no primary %v after the last fault", within)
	} else {
		w.mustStay()
		w.outage()
	}
	w.judge.mu.Lock()
	defer w.judge.mu.Unlock()
	return Result{Broken: w.judge.broken, Grants: w.judge.grants, Vacant: vacant}
}

// within is how long the role may be vacant after the last fault: until calls
// under way have timed out and were repeated, and then what package lease says.
func (w *world) within() time.Duration {
	t := w.setup.Timing
	most := t.CallTimeout() + t.Interval + t.WorstTakeover()
	if !w.lastStep.IsZero() {
		most += t.Timeout
	}
	if w.setup.Network.Late > 0 {
		most += 5 * t.CallTimeout() // the latest that the dead have sent may renew a session
	}
	return time.Duration(float64(most) / (1 - t.RateTolerance()))
}

// mustStay checks that a primary is not lost without reason, once what was asked
// and lost during the faults has come to its end.
func (w *world) mustStay() {
	pause(2*w.setup.Timing.Timeout + 11*w.setup.Timing.Interval)
	first := w.judge.primary()
	if first == 0 { // also at the second look it may be: an outage has vacant roles taken again, and would hide it
		w.breach("the primary was lost without a fault")
		return
	}
	pause(3 * w.setup.Timing.Timeout)
	if now := w.judge.primary(); now != first {
		w.breach("term %d ended without a fault; the primary's term is %d", first, now)
	}
}

// outage keeps the store from everyone until every session has lapsed. Its holder ends its own then, so that the role
// has a primary as soon as requests are tried again, and not one T after its session was first seen lapsed.
func (w *world) outage() {
	t := w.setup.Timing
	each := func(refuse float64) {
		for _, n := range w.nodes {
			n.link.Change(func(l *leasetest.Network) { *l = w.network(); l.Refuse = refuse })
		}
	}
	each(1)
	pause(3*t.Timeout + w.dice.upTo(t.Timeout))
	each(0)
	began, within := time.Now(), 5*t.Interval/2+20*time.Millisecond
	for w.judge.primary() == 0 && time.Since(began) <= t.Timeout+2*within {
		pause(t.Interval / 50)
	}
	if took := time.Since(began); took > within {
		w.breach("the role is vacant for %v after an outage, want at most %v", took, within)
	}
}

func (w *world) breach(format string, args ...any) {
	w.judge.mu.Lock()
	defer w.judge.mu.Unlock()
	w.judge.breach(format, args...)
}

// end stops everything. The bubble fails if something does not stop.
func (w *world) end() {
	for _, n := range w.nodes {
		n.cancel()
		<-n.done
		n.link.Wait()
	}
	for _, n := range w.past {
		<-n.done
		n.link.Wait()
	}
}

// pause lets the cluster run on.
func pause(d time.Duration) { time.Sleep(d) }
