package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/store"
)

// Limits of a check-up.
const (
	oldSnapshot = 5 * time.Minute
	oldestXID   = 1_500_000_000 // of the 2,000,000,000 at which the server stops
	deadRows    = 100_000       // and more than live ones

	notifyWarn, notifyBad = 0.5, 0.9 // of the queue of notifications
)

// freeNotifications is what to do about a queue of notifications that fills.
const freeNotifications = "end the session that listens and has the oldest open transaction (pg_stat_activity, xact_start)"

const checkupSQL = `
SELECT current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint,
	(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
	current_setting('autovacuum') = 'on',
	coalesce((SELECT extract(epoch FROM max(clock_timestamp() - xact_start)) FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)), 0)::float8,
	coalesce((SELECT extract(epoch FROM max(clock_timestamp() - prepared)) FROM pg_prepared_xacts), 0)::float8,
	(SELECT count(*) FROM pg_replication_slots WHERE NOT active AND (xmin IS NOT NULL OR catalog_xmin IS NOT NULL)),
	coalesce((SELECT age(datfrozenxid)::bigint FROM pg_database WHERE datname = current_database()), 0),
	coalesce((SELECT sum(n_dead_tup) FROM pg_stat_user_tables WHERE schemaname = $1), 0)::bigint,
	coalesce((SELECT sum(n_live_tup) FROM pg_stat_user_tables WHERE schemaname = $1), 0)::bigint,
	pg_notification_queue_usage()`

// pressure is what a server says about its limits.
type pressure struct {
	most, used         int64 // connections, of those that ordinary users may have
	autovacuum         bool
	snapshot, prepared float64 // age of the oldest in seconds
	slots              int64
	xidAge             int64
	dead, live         int64   // rows of the schema
	notify             float64 // share of the queue of notifications that is in use
}

// Checkup implements [store.Checkups].
func (s *Store) Checkup(ctx context.Context) ([]store.Finding, error) {
	var p pressure
	err := s.pool.withConnection(ctx, ordinary, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, checkupSQL, s.schema).
			Scan(&p.most, &p.used, &p.autovacuum, &p.snapshot, &p.prepared, &p.slots, &p.xidAge, &p.dead, &p.live, &p.notify)
	})
	if err != nil {
		return nil, fmt.Errorf("checking %s: %w", s.location, err)
	}
	return []store.Finding{p.connections(), p.horizon(), p.vacuum(), p.notifications()}, nil
}

func (p pressure) connections() store.Finding {
	return store.Limit("connections", float64(p.used), float64(max(1, p.most)), fmt.Sprintf("%d of %d connections of the server are in use", p.used, p.most),
		"instances that restart may not get in", "raise max_connections, put PgBouncer in front, or find who keeps so many open (pg_stat_activity)")
}

// horizon judges what keeps replaced rows from being cleaned away: sessions are updated each interval.
func (p pressure) horizon() store.Finding {
	f := store.Finding{Check: "snapshots", Verdict: store.OK, Says: "no old transaction keeps replaced rows from being cleaned away"}
	switch old := oldSnapshot.Seconds(); {
	case p.prepared > old:
		f.Verdict = store.Warn
		f.Says = fmt.Sprintf("a prepared transaction is open for %s: nothing that was replaced since can be cleaned away, and every table grows", seconds(p.prepared))
		f.Do = "finish it: COMMIT PREPARED or ROLLBACK PREPARED (pg_prepared_xacts)"
	case p.snapshot > old:
		f.Verdict = store.Warn
		f.Says = fmt.Sprintf("a transaction is open for %s: nothing that was replaced since can be cleaned away, and every table grows", seconds(p.snapshot))
		f.Do = "end it (pg_stat_activity, xact_start), or set idle_in_transaction_session_timeout"
	case p.slots > 0:
		f.Verdict = store.Warn
		f.Says = fmt.Sprintf("%d replication slots without a reader keep replaced rows from being cleaned away", p.slots)
		f.Do = "start what reads them, or drop them: pg_drop_replication_slot (pg_replication_slots)"
	}
	return f
}

func (p pressure) vacuum() store.Finding {
	f := store.Finding{Check: "vacuum", Verdict: store.OK, Says: fmt.Sprintf("%d rows, %d replaced ones not yet cleaned away", p.live, p.dead)}
	switch {
	case p.xidAge > oldestXID:
		f.Verdict = store.Bad
		f.Says = fmt.Sprintf("the database's oldest transaction id is %d old: at 2 billion the server takes no more writes", p.xidAge)
		f.Do = "VACUUM the database now, and find what held it up"
	case !p.autovacuum:
		f.Verdict = store.Warn
		f.Says += "; autovacuum is off"
		f.Do = "set autovacuum = on: sessions are updated once per interval"
	case p.dead > deadRows && p.dead > p.live:
		f.Verdict = store.Warn
		f.Do = "VACUUM the schema, and let autovacuum run more often"
	}
	return f
}

// notifications judges the queue of NOTIFY, one for the whole server: once it is full, no transaction that notifies commits.
func (p pressure) notifications() store.Finding {
	f := store.Finding{Check: "notifications", Verdict: store.OK, Says: fmt.Sprintf("%.0f%% of the queue of notifications is in use", 100*p.notify)}
	if p.notify < notifyWarn {
		return f
	}
	f.Verdict, f.Do = store.Warn, freeNotifications
	if p.notify >= notifyBad {
		f.Verdict = store.Bad
	}
	f.Says += ": a full one stops every takeover, release and enqueue"
	return f
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Second)
}
