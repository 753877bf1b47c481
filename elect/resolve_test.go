package elect_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store/memory"
)

func events(t *testing.T, store *memory.Store) []history.Event {
	t.Helper()
	es, err := store.Read(t.Context(), history.Query{})
	if err != nil || len(es) == 0 {
		t.Fatalf("the history has %d events, %v", len(es), err)
	}
	return es
}

func TestRoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		s := newStage(t)
		a, b := start(t, store, "a"), start(t, store, "b")
		a.run(t, elect.Run, elect.Config{Role: "one"}, s.work(0))
		gone := a.run(t, elect.Run, elect.Config{Role: "vacant"}, s.work(0))
		time.Sleep(time.Second)
		b.run(t, elect.Run, elect.Config{Role: "one"}, s.work(0))
		if err := gone.result(); !errors.Is(err, errStop) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		roles, err := elect.Roles(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, r := range roles {
			got[r.Name] = fmt.Sprintf("primary %s, %d standbys for %v, vacant for %v, term: %t", names(r.Primary), len(r.Standbys), r.StandbyFor.Round(time.Second), r.VacantFor.Round(time.Second), r.Term > 0)
		}
		want := map[string]string{
			"one":    "primary a , 1 standbys for 11s, vacant for 0s, term: true",
			"vacant": "primary , 0 standbys for 0s, vacant for 10s, term: true",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Roles (-want +got):\n%s", diff)
		}
		if sb := roles[0].Standbys[0]; sb.Name != "b" || sb.Address != "b:80" || sb.ID != b.Instance().ID {
			t.Errorf("the standby is %+v", sb)
		}
	})
}

func TestResolve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		if _, err := elect.Resolve(t.Context(), store, "a\nb"); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("a hostile role: %v", err)
		}
		mustResolve(t, store, "r", "")
		s := newStage(t)
		a := start(t, store, "a")
		a.run(t, elect.Run, elect.Config{Role: "r"}, s.work(0))
		start(t, store, "b").run(t, elect.Run, elect.Config{Role: "rr"}, s.work(0))
		time.Sleep(time.Second)
		mustResolve(t, store, "r", "a")
		a.cut()
		time.Sleep(timing.Timeout)
		mustResolve(t, store, "r", "")
	})
}

// The place with the lowest number counts, however its number is written.
func TestResolvePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		const places = 12
		for i, id := range elect.Leases("r", places)[1:] { // the first is vacant
			me := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance(fmt.Sprint("i", i+2), ""), Timing: timing}
			_, err := store.StartSession(t.Context(), me)
			if err == nil {
				_, err = store.Acquire(t.Context(), lease.Expectation{Lease: id, Session: me.ID})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		holders, err := elect.Holders(t.Context(), store, "r")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff("i2 i3 i4 i5 i6 i7 i8 i9 i10 i11 i12 ", names(holders)); diff != "" {
			t.Errorf("the holders (-want +got):\n%s", diff)
		}
	})
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		s := newStage(t)
		a, b := start(t, store, "a"), start(t, store, "b")
		ctx, cancel := context.WithCancelCause(t.Context())
		seen, done := make(chan string, 100), make(chan error, 1)
		watch := func(fn func([]elect.Primary) error) {
			done <- elect.Watch(ctx, elect.WatchConfig{Store: store, Role: "r", Clock: a.clock}, fn)
		}
		go watch(func(ps []elect.Primary) error { seen <- names(ps); return nil })
		next := func(want string, within time.Duration) {
			t.Helper()
			began := time.Now()
			if got := <-seen; got != want || time.Since(began) > within {
				t.Errorf("seen %q after %v, want %q within %v", got, time.Since(began), want, within)
			}
		}
		next("", 0)
		time.Sleep(time.Minute)
		a.run(t, elect.Run, elect.Config{Role: "r"}, s.work(0))
		next("a ", 10*time.Millisecond)
		time.Sleep(time.Minute)
		a.cut()
		next("", timing.Timeout+2*time.Millisecond) // a lapse is no event: it is noticed
		b.run(t, elect.Run, elect.Config{Role: "r"}, s.work(0))
		next("b ", timing.WorstTakeover())
		time.Sleep(time.Minute)
		if len(seen) > 0 {
			t.Errorf("and then %q", <-seen)
		}
		cancel(errStop)
		if err := <-done; !errors.Is(err, errStop) {
			t.Errorf("Watch returned %v, want the cause of its context", err)
		}
		ctx = t.Context()
		go watch(func([]elect.Primary) error { return errStop })
		if err := <-done; !errors.Is(err, errStop) {
			t.Errorf("Watch returned %v, want what its function returned", err)
		}
	})
}

// rebooted is a store that shows a holder of the host's boot before, which the wall clock says was silent for a minute.
type rebooted struct {
	*memory.Store
	reads int
}

func (s *rebooted) Get(_ context.Context, id lease.ID) (lease.Lease, error) {
	s.reads++
	return lease.Lease{ID: id, Term: 1, Session: "before", Holder: lease.NewInstance("a", ""), Timing: timing, Foreign: true, Remaining: -time.Minute, Places: 1}, nil
}

func TestWatchAfterReboot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		store := &rebooted{Store: memory.New(nil)}
		var seen [][]elect.Primary
		err := elect.Watch(ctx, elect.WatchConfig{Store: store, Role: "r", Clock: &leasetest.BubbleClock{}}, func(ps []elect.Primary) error {
			seen = append(seen, ps)
			return nil
		})
		if !errors.Is(err, context.DeadlineExceeded) || len(seen) != 1 || len(seen[0]) != 0 {
			t.Errorf("it saw %v, and ended with %v; want a vacant role", seen, err)
		}
		if store.reads > 25 {
			t.Errorf("it looked %d times in 20 intervals", store.reads)
		}
	})
}

func TestResign(t *testing.T) {
	for name, c := range map[string]struct{ successor, heir string }{
		"to anybody": {"", ""}, "to a name": {"c", "c"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New(nil)
				s := newStage(t)
				start(t, store, "a").run(t, elect.Run, elect.Config{Role: "r"}, s.work(0))
				until(t, time.Second, "a plays", func() bool { return s.who("r") == "a" })
				for _, name := range []string{"b", "c", "d"} {
					start(t, store, name).run(t, elect.Run, elect.Config{Role: "r"}, s.work(0))
				}
				time.Sleep(20*time.Second + 300*time.Millisecond) // between two renewals
				if _, err := elect.Resign(t.Context(), store, elect.ResignRequest{Role: "r", Successor: c.successor, By: "operator"}); err != nil {
					t.Fatal(err)
				}
				took := until(t, time.Second, "another plays", func() bool { w := s.who("r"); return w != "a" && w != "" })
				if took > 10*time.Millisecond || c.heir != "" && s.who("r") != c.heir {
					t.Errorf("%s plays after %v", s.who("r"), took)
				}
				heir := s.who("r")
				time.Sleep(time.Minute)
				if s.who("r") != heir || s.terms("r") != 2 {
					t.Errorf("%s plays in the end, after %d terms", s.who("r"), s.terms("r"))
				}
				asked := false
				for _, e := range events(t, store) {
					asked = asked || e.Reason == lease.ReleaseRequestedReason(c.successor, "operator")
				}
				if !asked {
					t.Error("the history does not tell who asked")
				}
			})
		})
	}
}

func TestResignRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		s := newStage(t)
		if _, err := elect.Resign(t.Context(), store, elect.ResignRequest{Role: "r", By: "me"}); !errors.Is(err, elect.ErrVacant) {
			t.Errorf("a role that nobody holds: %v", err)
		}
		start(t, store, "a").run(t, elect.Run, elect.Config{Role: "r"}, s.work(0))
		time.Sleep(time.Second)
		for role, successor := range map[string]string{"r": "nobody", "r#1": "", "": "", "x": "a"} {
			if _, err := elect.Resign(t.Context(), store, elect.ResignRequest{Role: role, Successor: successor, By: "me"}); !errors.Is(err, lease.ErrInvalid) {
				t.Errorf("role %q to %q: %v, want ErrInvalid", role, successor, err)
			}
		}
		time.Sleep(time.Minute)
		if s.terms("r") != 1 {
			t.Error("a refused request had an effect")
		}
	})
}

// handOver is the longest when a request meets a renewal, which makes each side pause.
const handOver = 250 * time.Millisecond

// Alone, an instance that resigns takes the role again at once: nobody waits for it.
func TestResignAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		s := newStage(t)
		start(t, store, "a").run(t, elect.Run, elect.Config{Role: "r"}, s.work(0))
		time.Sleep(time.Second)
		if _, err := elect.Resign(t.Context(), store, elect.ResignRequest{Role: "r", By: "me"}); err != nil {
			t.Fatal(err)
		}
		if took := until(t, time.Second, "a is back", func() bool { return s.terms("r") == 2 && s.who("r") == "a" }); took > handOver {
			t.Errorf("a is back after %v", took)
		}
	})
}

// Of a role with several holders, each request takes the one that has held its place longest, and a standby
// follows within a hand-over; asked all at once with nobody to follow, they are back at once.
func TestResignOneOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		terms := make(chan string, 100)
		for _, name := range []string{"a", "b", "c"} {
			start(t, store, name).run(t, elect.Run, elect.Config{Role: "r", Holders: 2}, func(ctx context.Context, term elect.Term) error {
				terms <- term.Instance.Name
				<-ctx.Done()
				return nil
			})
			time.Sleep(time.Second)
		}
		<-terms
		<-terms
		resign := func(r elect.ResignRequest) (names []string) {
			t.Helper()
			asked, err := elect.Resign(t.Context(), store, r)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range asked {
				names = append(names, p.Name)
			}
			return names
		}
		for _, step := range [][2]string{{"a", "c"}, {"b", "a"}, {"c", "b"}} {
			if asked := resign(elect.ResignRequest{Role: "r", By: "me"}); !slices.Equal(asked, step[:1]) {
				t.Errorf("%v were asked, want %s", asked, step[0])
			}
			at := time.Now()
			if heir := <-terms; heir != step[1] || time.Since(at) > handOver {
				t.Errorf("%s follows %s after %v, want %s", heir, step[0], time.Since(at), step[1])
			}
			time.Sleep(2 * timing.Timeout)
		}
		// Two requests before the first was answered ask two.
		if asked := append(resign(elect.ResignRequest{Role: "r"}), resign(elect.ResignRequest{Role: "r"})...); len(asked) != 2 || asked[0] == asked[1] {
			t.Errorf("%v were asked", asked)
		}
		time.Sleep(2 * timing.Timeout)
		for range len(terms) {
			<-terms
		}
		if asked := resign(elect.ResignRequest{Role: "r", All: true}); len(asked) != 2 {
			t.Errorf("%v were asked, want both", asked)
		}
		at := time.Now()
		for range 2 {
			<-terms
		}
		if took := time.Since(at); took > handOver {
			t.Errorf("both places were filled after %v", took)
		}
		if _, err := elect.Resign(t.Context(), store, elect.ResignRequest{Role: "r", All: true, Successor: "c"}); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("one successor of all: %v", err)
		}
	})
}
