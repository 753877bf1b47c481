package elect_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/store/memory"
)

// A role that is held only with another follows it when that one moves.
func TestWithFollowsAMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		s := newStage(t)
		a, b := start(t, store, "a"), start(t, store, "B")
		var mu sync.Mutex
		var causes []error
		near := func(ctx context.Context, term elect.Term) error {
			err := s.work(0)(ctx, term)
			mu.Lock()
			defer mu.Unlock()
			causes = append(causes, context.Cause(ctx))
			return err
		}
		b.run(t, elect.Run, elect.Config{Role: "near", With: "main"}, near)
		a2, b2 := start(t, store, "A"), start(t, store, "b") // the same machines, other processes
		a2.run(t, elect.Run, elect.Config{Role: "near", With: "main"}, near)
		time.Sleep(time.Minute)
		if s.who("near") != "" {
			t.Errorf("%s holds a role whose companion nobody holds", s.who("near"))
		}
		a.run(t, elect.Run, elect.Config{Role: "main"}, s.work(0))
		until(t, 2*timing.Interval, "near joins main on a", func() bool { return s.who("near") == "A" })
		b2.run(t, elect.Run, elect.Config{Role: "main"}, s.work(0))
		time.Sleep(20 * time.Second)
		if _, err := elect.Resign(t.Context(), store, elect.ResignRequest{Role: "main", Successor: "b", By: "operator"}); err != nil {
			t.Fatal(err)
		}
		until(t, timing.Interval, "main moves", func() bool { return s.who("main") == "b" })
		until(t, 2*timing.Interval, "near follows", func() bool { return s.who("near") == "B" })
		mu.Lock()
		defer mu.Unlock()
		if len(causes) != 1 || !errors.Is(causes[0], elect.ErrMoved) {
			t.Errorf("the work that had to move was told %v", causes)
		}
	})
}

func TestWithLosesItsCompanion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		s := newStage(t)
		a, a2 := start(t, store, "a"), start(t, store, "a")
		a.run(t, elect.Run, elect.Config{Role: "main"}, s.work(0))
		a2.run(t, elect.Run, elect.Config{Role: "near", With: "main"}, s.work(0))
		until(t, 2*timing.Interval, "near plays", func() bool { return s.who("near") == "a" })
		a.cut()
		// A lapse wakes nobody: it is found by looking every ten intervals.
		until(t, timing.Timeout+11*timing.Interval, "near stops", func() bool { return s.who("near") == "" })
		time.Sleep(20 * time.Second)
		if n := s.terms("near"); n != 1 {
			t.Errorf("near has %d terms, and its companion has none after the first", n)
		}
	})
}

// Of a companion with several holders, each place counts.
func TestWithSeveralHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		idle := func(ctx context.Context, _ elect.Term) error { <-ctx.Done(); return ctx.Err() }
		holders := func(role, names string) {
			t.Helper()
			until(t, timing.Timeout+11*timing.Interval, role+" on "+names, func() bool {
				all, err := elect.Holders(t.Context(), store, role)
				var got strings.Builder
				for _, p := range all {
					got.WriteString(p.Name)
				}
				return (err == nil || errors.Is(err, elect.ErrVacant)) && got.String() == names
			})
		}
		main := elect.Config{Role: "main", Holders: 2}
		near := elect.Config{Role: "near", Holders: 2, With: "main"}
		a := start(t, store, "a")
		first := a.run(t, elect.Run, main, idle)
		holders("main", "a")
		b := start(t, store, "b")
		second := b.run(t, elect.Run, main, idle)
		holders("main", "ab")
		start(t, store, "a").run(t, elect.Run, near, idle)
		holders("near", "a")
		start(t, store, "b").run(t, elect.Run, near, idle)
		holders("near", "ab")
		first.cancel(errStop)
		holders("main", "b")
		holders("near", "b")
		second.cancel(errStop)
		holders("near", "")
	})
}
