package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	clientv3 "go.etcd.io/etcd/client/v3"
	_ "modernc.org/sqlite" // the driver of the bare connection

	"github.com/understudy-ha/understudy/store/postgres"
	"github.com/understudy-ha/understudy/store/redis"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// The bare updates below have the settings of the store that they stand beside:
// the same driver, the same durability, one round trip each.

func postgresSubject(ctx context.Context, b *bed, p place) (*subject, error) {
	// More connections than usual, only to be done with filling soon.
	st, err := postgres.Open(ctx, postgres.Config{URL: p.url, Connections: 16})
	if err != nil {
		return nil, err
	}
	b.Cleanup(func() { _ = st.Close() })
	s, _, err := storeSubject(ctx, p.kind, st)
	if err != nil {
		return nil, err
	}
	cfg, err := pgx.ParseConfig(p.url)
	if err != nil {
		return nil, err
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	b.Cleanup(func() { _ = conn.Close(context.Background()) })
	for _, statement := range []string{
		"CREATE TABLE bare (id text PRIMARY KEY, seq bigint NOT NULL, deadline timestamptz NOT NULL) WITH (fillfactor = 50)",
		"INSERT INTO bare VALUES ('one', 0, clock_timestamp())",
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return nil, err
		}
	}
	s.bareName = "UPDATE"
	s.bare = func(ctx context.Context) error {
		_, err := conn.Exec(ctx, "UPDATE bare SET seq = seq + 1, deadline = clock_timestamp() WHERE id = $1", "one")
		return err
	}
	return s, nil
}

func redisSubject(ctx context.Context, b *bed, p place) (*subject, error) {
	st, err := redis.Open(ctx, redis.Config{URL: p.url})
	if err != nil {
		return nil, err
	}
	b.Cleanup(func() { _ = st.Close() })
	s, _, err := storeSubject(ctx, p.kind, st)
	if err != nil {
		return nil, err
	}
	o, err := goredis.ParseURL(p.url)
	if err != nil {
		return nil, err
	}
	o.MaxRetries = -1
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := goredis.NewClient(o)
	b.Cleanup(func() { _ = client.Close() })
	n := 0
	s.bareName = "HSET"
	s.bare = func(ctx context.Context) error {
		n++
		return client.HSet(ctx, "bare", "seq", n, "deadline", time.Now().UnixMicro()).Err()
	}
	return s, nil
}

func sqliteSubject(ctx context.Context, b *bed, p place) (*subject, error) {
	st, err := sqlite.Open(ctx, sqlite.Config{Path: pathOf(p.url)})
	if err != nil {
		return nil, err
	}
	b.Cleanup(func() { _ = st.Close() })
	s, session, err := storeSubject(ctx, p.kind, st)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", "file:"+pathOf(p.url)+"?_pragma=busy_timeout(5000)&_pragma=synchronous(FULL)&_pragma=cache_size(-1024)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	b.Cleanup(func() { _ = db.Close() })
	for _, statement := range []string{
		"CREATE TABLE bare (id TEXT NOT NULL PRIMARY KEY, seq INTEGER NOT NULL, deadline INTEGER NOT NULL) STRICT, WITHOUT ROWID",
		"INSERT INTO bare VALUES ('one', 0, 0)",
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return nil, err
		}
	}
	update, err := db.PrepareContext(ctx, "UPDATE bare SET seq = seq + 1, deadline = ?1 WHERE id = ?2")
	if err != nil {
		return nil, err
	}
	s.bareName = "UPDATE"
	s.bare = func(ctx context.Context) error {
		_, err := update.ExecContext(ctx, time.Now().UnixMicro(), "one")
		return err
	}
	// One process commits to a file about as often as the disk syncs, so that the
	// leases to be held are put there by one statement; that is not measured.
	s.fill = func(ctx context.Context, from, to int) error {
		_, err := db.ExecContext(ctx, `
WITH RECURSIVE n (i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?2)
INSERT INTO understudy_lease (space, key, term, session, since_us)
SELECT 'bench', printf('held-%06d', i), 1, ?3, ?4 FROM n WHERE ?1 < ?2`, from, to, session, time.Now().UnixMicro())
		return err
	}
	return s, nil
}

func etcdSubject(ctx context.Context, b *bed, p place) (*subject, error) {
	client, err := dialEtcd(p.url)
	if err != nil {
		return nil, err
	}
	b.Cleanup(func() { _ = client.Close() })
	granted, err := client.Grant(ctx, 24*3600)
	if err != nil {
		return nil, err
	}
	take := func(ctx context.Context, key string) error {
		_, err := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, "bench", clientv3.WithLease(granted.ID))).Commit()
		return err
	}
	return &subject{
		kind: p.kind, bareName: "put",
		bare: func(ctx context.Context) error {
			_, err := client.Put(ctx, "bare", fmt.Sprint(time.Now().UnixMicro()))
			return err
		},
		renew: func(ctx context.Context) error {
			_, err := client.KeepAliveOnce(ctx, granted.ID)
			return err
		},
		acquire: func(ctx context.Context, i int) error { return take(ctx, turnID(i).String()) },
		release: func(ctx context.Context, i int) error {
			_, err := client.Delete(ctx, turnID(i).String())
			return err
		},
		fill: func(ctx context.Context, from, to int) error {
			return parallel(ctx, from, to, func(ctx context.Context, i int) error { return take(ctx, heldID(i).String()) })
		},
	}, nil
}
