package sim

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
)

// Twin is a cluster that is broken on purpose, in one way, without a hook in the
// code that is tested: by what its parts are made to see.
type Twin struct {
	Name string
	// Store replaces the store by a broken one.
	Store func(leasetest.Target) leasetest.Target
	// Node replaces a node's view of the store.
	Node func(*node) leasetest.Target
	// Timing is what a node believes that its session has.
	Timing func(lease.Timing) lease.Timing
	// Late makes the work return long after it has ended, Deaf end long after it was told to, and
	// Mute keeps the node's reports from the judge.
	Late, Deaf, Mute bool
	// Caught is what the judge must say of it; "" is anything.
	Caught string
	// Derived makes the work ask a context that does not ask the clock.
	Derived bool
	// Need makes sure that a run has what the fault needs to show.
	Need func(*Setup)
}

// Twins returns every one that the simulation must catch.
func Twins() []Twin {
	return []Twin{
		{Name: "renewal stamped after the call", Node: func(n *node) leasetest.Target { return lateStamp{n.view, n.clock} },
			Need: func(s *Setup) { s.Fenced, s.Restores = false, false; s.Network.MaxDelay = s.Timing.CallTimeout() }},
		{Name: "trust of T instead of T-I",
			Timing: func(t lease.Timing) lease.Timing { t.Timeout += t.Interval; return t },
			Need: func(s *Setup) {
				s.Fenced, s.Restores, s.Grace = false, false, s.Timing.Interval/20
				s.Network.MaxDelay = time.Millisecond
			}},
		{Name: "release resets the term",
			Store: func(t leasetest.Target) leasetest.Target { return newRecount(t, true) }},
		{Name: "lapsed session renewed",
			Store: func(t leasetest.Target) leasetest.Target { return reviver{t} }},
		{Name: "contender believes the store's stepped clock", Node: func(n *node) leasetest.Target { return hasty{n.view} },
			Need: func(s *Setup) { s.Fenced, s.Restores, s.Steps = false, false, true }},
		{Name: "contender does not notice a small step", Node: func(n *node) leasetest.Target { return stepBlind{n.view, n.clock} },
			Need: func(s *Setup) { s.Fenced, s.Restores, s.Steps = false, false, true }},
		{Name: "term is old+1 after a restore",
			Store: func(t leasetest.Target) leasetest.Target { return newRecount(t, false) },
			Need:  func(s *Setup) { s.Fenced, s.Restores, s.Steps = true, true, false }},
		{Name: "work asks a context that does not ask the clock", Derived: true,
			Need: func(s *Setup) { s.Fenced, s.Restores = true, false }},
		{Name: "work that ended in time is called an overrun", Late: true, Caught: "though its work had ended",
			Need: func(s *Setup) { s.Fenced, s.Restores, s.Steps = false, false, false }},
		{Name: "an overrun is not reported", Deaf: true, Mute: true, Caught: "and nobody reports it",
			Need: func(s *Setup) { s.Fenced, s.Restores, s.Steps = false, false, false }},
		{Name: "a state is written under any term", Caught: "a state was written",
			Store: func(t leasetest.Target) leasetest.Target { return lax{t} },
			Need:  func(s *Setup) { s.Restores = false; s.Network.Late = 0.1 }},
		{Name: "a lost session is left to lapse", Node: func(n *node) leasetest.Target { return endless{n.view} },
			Caught: "after an outage"},
		{Name: "nobody starts a session again before an outage", Node: func(n *node) leasetest.Target { return &weary{Target: n.view, node: n} },
			Caught: "was lost without a fault",
			Need:   func(s *Setup) { s.Fenced, s.Restores, s.Steps, s.Withdraws = false, false, false, false }},
	}
}

// weary loses its session one T after the last fault, and starts none again before the store has refused a call.
type weary struct {
	leasetest.Target
	node *node
	mu   sync.Mutex
	calm time.Time // when it first asked without faults
	woke bool
}

func (v *weary) asleep() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.calm.IsZero() && !v.node.world.faulty() {
		v.calm = time.Now()
	}
	return !v.woke && !v.calm.IsZero() && time.Since(v.calm) >= v.node.world.setup.Timing.Timeout
}

func (v *weary) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	if v.asleep() {
		return lease.Renewal{}, lease.ErrLapsed
	}
	return v.Target.RenewSession(ctx, id)
}

func (v *weary) StartSession(ctx context.Context, s lease.Session) (lease.Renewal, error) {
	if v.asleep() {
		if _, err := v.Target.Get(ctx, elect.Leases(roleName, 1)[0]); err == nil {
			return lease.Renewal{}, lease.ErrUnavailable
		}
		v.mu.Lock()
		v.woke = true
		v.mu.Unlock()
	}
	return v.Target.StartSession(ctx, s)
}

// lax lets a former holder write the state.
type lax struct{ leasetest.Target }

func (v lax) WriteState(ctx context.Context, id lease.ID, _ int64, data []byte) error {
	l, err := v.Get(ctx, id)
	if err != nil {
		return err
	}
	return v.Target.WriteState(ctx, id, l.Term, data)
}

// endless ends no session.
type endless struct{ leasetest.Target }

func (endless) EndSession(context.Context, string, string) error { return nil }

// lateStamp has the effect of reading the clock after a renewal instead of
// before: the clock is set back by what the call took.
type lateStamp struct {
	leasetest.Target
	clock *clock
}

func (v lateStamp) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	sent := v.clock.Now()
	r, err := v.Target.RenewSession(ctx, id)
	if err == nil {
		v.clock.setBack(v.clock.Now() - sent)
	}
	return r, err
}

// reviver renews what has lapsed.
type reviver struct{ leasetest.Target }

func (v reviver) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	r, err := v.Target.RenewSession(ctx, id)
	if errors.Is(err, lease.ErrLapsed) {
		return lease.Renewal{Seq: 1}, nil
	}
	return r, err
}

// eachWait changes the leases that a renewal shows.
func eachWait(change func(lease.Lease) lease.Lease) func(lease.Renewal, error) (lease.Renewal, error) {
	return func(r lease.Renewal, err error) (lease.Renewal, error) {
		for i, l := range r.Waits {
			r.Waits[i] = change(l)
		}
		return r, err
	}
}

// hasty takes the store's word that a session has lapsed: it counts a T of nothing.
type hasty struct{ leasetest.Target }

func (v hasty) Get(ctx context.Context, id lease.ID) (lease.Lease, error) {
	l, err := v.Target.Get(ctx, id)
	return v.believe(l), err
}

func (v hasty) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	return eachWait(v.believe)(v.Target.RenewSession(ctx, id))
}

func (v hasty) Join(ctx context.Context, id lease.ID, session string) (lease.Lease, error) {
	l, err := v.Target.Join(ctx, id, session)
	return v.believe(l), err
}

func (v hasty) Acquire(ctx context.Context, c lease.Expectation) (lease.Lease, error) {
	l, err := v.Target.Acquire(ctx, c)
	return v.believe(l), err
}

func (hasty) believe(l lease.Lease) lease.Lease {
	if l.Session != "" && l.Remaining <= 0 {
		l.Timing.Timeout = 1
	}
	return l
}

// stepBlind sees a store whose clock goes as its own does, whatever it does.
type stepBlind struct {
	leasetest.Target
	clock *clock
}

func (v stepBlind) Get(ctx context.Context, id lease.ID) (lease.Lease, error) {
	l, err := v.Target.Get(ctx, id)
	return v.smooth(l), err
}

func (v stepBlind) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	return eachWait(v.smooth)(v.Target.RenewSession(ctx, id))
}

func (v stepBlind) Join(ctx context.Context, id lease.ID, session string) (lease.Lease, error) {
	l, err := v.Target.Join(ctx, id, session)
	return v.smooth(l), err
}

func (v stepBlind) Acquire(ctx context.Context, c lease.Expectation) (lease.Lease, error) {
	l, err := v.Target.Acquire(ctx, c)
	return v.smooth(l), err
}

func (v stepBlind) smooth(l lease.Lease) lease.Lease {
	if !l.Since.IsZero() {
		l.Since = time.Unix(0, 0).Add(v.clock.Now() - l.Age)
	}
	return l
}

// recount shows terms that count from 1: one more than the term before, as the
// store remembers it, or from 1 again after a release. The judge's lock guards it.
type recount struct {
	leasetest.Target
	atRelease bool
	released  bool
	shown     map[int64]int64 // by the true term
	real      map[int64]int64 // by the shown term, the newest
}

func newRecount(t leasetest.Target, atRelease bool) *recount {
	return &recount{Target: t, atRelease: atRelease, shown: map[int64]int64{}, real: map[int64]int64{}}
}

func (v *recount) Acquire(ctx context.Context, c lease.Expectation) (lease.Lease, error) {
	before, err := v.Target.Get(ctx, c.Lease)
	if err != nil {
		return lease.Lease{}, err
	}
	c.Seen.Term = v.real[c.Seen.Term]
	l, err := v.Target.Acquire(ctx, c)
	if _, known := v.shown[l.Term]; !known && err == nil {
		next := v.shown[before.Term] + 1
		if v.released && v.atRelease {
			next = 1
		}
		v.released = false
		v.shown[l.Term], v.real[next] = next, l.Term
	}
	l.Term = v.shown[l.Term]
	return l, err
}

func (v *recount) Release(ctx context.Context, h lease.ReleaseRequest) error {
	h.Term = v.real[h.Term]
	err := v.Target.Release(ctx, h)
	v.released = v.released || err == nil
	return err
}

func (v *recount) Get(ctx context.Context, id lease.ID) (lease.Lease, error) {
	l, err := v.Target.Get(ctx, id)
	l.Term = v.shown[l.Term]
	return l, err
}

func (v *recount) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	return eachWait(func(l lease.Lease) lease.Lease { l.Term = v.shown[l.Term]; return l })(v.Target.RenewSession(ctx, id))
}

func (v *recount) Join(ctx context.Context, id lease.ID, session string) (lease.Lease, error) {
	l, err := v.Target.Join(ctx, id, session)
	l.Term = v.shown[l.Term]
	return l, err
}

func (v *recount) Watch(ctx context.Context, wake func(lease.Change)) error {
	return v.Target.Watch(ctx, func(lease.Change) { wake(lease.Change{}) })
}
