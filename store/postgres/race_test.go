package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/postgres"
)

// sabotage replaces a part of a function in the schema.
func sabotage(t *testing.T, url, function, old, new string) {
	t.Helper()
	var def string
	conn := connect(t, url)
	err := conn.QueryRow(t.Context(), "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = $1 AND pronamespace = 'understudy'::regnamespace", function).Scan(&def)
	if err != nil || !strings.Contains(def, old) {
		t.Fatalf("%s has no %q to be replaced (%v):\n%s", function, old, err, def)
	}
	exec(t, url, strings.ReplaceAll(def, old, new))
}

// Each check must pass on the store as it is and must notice its broken twin.
func TestInterleavings(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	for _, c := range []struct {
		name               string
		check              func(t *testing.T, url string) error
		function, old, new string
	}{
		{"a takeover waits for a renewal under way", renewalUnderWay, "acquire", "FOR UPDATE", ""},
		{"a renewal waits for a takeover under way", takeoverUnderWay, "renew_session", "AND NOT n.ended THEN", "THEN"},
		{"a renewal that waited past its deadline is refused", renewalWaits, "clock", "clock_timestamp()", "now()"},
		{"contenders that are refused lock nothing", contendersLockNothing, "acquire", "THEN 2 ELSE 1 END", "THEN 2 ELSE 2 END"},
		{"an answer shows the lease that it is about", answerIsOfOnePiece, "acquire", "IF l.term IS NULL THEN\n        SELECT", "IF true THEN\n        SELECT"},
		{"a session does not end while it takes a lease", endWaitsForClaim, "acquire", "FOR KEY SHARE", ""},
		{"a commit that lags changes Changes", lateCommit, "changes", "+ v_seen", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			url := server.NewDatabase(t)
			open(t, url)
			if err := c.check(t, url); err != nil {
				t.Error(err)
			}
			sabotage(t, url, c.function, c.old, c.new)
			if err := c.check(t, url); err == nil {
				t.Error("the broken twin was not noticed")
			}
		})
	}
}

const acquireSQL = "SELECT verdict FROM understudy.acquire('role', $1, $2, $3, $4, $5, $6, 10000)"

// later starts f and returns where its result will be.
func later(f func() error) <-chan error {
	c := make(chan error, 1)
	go func() { c <- f() }()
	return c
}

// waitingSQL counts the statements in the database that wait for a lock.
const waitingSQL = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"

// waiting waits until n statements in the database wait for a lock.
func waiting(t *testing.T, url string, n int) {
	t.Helper()
	conn := connect(t, url)
	realserver.Eventually(t, 10*time.Second, fmt.Sprintf("%d statements wait", n), func() error {
		var got int
		err := conn.QueryRow(t.Context(), waitingSQL).Scan(&got)
		if err == nil && got < n {
			err = fmt.Errorf("%d wait", got)
		}
		return err
	})
}

// lapse waits until the session has lapsed by the server's clock.
func lapse(t *testing.T, s lease.Store, id lease.ID) lease.Lease {
	t.Helper()
	var l lease.Lease
	realserver.Eventually(t, 10*time.Second, "the holder lapses", func() (err error) {
		if l, err = s.Get(t.Context(), id); err == nil && l.Remaining > 0 {
			err = fmt.Errorf("%v left", l.Remaining)
		}
		return err
	})
	return l
}

func renewalUnderWay(t *testing.T, url string) error {
	s, id := open(t, url), role(lease.NewID())
	a, c := start(t, s, "a", 200*time.Millisecond), start(t, s, "c", time.Minute)
	take(t, s, id, a, false)
	tx := begin(t, connect(t, url))
	if _, err := tx.Exec(t.Context(), "SELECT understudy.renew_session($1, 10000)", a.ID); err != nil {
		t.Fatal(err)
	}
	seen := lapse(t, s, id) // as the row was before the renewal
	claim := later(func() error {
		_, err := s.Acquire(t.Context(), lease.Claim{Lease: id, Session: c.ID, Seen: seen.Seen()})
		return err
	})
	waiting(t, url, 1)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-claim; !errors.Is(err, lease.ErrHeld) {
		return fmt.Errorf("a claim beside a renewal that succeeded: %v, want ErrHeld", err)
	}
	return nil
}

func takeoverUnderWay(t *testing.T, url string) error {
	s, id := open(t, url), role(lease.NewID())
	a, c := start(t, s, "a", time.Minute), start(t, s, "c", time.Minute)
	seen := take(t, s, id, a, false).Seen()
	tx := begin(t, connect(t, url))
	var verdict string
	if err := tx.QueryRow(t.Context(), acquireSQL, id.Key, c.ID, seen.Term, seen.Session, seen.Seq, true).Scan(&verdict); err != nil || verdict != "taken" {
		t.Fatal(verdict, err)
	}
	renewal := later(func() error { _, err := s.RenewSession(t.Context(), a.ID); return err })
	waiting(t, url, 1)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-renewal; !errors.Is(err, lease.ErrLapsed) {
		return fmt.Errorf("a renewal beside a takeover that succeeded: %v, want ErrLapsed", err)
	}
	return nil
}

func renewalWaits(t *testing.T, url string) error {
	s, id := open(t, url), role(lease.NewID())
	a := start(t, s, "a", 300*time.Millisecond)
	take(t, s, id, a, false)
	tx := begin(t, connect(t, url))
	if _, err := tx.Exec(t.Context(), "SELECT FROM understudy.session WHERE id = $1 FOR UPDATE", a.ID); err != nil {
		t.Fatal(err)
	}
	renewal := later(func() error { _, err := s.RenewSession(t.Context(), a.ID); return err })
	waiting(t, url, 1)
	lapse(t, open(t, url), id)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-renewal; !errors.Is(err, lease.ErrLapsed) {
		return fmt.Errorf("a renewal that waited until its session had lapsed: %v, want ErrLapsed", err)
	}
	return nil
}

func contendersLockNothing(t *testing.T, url string) error {
	s, id := open(t, url), role(lease.NewID())
	a, c := start(t, s, "a", time.Minute), start(t, s, "c", time.Minute)
	seen := take(t, s, id, a, false).Seen()
	tx := begin(t, connect(t, url))
	var verdict string
	if err := tx.QueryRow(t.Context(), acquireSQL, id.Key, c.ID, seen.Term, seen.Session, seen.Seq, false).Scan(&verdict); err != nil || verdict != "held" {
		t.Fatal(verdict, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := s.RenewSession(ctx, a.ID); err != nil {
		return fmt.Errorf("a renewal was held up by a claim that was refused: %w", err)
	}
	return nil
}

// answerIsOfOnePiece takes the lease from its holder while the holder, who asks
// for it again, is between the look and the answer.
func answerIsOfOnePiece(t *testing.T, url string) error {
	s, id := open(t, url), role(lease.NewID())
	a, b := start(t, s, "a", time.Minute), start(t, s, "b", time.Minute)
	seen := take(t, s, id, a, false).Seen()
	gate := begin(t, connect(t, url))
	if _, err := gate.Exec(t.Context(), "SELECT pg_advisory_xact_lock(7)"); err != nil {
		t.Fatal(err)
	}
	const clock = "CREATE OR REPLACE FUNCTION understudy.clock() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN %s RETURN clock_timestamp(); END $$"
	exec(t, url, fmt.Sprintf(clock, "PERFORM pg_advisory_xact_lock_shared(7);"))
	var got lease.Lease
	answered := later(func() (err error) {
		got, err = s.Acquire(t.Context(), lease.Claim{Lease: id, Session: a.ID, Seen: seen})
		return err
	})
	waiting(t, url, 1)
	exec(t, url, fmt.Sprintf("UPDATE understudy.lease SET term = term + 1, session = '%s' WHERE key = '%s'", b.ID, id.Key))
	if err := gate.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := <-answered
	exec(t, url, fmt.Sprintf(clock, ""))
	if err != nil {
		t.Fatal(err)
	}
	if got.Session != a.ID || got.Term != seen.Term {
		return fmt.Errorf("a was told that it has the lease, and was shown term %d of another session", got.Term)
	}
	return nil
}

func endWaitsForClaim(t *testing.T, url string) error {
	s, id := open(t, url), role(lease.NewID())
	a := start(t, s, "a", time.Minute)
	tx := begin(t, connect(t, url))
	var verdict string
	if err := tx.QueryRow(t.Context(), acquireSQL, id.Key, a.ID, 0, "", 0, false).Scan(&verdict); err != nil || verdict != "taken" {
		t.Fatal(verdict, err)
	}
	ended := later(func() error { return s.EndSession(t.Context(), a.ID, "stopped") })
	select {
	case <-ended:
	case <-time.After(300 * time.Millisecond):
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	var l lease.Lease
	realserver.Eventually(t, 5*time.Second, "the session ends", func() (err error) {
		sessions, err := s.Sessions(t.Context())
		for _, n := range sessions {
			if n.ID == a.ID {
				return errors.New("it lives")
			}
		}
		l, _ = s.Get(t.Context(), id)
		return err
	})
	if l.Session != "" {
		return fmt.Errorf("a session ended and kept a lease: %+v", l)
	}
	return nil
}

func lateCommit(t *testing.T, url string) error {
	s := open(t, url)
	a := start(t, s, "a", time.Minute)
	tx := begin(t, connect(t, url))
	var verdict string
	if err := tx.QueryRow(t.Context(), acquireSQL, lease.NewID(), a.ID, 0, "", 0, false).Scan(&verdict); err != nil || verdict != "taken" {
		t.Fatal(verdict, err)
	}
	other := start(t, s, "other", time.Minute)
	before, err := s.RenewSession(t.Context(), other.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, err := s.RenewSession(t.Context(), other.ID)
	if err != nil {
		t.Fatal(err)
	}
	if after.Changes == before.Changes {
		return errors.New("Changes stayed when an acquisition became visible")
	}
	return nil
}

// TestDeadline lets renewals and takeovers meet at the deadline, by the real
// clock: never may both succeed.
func TestDeadline(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	url := server.NewDatabase(t)
	const timeout = 15 * time.Millisecond
	rounds := 300
	if testing.Short() {
		rounds = 30
	}
	var renewed, taken, neither int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 3 {
		holder, contender := open(t, url), open(t, url)
		id := role(lease.NewID())
		c := start(t, contender, "c", time.Hour)
		wg.Go(func() {
			for range rounds {
				kept, got := meet(t, holder, contender, id, c.ID, timeout)
				mu.Lock()
				switch {
				case kept && got:
					t.Error("a session was renewed and its lease was taken as it stood before")
				case kept:
					renewed++
				case got:
					taken++
				default:
					neither++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("renewed %d times, taken over %d times, neither %d times", renewed, taken, neither)
	if !testing.Short() && (renewed < rounds/20 || taken < rounds/20) {
		t.Errorf("renewals and takeovers hardly met: %d and %d", renewed, taken)
	}
}

// meet lets one renewal and one claim race at the deadline.
func meet(t *testing.T, holder, contender *postgres.Store, id lease.ID, claimant string, timeout time.Duration) (kept, got bool) {
	a := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance("a", ""), Timing: lease.Timing{Interval: timeout / 5, Timeout: timeout}}
	l, err := contender.Get(t.Context(), id)
	if err != nil {
		t.Error(err)
		return false, false
	}
	began := time.Now()
	if _, err := holder.StartSession(t.Context(), a); err != nil {
		t.Error(err)
		return false, false
	}
	l, err = holder.Acquire(t.Context(), lease.Claim{Lease: id, Session: a.ID, Seen: l.Seen(), Waited: true})
	if err != nil {
		return false, false // lapsed while it was taking it
	}
	when := time.After(time.Until(began.Add(timeout)) - rand.N(4*time.Millisecond))
	<-when
	renewal := later(func() error { _, err := holder.RenewSession(t.Context(), a.ID); return err })
	taken, claimErr := contender.Acquire(t.Context(), lease.Claim{Lease: id, Session: claimant, Seen: l.Seen()})
	renewErr := <-renewal
	for _, err := range []error{claimErr, renewErr} {
		if err != nil && !errors.Is(err, lease.ErrHeld) && !errors.Is(err, lease.ErrLapsed) {
			t.Error(err)
		}
	}
	if claimErr == nil {
		if err := contender.Release(t.Context(), lease.Handback{Lease: id, Session: claimant, Term: taken.Term}); err != nil {
			t.Error(err)
		}
	}
	return renewErr == nil, claimErr == nil
}
