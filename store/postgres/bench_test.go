package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
)

// BenchmarkStore compares renewals and claims with the least that a database can
// do for them: an update of one row, on the same kind of connection, durable.
func BenchmarkStore(b *testing.B) {
	server := realserver.Postgres(b, realserver.PostgresOptions{Fsync: true})
	for _, leases := range []int{1, 1_000, 100_000} {
		b.Run(fmt.Sprintf("leases=%d", leases), func(b *testing.B) {
			url := server.NewDatabase(b)
			s := open(b, url)
			a := start(b, s, "a", 24*time.Hour)
			exec(b, url, fmt.Sprintf(`INSERT INTO understudy.lease (space, key, term, session, holder_id, holder_name, holder_address, since)
				SELECT 'shard', 'key' || n, 1, '%s', 'a', 'a', '', clock_timestamp() FROM generate_series(1, %d) n;
				CREATE TABLE bare (id int PRIMARY KEY, n bigint) WITH (fillfactor = 50); INSERT INTO bare VALUES (1, 0)`, a.ID, leases))
			bare := connect(b, strings.Replace(url, "?", "?default_query_exec_mode=exec&", 1))
			exec(b, url, "CHECKPOINT")
			l := lease.Lease{ID: role("again")}
			interleave(b, []operation{
				{"bare", func(ctx context.Context) error { return update(ctx, bare) }},
				{"renew", func(ctx context.Context) error { _, err := s.RenewSession(ctx, a.ID); return err }},
				{"acquire-new", func(ctx context.Context) error {
					_, err := s.Acquire(ctx, lease.Expectation{Lease: role(lease.NewID()), Session: a.ID})
					return err
				}},
				{"acquire", func(ctx context.Context) (err error) {
					l, err = s.Acquire(ctx, lease.Expectation{Lease: l.ID, Session: a.ID, Seen: lease.Seen{Term: l.Term}})
					return err
				}},
				{"release", func(ctx context.Context) error {
					return s.Release(ctx, lease.ReleaseRequest{Lease: l.ID, Session: a.ID, Term: l.Term})
				}},
			})
			began := time.Now()
			if err := s.EndSession(b.Context(), a.ID, "stopped"); err != nil {
				b.Fatal(err)
			}
			b.Logf("ended a session with at least %d leases in %v", leases, time.Since(began).Round(time.Millisecond))
		})
	}
}

func update(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "UPDATE bare SET n = n + 1 WHERE id = $1", 1)
	return err
}

type operation struct {
	name string
	do   func(context.Context) error
}

// interleave runs the operations in turn, so that whatever else the machine does
// hits all alike, and reports the median of each.
func interleave(b *testing.B, operations []operation) {
	b.Helper()
	took := make([][]time.Duration, len(operations))
	for b.Loop() {
		for i, op := range operations {
			ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
			began := time.Now()
			if err := op.do(ctx); err != nil {
				b.Fatalf("%s: %v", op.name, err)
			}
			took[i] = append(took[i], time.Since(began))
			cancel()
		}
	}
	for i, op := range operations {
		slices.Sort(took[i])
		b.ReportMetric(float64(took[i][len(took[i])/2].Microseconds()), op.name+"-µs")
	}
}
