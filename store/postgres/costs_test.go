package postgres_test

import (
	"context"
	"errors"
	"fmt"
	neturl "net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/store/postgres"
)

// cost is a call, and how many rows it may make the server read. A scan of what was filled reads
// many times as many.
type cost struct {
	name string
	most int64
	do   func(s *postgres.Store) error
}

// checkCosts fills a database, with statistics of when there was little, and makes the calls, each by
// a store of its own, whatever the planner knows: on a copy without statistics, on one with the old
// ones, and on one with new ones, as the server makes by itself some time. The set is made for each.
func checkCosts(t *testing.T, fill func(t *testing.T, server *realserver.PostgresServer) (url string), calls func(ctx context.Context) []cost) {
	t.Helper()
	server := realserver.Postgres(t, realserver.PostgresOptions{Settings: map[string]string{"autovacuum": "off"}})
	filled := fill(t, server)
	const forget = `DELETE FROM pg_statistic; UPDATE pg_class SET relpages = 0, reltuples = -1, relallvisible = 0
		WHERE relnamespace = 'understudy'::regnamespace`
	for name, prepare := range map[string]string{"no statistics": forget, "old statistics": "", "new statistics": "ANALYZE"} {
		t.Run(name, func(t *testing.T) {
			url := copied(t, server, filled)
			exec(t, url, prepare)
			conn := connect(t, url)
			alone(t, conn)
			opening := rowsReadBy(t, conn, url, func(*postgres.Store) error { return nil })
			for _, c := range calls(amply(t)) {
				n := rowsReadBy(t, conn, url, c.do) - opening
				if n > c.most {
					t.Errorf("%s read %d rows; want at most %d", c.name, n, c.most)
				} else {
					t.Logf("%s read %d rows, of at most %d", c.name, n, c.most)
				}
			}
		})
	}
}

// copied is a copy of a database, from which everyone is gone first.
func copied(t *testing.T, server *realserver.PostgresServer, url string) string {
	t.Helper()
	conn := connect(t, url)
	alone(t, conn)
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	u, err := neturl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	from := strings.TrimPrefix(u.Path, "/")
	u.Path = "/" + from + "_" + strings.ReplaceAll(t.Name()[strings.LastIndex(t.Name(), "/")+1:], " ", "_")
	realserver.Eventually(t, ample, "the database is copied", func() error {
		return server.Exec(fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s", u.Path[1:], from))
	})
	return u.String()
}

// alone waits until nobody else is connected to the database. What a connection has read is
// counted when it ends, and at any time before.
func alone(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	realserver.Eventually(t, ample, "the other connections end", func() error {
		var n int
		err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()").Scan(&n)
		if err == nil && n > 0 {
			err = fmt.Errorf("there are %d", n)
		}
		return err
	})
}

// rowsReadBy counts the rows of the schema's tables that are read, by whatever plan, by a store that
// is opened for this call alone.
func rowsReadBy(t *testing.T, conn *pgx.Conn, url string, do func(*postgres.Store) error) int64 {
	t.Helper()
	count := func() (n int64) {
		t.Helper()
		err := conn.QueryRow(t.Context(), `SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint
			FROM pg_stat_user_tables WHERE schemaname = 'understudy' AND relname <> 'event'`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	s := open(t, url)
	if err := errors.Join(do(s), s.Close()); err != nil {
		t.Error(err)
	}
	alone(t, conn)
	return count() - before
}
