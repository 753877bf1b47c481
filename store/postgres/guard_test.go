package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/postgres"
)

func TestGuard(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run("paused primary/"+string(level), func(t *testing.T) { pausedPrimary(t, server.NewDatabase(t), level) })
		t.Run("term current/"+string(level), func(t *testing.T) { termCurrent(t, server.NewDatabase(t), level) })
	}
	t.Run("locked at commit", func(t *testing.T) {
		url := server.NewDatabase(t)
		open(t, url)
		if err := lockedAtCommit(t, url); err != nil {
			t.Error(err)
		}
		sabotage(t, url, "check_term", "FOR SHARE", "")
		if err := lockedAtCommit(t, url); err == nil {
			t.Error("the broken twin was not noticed")
		}
	})
	t.Run("refused at once", func(t *testing.T) { refusedAtOnce(t, server.NewDatabase(t)) })
	t.Run("rights", func(t *testing.T) { guardRights(t, server.NewDatabase(t)) })
}

func guarded(t *testing.T, s *postgres.Store, conn *pgx.Conn, level pgx.TxIsoLevel, l lease.Lease, note string) (pgx.Tx, error) {
	t.Helper()
	tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(t.Context(), "INSERT INTO work VALUES ($1)", note); err != nil {
		t.Fatal(err)
	}
	return tx, s.RequireTerm(t.Context(), tx, l.ID, l.Term)
}

func done(t *testing.T, url string) (notes string) {
	t.Helper()
	err := connect(t, url).QueryRow(t.Context(), "SELECT coalesce(string_agg(note, ' '), '') FROM work").Scan(&notes)
	if err != nil {
		t.Fatal(err)
	}
	return notes
}

// pausedPrimary: two primaries, the first paused between its check and its
// commit. Only one of them commits, and nobody waits for the paused one.
func pausedPrimary(t *testing.T, url string, level pgx.TxIsoLevel) {
	s := open(t, url)
	exec(t, url, "CREATE TABLE work (note text)")
	a, c := start(t, s, "a", time.Hour), start(t, s, "c", time.Hour)
	first := take(t, s, role("r"), a, false)
	paused, err := guarded(t, s, connect(t, url), level, first, "paused")
	if err != nil {
		t.Fatal(err)
	}
	var second lease.Lease
	for _, c := range []struct {
		what string
		call func(context.Context) error
	}{
		{"a renewal", func(ctx context.Context) error { _, err := s.RenewSession(ctx, a.ID); return err }},
		{"a takeover", func(ctx context.Context) error {
			seen, err := s.Get(ctx, role("r"))
			if err == nil {
				second, err = s.Acquire(ctx, lease.Expectation{Lease: role("r"), Session: c.ID, Seen: seen.Seen(), Waited: true})
			}
			return err
		}},
	} {
		if err := waitsForNobody(t, url, c.call); err != nil {
			t.Fatalf("%s beside an open guarded transaction: %v", c.what, err)
		}
	}
	tx, err := guarded(t, s, connect(t, url), level, second, "second")
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatalf("commit under the current term: %v", err)
	}
	err = paused.Commit(t.Context())
	if !postgres.Refused(err) && (level == pgx.ReadCommitted || !strings.Contains(fmt.Sprint(err), "40001")) {
		t.Errorf("commit under an old term: %v, want a refusal", err)
	}
	if got := done(t, url); got != "second" {
		t.Errorf("committed: %q, want only what the second primary did", got)
	}
}

func termCurrent(t *testing.T, url string, level pgx.TxIsoLevel) {
	s := open(t, url)
	exec(t, url, "CREATE TABLE work (note text)")
	a := start(t, s, "a", time.Hour)
	l := take(t, s, role("r"), a, false)
	for _, note := range []string{"one", "two"} {
		tx, err := guarded(t, s, connect(t, url), level, l, note)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.RenewSession(t.Context(), a.ID); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var rows int
	if err := connect(t, url).QueryRow(t.Context(), "SELECT count(*) FROM understudy.guard").Scan(&rows); err != nil || rows != 0 {
		t.Errorf("guarded transactions left %d rows behind, %v", rows, err)
	}
	if got := done(t, url); got != "one two" {
		t.Errorf("committed: %q", got)
	}
}

// lockedAtCommit: between the check and the end of the commit nobody takes over.
func lockedAtCommit(t *testing.T, url string) error {
	s := open(t, url)
	exec(t, url, "CREATE TABLE IF NOT EXISTS work (note text)")
	a, c := start(t, s, "a", time.Hour), start(t, s, "c", time.Hour)
	id := role(lease.NewID())
	l := take(t, s, id, a, false)
	tx, err := guarded(t, s, connect(t, url), pgx.ReadCommitted, l, "first")
	if err != nil {
		t.Fatal(err)
	}
	// The check as the commit does it, and then time to look around.
	if _, err := tx.Exec(t.Context(), "SET CONSTRAINTS ALL IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	claim := later(func() error {
		_, err := s.Acquire(t.Context(), lease.Expectation{Lease: id, Session: c.ID, Seen: l.Seen(), Waited: true})
		return err
	})
	if over, err := overOrWaits(t, url, claim); over {
		return fmt.Errorf("a takeover went past a commit under way: %v", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return <-claim
}

func refusedAtOnce(t *testing.T, url string) {
	s := open(t, url)
	exec(t, url, "CREATE TABLE work (note text)")
	a := start(t, s, "a", time.Hour)
	l := take(t, s, role("r"), a, false)
	wrong, never := l, l
	wrong.Term--
	never.ID = role("never")
	refuse := func(what string, l lease.Lease) {
		t.Helper()
		if _, err := guarded(t, s, connect(t, url), pgx.ReadCommitted, l, what); !postgres.Refused(err) {
			t.Errorf("%s: %v, want a refusal", what, err)
		}
	}
	refuse("an older term", wrong)
	refuse("a lease never held", never)
	tx, err := guarded(t, s, connect(t, url), pgx.ReadCommitted, l, "released between")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Release(t.Context(), lease.ReleaseRequest{Lease: l.ID, Session: a.ID, Term: l.Term}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); !postgres.Refused(err) {
		t.Errorf("commit after the release: %v, want a refusal", err)
	}
	refuse("a released lease", l)
}

// guardRights: whoever guards transactions needs no right but USAGE, and has no
// other, whatever search_path it sets.
func guardRights(t *testing.T, url string) {
	s := open(t, url)
	exec(t, url, `CREATE ROLE app LOGIN; CREATE TABLE work (note text); GRANT INSERT ON work TO app; GRANT USAGE ON SCHEMA understudy TO app`)
	a := start(t, s, "a", time.Hour)
	l := take(t, s, role("r"), a, false)
	app := connect(t, strings.Replace(url, "postgres@", "app@", 1))
	if _, err := app.Exec(t.Context(), "SET search_path = pg_temp, public"); err != nil {
		t.Fatal(err)
	}
	tx, err := guarded(t, s, app, pgx.ReadCommitted, l, "app")
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		"SELECT * FROM understudy.lease", "UPDATE understudy.session SET ended = true",
		postgres.InSQL("SELECT {{rules}}.end_session('" + a.ID + "', '', 1, 1000)"), "INSERT INTO understudy.guard VALUES ('role', 'r', 1)",
	} {
		_, err := app.Exec(t.Context(), sql)
		if err == nil || !strings.Contains(err.Error(), "42501") {
			t.Errorf("%s: %v, want insufficient_privilege", sql, err)
		}
	}
}

func TestHeartbeats(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	url := server.NewDatabase(t)
	s := open(t, url)
	stepped(t, url)
	conn := connect(t, url)
	type beat struct {
		uuid, utype, uname string
		at                 time.Time
	}
	look := func(key string) (b beat) {
		t.Helper()
		err := conn.QueryRow(t.Context(), "SELECT uuid, utype, uname, timestamp FROM understudy.heartbeats WHERE utype = $1", key).Scan(&b.uuid, &b.utype, &b.uname, &b.at)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			t.Fatal(err)
		}
		return b
	}
	began := time.Now().Add(-time.Millisecond) // the server's are rounded
	a, short := start(t, s, "a", 24*time.Hour), start(t, s, "short", time.Hour)
	l := take(t, s, role("kept"), a, false)
	take(t, s, role("lapses"), short, false)
	take(t, s, lease.ID{Space: "shard", Key: "other"}, a, false)
	first := look("kept")
	if first.uuid != a.Instance.ID || first.utype != "kept" || first.uname != "a" || first.at.Before(began) || first.at.After(time.Now()) {
		t.Errorf("a held role is shown as %+v", first)
	}
	if _, err := s.RenewSession(t.Context(), a.ID); err != nil {
		t.Fatal(err)
	}
	if again := look("kept"); !again.at.After(first.at) {
		t.Errorf("after a renewal the time is %v, was %v", again.at, first.at)
	}
	renewed := time.Now()
	step(t, url, 2*time.Hour)
	lapsed(t, s, role("lapses"))
	if b := look("lapses"); b.uuid != "" || b.uname != "" || b.at.Before(began) || b.at.After(renewed) {
		t.Errorf("a lapsed role is shown as %+v", b)
	}
	if err := s.Release(t.Context(), lease.ReleaseRequest{Lease: l.ID, Session: a.ID, Term: l.Term}); err != nil {
		t.Fatal(err)
	}
	if b := look("kept"); b.uuid != "" || b.uname != "" || b.at.Before(first.at) {
		t.Errorf("a released role is shown as %+v", b)
	}
	if b := look("other"); b.utype != "" {
		t.Errorf("a lease that is no role is shown: %+v", b)
	}
}
