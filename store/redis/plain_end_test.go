package redis_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/redis"
)

// holds gives the session n leases.
func holds(t *testing.T, s store.Store, session string, n int) (ids []lease.ID) {
	t.Helper()
	for i := range n {
		id := lease.ID{Space: "role", Key: fmt.Sprintf("r%04d", i)}
		if _, err := s.Acquire(t.Context(), lease.Expectation{Lease: id, Session: session}); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// A session ends and is rid of its leases at one moment: at each step of its end, others
// see it hold all of them, or none.
func TestPlainEndIsOneMoment(t *testing.T) {
	s, prefix := startSable(t), prefixOf(t)
	st, other := s.open(t, prefix), s.open(t, prefix)
	me := plainSession(t, st, "a", time.Minute)
	ids := holds(t, st, me.ID, 3)
	var looking atomic.Bool
	var looks atomic.Int32
	s.Before(func([]string) {
		if !looking.CompareAndSwap(false, true) {
			return // one of the requests of the look itself
		}
		defer looking.Store(false)
		looks.Add(1)
		held := 0
		for _, id := range ids {
			l, err := other.Get(t.Context(), id)
			switch {
			case err != nil:
				t.Errorf("Get: %v", err)
			case l.Ended:
				t.Errorf("%s is shown with a holder whose session has ended", id)
			case l.Session == me.ID:
				held++
			}
		}
		if held != 0 && held != len(ids) {
			t.Errorf("%d of %d leases are held while the session ends", held, len(ids))
		}
	})
	if err := st.EndSession(t.Context(), me.ID, "stopped"); err != nil {
		t.Fatal(err)
	}
	s.Before(nil)
	if n := looks.Load(); n < 5 {
		t.Errorf("others have looked %d times", n)
	}
	for _, id := range ids {
		if l, err := other.Get(t.Context(), id); err != nil || l.Session != "" || l.Term == 0 {
			t.Errorf("after the end %s is %+v, %v", id, l, err)
		}
	}
	events, err := st.Read(t.Context(), history.Query{})
	if err != nil || len(events) != 2*len(ids) {
		t.Fatalf("the history has %d events, %v; want %d", len(events), err, 2*len(ids))
	}
	for _, e := range events[len(ids):] {
		if e.From != me.Instance.Label() || e.To != "" || e.Reason != "stopped" {
			t.Errorf("a release is recorded as %+v", e)
		}
	}
}

// What a session takes while it ends is either refused or released with the rest.
func TestPlainEndMeetsATaker(t *testing.T) {
	s, prefix := startSable(t), prefixOf(t)
	st, other := s.open(t, prefix), s.open(t, prefix)
	me := plainSession(t, st, "a", time.Minute)
	holds(t, st, me.ID, 1)
	late := lease.ID{Space: "role", Key: "late"}
	var begun atomic.Bool
	s.Before(func(args []string) {
		if args[0] == "WATCH" && begun.CompareAndSwap(false, true) {
			if _, err := other.Acquire(t.Context(), lease.Expectation{Lease: late, Session: me.ID}); err != nil {
				t.Errorf("Acquire of a session that has not ended yet: %v", err)
			}
		}
	})
	if err := st.EndSession(t.Context(), me.ID, "stopped"); err != nil {
		t.Fatal(err)
	}
	if l, err := st.Get(t.Context(), late); err != nil || l.Session != "" || l.Term == 0 {
		t.Errorf("what was taken meanwhile is %+v, %v; want it released", l, err)
	}
}

// The end of a session with very many leases takes several steps. With the first all of them
// are free to be taken, and from then on nothing is said to have been without effect.
func TestPlainEndOfMany(t *testing.T) {
	s, prefix := startSable(t), prefixOf(t)
	st, other := s.open(t, prefix), s.open(t, prefix)
	me := plainSession(t, st, "a", time.Hour) // its lapse would begin the step anew
	ids := holds(t, st, me.ID, redis.EndChunk+10)
	var steps atomic.Int32
	s.Before(func(args []string) {
		if args[0] == "WATCH" && steps.Add(1) == 2 {
			s.Before(nil)
			for _, id := range []lease.ID{ids[0], ids[len(ids)-1]} {
				if l, err := other.Get(t.Context(), id); err != nil || !l.Free() {
					t.Errorf("after the first step %s is %+v, %v; want it free", id, l, err)
				}
			}
			s.Cut()
		}
	})
	if err := st.EndSession(t.Context(), me.ID, "stopped"); !errors.Is(err, lease.ErrUnknown) || errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("an end that was cut off after its first step: %v, want ErrUnknown alone", err)
	}
	realserver.Eventually(t, time.Minute, "the session has ended", func() error {
		return st.EndSession(context.Background(), me.ID, "stopped")
	})
	all, err := st.List(t.Context(), "role", "", lease.MaxList)
	if err != nil || len(all) != len(ids) {
		t.Fatalf("List shows %d leases, %v; want %d", len(all), err, len(ids))
	}
	for _, l := range all {
		if l.Session != "" || l.Term == 0 {
			t.Errorf("after the end %s is %+v", l.ID, l)
		}
	}
}
