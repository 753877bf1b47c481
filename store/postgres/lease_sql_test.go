package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/postgres"
)

// contender is a program that has no more than its driver.
type contender struct {
	*testing.T
	conn          *pgx.Conn
	name, attempt string
	session       string
	term          int64
	state         []byte
	wait          int
}

// acquire tries once; where the caller would sleep, it only says that it has.
func (c *contender) acquire(role string) (won bool) {
	c.Helper()
	var attempt, session *string
	var term *int64
	err := c.conn.QueryRow(c.Context(), "SELECT term, state, session, wait_ms, attempt FROM understudy.acquire($1, $2, $3)", role, c.name, c.attempt).
		Scan(&term, &c.state, &session, &c.wait, &attempt)
	if err != nil {
		c.Fatal(err)
	}
	c.attempt = ""
	if term == nil {
		c.attempt = *attempt
		return false
	}
	c.term, c.session = *term, *session
	return true
}

func (c *contender) renew() (answer string) {
	c.Helper()
	if err := c.conn.QueryRow(c.Context(), "SELECT understudy.renew($1)", c.session).Scan(&answer); err != nil {
		c.Fatal(err)
	}
	return answer
}

func (c *contender) exec(code, sql string, args ...any) {
	c.Helper()
	_, err := c.conn.Exec(c.Context(), sql, args...)
	got := ""
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		got = pg.Code
	}
	if got != code || err != nil && code == "" {
		c.Errorf("%s: %v, want SQLSTATE %q", sql, err, code)
	}
}

func TestLeasesInSQL(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	url := server.NewDatabase(t)
	s := open(t, url)
	a, b := &contender{T: t, conn: connect(t, url), name: "web-1"}, &contender{T: t, conn: connect(t, url), name: "web-2"}

	if !a.acquire("billing") || a.state != nil {
		t.Fatalf("the first does not get a role that was never held: %+v", a)
	}
	if p, err := elect.Resolve(t.Context(), s, "billing"); err != nil || p.Name != "web-1" || p.Term != a.term || p.ExpiresIn <= 0 {
		t.Errorf("resolves to %+v, %v", p, err)
	}
	a.exec("", "SELECT understudy.state('billing', $1, $2)", a.term, []byte("page 7"))
	// A holder that renews is not followed, however long the other waits.
	for range 20 {
		if b.acquire("billing") {
			t.Fatal("a role was taken from a holder that renews")
		}
		if b.wait < 10 || b.wait > 1000 {
			t.Errorf("told to wait %d ms", b.wait)
		}
		if got := a.renew(); got != "ok" {
			t.Fatalf("renew: %s", got)
		}
	}
	if _, err := elect.Resign(t.Context(), s, elect.ResignRequest{Role: "billing", Successor: "web-2", By: "me"}); err != nil {
		t.Errorf("web-2 is not listed as a standby: %v", err)
	}
	if got := a.renew(); got != "resign" {
		t.Errorf("renew after a request: %s", got)
	}
	a.exec("", "SELECT understudy.release($1)", a.session)
	if !b.acquire("billing") || string(b.state) != "page 7" || b.term <= a.term {
		t.Fatalf("the successor got term %d after %d and the state %q", b.term, a.term, b.state)
	}
	if got := a.renew(); got != "lost" {
		t.Errorf("renew after the release: %s", got)
	}
	a.exec("US001", "SELECT understudy.state('billing', $1, 'late')", a.term)

	// web-2 dies: a whole T of sleep is due once its session was first seen unmoved.
	slept, dead := 0, 0
	for !a.acquire("billing") {
		slept += a.wait
		if dead++; dead > 1000 {
			t.Fatal("the dead holder is never followed")
		}
	}
	if slept < 5000 || slept > 6100 {
		t.Errorf("the dead holder was followed after %d ms of sleep, want T", slept)
	}
	if l, err := s.Get(t.Context(), elect.Leases("billing", 1)[0]); err != nil || l.Term != a.term || l.Holder.Name != "web-1" || l.Waiting != 0 {
		t.Errorf("the lease is %+v, %v", l, err)
	}
	if got := b.renew(); got != "lost" {
		t.Errorf("renew of the one that was followed: %s", got)
	}
	var state []byte
	if err := a.conn.QueryRow(t.Context(), "SELECT understudy.state('billing')").Scan(&state); err != nil || string(state) != "page 7" {
		t.Errorf("the state is %q, %v", state, err)
	}

	for _, bad := range []string{"acquire('', 'n')", "acquire('a#2', 'n')", "acquire(E'a\\n', 'n')", "acquire(NULL, 'n')", "acquire('r', '')", "acquire('r', 'n', NULL, '1 ms')",
		"state('billing', 1, NULL)", "state('billing', 1, decode(repeat('00', 65537), 'hex'))"} {
		a.exec("22023", "SELECT understudy."+bad)
	}
}

// A transaction that stays open keeps others from taking over: it does not stay so for long. And only who may
// holds roles.
func TestLeasesInSQLAreBounded(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	url := server.NewDatabase(t)
	s := open(t, url)
	held := take(t, s, role("held"), start(t, s, "holder", time.Hour), false)
	exec(t, url, "UPDATE understudy.session SET timeout_ns = 700000000") // of the holder
	for _, c := range []struct{ set, call, want string }{
		{"0", "acquire('r', 'n')", "5s"}, {"0", "renew('x')", "5s"}, {"0", "release('x')", "5s"},
		{"1min", "renew('x')", "5s"}, {"300ms", "renew('x')", "300ms"}, // the server's own setting, if that is shorter
		// Nor longer than the session lives without a renewal: a standby follows after that.
		{"0", "acquire('q', 'n', NULL, '700 ms')", "700ms"}, {"0", "renew('" + held.Session + "')", "700ms"},
		{"0", fmt.Sprintf("state('held', %d, 'x')", held.Term), "700ms"}, {"0", "release('" + held.Session + "')", "700ms"},
	} {
		conn := connect(t, url)
		if _, err := conn.Exec(t.Context(), "SET idle_in_transaction_session_timeout = '"+c.set+"'"); err != nil {
			t.Fatal(err)
		}
		tx := begin(t, conn)
		if _, err := tx.Exec(t.Context(), "SELECT understudy."+c.call); err != nil {
			t.Fatal(err)
		}
		var idle string
		if err := tx.QueryRow(t.Context(), "SHOW idle_in_transaction_session_timeout").Scan(&idle); err != nil || idle != c.want {
			t.Errorf("after %s, with %s, a transaction may be idle for %s, %v; want %s", c.call, c.set, idle, err, c.want)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}
	// In one snapshot from before a wait, a successor would miss the last state.
	strict := &contender{T: t, conn: connect(t, url), name: "n"}
	strict.exec("", "SET default_transaction_isolation = 'repeatable read'")
	strict.exec("25000", "SELECT understudy.acquire('r', 'n')")
	// USAGE on the schema alone, which suffices to enqueue, holds no role and ends no session.
	exec(t, url, "CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA understudy TO app")
	app := &contender{T: t, conn: connect(t, url), name: "n"}
	app.exec("", "SET ROLE app")
	app.exec("42501", "SELECT * FROM understudy.acquire('r', 'n')")
	app.exec("42501", "SELECT understudy.release('x')")
	exec(t, url, "GRANT EXECUTE ON FUNCTION understudy.acquire, understudy.renew, understudy.release TO app")
	if !app.acquire("r") || app.renew() != "ok" {
		t.Error("a role that may does not get the lease")
	}
}

// The state that a successor finds is the last that was written: without the lock a write that had begun would
// land after it had read.
func TestStateIsLockedAndChecked(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	for _, c := range []struct{ old, broken string }{{}, {" FOR SHARE", ""}, {"term = p_term AND ", ""}} {
		url := server.NewDatabase(t)
		s := open(t, url)
		if c.old != "" {
			sabotage(t, url, "write_state", c.old, c.broken)
		}
		holder := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance("a", ""), Timing: lease.Timing{Interval: time.Minute, Timeout: 5 * time.Minute}}
		if _, err := s.StartSession(t.Context(), holder); err != nil {
			t.Fatal(err)
		}
		id := lease.ID{Space: "role", Key: "r"}
		l, err := s.Acquire(t.Context(), lease.Expectation{Lease: id, Session: holder.ID})
		if err != nil {
			t.Fatal(err)
		}
		stale := s.WriteState(t.Context(), id, l.Term-1, []byte("stale"))
		tx := begin(t, connect(t, url))
		if _, err := tx.Exec(t.Context(), postgres.InSQL("SELECT {{rules}}.write_state('role', 'r', $1, 'x', 5000)"), l.Term); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		passed := s.Release(ctx, lease.ReleaseRequest{Lease: id, Session: holder.ID, Term: l.Term}) == nil
		cancel()
		if sound := errors.Is(stale, lease.ErrNotHeld) && !passed; sound != (c.old == "") {
			t.Errorf("without %q: a stale write gets %v, and a release passes a write: %t", c.old, stale, passed)
		}
	}
}
