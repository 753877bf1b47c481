package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/sqlite"
)

func count(t testing.TB, path, from string, args ...any) (n int) {
	t.Helper()
	if err := plain(t, path).QueryRow("SELECT count(*) FROM "+from, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestOldSessionsAreForgotten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	c := &clock{Clock: lease.BootClock()}
	s := open(t, sqlite.Config{Path: path, Clock: c, Wall: c.Wall})
	timing := lease.Timing{Interval: 5 * time.Second, Timeout: 30 * time.Second}
	holds := session(t, s, "holds", timing)
	take(t, s, holds, "r")
	for range 50 {
		n := session(t, s, "gone", timing)
		if _, err := s.Join(t.Context(), roleR, n.ID); err != nil {
			t.Fatal(err)
		}
	}
	long := session(t, s, "long", lease.Timing{Interval: time.Minute, Timeout: lease.MaxTimeout})
	c.step(24*time.Hour - time.Minute)
	if _, err := s.RenewSession(t.Context(), long.ID); err != nil {
		t.Fatal(err)
	}
	session(t, s, "new", timing)
	if n := count(t, path, "understudy_session WHERE name = 'gone'"); n != 50 {
		t.Fatalf("%d of 50 sessions are left before a day has passed", n)
	}
	c.step(2 * time.Minute)
	realserver.Eventually(t, ample, "forgetting", func() error {
		session(t, s, "new", timing)
		if n := count(t, path, "understudy_session WHERE name = 'gone'"); n > 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
	if n := count(t, path, "understudy_waiter"); n != 0 {
		t.Errorf("%d waiters are left of sessions that were forgotten", n)
	}
	if n := count(t, path, "understudy_session WHERE id IN (?, ?)", holds.ID, long.ID); n != 2 {
		t.Errorf("%d of the two sessions that hold or live are left", n)
	}
}

// A program that starts over and over waits for the same lease each time.
func TestDeadWaitersMakeRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	c := &clock{Clock: lease.BootClock()}
	s := open(t, sqlite.Config{Path: path, Clock: c, Wall: c.Wall})
	for range 20 {
		n := session(t, s, "again", lease.Timing{Interval: 10 * time.Second, Timeout: time.Minute})
		if _, err := s.Join(t.Context(), roleR, n.ID); err != nil {
			t.Fatal(err)
		}
		c.step(time.Minute)
	}
	if n := count(t, path, "understudy_waiter"); n != 1 {
		t.Errorf("%d rows wait, want the last one", n)
	}
}

// More changes at once than a watcher is told one by one.
func TestWatchOfABurst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, sqlite.Config{Path: path})
	n := session(t, s, "a", lease.Timing{Interval: time.Minute, Timeout: time.Hour})
	hold(t, path, n, 1500)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changes, done := make(chan lease.Change, 100), make(chan error, 1)
	go func() { done <- s.Watch(ctx, func(c lease.Change) { changes <- c }) }()
	next := func() lease.Change {
		t.Helper()
		select {
		case c := <-changes:
			return c
		case <-time.After(ample):
			t.Fatal("no wake-up")
			return lease.Change{}
		}
	}
	next() // ready
	if err := s.EndSession(amply(t), n.ID, "stopped"); err != nil {
		t.Fatal(err)
	}
	if c := next(); c != (lease.Change{}) {
		t.Errorf("a burst begins with %+v, want the zero Change", c)
	}
	me := session(t, s, "b", patient)
	l := take(t, s, me, "r")
	if c, want := next(), (lease.Change{Lease: l.ID, Term: l.Term}); c != want {
		t.Errorf("after the burst: %+v, want %+v", c, want)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Watch: %v", err)
	}
}

// hold gives a session many leases at once.
func hold(t testing.TB, path string, n lease.Session, leases int) {
	t.Helper()
	_, err := plain(t, path).Exec(`
WITH RECURSIVE i (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < ?1)
INSERT INTO understudy_lease (space, key, term, session, since_us) SELECT 'many', printf('key-%08d', n), 1, ?2, 0 FROM i`, leases, n.ID)
	if err != nil {
		t.Fatal(err)
	}
}

func TestEndOfASessionWithManyLeases(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, sqlite.Config{Path: path})
	n := session(t, s, "a", lease.Timing{Interval: time.Minute, Timeout: time.Hour})
	const leases = 5500 // more than is released at once
	hold(t, path, n, leases)
	began := time.Now()
	if err := s.EndSession(amply(t), n.ID, "stopped"); err != nil {
		t.Fatal(err)
	}
	t.Logf("releasing %d leases took %v", leases, time.Since(began))
	if n := count(t, path, "understudy_lease WHERE session <> ''"); n != 0 {
		t.Errorf("%d leases are still held", n)
	}
	if n := count(t, path, "understudy_event WHERE reason = 'stopped' AND from_label = ?", n.Instance.Label()); n != leases {
		t.Errorf("%d events, want %d", n, leases)
	}
	if deleted, err := s.Trim(t.Context(), 10); err != nil || deleted != leases-10 {
		t.Errorf("Trim = %d, %v; want %d", deleted, err, leases-10)
	}
	if _, err := s.RenewSession(t.Context(), n.ID); !errors.Is(err, lease.ErrLapsed) {
		t.Errorf("RenewSession after the end: %v, want ErrLapsed", err)
	}
}
