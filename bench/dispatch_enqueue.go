package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

const (
	committers  = 12
	enqueueFor  = 4 * time.Second
	enqueueKeys = 10_000 // some are idle when a message comes, most are not
)

// enqueueMode is who is there while messages are enqueued.
type enqueueMode struct {
	name string
	gate string // of the sink, that a dispatcher delivers to; "" for no dispatcher
	open func(ctx context.Context, b *bed, url string) enqueuer
}

const (
	nobody    = "nobody delivers"
	handsFull = "a busy dispatcher"
	deliverer = "a dispatcher that delivers it all"
	riverAdds = "River's insertion instead"
	bareAdds  = "an INSERT of the same size instead"
)

// enqueueModes: first no dispatcher is there to be notified, then a busy one, then
// one that delivers it all. The second does no work, because its requests hang at
// the gate, so that what is measured is the notification; the third takes its share
// of the machine. The others are for comparison.
func enqueueModes() []enqueueMode {
	ours := func(ctx context.Context, b *bed, url string) enqueuer {
		makeQueue(ctx, b, url)
		return newEnqueuer(ctx, b, url, committers)
	}
	return []enqueueMode{
		{name: nobody, open: ours}, {name: handsFull, gate: "/gate/full", open: ours}, {name: deliverer, gate: "/in/all", open: ours},
		{name: riverAdds, open: riverEnqueuer}, {name: bareAdds, open: bareEnqueuer},
	}
}

// enqueue measures how many transactions that enqueue one message each are
// committed in a second.
func enqueue(ctx context.Context, b *bed, o options, r *Report) {
	to := startSink(b)
	server := startPostgres(b, nil)
	pid := postmaster(b, server)
	got := map[string][]float64{}  // a second, by mode
	used := map[string][]float64{} // µs of the server for each, by mode
	for range o.drains {
		for _, mode := range enqueueModes() {
			url := server.NewDatabase(b)
			e := mode.open(ctx, b, url)
			to.post("/clear")
			var m *member
			if mode.gate != "" {
				m = start(b, delivererRole, queueOptions{Kind: "postgres", URL: url, Target: to.url + mode.gate})
			}
			commits(ctx, b, e, time.Second) // until its hands are full
			before := cpuTimes(pid)
			perSecond, n := commits(ctx, b, e, enqueueFor)
			each := micros(ran(before, cpuTimes(pid))) / float64(n)
			got[mode.name], used[mode.name] = append(got[mode.name], perSecond), append(used[mode.name], each)
			fmt.Fprintf(os.Stderr, "    %s: %s/s, %s µs of the server for each\n", mode.name, number(perSecond), number(each))
			if m != nil {
				m.kill()
			}
			e.close()
		}
	}
	none := median(got[nobody])
	r.add(Figure{Section: "enqueue", Subject: "postgres", Name: "processor of the server for each commit", Value: median(used[nobody]), Unit: "µs",
		Bound: 1.1 * median(used[riverAdds]), Peer: median(used[riverAdds]), Versus: riverKind, Count: len(used[nobody])})
	for _, mode := range enqueueModes() {
		if mode.name == nobody {
			continue
		}
		all := got[mode.name]
		f := Figure{Section: "enqueue", Subject: "postgres", Name: fmt.Sprintf("%d committers, %s", committers, mode.name), Value: median(all), Unit: "/s",
			Peer: none, Versus: "nobody", Count: len(all)}
		if mode.name == handsFull {
			f.Least = 0.95 * none
		}
		r.add(f)
	}
}

// commits enqueues from many sides at once, and returns how many were committed in a second, and in all.
func commits(ctx context.Context, b *bed, e enqueuer, during time.Duration) (perSecond float64, n int64) {
	var done atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for range committers {
		all.Go(func() {
			for time.Since(began) < during {
				key := keyName(rand.N(enqueueKeys))
				// The sink's judgement of the order is not asked for here.
				m := dispatch.Message{Queue: queueName, Key: key, ID: lease.NewID(), ContentType: "application/json", Payload: message(key, 1, 0)}
				b.check(e.add(ctx, m), "enqueueing")
				done.Add(1)
			}
		})
	}
	all.Wait()
	return float64(done.Load()) / time.Since(began).Seconds(), done.Load()
}

// riverEnqueuer inserts River's jobs instead, each in a transaction of its own.
func riverEnqueuer(ctx context.Context, b *bed, url string) enqueuer {
	riverFill(ctx, b, url, 0, 0)
	client, err := river.NewClient(riverpgxv5.New(nil), &river.Config{})
	b.check(err, "making River's client")
	return postgresEnqueuer(ctx, b, url, committers, func(ctx context.Context, tx pgx.Tx, m dispatch.Message) error {
		_, err := client.InsertTx(ctx, tx, riverPost{N: 1, Key: m.Key, Text: padding}, nil)
		return err
	})
}

// bareEnqueuer inserts rows into a table with a primary key, and nothing else.
func bareEnqueuer(ctx context.Context, b *bed, url string) enqueuer {
	conn, err := pgx.Connect(ctx, url)
	b.check(err, "connecting")
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "CREATE TABLE bare (id text PRIMARY KEY, key text NOT NULL, payload bytea NOT NULL)")
	b.check(err, "making a table")
	return postgresEnqueuer(ctx, b, url, committers, func(ctx context.Context, tx pgx.Tx, m dispatch.Message) error {
		_, err := tx.Exec(ctx, "INSERT INTO bare VALUES ($1, $2, $3)", m.ID, m.Key, m.Payload)
		return err
	})
}
