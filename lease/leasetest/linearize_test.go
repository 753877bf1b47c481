package leasetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/memory"
)

func TestLinearizableMemory(t *testing.T) {
	t.Parallel()
	s := memory.New(nil)
	CheckLinearizable(t, func(*testing.T) Target { return s }, Concurrent{})
}

func TestLinearizableBehindABadNetwork(t *testing.T) {
	t.Parallel()
	s := memory.New(nil)
	seed := uint64(0)
	CheckLinearizable(t, func(t *testing.T) Target {
		seed++
		f := NewFaulty(s, seed)
		f.Change(func(n *Network) {
			n.Lose, n.Late, n.MaxDelay = 0.02, 0.01, 5*time.Millisecond
		})
		t.Cleanup(f.Wait)
		return f
	}, Concurrent{Call: 100 * time.Millisecond})
}

// TestLinearizableCatches proves the check: each broken store is caught.
func TestLinearizableCatches(t *testing.T) {
	for name, broken := range map[string]func(Target) Target{
		"release resets the term":     func(s Target) Target { return &resets{Target: s} },
		"a lapsed session is renewed": func(s Target) Target { return revives{s} },
		"acquire ignores renewals":    func(s Target) Target { return ignoresSeq{s} },
		"acquire believes anybody":    func(s Target) Target { return believes{s} },
		"get shows an older state":    func(s Target) Target { return &stale{Target: s} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := broken(memory.New(nil))
				problem := linearize(func() Target { return s }, Concurrent{Length: 5 * time.Second})
				if problem == "" {
					t.Fatal("not caught")
				}
				t.Logf("caught: %.300s", problem)
			})
		})
	}
}

// resets counts terms from 1 again after each release. Its lock makes each
// call one step, so that nothing else is broken.
type resets struct {
	Target
	mu   sync.Mutex
	base int64 // what is taken off the true terms
}

func (r *resets) Acquire(ctx context.Context, c lease.Expectation) (lease.Lease, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.Seen.Term += r.base
	l, err := r.Target.Acquire(ctx, c)
	l.Term -= r.base
	return l, err
}

func (r *resets) Get(ctx context.Context, id lease.ID) (lease.Lease, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, err := r.Target.Get(ctx, id)
	l.Term -= r.base
	return l, err
}

func (r *resets) Release(ctx context.Context, h lease.ReleaseRequest) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.Term += r.base
	err := r.Target.Release(ctx, h)
	if err == nil {
		r.base = h.Term
	}
	return err
}

type revives struct{ Target }

func (r revives) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	n, err := r.Target.RenewSession(ctx, id)
	if errors.Is(err, lease.ErrLapsed) {
		return lease.Renewal{Seq: time.Now().UnixNano()}, nil
	}
	return n, err
}

type ignoresSeq struct{ Target }

func (r ignoresSeq) Acquire(ctx context.Context, c lease.Expectation) (lease.Lease, error) {
	if now, err := r.Get(ctx, c.Lease); err == nil && now.Term == c.Seen.Term && now.Session == c.Seen.Session {
		c.Seen = now.Seen()
	}
	return r.Target.Acquire(ctx, c)
}

type believes struct{ Target }

func (r believes) Acquire(ctx context.Context, c lease.Expectation) (lease.Lease, error) {
	c.Waited = true
	return r.Target.Acquire(ctx, c)
}

// stale answers every fourth Get from memory.
type stale struct {
	Target
	mu   sync.Mutex
	n    int
	last map[lease.ID]lease.Lease
}

func (r *stale) Get(ctx context.Context, id lease.ID) (lease.Lease, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = map[lease.ID]lease.Lease{}
	}
	if r.n++; r.n%4 == 0 && r.last[id].Term > 0 {
		return r.last[id], nil
	}
	l, err := r.Target.Get(ctx, id)
	r.last[id] = l
	return l, err
}
