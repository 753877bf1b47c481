package redis_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/redis"
)

// Very many wait for a lease, and all but one die.
func TestForgetAmongTheDead(t *testing.T) {
	server := realserver.Redis(t, realserver.RedisOptions{})
	s := open(t, server.URL(), "")
	var skew time.Duration
	s.SetSkew(func() time.Duration { return skew })
	holder := start(t, s, "holder", time.Hour)
	l, err := acquire(t.Context(), s, contended, holder.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Release(t.Context(), lease.ReleaseRequest{Lease: contended, Session: holder.ID, Term: l.Term}); err != nil {
		t.Fatal(err)
	}
	wait(t, s, 205, time.Minute) // more than one step of Forget takes off the list
	alive := wait(t, s, 1, time.Hour)
	wait(t, s, 70, time.Minute) // more than are looked at to count them
	skew = 90 * time.Second     // they have lapsed, and not for long
	forget := func() error {
		l, err := s.Get(t.Context(), contended)
		if err != nil {
			t.Fatal(err)
		}
		return s.Forget(t.Context(), lease.ForgetRequest{Lease: contended, Seen: l.Seen(), By: "operator"})
	}
	if err := forget(); !errors.Is(err, lease.ErrHeld) {
		t.Errorf("Forget with one alive among the dead: %v, want ErrHeld", err)
	}
	if err := s.Leave(t.Context(), contended, alive[0].ID); err != nil {
		t.Fatal(err)
	}
	if l, err := s.Get(t.Context(), contended); err != nil || l.Waiting != 0 {
		t.Errorf("%d wait, %v; want none: they are dead", l.Waiting, err)
	}
	if err := forget(); err != nil {
		t.Errorf("Forget: %v", err)
	}
	for _, left := range []string{"w:*", "ws:*", "j:*", "l:*"} {
		if n, err := server.Do("KEYS", s.Root()+left); n != "0" {
			t.Errorf("%s keys %s are left of a lease that was forgotten (%v)", n, left, err)
		}
	}
}

// wait lets sessions wait for the lease.
func wait(t *testing.T, s *redis.Store, n int, timeout time.Duration) []lease.Session {
	t.Helper()
	out := make([]lease.Session, n)
	var wg sync.WaitGroup
	for part := range 8 {
		wg.Go(func() {
			for i := part; i < n; i += 8 {
				out[i] = newSession(fmt.Sprint("waiter", i), timeout)
				_, err := s.StartSession(t.Context(), out[i])
				if err == nil {
					_, err = s.Join(t.Context(), contended, out[i].ID)
				}
				if err != nil {
					t.Errorf("waiter %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	return out
}
