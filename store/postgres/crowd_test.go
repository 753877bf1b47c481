package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/postgres"
)

// Of many watchers that can do without, few listen; one that cannot always may.
func TestFewListen(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{Settings: map[string]string{"max_connections": "200"}})
	database := server.NewDatabase(t)
	s := open(t, database)
	type result struct {
		i   int
		err error
	}
	const many = 24
	over, ready := make(chan result, many+1), make(chan int, 10*many)
	cancels := map[int]context.CancelFunc{}
	watch := func(i int, f func(context.Context, func(lease.Change)) error) {
		ctx, cancel := context.WithCancel(t.Context())
		cancels[i] = cancel
		go func() { over <- result{i, f(ctx, func(lease.Change) { ready <- i })} }()
	}
	for i := range many {
		watch(i, s.WatchIfFew)
	}
	listening, refused := map[int]bool{}, 0
	await := func(listeners, refusals int) {
		t.Helper()
		for deadline := time.After(ample); len(listening) < listeners || refused < refusals; {
			select {
			case i := <-ready:
				listening[i] = true
			case r := <-over:
				if r.err != nil && !errors.Is(r.err, lease.ErrCrowded) {
					t.Fatal(r.err)
				}
				if r.err != nil {
					refused++
				}
			case <-deadline:
				t.Fatalf("%d listen and %d were refused, want %d and %d", len(listening), refused, listeners, refusals)
			}
		}
	}
	await(8, many-8)
	watch(many, s.Watch)
	await(9, many-8)
	for i := range listening {
		if i != many { // its connection ends, and with it its place
			cancels[i]()
			delete(listening, i)
			break
		}
	}
	realserver.Eventually(t, ample, "a place is free", func() error {
		watch(many+1, s.WatchIfFew)
		select {
		case i := <-ready:
			listening[i] = true
			return nil
		case r := <-over:
			return fmt.Errorf("refused: %w", r.err)
		}
	})
}

// A connection that serves a session has compiled and planned what a hand-over needs, and that has changed nothing.
func TestRehearsal(t *testing.T) {
	url := realserver.Postgres(t, realserver.PostgresOptions{Settings: map[string]string{"track_functions": "all"}}).NewDatabase(t)
	s := open(t, url)
	n := start(t, s, "a", time.Hour)
	for range 3 {
		if _, err := s.RenewSession(amply(t), n.ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil { // then the server counts its calls
		t.Fatal(err)
	}
	conn := connect(t, url)
	realserver.Eventually(t, ample, "the connection has rehearsed once", func() error {
		var calls int
		err := conn.QueryRow(t.Context(), "SELECT coalesce(sum(calls), 0) FROM pg_stat_user_functions WHERE funcname LIKE '%rehearse'").Scan(&calls)
		if err == nil && calls != 1 {
			err = fmt.Errorf("%d times", calls)
		}
		return err
	})

	id, term := lease.NewID(), int64(0)
	handOver := func(conn *pgx.Conn) (planned int) {
		t.Helper()
		plans := func() (n int) {
			t.Helper()
			if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_backend_memory_contexts WHERE name = 'CachedPlanSource'").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		before := plans()
		var verdict string
		var released bool
		err := conn.QueryRow(t.Context(), postgres.InSQL("SELECT verdict, (lease).term FROM {{rules}}.acquire('role', $1, $2, $3, '', 0, false, 1, 10000)"), id, n.ID, term).Scan(&verdict, &term)
		if err == nil {
			err = conn.QueryRow(t.Context(), postgres.InSQL("SELECT {{rules}}.release('role', $1, $2, $3, '', 0, '', 10000)"), id, n.ID, term).Scan(&released)
		}
		if err != nil || verdict != "taken" || !released {
			t.Fatal(verdict, released, err)
		}
		return plans() - before
	}
	handOver(connect(t, url)) // the lease has been held before
	tx := begin(t, conn)
	var wrote bool
	if _, err := tx.Exec(t.Context(), postgres.InSQL("SELECT {{rules}}.rehearse()")); err != nil {
		t.Fatal(err)
	}
	if err := tx.QueryRow(t.Context(), "SELECT pg_current_xact_id_if_assigned() IS NOT NULL").Scan(&wrote); err != nil || wrote {
		t.Errorf("a rehearsal wrote something: %v, %v", wrote, err)
	}
	commit(t, tx)
	cold, warm := handOver(connect(t, url)), handOver(conn)
	t.Logf("%d statements planned without a rehearsal, %d after it", cold, warm)
	if warm > cold/4 {
		t.Errorf("a hand-over planned %d statements after a rehearsal, and %d without one", warm, cold)
	}
}

// waiters is how many sessions crowdAtALease lets wait for a lease.
const waiters = 300

func crowdAtALease(t *testing.T, url string) {
	t.Helper()
	exec(t, url, fmt.Sprintf(`INSERT INTO understudy.session (id, instance_id, name, address, interval_ns, timeout_ns, started, deadline)
			SELECT 'waiter-' || n, n, n, '', 3600000000000, 86400000000000, clock_timestamp(), clock_timestamp() + interval '1 day' FROM generate_series(1, %d) n;
		INSERT INTO understudy.waiter (space, key, session) SELECT 'role', 'billing', 'waiter-' || n FROM generate_series(1, %[1]d) n ORDER BY n`, waiters))
}

// costsOfRenewals: a renewal reads little, however many wait for the same lease, before its session or behind.
func costsOfRenewals(ctx context.Context) (calls []cost) {
	for _, n := range []int{1, waiters / 2, waiters} {
		id := fmt.Sprintf("waiter-%d", n)
		calls = append(calls, cost{"the renewal of " + id, 30, func(s *postgres.Store) error {
			r, err := s.RenewSession(ctx, id)
			if err == nil && (len(r.Waits) != 1 || r.Waits[0].Waiting != min(n-1, 4)) {
				err = fmt.Errorf("it waits for %+v", r.Waits)
			}
			return err
		}})
	}
	return calls
}
