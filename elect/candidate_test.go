package elect_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/memory"
)

func startCandidate(t *testing.T, n *node) *elect.Candidate {
	t.Helper()
	c, err := elect.NewCandidate(elect.Config{Keeper: n.Keeper, Role: "r"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel(errStop)
		if err := <-done; !errors.Is(err, errStop) {
			t.Errorf("Run returned %v", err)
		}
	})
	return c
}

// Both are asked all the time: work of two never overlaps, and terms only grow.
func TestCandidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		a, b := start(t, store, "a"), start(t, store, "b")
		ca, cb := startCandidate(t, a), startCandidate(t, b)
		s := newStage(t)
		work := func(ctx context.Context, term elect.Term) error {
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			return s.work(200*time.Millisecond)(short, term)
		}
		var terms atomic.Int64
		ask := func(c *elect.Candidate) func() bool {
			return func() bool {
				if err := c.RunIfPrimary(func(_ context.Context, term elect.Term) error { terms.Store(term.Number); return nil }); err != nil {
					if !errors.Is(err, elect.ErrStandby) {
						t.Errorf("refused with %v", err)
					}
					return false
				}
				return true
			}
		}
		until(t, time.Minute, "a primary", func() bool { return ask(ca)() || ask(cb)() })
		first, second, node := ca, cb, a
		if !ask(ca)() {
			first, second, node = cb, ca, b
		}
		before := terms.Load()
		if ask(second)() {
			t.Error("both may run")
		}
		go func() { _ = first.RunIfPrimary(work) }()
		node.cut()
		until(t, timing.WorstTakeover()+time.Second, "a takeover", ask(second))
		if ask(first)() {
			t.Error("the old primary may still run")
		}
		if now := terms.Load(); now <= before {
			t.Errorf("term %d after %d", now, before)
		}
		if err := second.RunIfPrimary(work); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		node.mend()
	})
}

// A role is not handed over while admitted work runs.
func TestCandidateWaitsForItsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		a := start(t, store, "a")
		c := startCandidate(t, a)
		until(t, time.Minute, "a primary", func() bool {
			return c.RunIfPrimary(func(context.Context, elect.Term) error { return nil }) == nil
		})
		cause := make(chan error, 1)
		var ended atomic.Bool
		go func() {
			_ = c.RunIfPrimary(func(ctx context.Context, _ elect.Term) error {
				<-ctx.Done()
				time.Sleep(500 * time.Millisecond)
				ended.Store(true)
				cause <- context.Cause(ctx)
				return nil
			})
		}()
		b := start(t, store, "b")
		second := startCandidate(t, b)
		time.Sleep(time.Second)
		if _, err := elect.Resign(t.Context(), store, elect.ResignRequest{Role: "r"}); err != nil {
			t.Fatal(err)
		}
		until(t, time.Minute, "a successor", func() bool {
			return second.RunIfPrimary(func(context.Context, elect.Term) error {
				if !ended.Load() {
					t.Error("it was released while the work ran")
				}
				return nil
			}) == nil
		})
		if err := <-cause; !errors.Is(err, lease.ErrResign) {
			t.Errorf("the work was cancelled with %v", err)
		}
	})
}
