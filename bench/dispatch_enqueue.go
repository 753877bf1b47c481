package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

const (
	committers  = 12
	enqueueFor  = 4 * time.Second
	enqueueKeys = 10_000 // some are idle when a batch comes, most are not
)

// enqueueMode is who is there while batches are enqueued.
type enqueueMode struct {
	name string
	gate string // of the sink, that a dispatcher delivers to; "" for no dispatcher
	open func(ctx context.Context, b *bed, url string) enqueuer
}

const (
	nobody    = "nobody delivers"
	handsFull = "a dispatcher with its hands full"
	deliverer = "a dispatcher that delivers it all"
	riverAdds = "River's insertion instead"
	bareAdds  = "an INSERT of the same size instead"
)

// enqueueModes: first nobody is there to be told, then a dispatcher that has its
// hands full, then one that delivers it all. The second does no work, because its
// requests hang at the gate, so that what is measured is the telling; the third
// takes its share of the machine. The others are for comparison.
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

// committed is what one run of a mode gave.
type committed struct {
	perSecond float64
	server    time.Duration // of a processor, for one transaction
}

// enqueue measures how many transactions that enqueue one batch each are
// committed in a second.
func enqueue(ctx context.Context, b *bed, o options, r *Report) {
	to := startSink(b)
	server := startPostgres(b, nil)
	pid := postmaster(b, server)
	got := map[string][]committed{}
	for range o.drains {
		for _, mode := range enqueueModes() {
			url := server.NewDatabase(b)
			e := mode.open(ctx, b, url)
			to.post("/clear")
			var m *member
			if mode.gate != "" {
				m = startDeliverer(b, queueOptions{Kind: "postgres", URL: url, Target: to.url + mode.gate})
			}
			commits(ctx, b, e, time.Second) // until its hands are full
			before := cpuTimes(pid)
			n, took := commits(ctx, b, e, enqueueFor)
			c := committed{float64(n) / took.Seconds(), ran(before, cpuTimes(pid)) / time.Duration(n)}
			got[mode.name] = append(got[mode.name], c)
			fmt.Fprintf(os.Stderr, "    %s: %s/s, %s µs of server each\n", mode.name, number(c.perSecond), number(micros(c.server)))
			if m != nil {
				m.kill()
			}
			e.close()
		}
	}
	none := median(ratesOf(got[nobody]))
	for _, mode := range enqueueModes() {
		all := got[mode.name]
		f := Figure{Section: "enqueue", Subject: "postgres", Name: fmt.Sprintf("%d committers, %s", committers, mode.name), Value: median(ratesOf(all)), Unit: "/s", Count: len(all)}
		if mode.name != nobody {
			f.Peer, f.Versus = none, "nobody"
		}
		if mode.name == handsFull {
			f.Least = 0.95 * none
		}
		var server []float64
		for _, c := range all {
			server = append(server, micros(c.server))
		}
		r.add(f, Figure{Section: "enqueue", Subject: "postgres", Name: mode.name + ": processor of the server for each", Value: median(server), Unit: "µs", Count: len(all)})
	}
}

func ratesOf(all []committed) (out []float64) {
	for _, c := range all {
		out = append(out, c.perSecond)
	}
	return out
}

// commits enqueues from many sides at once.
func commits(ctx context.Context, b *bed, e enqueuer, during time.Duration) (n int64, took time.Duration) {
	var done atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for range committers {
		all.Go(func() {
			for time.Since(began) < during {
				key := keyName(rand.N(enqueueKeys))
				// The sink's judgement of the order is not asked for here.
				batch := dispatch.Message{Queue: queueName, Key: key, ID: lease.NewID(), ContentType: "application/json", Payload: message(key, 1, 0)}
				if err := e.add(ctx, batch); err != nil {
					b.Fatalf("bench: enqueueing: %v", err)
				}
				done.Add(1)
			}
		})
	}
	all.Wait()
	return done.Load(), time.Since(began)
}

// riverEnqueuer inserts River's jobs instead, each in a transaction of its own.
func riverEnqueuer(ctx context.Context, b *bed, url string) enqueuer {
	riverFill(ctx, b, url, 0, 0)
	pool := committersPool(ctx, b, url, committers)
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
	if err != nil {
		b.Fatalf("bench: River: %v", err)
	}
	return enqueuer{close: pool.Close, add: func(ctx context.Context, batch dispatch.Message) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(context.WithoutCancel(ctx))
		if _, err := client.InsertTx(ctx, tx, riverPost{N: 1, Key: batch.Key, Text: padding}, nil); err != nil {
			return err
		}
		return tx.Commit(ctx)
	}}
}

// bareEnqueuer inserts rows into a table with a primary key, and nothing else.
func bareEnqueuer(ctx context.Context, b *bed, url string) enqueuer {
	pool := committersPool(ctx, b, url, committers)
	if _, err := pool.Exec(ctx, "CREATE TABLE bare (id text PRIMARY KEY, key text NOT NULL, payload bytea NOT NULL)"); err != nil {
		b.Fatalf("bench: %v", err)
	}
	return enqueuer{close: pool.Close, add: func(ctx context.Context, batch dispatch.Message) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(context.WithoutCancel(ctx))
		if _, err := tx.Exec(ctx, "INSERT INTO bare VALUES ($1, $2, $3)", batch.ID, batch.Key, batch.Payload); err != nil {
			return err
		}
		return tx.Commit(ctx)
	}}
}
