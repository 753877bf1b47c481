package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/sqlite"
)

var roleR = lease.ID{Space: "role", Key: "r"}

// guarded is a store with a lease that a first primary holds and a second one
// will take over, and a table for their effects.
type guarded struct {
	*testing.T
	*sqlite.Store
	path   string
	clock  *clock
	db     *sql.DB // of the user, with a table effect
	first  lease.Lease
	second lease.Session
}

// setUp puts the user's table into the store's file, or into a file of its own
// to which the store's is attached.
func setUp(t *testing.T, attached bool) *guarded {
	return setUpWith(t, attached, lease.Timing{Interval: 30 * time.Second}.WithDefaults())
}

func setUpWith(t *testing.T, attached bool, timing lease.Timing) *guarded {
	path := filepath.Join(t.TempDir(), "store.db")
	g := &guarded{T: t, path: path, clock: &clock{Clock: lease.BootClock()}}
	g.Store = open(t, sqlite.Config{Path: path, Clock: g.clock, Wall: g.clock.Wall})
	g.first = take(t, g.Store, session(t, g.Store, "first", timing), "r")
	if attached {
		g.db = plain(t, filepath.Join(t.TempDir(), "users.db")+"?_pragma=busy_timeout(5000)&_journal_mode=WAL")
		g.db.SetMaxOpenConns(1)
		g.exec("ATTACH ? AS understudy", path)
	} else {
		g.db = plain(t, path+"?_pragma=busy_timeout(5000)")
	}
	g.exec("CREATE TABLE effect (term INTEGER NOT NULL)")
	return g
}

func (g *guarded) exec(text string, args ...any) {
	g.Helper()
	if _, err := g.db.Exec(text, args...); err != nil {
		g.Fatalf("%s: %v", text, err)
	}
}

func (g *guarded) effects(want ...int64) {
	g.Helper()
	rows, err := g.db.Query("SELECT term FROM effect ORDER BY rowid")
	if err != nil {
		g.Fatal(err)
	}
	defer rows.Close()
	var got []int64
	for rows.Next() {
		var term int64
		if err := rows.Scan(&term); err != nil {
			g.Fatal(err)
		}
		got = append(got, term)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		g.Errorf("effects by term (-want +got):\n%s", diff)
	}
}

func (g *guarded) begin(db *sql.DB) *sql.Tx {
	g.Helper()
	tx, err := db.Begin()
	if err != nil {
		g.Fatal(err)
	}
	g.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// effect writes under a term, guards, and commits.
func effect(ctx context.Context, tx *sql.Tx, term int64) error {
	defer tx.Rollback() // after a commit it does nothing
	if _, err := tx.ExecContext(ctx, "INSERT INTO effect (term) VALUES (?)", term); err != nil {
		return err
	}
	if err := sqlite.Guard(ctx, tx, roleR, term); err != nil {
		return err
	}
	return tx.Commit()
}

// takeOver lets the first holder lapse and gives the lease to a second one.
func (g *guarded) takeOver() lease.Lease {
	g.Helper()
	g.clock.step(g.first.Timing.Timeout)
	g.second = session(g.T, g.Store, "second", patient)
	return take(g.T, g.Store, g.second, "r")
}

func TestGuardRefuses(t *testing.T) {
	for _, attached := range []bool{false, true} {
		t.Run(fmt.Sprintf("attached=%t", attached), func(t *testing.T) {
			g := setUp(t, attached)
			if err := effect(t.Context(), g.begin(g.db), g.first.Term); err != nil {
				t.Fatalf("under the current term: %v", err)
			}
			for _, guard := range []string{
				"INSERT INTO understudy_guard VALUES ('role', 'r', %d - 1)",
				"INSERT INTO understudy_guard VALUES ('role', 'r', %d + 1)",
				"INSERT INTO understudy_guard VALUES ('role', 'other', %d)",
				"INSERT OR IGNORE INTO understudy_guard VALUES ('role', 'r', %d - 1)",
				"INSERT OR REPLACE INTO understudy_guard VALUES ('role', 'r', %d - 1)",
				"INSERT INTO understudy_guard (key, term) VALUES ('r', %d)",
				"INSERT INTO understudy_guard SELECT 'role', 'r', NULL FROM (SELECT %d)",
			} {
				tx := g.begin(g.db)
				if _, err := tx.Exec("INSERT INTO effect VALUES (-1)"); err != nil {
					t.Fatal(err)
				}
				_, err := tx.Exec(fmt.Sprintf(guard, g.first.Term))
				if err == nil || !strings.Contains(err.Error(), "not held under this term") {
					t.Errorf("%s: %v, want a refusal", guard, err)
				}
				if err := tx.Commit(); err == nil {
					t.Errorf("%s: the transaction was committed", guard)
				}
			}
			if err := g.EndSession(t.Context(), g.first.Session, "stopped"); err != nil {
				t.Fatal(err)
			}
			if err := effect(t.Context(), g.begin(g.db), g.first.Term); !errors.Is(err, lease.ErrNotHeld) {
				t.Errorf("under the term of a lease that was released: %v, want ErrNotHeld", err)
			}
			g.effects(g.first.Term)
		})
	}
}

// A session has ended when any of its leases is taken over, and with it its right
// to the others, although nobody has taken those.
func TestGuardRefusesAnEndedSession(t *testing.T) {
	g := setUp(t, false)
	other := take(t, g.Store, lease.Session{ID: g.first.Session}, "other")
	tx := g.begin(g.db)
	if err := sqlite.Guard(t.Context(), tx, other.ID, other.Term); err != nil {
		t.Fatalf("while the session lives: %v", err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	g.takeOver()
	if err := sqlite.Guard(t.Context(), g.begin(g.db), other.ID, other.Term); !errors.Is(err, lease.ErrNotHeld) {
		t.Errorf("under an ended session: %v, want ErrNotHeld", err)
	}
}

// The first primary is paused in its transaction, before or after its first
// write, while another takes over and has an effect. It must not commit then.
func TestAPausedPrimaryCannotCommit(t *testing.T) {
	t.Run("it had only read", func(t *testing.T) {
		g := setUp(t, false)
		paused := g.begin(g.db)
		var n int
		if err := paused.QueryRow("SELECT count(*) FROM effect").Scan(&n); err != nil {
			t.Fatal(err)
		}
		l := g.takeOver() // is not held up
		if err := effect(t.Context(), g.begin(g.db), l.Term); err != nil {
			t.Fatalf("the second primary: %v", err)
		}
		if err := effect(t.Context(), paused, g.first.Term); err == nil {
			t.Error("the paused primary committed after its successor")
		}
		g.effects(l.Term)
	})
	t.Run("it had not begun to read", func(t *testing.T) {
		g := setUp(t, false)
		paused := g.begin(g.db)
		l := g.takeOver()
		if err := effect(t.Context(), paused, g.first.Term); !errors.Is(err, lease.ErrNotHeld) {
			t.Errorf("the paused primary: %v, want ErrNotHeld", err)
		}
		if err := effect(t.Context(), g.begin(g.db), l.Term); err != nil {
			t.Fatalf("the second primary: %v", err)
		}
		g.effects(l.Term)
	})
	t.Run("it had written to a file of its own", func(t *testing.T) {
		g := setUp(t, true)
		paused := g.begin(g.db)
		if _, err := paused.Exec("INSERT INTO effect VALUES (?)", g.first.Term); err != nil {
			t.Fatal(err)
		}
		l := g.takeOver() // is not held up: the store's file is not locked
		if err := sqlite.Guard(t.Context(), paused, roleR, g.first.Term); !errors.Is(err, lease.ErrNotHeld) {
			t.Errorf("the paused primary: %v, want ErrNotHeld", err)
		}
		_ = paused.Rollback()
		if err := effect(t.Context(), g.begin(g.db), l.Term); err != nil {
			t.Fatalf("the second primary: %v", err)
		}
		g.effects(l.Term)
	})
}

// Between the guard and the commit nothing can be taken over or renewed.
func TestGuardLocksUntilTheCommit(t *testing.T) {
	for _, attached := range []bool{false, true} {
		g := setUp(t, attached)
		tx := g.begin(g.db)
		if attached { // else the write itself locks
			if _, err := tx.Exec("INSERT INTO effect VALUES (1)"); err != nil {
				t.Fatal(err)
			}
		}
		renew := func(ctx context.Context) error {
			_, err := g.RenewSession(ctx, g.first.Session)
			return err
		}
		if err := renew(amply(t)); err != nil {
			t.Errorf("attached=%t: a renewal before the guard: %v", attached, err)
		}
		if err := sqlite.Guard(t.Context(), tx, roleR, g.first.Term); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := renew(ctx); !errors.Is(err, lease.ErrUnavailable) {
			t.Errorf("attached=%t: a renewal between guard and commit: %v, want ErrUnavailable", attached, err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := renew(amply(t)); err != nil {
			t.Errorf("attached=%t: a renewal after the commit: %v", attached, err)
		}
	}
}

func TestGuarded(t *testing.T) {
	g := setUp(t, false)
	write := func(term int64) func(*sql.Tx) error {
		return func(tx *sql.Tx) error {
			_, err := tx.Exec("INSERT INTO effect VALUES (?)", term)
			return err
		}
	}
	if err := g.Guarded(t.Context(), roleR, g.first.Term, write(g.first.Term)); err != nil {
		t.Fatalf("under the current term: %v", err)
	}
	if err := g.Guarded(t.Context(), roleR, g.first.Term-1, write(-1)); !errors.Is(err, lease.ErrNotHeld) {
		t.Errorf("under an old term: %v, want ErrNotHeld", err)
	}
	if err := g.Guarded(t.Context(), lease.ID{Space: "role", Key: "other"}, 1, write(-1)); !errors.Is(err, lease.ErrNotHeld) {
		t.Errorf("of a lease that was never held: %v, want ErrNotHeld", err)
	}
	own := errors.New("own")
	err := g.Guarded(t.Context(), roleR, g.first.Term, func(tx *sql.Tx) error { return errors.Join(write(-1)(tx), own) })
	if !errors.Is(err, own) {
		t.Errorf("a function that fails: %v, want its error", err)
	}
	var l lease.Lease
	err = g.Guarded(t.Context(), roleR, g.first.Term, func(tx *sql.Tx) error {
		l = g.takeOver() // after the look at the start, before the check at the end
		return write(-1)(tx)
	})
	if !errors.Is(err, lease.ErrNotHeld) {
		t.Errorf("taken over meanwhile: %v, want ErrNotHeld", err)
	}
	if err := g.Guarded(t.Context(), roleR, l.Term, write(l.Term)); err != nil {
		t.Errorf("the successor: %v", err)
	}
	g.effects(g.first.Term, l.Term)
}

// What was read before another's write is read again, and written once.
func TestGuardedStartsOver(t *testing.T) {
	g := setUp(t, false)
	calls := 0
	err := g.Guarded(t.Context(), roleR, g.first.Term, func(tx *sql.Tx) error {
		calls++
		var n int
		if err := tx.QueryRow("SELECT count(*) FROM effect").Scan(&n); err != nil {
			return err
		}
		if calls == 1 {
			if _, err := g.RenewSession(t.Context(), g.first.Session); err != nil {
				t.Errorf("a renewal while a guarded transaction reads: %v", err)
			}
		}
		_, err := tx.Exec("INSERT INTO effect VALUES (?)", n)
		return err
	})
	if err != nil || calls != 2 {
		t.Errorf("Guarded = %v after %d calls, want success after 2", err, calls)
	}
	g.effects(0)
}

// A transaction that dawdles with the write lock is rolled back after one
// interval, and renewals continue.
func TestGuardedIsBounded(t *testing.T) {
	g := setUpWith(t, false, lease.Timing{Interval: time.Second, Timeout: time.Hour})
	began := time.Now()
	err := g.Guarded(t.Context(), roleR, g.first.Term, func(tx *sql.Tx) error {
		if _, err := tx.Exec("INSERT INTO effect VALUES (-1)"); err != nil {
			return err
		}
		realserver.Eventually(t, ample, "the roll-back", func() error {
			if _, err := tx.Exec("SELECT 1"); err == nil {
				return errors.New("the transaction goes on")
			}
			return nil
		})
		return nil
	})
	took := time.Since(began)
	if !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "interval of 1s") || took > ample {
		t.Errorf("Guarded = %v after %v, want ErrUnavailable after 1 s", err, took)
	}
	if err := g.Append(t.Context(), history.Event{}); err != nil {
		t.Errorf("a write afterwards: %v", err)
	}
	g.effects()
}

func TestHeartbeats(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	c := &clock{Clock: lease.BootClock()}
	s := open(t, sqlite.Config{Path: path, Clock: c, Wall: c.Wall})
	kept := session(t, s, "kept", patient)
	gone := session(t, s, "gone", patient)
	take(t, s, kept, "kept")
	take(t, s, gone, "gone")
	if _, err := s.Acquire(t.Context(), lease.Expectation{Lease: lease.ID{Space: "shard", Key: "no role"}, Session: kept.ID}); err != nil {
		t.Fatal(err)
	}
	c.step(2 * time.Second)
	renewed := c.Wall()
	if _, err := s.RenewSession(t.Context(), kept.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.EndSession(t.Context(), gone.ID, "stopped"); err != nil {
		t.Fatal(err)
	}
	rows, err := plain(t, path).Query("SELECT utype, uuid, uname, timestamp FROM heartbeats ORDER BY utype")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var got [][3]string
	for rows.Next() {
		var r [3]string
		var at string
		if err := rows.Scan(&r[0], &r[1], &r[2], &at); err != nil {
			t.Fatal(err)
		}
		when, err := time.Parse("2006-01-02 15:04:05.000", at)
		if err != nil || when.Before(renewed.Add(-time.Millisecond)) || when.After(c.Wall()) {
			t.Errorf("%s has the timestamp %q, %v; want about %v", r[0], at, err, renewed.UTC())
		}
		got = append(got, r)
	}
	want := [][3]string{{"gone", "", ""}, {"kept", kept.Instance.ID, "kept"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("heartbeats (-want +got):\n%s", diff)
	}
}
