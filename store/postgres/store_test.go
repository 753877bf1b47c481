package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/postgres"
)

func TestConformance(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	bouncer := realserver.PgBouncer(t, server)
	f := newFresh(t, server)
	alone := func(s *postgres.Store) store.Store { return s }
	together := func(s *postgres.Store) store.Store { return postgres.Together{Store: s} }
	run := func(way func(string) string, as func(*postgres.Store) store.Store) func(t *testing.T) {
		return func(t *testing.T) {
			leasetest.Run(t, func(t *testing.T) *leasetest.Harness {
				s := f.empty(t, way)
				return &leasetest.Harness{Open: func(t *testing.T) store.Store { return as(s.open(t)) }, Step: s.step}
			})
		}
	}
	t.Run("by socket", run(server.OnSocket, alone))
	if prove {
		t.Run("direct", run(direct, alone))
		t.Run("pgbouncer", run(bouncer.URL, alone))
	}
	exec(t, server.URL(), `ALTER ROLE postgres SET default_transaction_isolation = 'serializable';
		ALTER ROLE postgres SET DateStyle = 'SQL, DMY'; ALTER ROLE postgres SET TimeZone = 'Asia/Kathmandu'`)
	t.Run("strange settings by pgbouncer", run(bouncer.URL, together))
}

func TestLinearizable(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	database := server.NewDatabase(t)
	opened := 0
	leasetest.CheckLinearizable(t, func(t *testing.T) leasetest.Target {
		if opened++; opened%2 == 0 {
			return postgres.Together{Store: open(t, database)}
		}
		return open(t, database)
	}, leasetest.Concurrent{})
}

func open(t testing.TB, url string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(amply(t), postgres.Config{URL: url})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// ample is longer than anything takes that does not hang, on whatever machine.
const ample = 3 * time.Minute

// amply is a context for calls that may have to wait for others on a slow machine.
var amply = leasetest.Amply

func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// exec runs statements in a database on a connection of their own.
func exec(t testing.TB, url, sql string) {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(context.Background())
	if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func begin(t testing.TB, conn *pgx.Conn) pgx.Tx {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func role(key string) lease.ID { return lease.ID{Space: "role", Key: key} }

// start starts a session for a new instance.
func start(t testing.TB, s lease.Store, name string, timeout time.Duration) lease.Session {
	t.Helper()
	n := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance(name, "127.0.0.1:1"), Timing: lease.Timing{Interval: timeout / 5, Timeout: timeout}}
	r, err := s.StartSession(t.Context(), n)
	if err != nil {
		t.Fatalf("StartSession: %v", err)
	}
	n.Seq = r.Seq
	return n
}

// take takes a lease that must be there to be taken.
func take(t testing.TB, s lease.Store, id lease.ID, n lease.Session, waited bool) lease.Lease {
	t.Helper()
	l, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatalf("Get: %v", err)
	}
	l, err = s.Acquire(t.Context(), lease.Expectation{Lease: id, Session: n.ID, Seen: l.Seen(), Waited: waited})
	if err != nil {
		t.Fatalf("Acquire(%s): %v", id, err)
	}
	return l
}
