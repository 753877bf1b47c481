package main

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/postgres"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// enqueuer enqueues as a program does: each batch in a transaction of its own,
// with a connection that has nothing to do with the store's.
type enqueuer struct {
	add   func(context.Context, dispatch.Message) error
	close func()
}

func newEnqueuer(ctx context.Context, b *bed, url string, connections int) enqueuer {
	if strings.HasPrefix(url, "sqlite:") {
		return sqliteEnqueuer(b, url)
	}
	pool := committersPool(ctx, b, url, connections)
	return enqueuer{close: pool.Close, add: func(ctx context.Context, batch dispatch.Message) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(context.WithoutCancel(ctx))
		if _, err := postgres.Enqueue(ctx, tx, batch); err != nil {
			return err
		}
		return tx.Commit(ctx)
	}}
}

func committersPool(ctx context.Context, b *bed, url string, connections int) *pgxpool.Pool {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		b.Fatalf("bench: %v", err)
	}
	cfg.MinConns, cfg.MaxConns = int32(connections), int32(connections)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		b.Fatalf("bench: %v", err)
	}
	return pool
}

func sqliteEnqueuer(b *bed, url string) enqueuer {
	db, err := sql.Open("sqlite", "file:"+pathOf(url)+"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=synchronous(FULL)")
	if err != nil {
		b.Fatalf("bench: %v", err)
	}
	db.SetMaxOpenConns(1)
	return enqueuer{close: func() { _ = db.Close() }, add: func(ctx context.Context, batch dispatch.Message) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := sqlite.Enqueue(ctx, tx, batch); err != nil {
			return err
		}
		return tx.Commit()
	}}
}

// numbers gives each key's messages their numbers.
type numbers struct{ next []int }

func newNumbers(keys int) *numbers { return &numbers{make([]int, keys)} }

func (n *numbers) post(k int, at time.Duration) dispatch.Message {
	n.next[k]++
	return post(keyName(k), n.next[k], at)
}

// trickles are the low rates at which latency is measured. The dispatcher sleeps
// between two batches of the second one, and has to be woken.
var trickles = []struct {
	name  string
	pause time.Duration
	count int
}{
	{"50/s", 20 * time.Millisecond, 1500},
	{"2/s", 500 * time.Millisecond, 80},
}

// latency measures how long a batch takes from before the transaction that
// enqueues it begins, its commit included, until it is at the sink.
func latency(ctx context.Context, b *bed, o options, r *Report) {
	const keys = 200
	to := startSink(b)
	clock := lease.BootClock()
	bounds := map[string][3]float64{"postgres": {10, 25, 0}, "sqlite": {0, 60, 0}}
	for _, kind := range []string{"postgres", "sqlite"} {
		p := startOne(b, kind)
		makeQueue(ctx, b, p.url)
		e := newEnqueuer(ctx, b, p.url, 1)
		m := startDeliverer(b, queueOptions{Kind: kind, URL: p.url, Target: to.url + "/in/" + kind})
		n := newNumbers(keys)
		for _, t := range trickles {
			to.post("/clear")
			for range t.count {
				// Not a multiple of any polling interval.
				time.Sleep(t.pause/2 + rand.N(t.pause))
				if err := e.add(ctx, n.post(rand.N(keys), clock.Now())); err != nil {
					b.Fatalf("bench: enqueueing: %v", err)
				}
			}
			late := to.await(ctx, int64(t.count), time.Minute).Late
			for i, q := range []float64{0.5, 0.95, 0.99} {
				r.add(Figure{Section: "latency", Subject: kind, Name: fmt.Sprintf("enqueue to first byte, %s, p%.0f", t.name, 100*q),
					Value: millis(late.quantile(q)), Unit: "ms", Bound: bounds[kind][i], Count: len(late)})
			}
		}
		e.close()
		m.end()
	}
}
