package leasetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/understudy-ha/understudy/lease"
)

// Concurrent are the limits of one check of concurrent histories. Zero fields
// get their defaults.
type Concurrent struct {
	Worlds  int           // leases, or what else there is, that are fought for side by side; default 6
	Clients int           // that fight for each; default 4
	Length  time.Duration // default 2 s
	Timeout time.Duration // T of the sessions; default 200 ms
	Call    time.Duration // deadline of each call; default a minute
}

// WithDefaults fills what is zero.
func (c Concurrent) WithDefaults() Concurrent {
	c.Worlds = cmp.Or(c.Worlds, 6)
	c.Clients = cmp.Or(c.Clients, 4)
	c.Length = cmp.Or(c.Length, 2*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 200*time.Millisecond)
	c.Call = cmp.Or(c.Call, time.Minute)
	return c
}

// CheckLinearizable lets concurrent clients work on a store in real time and
// checks that everything it answered can be explained by one order of single
// steps: at most one holder at any time, terms that only grow, no lapsed session
// renewed, nothing given to whoever saw an older state. open returns a handle on
// the same store each time; its clock must be the real one.
func CheckLinearizable(t *testing.T, open func(t *testing.T) Target, limits Concurrent) {
	t.Helper()
	if problem := linearize(func() Target { return open(t) }, limits); problem != "" {
		t.Error(problem)
	}
}

// linearize returns what is wrong, or "".
func linearize(open func() Target, limits Concurrent) string {
	limits = limits.WithDefaults()
	ctx, cancel := context.WithTimeout(context.Background(), limits.Length)
	defer cancel()
	begin, run := time.Now(), lease.NewID()[:8]
	worlds := make([]*contest, limits.Worlds)
	var all sync.WaitGroup
	for i := range worlds {
		w := &contest{id: lease.ID{Space: "role", Key: fmt.Sprintf("linear-%s-%d", run, i)}, timeout: limits.Timeout, call: limits.Call, begin: begin}
		worlds[i] = w
		for c := range limits.Clients {
			store, rng := open(), rand.New(rand.NewPCG(uint64(i), uint64(c)))
			all.Go(func() { w.fight(ctx, c, store, rng) })
		}
	}
	all.Wait()
	for _, w := range worlds {
		if problem := w.judge(); problem != "" {
			return problem
		}
	}
	return ""
}

// contest is the fight for one lease, with its history.
type contest struct {
	id      lease.ID
	timeout time.Duration
	call    time.Duration
	begin   time.Time

	mu       sync.Mutex
	history  []porcupine.Operation
	sessions int
	unknown  int // answers that did not come
	problems []string
}

// maxUnknown bounds the requests without an answer: each may have been applied at any later time, so that more of them, as on a
// machine that is slow for its deadlines, could not be judged.
const maxUnknown = 12

func (w *contest) isFull() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unknown >= maxUnknown
}

// number gives a session its place in the model's state.
func (w *contest) number() (int, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sessions++
	return w.sessions - 1, w.sessions <= maxSessions
}

// fight is one client: it renews, claims, releases and pauses at random.
func (w *contest) fight(ctx context.Context, client int, store Target, rng *rand.Rand) {
	names := map[string]int{}
	for ctx.Err() == nil && !w.isFull() {
		n, ok := w.number()
		if !ok {
			return
		}
		s := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance(fmt.Sprint("c", client), ""),
			Timing: lease.Timing{Interval: w.timeout / 5, Timeout: w.timeout}}
		f := fighter{contest: w, client: client, store: store, session: s, number: n, names: names, rng: rng}
		if !f.start(ctx) {
			continue
		}
		for ctx.Err() == nil && !w.isFull() && f.move(ctx) {
		}
	}
}

// judge checks the history against the model.
func (w *contest) judge() string {
	if len(w.problems) > 0 {
		return w.problems[0]
	}
	return Explain(w.id.String(), porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{}} },
		Step: func(st, in, out any) []any { return step(st.(state), in.(request), out.(reply), w.timeout) },
	}, w.history)
}

// fighter is a client under one session.
type fighter struct {
	*contest
	client  int
	store   Target
	session lease.Session
	number  int
	rng     *rand.Rand
	names   map[string]int
	last    lease.Lease // as last seen
}

// do makes one request, and writes it down with its answer.
func (f *fighter) do(ctx context.Context, in request, call func(context.Context) (lease.Lease, int64, error)) reply {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.call)
	defer cancel()
	called := time.Since(f.begin)
	l, seq, err := call(ctx)
	returned := time.Since(f.begin)
	out := reply{outcome: outcomeOf(err), seq: seq}
	if in.kind == get || in.kind == acquire {
		out.seen, out.ended = l.Seen(), l.Ended
	}
	if out.outcome == unknown {
		returned = time.Hour // it may still be applied
	}
	in.call, in.back = called, returned
	f.mu.Lock()
	defer f.mu.Unlock()
	if out.outcome == unknown {
		f.unknown++
	}
	if out.outcome == odd {
		f.problems = append(f.problems, fmt.Sprintf("%v: %v", in, err))
	}
	if out.outcome != notSent {
		f.history = append(f.history, porcupine.Operation{ClientId: f.client, Input: in, Output: out, Call: int64(called), Return: int64(returned)})
	}
	return out
}

func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return done
	case errors.Is(err, lease.ErrLapsed):
		return lapsed
	case errors.Is(err, lease.ErrHeld), errors.Is(err, lease.ErrNotHeld):
		return refused
	case errors.Is(err, lease.ErrUnavailable):
		return notSent
	case errors.Is(err, lease.ErrUnknown):
		return unknown
	}
	return odd
}

func (f *fighter) start(ctx context.Context) bool {
	out := f.do(ctx, request{kind: start, who: f.session.ID, number: f.number}, func(ctx context.Context) (lease.Lease, int64, error) {
		r, err := f.store.StartSession(ctx, f.session)
		return lease.Lease{}, r.Seq, err
	})
	return out.outcome == done
}

// move makes one random request, and reports whether the session may continue.
func (f *fighter) move(ctx context.Context) bool {
	in := request{who: f.session.ID, number: f.number}
	out := reply{}
	switch dice := f.rng.IntN(100); {
	case dice < 35:
		in.kind = renew
		out = f.do(ctx, in, func(ctx context.Context) (lease.Lease, int64, error) {
			r, err := f.store.RenewSession(ctx, f.session.ID)
			return lease.Lease{}, r.Seq, err
		})
	case dice < 50:
		in.kind = get
		out = f.do(ctx, in, func(ctx context.Context) (lease.Lease, int64, error) {
			l, err := f.store.Get(ctx, f.id)
			f.last = l
			return l, 0, err
		})
	case dice < 80:
		in.kind, in.seen, in.waited = acquire, f.last.Seen(), f.rng.IntN(8) == 0
		out = f.do(ctx, in, func(ctx context.Context) (lease.Lease, int64, error) {
			l, err := f.store.Acquire(ctx, lease.Expectation{Lease: f.id, Session: f.session.ID, Seen: in.seen, Waited: in.waited})
			if l.Key != "" {
				f.last = l
			}
			return l, 0, err
		})
	case dice < 90:
		in.kind, in.seen = release, f.last.Seen()
		out = f.do(ctx, in, func(ctx context.Context) (lease.Lease, int64, error) {
			return lease.Lease{}, 0, f.store.Release(ctx, lease.ReleaseRequest{Lease: f.id, Session: f.session.ID, Term: in.seen.Term})
		})
	case dice < 92:
		in.kind = end
		f.do(ctx, in, func(ctx context.Context) (lease.Lease, int64, error) {
			return lease.Lease{}, 0, f.store.EndSession(ctx, f.session.ID, "")
		})
		return false
	case dice < 96:
		f.pause(ctx, f.timeout*5/4) // long enough to lapse
	default:
		f.pause(ctx, time.Duration(f.rng.Int64N(int64(f.timeout/3))))
	}
	f.pause(ctx, time.Duration(f.rng.Int64N(int64(f.timeout/10))))
	return out.outcome != lapsed || f.rng.IntN(2) == 0 // some do not take no for an answer
}

func (f *fighter) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
