package leasetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// Network is how a [Faulty] store is reached. Chances are from 0 to 1. The zero
// Network is perfect.
type Network struct {
	Lose      float64       // chance that a request is lost, and again that its answer is
	Refuse    float64       // chance that a request fails at once and is not applied
	Duplicate float64       // chance that a request is applied a second time, later
	Late      float64       // chance that a request is applied after its caller gave up
	MinDelay  time.Duration // of a request, and again of its answer
	MaxDelay  time.Duration // … which are drawn apart, so that requests overtake each other
	LoseWake  float64       // chance that a wake-up of Watch is lost
	// CutRequests and CutAnswers are a broken link, one way or both. A cut also
	// takes the answers, or the requests, that are under way.
	CutRequests, CutAnswers bool
}

// Target is what a [Faulty] store stands in front of.
type Target interface {
	lease.Store
	lease.Roster
	lease.StateStore
}

// Faulty is a store behind a bad network. A caller whose request or answer is
// lost waits for its deadline and gets [lease.ErrUnknown], as it would in life.
// Faults are drawn from a seed; time is the package time's, so that a bubble's
// works too. Every call must have a deadline.
type Faulty struct {
	target sessionsOnly

	mu      sync.Mutex
	rng     *rand.Rand
	network Network
	flying  sync.WaitGroup
}

var _ Target = (*Faulty)(nil)

// sessionsOnly is a store that need not keep states.
type sessionsOnly interface {
	lease.Store
	lease.Roster
}

// NewFaulty puts a network, perfect at first, in front of a store. States are asked of one that
// keeps them.
func NewFaulty(target sessionsOnly, seed uint64) *Faulty {
	return &Faulty{target: target, rng: rand.New(rand.NewPCG(seed, 0x6e6574))}
}

// Change changes the network under calls to come.
func (f *Faulty) Change(change func(*Network)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.network)
}

// Wait returns when no request is under way any more. None may be made meanwhile.
func (f *Faulty) Wait() { f.flying.Wait() }

// fate is what becomes of one request.
type fate struct {
	refused, requestLost, answerLost bool
	there, back                      time.Duration
	again                            time.Duration // after the first time; 0: never
}

func (f *Faulty) draw(deadline time.Duration) fate {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, hit := f.network, func(chance float64) bool { return f.rng.Float64() < chance }
	x := fate{
		refused: hit(n.Refuse), requestLost: hit(n.Lose), answerLost: hit(n.Lose),
		there: f.delay(), back: f.delay(),
	}
	if hit(n.Duplicate) {
		x.again = 1 + time.Duration(f.rng.Int64N(int64(2*deadline+1)))
	}
	if hit(n.Late) {
		x.there = deadline + time.Duration(f.rng.Int64N(int64(2*deadline+1)))
	}
	return x
}

func (f *Faulty) delay() time.Duration {
	spread := max(0, f.network.MaxDelay-f.network.MinDelay)
	return f.network.MinDelay + time.Duration(f.rng.Int64N(int64(spread)+1))
}

func (f *Faulty) cut() (requests, answers bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.network.CutRequests, f.network.CutAnswers
}

type answer[T any] struct {
	value T
	err   error
}

// Send takes one request of any port through the network of f.
func Send[T any](ctx context.Context, f *Faulty, op func(context.Context) (T, error)) (T, error) {
	var none T
	deadline, bounded := ctx.Deadline()
	if !bounded {
		return none, fmt.Errorf("%w: a call without a deadline", lease.ErrInvalid)
	}
	if ctx.Err() != nil {
		return none, fmt.Errorf("not sent: %w: %w", lease.ErrUnavailable, ctx.Err())
	}
	x := f.draw(time.Until(deadline))
	if x.refused {
		return none, fmt.Errorf("connection refused: %w", lease.ErrUnavailable)
	}
	answers := make(chan answer[T], 1)
	f.flying.Go(func() { carry(context.WithoutCancel(ctx), f, x, op, answers) })
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		return none, fmt.Errorf("no answer: %w: %w", lease.ErrUnknown, ctx.Err())
	}
}

// carry takes the request there and the answer back. The caller's patience does
// not reach into the network: a request that it gave up arrives all the same.
func carry[T any](ctx context.Context, f *Faulty, x fate, op func(context.Context) (T, error), answers chan<- answer[T]) {
	wait(x.there)
	if requests, _ := f.cut(); requests || x.requestLost {
		return
	}
	v, err := op(ctx)
	wait(x.back)
	if _, cut := f.cut(); !cut && !x.answerLost {
		answers <- answer[T]{v, err}
	}
	if x.again > 0 {
		wait(x.again)
		if requests, _ := f.cut(); !requests {
			_, _ = op(ctx)
		}
	}
}

func wait(d time.Duration) {
	if d > 0 {
		over := make(chan struct{})
		time.AfterFunc(d, func() { close(over) })
		<-over
	}
}

type nothing = struct{}

func (f *Faulty) tell(ctx context.Context, op func(context.Context) error) error {
	_, err := Send(ctx, f, func(ctx context.Context) (nothing, error) { return nothing{}, op(ctx) })
	return err
}

// StartSession implements [lease.Store].
func (f *Faulty) StartSession(ctx context.Context, s lease.Session) (lease.Renewal, error) {
	return Send(ctx, f, func(ctx context.Context) (lease.Renewal, error) { return f.target.StartSession(ctx, s) })
}

// RenewSession implements [lease.Store].
func (f *Faulty) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	return Send(ctx, f, func(ctx context.Context) (lease.Renewal, error) { return f.target.RenewSession(ctx, id) })
}

// EndSession implements [lease.Store].
func (f *Faulty) EndSession(ctx context.Context, id, reason string) error {
	return f.tell(ctx, func(ctx context.Context) error { return f.target.EndSession(ctx, id, reason) })
}

// Acquire implements [lease.Store].
func (f *Faulty) Acquire(ctx context.Context, c lease.Expectation) (lease.Lease, error) {
	return Send(ctx, f, func(ctx context.Context) (lease.Lease, error) { return f.target.Acquire(ctx, c) })
}

// Release implements [lease.Store].
func (f *Faulty) Release(ctx context.Context, h lease.ReleaseRequest) error {
	return f.tell(ctx, func(ctx context.Context) error { return f.target.Release(ctx, h) })
}

// Get implements [lease.Store].
func (f *Faulty) Get(ctx context.Context, id lease.ID) (lease.Lease, error) {
	return Send(ctx, f, func(ctx context.Context) (lease.Lease, error) { return f.target.Get(ctx, id) })
}

// List implements [lease.Store].
func (f *Faulty) List(ctx context.Context, space, after string, limit int) ([]lease.Lease, error) {
	return Send(ctx, f, func(ctx context.Context) ([]lease.Lease, error) {
		return f.target.List(ctx, space, after, limit)
	})
}

// Watch implements [lease.Store]. Wake-ups are delayed, overtake each other, and
// are lost: by chance, and while answers are cut off.
func (f *Faulty) Watch(ctx context.Context, wake func(lease.Change)) error {
	return f.target.Watch(ctx, func(c lease.Change) {
		f.mu.Lock()
		lost, delay := f.network.CutAnswers || f.rng.Float64() < f.network.LoseWake, f.delay()
		f.mu.Unlock()
		if !lost {
			time.AfterFunc(delay, func() { wake(c) })
		}
	})
}

// Join implements [lease.Roster].
func (f *Faulty) Join(ctx context.Context, id lease.ID, session string) (lease.Lease, error) {
	return Send(ctx, f, func(ctx context.Context) (lease.Lease, error) { return f.target.Join(ctx, id, session) })
}

// Leave implements [lease.Roster].
func (f *Faulty) Leave(ctx context.Context, id lease.ID, session string) error {
	return f.tell(ctx, func(ctx context.Context) error { return f.target.Leave(ctx, id, session) })
}

// Waiters implements [lease.Roster].
func (f *Faulty) Waiters(ctx context.Context, space string) ([]lease.Waiter, error) {
	return Send(ctx, f, func(ctx context.Context) ([]lease.Waiter, error) { return f.target.Waiters(ctx, space) })
}

// RequestRelease implements [lease.Roster].
func (f *Faulty) RequestRelease(ctx context.Context, id lease.ID, successor, who string) error {
	return f.tell(ctx, func(ctx context.Context) error { return f.target.RequestRelease(ctx, id, successor, who) })
}

// WriteState implements [lease.StateStore].
func (f *Faulty) WriteState(ctx context.Context, id lease.ID, term int64, data []byte) error {
	return f.tell(ctx, func(ctx context.Context) error { return f.target.(lease.StateStore).WriteState(ctx, id, term, data) })
}

// ReadState implements [lease.StateStore].
func (f *Faulty) ReadState(ctx context.Context, id lease.ID) (lease.State, error) {
	return Send(ctx, f, func(ctx context.Context) (lease.State, error) { return f.target.(lease.StateStore).ReadState(ctx, id) })
}

// Sessions implements [lease.Roster].
func (f *Faulty) Sessions(ctx context.Context) ([]lease.Session, error) {
	return Send(ctx, f, f.target.Sessions)
}

// Forget implements [lease.Roster].
func (f *Faulty) Forget(ctx context.Context, r lease.ForgetRequest) error {
	return f.tell(ctx, func(ctx context.Context) error { return f.target.Forget(ctx, r) })
}

// Spaces implements [lease.Roster].
func (f *Faulty) Spaces(ctx context.Context) ([]lease.SpaceCount, error) {
	return Send(ctx, f, func(ctx context.Context) ([]lease.SpaceCount, error) { return f.target.Spaces(ctx) })
}
