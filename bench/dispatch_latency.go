package main

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/postgres"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// enqueuer enqueues as a program does: each message in a transaction of its own,
// with a connection that has nothing to do with the store's.
type enqueuer struct {
	add   func(context.Context, dispatch.Message) error
	close func()
}

func newEnqueuer(ctx context.Context, b *bed, url string, connections int) enqueuer {
	if strings.HasPrefix(url, "sqlite:") {
		return sqliteEnqueuer(b, url)
	}
	return postgresEnqueuer(ctx, b, url, connections, func(ctx context.Context, tx pgx.Tx, m dispatch.Message) error {
		_, err := postgres.Enqueue(ctx, tx, m)
		return err
	})
}

// postgresEnqueuer calls insert in a transaction for each message.
func postgresEnqueuer(ctx context.Context, b *bed, url string, connections int, insert func(context.Context, pgx.Tx, dispatch.Message) error) enqueuer {
	cfg, err := pgxpool.ParseConfig(url)
	b.check(err, "reading a URL")
	cfg.MinConns, cfg.MaxConns = int32(connections), int32(connections)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	b.check(err, "connecting")
	return enqueuer{close: pool.Close, add: func(ctx context.Context, m dispatch.Message) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return insert(ctx, tx, m) })
	}}
}

func sqliteEnqueuer(b *bed, url string) enqueuer {
	db, err := sql.Open("sqlite", "file:"+pathOf(url)+"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=synchronous(FULL)")
	b.check(err, "opening the file")
	db.SetMaxOpenConns(1)
	return enqueuer{close: func() { _ = db.Close() }, add: func(ctx context.Context, m dispatch.Message) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := sqlite.Enqueue(ctx, tx, m); err != nil {
			return err
		}
		return tx.Commit()
	}}
}

// trickles are the low rates at which latency is measured. The dispatcher sleeps
// between two messages of the second one, and has to be woken.
var trickles = []struct {
	name  string
	pause time.Duration
	count int
}{
	{"50/s", 20 * time.Millisecond, 1500},
	{"2/s", 500 * time.Millisecond, 80},
}

// latency measures how long a message takes from before the transaction that
// enqueues it begins, its commit included, until it is at the sink.
func latency(ctx context.Context, b *bed, o options, r *Report) {
	const keys = 200
	to := startSink(b)
	clock := lease.BootClock()
	bounds := map[string][2]float64{"postgres": {10, 25}, "sqlite": {0, 60}}
	for _, kind := range []string{"postgres", "sqlite"} {
		p := startOne(b, kind)
		makeQueue(ctx, b, p.url)
		e := newEnqueuer(ctx, b, p.url, 1)
		m := start(b, delivererRole, queueOptions{Kind: kind, URL: p.url, Target: to.url + "/in/" + kind})
		var numbers [keys]int // of the latest message of each key
		for _, t := range trickles {
			to.post("/clear")
			for range t.count {
				// Not a multiple of any polling interval.
				time.Sleep(t.pause/2 + rand.N(t.pause))
				k := rand.N(keys)
				numbers[k]++
				b.check(e.add(ctx, post(keyName(k), numbers[k], clock.Now())), "enqueueing")
			}
			late := to.await(ctx, int64(t.count), time.Minute).Late
			for i, q := range []float64{0.5, 0.95} {
				r.add(Figure{Section: "latency", Subject: kind, Name: fmt.Sprintf("enqueue to first byte, %s, p%.0f", t.name, 100*q),
					Value: millis(late.quantile(q)), Unit: "ms", Bound: bounds[kind][i], Count: len(late)})
			}
		}
		e.close()
		m.end()
	}
}
