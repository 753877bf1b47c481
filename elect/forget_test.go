package elect_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store/memory"
)

// hold takes leases under one session of a minute.
func hold(t *testing.T, st *memory.Store, ids ...lease.ID) (session string) {
	t.Helper()
	s := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance("old", ""), Timing: lease.Timing{Interval: 10 * time.Second, Timeout: time.Minute}}
	if _, err := st.StartSession(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if _, err := st.Acquire(t.Context(), lease.Expectation{Lease: id, Session: s.ID}); err != nil {
			t.Fatal(err)
		}
	}
	return s.ID
}

func roleNames(t *testing.T, st *memory.Store) (names []string) {
	t.Helper()
	roles, err := elect.Roles(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range roles {
		names = append(names, r.Name)
	}
	return names
}

func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(nil)
		clock := &leasetest.BubbleClock{}
		forget := func(within time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			return elect.Forget(ctx, st, clock, "r", "alice")
		}
		refused := func(what string, want error) {
			t.Helper()
			if err := forget(time.Hour); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
		refused("never held", lease.ErrNotFound)
		hold(t, st, elect.Leases("r", 2)...)
		hold(t, st, elect.Leases("rr", 1)...)
		refused("held", lease.ErrHeld)
		time.Sleep(time.Minute)
		if err := forget(time.Second); !errors.Is(err, lease.ErrHeld) {
			t.Errorf("with less time than the holder may trust it for: %v, want ErrHeld", err)
		}
		started := time.Now()
		if err := forget(time.Hour); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(started); took < time.Minute {
			t.Errorf("it was forgotten after %v, in which its last holder may still trust it", took)
		}
		if names := roleNames(t, st); len(names) != 1 || names[0] != "rr" {
			t.Errorf("left are %q, want rr alone", names)
		}
		events, err := st.Read(t.Context(), history.Query{Subject: "r", Newest: true, Limit: 1})
		if err != nil || len(events) != 1 || events[0].Reason != "forgotten by alice" {
			t.Errorf("the history: %+v, %v", events, err)
		}
		// What was interrupted can be done again: only a further place is left.
		if err := st.EndSession(t.Context(), hold(t, st, elect.Leases("r", 2)[1]), "stopped"); err != nil {
			t.Fatal(err)
		}
		if err := forget(time.Hour); err != nil || len(roleNames(t, st)) != 1 {
			t.Errorf("with a further place alone: %v, left are %q", err, roleNames(t, st))
		}
		refused("forgotten", lease.ErrNotFound)
	})
}

func TestForgetVacant(t *testing.T) {
	const month = 30 * 24 * time.Hour
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(nil)
		clock := &leasetest.BubbleClock{}
		hold(t, st, elect.Leases("crashed", 1)[0], lease.ID{Space: elect.OnceSpace, Key: "yearly"},
			lease.ID{Space: "shard", Key: "orders"}, lease.ID{Space: "job", Key: "nightly"})
		for _, ids := range [][]lease.ID{elect.Leases("released", 2), elect.Leases("half", 1)} {
			if err := st.EndSession(t.Context(), hold(t, st, ids...), "stopped"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(month / 2)
		hold(t, st, elect.Leases("newer", 1)...)
		time.Sleep(month/2 + time.Minute)
		hold(t, st, elect.Leases("held", 1)[0], elect.Leases("half", 2)[1])
		forget := func() int {
			n, err := elect.ForgetVacant(t.Context(), st, clock, month, "age")
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if n := forget(); n != 4 { // two places of one, crashed, nightly
			t.Errorf("it forgot %d leases, want 4", n)
		}
		spaces, err := st.Spaces(t.Context())
		if err != nil || len(spaces) != 3 {
			t.Errorf("left are %+v, %v", spaces, err)
		}
		time.Sleep(366 * 24 * time.Hour)
		if n := forget(); n != 5 {
			t.Errorf("a year later it forgot %d leases, want 5: newer, held, half's two places and the yearly job", n)
		}
	})
}
