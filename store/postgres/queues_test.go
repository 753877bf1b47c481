package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/claim/claimtest"
	"github.com/understudy-ha/understudy/dispatch/dispatchtest"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/store/postgres"
)

// fresh is a store in a schema that is not the usual one, emptied for one test after the
// other: that takes a fraction of the time of making a schema.
type fresh struct {
	// direct is the database itself.
	direct string
}

// keptSQL keeps what the schema contains when it is new, beside a clock that can be stepped. That
// is read by an index: where sequential scans are off, one looks so expensive that statements are
// compiled, 30 ms each.
const keptSQL = `CREATE TABLE s1.test_clock (hand int PRIMARY KEY, ahead interval);
	INSERT INTO s1.test_clock VALUES (1, '0');
	CREATE OR REPLACE FUNCTION s1.clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS
	$$ SELECT clock_timestamp() + (SELECT ahead FROM s1.test_clock WHERE hand = 1) $$;
	CREATE SCHEMA kept;
	DO $$ DECLARE t text; BEGIN
		FOR t IN SELECT relname FROM pg_class WHERE relnamespace = 's1'::regnamespace AND relkind = 'r' LOOP
			EXECUTE format('CREATE TABLE kept.%1$I AS TABLE s1.%1$I', t);
		END LOOP;
		CREATE TABLE kept.all_sequences AS SELECT * FROM pg_sequences WHERE schemaname = 's1';
	END $$`

// resetSQL makes it new again.
const resetSQL = `DO $$ DECLARE t text; q record; BEGIN
		SET LOCAL session_replication_role = replica;
		FOR t IN SELECT relname FROM pg_class WHERE relnamespace = 's1'::regnamespace AND relkind = 'r' LOOP
			EXECUTE format('DELETE FROM s1.%1$I', t);
			EXECUTE format('INSERT INTO s1.%1$I OVERRIDING SYSTEM VALUE TABLE kept.%1$I', t);
		END LOOP;
		FOR q IN SELECT * FROM kept.all_sequences LOOP
			PERFORM setval(format('s1.%I', q.sequencename), coalesce(q.last_value, q.start_value), q.last_value IS NOT NULL);
		END LOOP;
	END $$`

func newFresh(t testing.TB, server *realserver.PostgresServer) *fresh {
	t.Helper()
	f := &fresh{direct: server.NewDatabase(t)}
	s, err := postgres.Open(t.Context(), postgres.Config{URL: f.direct, Schema: "s1"})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	exec(t, f.direct, keptSQL)
	return f
}

// empty empties it, for a test that opens it by a way. All stores of earlier tests are closed.
func (f *fresh) empty(t testing.TB, way func(string) string) freshStore {
	t.Helper()
	exec(t, f.direct, resetSQL)
	return freshStore{direct: f.direct, url: way(f.direct) + "&schema=s1"}
}

// direct is the way to a database that goes through nothing.
func direct(url string) string { return url }

// freshStore is one test's.
type freshStore struct{ direct, url string }

func (s freshStore) open(t *testing.T) *postgres.Store { t.Helper(); return open(t, s.url) }

// step sets the store's clock ahead by so much more.
func (s freshStore) step(t *testing.T, by time.Duration) {
	t.Helper()
	exec(t, s.direct, fmt.Sprintf("UPDATE s1.test_clock SET ahead = ahead + %d * interval '1 us'", by.Microseconds()))
}

// ways are the ways to a database on which the suites run.
func ways(t *testing.T, run func(t *testing.T, empty func(*testing.T) freshStore)) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	f := newFresh(t, server)
	bothWays(t, server, func(t *testing.T, way func(string) string) {
		run(t, func(t *testing.T) freshStore { return f.empty(t, way) })
	})
}

// waysTo is the direct way to one server, for what needs few statements; make prove tries both.
func waysTo(t *testing.T, server *realserver.PostgresServer, run func(t *testing.T, way func(string) string)) {
	if prove {
		bothWays(t, server, run)
		return
	}
	t.Run("direct", func(t *testing.T) { run(t, direct) })
}

func bothWays(t *testing.T, server *realserver.PostgresServer, run func(t *testing.T, way func(string) string)) {
	bouncer := realserver.PgBouncer(t, server)
	t.Run("direct", func(t *testing.T) { run(t, direct) })
	if testing.Short() {
		return
	}
	exec(t, server.URL(), `ALTER ROLE postgres SET default_transaction_isolation = 'serializable';
		ALTER ROLE postgres SET DateStyle = 'SQL, DMY'; ALTER ROLE postgres SET TimeZone = 'Asia/Kathmandu'`)
	t.Run("strange settings by pgbouncer", func(t *testing.T) { run(t, bouncer.URL) })
}

func TestClaimConformance(t *testing.T) {
	ways(t, func(t *testing.T, empty func(*testing.T) freshStore) {
		claimtest.Run(t, func(t *testing.T) *claimtest.Harness {
			s := empty(t)
			return &claimtest.Harness{Open: func(t *testing.T) claimtest.Store { return s.open(t) }, Step: s.step}
		})
	})
}

func TestDispatchConformance(t *testing.T) {
	ways(t, func(t *testing.T, empty func(*testing.T) freshStore) {
		dispatchtest.Run(t, func(t *testing.T) *dispatchtest.Harness {
			s := empty(t)
			return &dispatchtest.Harness{Open: func(t *testing.T) dispatchtest.Store { return s.open(t) }, Step: s.step}
		})
	})
}

func TestClaimsAreLinearizable(t *testing.T) {
	url := realserver.Postgres(t, realserver.PostgresOptions{}).NewDatabase(t)
	claimtest.CheckLinearizable(t, func(t *testing.T) claimtest.Store { return open(t, url) }, claimtest.Concurrent{})
}

func TestDispatchKeepsOrder(t *testing.T) {
	url := realserver.Postgres(t, realserver.PostgresOptions{}).NewDatabase(t)
	dispatchtest.CheckOrder(t, func(t *testing.T) dispatchtest.Store { return open(t, url) }, dispatchtest.Concurrent{})
}
