package claimtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
)

// Concurrent are the limits of one check of concurrent histories; its worlds are keys.
type Concurrent = leasetest.Concurrent

// CheckLinearizable lets concurrent clients work on keys in real time: they
// offer, take, begin, finish, release and look, continue after their sessions have
// lapsed, and come too late. It checks, for each key, that all that the store
// answered can be explained by one order of single steps: one holder at any
// time, no begin beside a take, nothing under an older term, an interruption
// always told. open returns a handle on the same store each time; its clock must
// be the real one.
func CheckLinearizable(t *testing.T, open func(t *testing.T) Store, limits Concurrent) {
	t.Helper()
	if problem := linearize(t.Context(), func() Store { return open(t) }, limits); problem != "" {
		t.Error(problem)
	}
}

// linearize returns what is wrong, or "".
func linearize(ctx context.Context, open func() Store, limits Concurrent) string {
	limits = limits.WithDefaults()
	ctx, cancel := context.WithTimeout(ctx, limits.Length)
	defer cancel()
	begin, name := time.Now(), strings.ToLower(lease.NewID()[:8])
	worlds := make([]*contest, limits.Worlds)
	var all sync.WaitGroup
	for i := range worlds {
		w := &contest{space: fmt.Sprintf("linear-%s-%d", name, i), limits: limits, begin: begin, names: map[string]int{}}
		worlds[i] = w
		for c := range limits.Clients {
			f := &fighter{contest: w, client: c, store: open(), rng: rand.New(rand.NewPCG(uint64(i), uint64(c)))}
			all.Go(func() { f.fight(ctx) })
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

// contest is the fight for one key, with its history.
type contest struct {
	space  string
	limits Concurrent
	begin  time.Time

	mu       sync.Mutex
	history  []porcupine.Operation
	names    map[string]int // numbers of sessions by their id
	problems []string
}

const theKey = "k"

func (w *contest) judge() string {
	if len(w.problems) > 0 {
		return w.problems[0]
	}
	slices.SortStableFunc(w.history, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for i, op := range w.history {
		// Under which term it took the key, if it did, nobody knows: what follows
		// cannot be judged.
		if op.Input.(request).kind == take && op.Output.(reply).outcome == unknown {
			w.history = w.history[:i]
			break
		}
	}
	return leasetest.Explain(w.space, porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{}} },
		Step: func(st, in, out any) []any { return after(st.(state), in.(request), out.(reply)) },
	}, w.history)
}

// fighter is a client under one session after the other.
type fighter struct {
	*contest
	client int
	store  Store
	rng    *rand.Rand

	id   string
	me   who
	last claim.Claim // that it took, or thinks of
}

func (f *fighter) fight(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		s := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance(fmt.Sprint("c", f.client), ""),
			Timing: lease.Timing{Interval: f.limits.Timeout / 5, Timeout: f.limits.Timeout}}
		f.id, f.me = s.ID, who{number: f.client<<16 + n + 1}
		f.mu.Lock()
		f.names[f.id] = f.me.number
		f.mu.Unlock()
		f.me.timeout = f.limits.Timeout
		f.me.started = time.Since(f.begin)
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.limits.Call)
		_, err := f.store.StartSession(call, s)
		cancel()
		f.me.around = time.Since(f.begin)
		if err != nil {
			pause(ctx, 10*time.Millisecond)
			continue
		}
		for ctx.Err() == nil && f.move(ctx) {
		}
	}
}

// do makes one request, and writes it down with its answer.
func (f *fighter) do(ctx context.Context, in request, call func(context.Context) (reply, error)) reply {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.limits.Call)
	defer cancel()
	in.who, in.call = f.me, time.Since(f.begin)
	out, err := call(ctx)
	in.back = time.Since(f.begin)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil:
		out.outcome = answered
	case errors.Is(err, lease.ErrLapsed):
		out.outcome = lapsed
	case errors.Is(err, lease.ErrUnavailable):
		return out
	case errors.Is(err, lease.ErrUnknown):
		out.outcome, in.back = unknown, time.Hour // it may still be applied
	default:
		f.problems = append(f.problems, fmt.Sprintf("%v: %v", in, err))
	}
	f.history = append(f.history, porcupine.Operation{ClientId: f.client, Input: in, Output: out, Call: int64(in.call), Return: int64(in.back)})
	return out
}

// move makes one random request, and reports whether the session is used on.
func (f *fighter) move(ctx context.Context) bool {
	table := f.store.Claims()
	mine := []claim.Claim{f.last}
	in := request{term: f.last.Term}
	switch dice := f.rng.IntN(100); {
	case dice < 12:
		in.kind, in.in = offer, time.Duration(f.rng.IntN(3))*10*time.Millisecond
		f.do(ctx, in, func(ctx context.Context) (reply, error) {
			return reply{}, table.Offer(ctx, f.space, []string{theKey}, in.in)
		})
	case dice < 40:
		in.kind = take
		var got []claim.Claim
		f.do(ctx, in, func(ctx context.Context) (r reply, err error) {
			got, err = table.ClaimKeys(ctx, claim.ClaimRequest{Space: f.space, Session: f.id, Limit: 1, Fresh: 1})
			for _, c := range got {
				r = reply{yes: true, term: c.Term, interrupted: c.Interrupted}
			}
			return r, err
		})
		for _, c := range got {
			f.last = c
		}
	case dice < 62:
		in.kind, in.in = begin, time.Duration(f.rng.IntN(3))*f.limits.Timeout
		f.do(ctx, in, func(ctx context.Context) (reply, error) {
			got, err := table.StartSteps(ctx, f.space, f.id, in.in, mine)
			return reply{yes: len(got) == 1}, err
		})
	case dice < 78:
		in.kind, in.in = finish, time.Duration(f.rng.IntN(3))*10*time.Millisecond
		in.idle, in.release = f.rng.IntN(6) == 0, f.rng.IntN(3) == 0
		f.do(ctx, in, func(ctx context.Context) (reply, error) {
			got, err := table.FinishSteps(ctx, f.space, f.id, []claim.StepResult{{Key: theKey, Term: in.term, In: in.in, Idle: in.idle, Release: in.release}})
			return reply{yes: len(got) == 1}, err
		})
	case dice < 84:
		in.kind = release
		f.do(ctx, in, func(ctx context.Context) (reply, error) {
			return reply{}, table.Release(ctx, f.space, f.id, mine)
		})
	case dice < 92:
		in.kind = look
		f.do(ctx, in, func(ctx context.Context) (r reply, err error) {
			rows, err := table.List(ctx, claim.Query{Space: f.space, Limit: 1})
			for _, row := range rows {
				f.mu.Lock()
				r = reply{yes: true, term: row.Term, holder: f.names[row.Session], step: row.InStep, idle: row.Idle, interrupted: row.Interrupted}
				f.mu.Unlock()
			}
			return r, err
		})
	case dice < 95:
		pause(ctx, f.limits.Timeout*5/4) // long enough to lapse
	default:
		pause(ctx, time.Duration(f.rng.Int64N(int64(f.limits.Timeout/3))))
	}
	pause(ctx, time.Duration(f.rng.Int64N(int64(f.limits.Timeout/10))))
	return time.Since(f.begin)-f.me.started < f.limits.Timeout || f.rng.IntN(4) > 0
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
