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

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/postgres"
)

// sabotage replaces a part of a function in the schema.
func sabotage(t *testing.T, url, function, old, replacement string) {
	t.Helper()
	var def string
	conn := connect(t, url)
	err := conn.QueryRow(t.Context(), "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname IN ($1, $2) AND pronamespace = 'understudy'::regnamespace ORDER BY proname = $1 LIMIT 1", // an entry point may have the same name
		function, strings.TrimPrefix(postgres.InSQL("{{rules}}.")+function, `"understudy".`)).Scan(&def)
	if err != nil || !strings.Contains(def, old) {
		t.Fatalf("%s has no %q to be replaced (%v):\n%s", function, old, err, def)
	}
	exec(t, url, strings.ReplaceAll(def, old, replacement))
}

// interleaving is a check, and what makes its broken twin of a function: new in place of old.
type interleaving struct {
	name               string
	check              func(t *testing.T, url string) error
	function, old, new string
}

// interleave has each check pass on the store as it is, and notice its broken twin.
func interleave(t *testing.T, database func(t *testing.T) (url string), all []interleaving) {
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			url := database(t)
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

func TestInterleavings(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	interleave(t, func(t *testing.T) string {
		url := server.NewDatabase(t)
		open(t, url)
		stepped(t, url)
		return url
	}, []interleaving{
		{"a takeover waits for a renewal under way", renewalUnderWay, "acquire", "FOR UPDATE", ""},
		{"a renewal waits for a takeover under way", takeoverUnderWay, "renew_session", "AND NOT n.ended THEN", "THEN"},
		{"… whether it locks first or not", takeoverUnderWay, "renew_session", "AND NOT s.ended", ""},
		{"a renewal that waited past its deadline for a row that stayed as it was is refused", renewalWaitsInVain, "renew_session", "IF seq IS NOT NULL AND", "IF false AND"},
		{"an acquisition counts a renewal that came while it waited", renewedWhileAcquiring, "acquire", "IF me.deadline <= t THEN", "IF false THEN"},
		{"a renewal that waited past its deadline is refused", renewalWaits, "clock", "clock_timestamp()", "now()"},
		{"contenders that are refused lock nothing", contendersLockNothing, "acquire", "THEN 2 ELSE 1 END", "THEN 2 ELSE 2 END"},
		{"an answer shows the lease that it is about", answerIsOfOnePiece, "acquire", "IF l.term IS NULL THEN\n        SELECT", "IF true THEN\n        SELECT"},
		{"a session does not end while it takes a lease", endWaitsForClaim, "acquire", "FOR KEY SHARE", ""},
		{"a request that is committed late is seen by the next renewal", lateRequest("renew_session($1, 10000)"), "renew_session", "l.session = p_id AND l.asked", "false"},
		{"… and by one with other sessions", lateRequest("renew_sessions(ARRAY[$1], 10000)"), "renew_sessions", "l.session = r.id AND l.asked", "false"},
	})
}

var acquireSQL = postgres.InSQL("SELECT verdict FROM {{rules}}.acquire('role', $1, $2, $3, $4, $5, $6, 1, 10000)")

// later starts f and returns where its result will be.
func later(f func() error) <-chan error {
	c := make(chan error, 1)
	go func() { c <- f() }()
	return c
}

// waitingSQL counts the statements in the database that wait for a lock.
const waitingSQL = `SELECT count(*) FROM pg_stat_activity
	WHERE wait_event_type = 'Lock' AND datname = current_database() AND backend_type = 'client backend'`

// waiting waits until n statements in the database wait for a lock.
func waiting(t *testing.T, url string, n int) {
	t.Helper()
	conn := connect(t, url)
	realserver.Eventually(t, ample, fmt.Sprintf("%d statements wait", n), func() error {
		var got int
		err := conn.QueryRow(t.Context(), waitingSQL).Scan(&got)
		if err == nil && got < n {
			err = fmt.Errorf("%d wait", got)
		}
		return err
	})
}

// overOrWaits waits until a call that was started has ended, or waits for a lock.
func overOrWaits(t *testing.T, url string, call <-chan error) (over bool, err error) {
	t.Helper()
	conn := connect(t, url)
	realserver.Eventually(t, ample, "the call is over, or waits", func() error {
		select {
		case err = <-call:
			over = true
			return nil
		default:
		}
		var n int
		if err := conn.QueryRow(t.Context(), waitingSQL).Scan(&n); err != nil || n > 0 {
			return err
		}
		return errors.New("neither")
	})
	return over, err
}

// waitsForNobody is an error if the call fails, or waits for someone's lock.
func waitsForNobody(t *testing.T, url string, call func(context.Context) error) error {
	t.Helper()
	ctx := amply(t)
	over, err := overOrWaits(t, url, later(func() error { return call(ctx) }))
	if !over {
		return errors.New("it waits for a lock")
	}
	return err
}

// stepped gives the store a clock that can be set ahead, so that nobody lapses who is not meant to.
func stepped(t *testing.T, url string) {
	t.Helper()
	exec(t, url, `CREATE TABLE understudy.test_clock (ahead interval); INSERT INTO understudy.test_clock VALUES ('0');
		CREATE OR REPLACE FUNCTION understudy.clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS
		$$ SELECT clock_timestamp() + (SELECT ahead FROM understudy.test_clock) $$`)
}

// step sets that clock ahead by so much more.
func step(t *testing.T, url string, by time.Duration) {
	t.Helper()
	exec(t, url, fmt.Sprintf("UPDATE understudy.test_clock SET ahead = ahead + %d * interval '1 us'", by.Microseconds()))
}

// lapsed reads a lease whose holder has lapsed.
func lapsed(t *testing.T, s lease.Store, id lease.ID) lease.Lease {
	t.Helper()
	l, err := s.Get(t.Context(), id)
	if err != nil || l.Remaining > 0 {
		t.Fatalf("%s: %v is left, %v", id, l.Remaining, err)
	}
	return l
}

func renewalUnderWay(t *testing.T, url string) error {
	s, id := open(t, url), role(lease.NewID())
	a, c := start(t, s, "a", time.Hour), start(t, s, "c", 24*time.Hour)
	take(t, s, id, a, false)
	step(t, url, 40*time.Minute)
	tx := begin(t, connect(t, url))
	if _, err := tx.Exec(t.Context(), postgres.InSQL("SELECT {{rules}}.renew_session($1, 10000)"), a.ID); err != nil {
		t.Fatal(err)
	}
	step(t, url, 40*time.Minute)
	seen := lapsed(t, s, id) // as the row was before the renewal
	claim := later(func() error {
		_, err := s.Acquire(t.Context(), lease.Expectation{Lease: id, Session: c.ID, Seen: seen.Seen()})
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
	a, c := start(t, s, "a", time.Hour), start(t, s, "c", time.Hour)
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
	a := start(t, s, "a", time.Hour)
	take(t, s, id, a, false)
	tx := begin(t, connect(t, url))
	if _, err := tx.Exec(t.Context(), "SELECT FROM understudy.session WHERE id = $1 FOR UPDATE", a.ID); err != nil {
		t.Fatal(err)
	}
	renewal := later(func() error { _, err := s.RenewSession(t.Context(), a.ID); return err })
	waiting(t, url, 1)
	// The deadline lies between the moment at which it began to wait and the one at which it continues.
	if _, err := tx.Exec(t.Context(), "UPDATE understudy.session SET deadline = clock_timestamp() WHERE id = $1", a.ID); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-renewal; !errors.Is(err, lease.ErrLapsed) {
		return fmt.Errorf("a renewal that waited until its session had lapsed: %v, want ErrLapsed", err)
	}
	return nil
}

func renewalWaitsInVain(t *testing.T, url string) error {
	s := open(t, url)
	a := start(t, s, "a", time.Hour)
	tx := begin(t, connect(t, url))
	if _, err := tx.Exec(t.Context(), "SELECT FROM understudy.session WHERE id = $1 FOR UPDATE", a.ID); err != nil {
		t.Fatal(err)
	}
	renewal := later(func() error { _, err := s.RenewSession(amply(t), a.ID); return err })
	waiting(t, url, 1)
	step(t, url, 2*time.Hour)
	commit(t, tx)
	if err := <-renewal; !errors.Is(err, lease.ErrLapsed) {
		return fmt.Errorf("a renewal that waited until its session had lapsed: %v, want ErrLapsed", err)
	}
	return nil
}

func renewedWhileAcquiring(t *testing.T, url string) error {
	s, id := open(t, url), role(lease.NewID())
	a, b := start(t, s, "a", 24*time.Hour), start(t, s, "b", time.Hour)
	l := take(t, s, id, a, false)
	if err := s.Release(t.Context(), lease.ReleaseRequest{Lease: id, Session: a.ID, Term: l.Term}); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, connect(t, url))
	if _, err := tx.Exec(t.Context(), "SELECT FROM understudy.lease WHERE space = $1 AND key = $2 FOR UPDATE", id.Space, id.Key); err != nil {
		t.Fatal(err)
	}
	acquired := later(func() error {
		_, err := s.Acquire(amply(t), lease.Expectation{Lease: id, Session: b.ID, Seen: lease.Seen{Term: l.Term}})
		return err
	})
	waiting(t, url, 1)
	step(t, url, 40*time.Minute)
	if _, err := open(t, url).RenewSession(amply(t), b.ID); err != nil {
		t.Fatal(err)
	}
	step(t, url, 40*time.Minute)
	commit(t, tx)
	if err := <-acquired; err != nil {
		return fmt.Errorf("a session that was renewed while it waited acquires: %w", err)
	}
	return nil
}

func contendersLockNothing(t *testing.T, url string) error {
	s, id := open(t, url), role(lease.NewID())
	a, c := start(t, s, "a", time.Hour), start(t, s, "c", time.Hour)
	seen := take(t, s, id, a, false).Seen()
	tx := begin(t, connect(t, url))
	var verdict string
	if err := tx.QueryRow(t.Context(), acquireSQL, id.Key, c.ID, seen.Term, seen.Session, seen.Seq, false).Scan(&verdict); err != nil || verdict != "held" {
		t.Fatal(verdict, err)
	}
	err := waitsForNobody(t, url, func(ctx context.Context) error { _, err := s.RenewSession(ctx, a.ID); return err })
	if err != nil {
		return fmt.Errorf("a renewal was held up by a claim that was refused: %w", err)
	}
	return nil
}

// answerIsOfOnePiece takes the lease from its holder while the holder, who asks
// for it again, is between the look and the answer.
func answerIsOfOnePiece(t *testing.T, url string) error {
	s, id := open(t, url), role(lease.NewID())
	a, b := start(t, s, "a", time.Hour), start(t, s, "b", time.Hour)
	seen := take(t, s, id, a, false).Seen()
	gate := begin(t, connect(t, url))
	if _, err := gate.Exec(t.Context(), "SELECT pg_advisory_xact_lock(7)"); err != nil {
		t.Fatal(err)
	}
	const clock = "CREATE OR REPLACE FUNCTION understudy.clock() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN %s RETURN clock_timestamp(); END $$"
	exec(t, url, fmt.Sprintf(clock, "PERFORM pg_advisory_xact_lock_shared(7);"))
	var got lease.Lease
	answered := later(func() (err error) {
		got, err = s.Acquire(t.Context(), lease.Expectation{Lease: id, Session: a.ID, Seen: seen})
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
	a := start(t, s, "a", time.Hour)
	tx := begin(t, connect(t, url))
	var verdict string
	if err := tx.QueryRow(t.Context(), acquireSQL, id.Key, a.ID, 0, "", 0, false).Scan(&verdict); err != nil || verdict != "taken" {
		t.Fatal(verdict, err)
	}
	ended := later(func() error { return s.EndSession(t.Context(), a.ID, "stopped") })
	over, err := overOrWaits(t, url, ended)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !over {
		err = <-ended
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if l.Session != "" {
		return fmt.Errorf("a session ended and kept a lease: %+v", l)
	}
	return nil
}

func lateRequest(renewal string) func(t *testing.T, url string) error {
	return func(t *testing.T, url string) error {
		holder, id := start(t, open(t, url), "holder", time.Hour), lease.NewID()
		conn, other := connect(t, url), connect(t, url)
		var verdict string
		if err := conn.QueryRow(t.Context(), acquireSQL, id, holder.ID, 0, "", 0, false).Scan(&verdict); err != nil || verdict != "taken" {
			t.Fatal(verdict, err)
		}
		changes := func() (n int64) {
			if err := other.QueryRow(t.Context(), postgres.InSQL("SELECT changes FROM {{rules}}."+renewal), holder.ID).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		tx := begin(t, conn)
		var asked bool
		if err := tx.QueryRow(t.Context(), postgres.InSQL("SELECT {{rules}}.request_release('role', $1, '', 'somebody asked', 10000)"), id).Scan(&asked); err != nil || !asked {
			t.Fatal(asked, err)
		}
		before := changes()
		commit(t, tx)
		if changes() == before {
			return errors.New("changes stayed when a request became visible")
		}
		return nil
	}
}

// TestDeadline lets renewals and takeovers meet at the deadline, by the real
// clock: never may both succeed.
func TestDeadline(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	url := server.NewDatabase(t)
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
			m := meeting{early: 2 * time.Millisecond, timeout: 15 * time.Millisecond}
			for round, began := 0, time.Now(); round < rounds && time.Since(began) < time.Minute && !t.Failed(); round++ {
				kept, got := m.meet(t, holder, contender, id, c.ID)
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

// meeting is how long before the deadline both set out. It follows how long that takes on this
// machine, so that now the one and now the other comes in time.
type meeting struct {
	early   time.Duration // on average
	timeout time.Duration // of the session, which is long enough to start with
}

// learn changes it after a round.
func (m *meeting) learn(kept bool) {
	if kept {
		m.early = max(m.early*9/10, 100*time.Microsecond)
	} else {
		m.early = min(m.early*11/10, time.Minute)
	}
	m.timeout = max(m.timeout, 4*m.early)
}

// meet lets one renewal and one claim race at the deadline.
func (m *meeting) meet(t *testing.T, holder, contender *postgres.Store, id lease.ID, claimant string) (kept, got bool) {
	timeout := m.timeout
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
	l, err = holder.Acquire(t.Context(), lease.Expectation{Lease: id, Session: a.ID, Seen: l.Seen(), Waited: true})
	if err != nil {
		m.timeout = min(2*m.timeout, time.Minute) // lapsed while it was taking it
		return false, false
	}
	<-time.After(time.Until(began.Add(timeout)) - rand.N(2*m.early))
	renewal := later(func() error { _, err := holder.RenewSession(t.Context(), a.ID); return err })
	taken, claimErr := contender.Acquire(t.Context(), lease.Expectation{Lease: id, Session: claimant, Seen: l.Seen()})
	renewErr := <-renewal
	for _, err := range []error{claimErr, renewErr} {
		if err != nil && !errors.Is(err, lease.ErrHeld) && !errors.Is(err, lease.ErrLapsed) {
			t.Error(err)
		}
	}
	if claimErr == nil {
		if err := contender.Release(t.Context(), lease.ReleaseRequest{Lease: id, Session: claimant, Term: taken.Term}); err != nil {
			t.Error(err)
		}
	}
	m.learn(renewErr == nil)
	return renewErr == nil, claimErr == nil
}
