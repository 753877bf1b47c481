package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

const (
	backlogKeys = 100_000
	backlogPer  = 10
	backlogFor  = 60 * time.Second
	windowOf    = 20 * time.Second // over which a rate is taken
	// snapshotPer is how many messages each of the thousand keys has: enough for the
	// minutes that the section takes.
	snapshotPer = 3000
)

// over is what is delivered in a second, from now on for a while.
func (s *sink) over(d time.Duration) float64 {
	before, began := s.seen().Distinct, time.Now()
	time.Sleep(d)
	return float64(s.seen().Distinct-before) / time.Since(began).Seconds()
}

// backlog delivers from a queue in which a million messages wait, beside one that
// is short.
func backlog(ctx context.Context, b *bed, o options, r *Report) {
	server := startPostgres(b, nil)
	pid := postmaster(b, server)
	to := startSink(b)
	var short []drained
	drainShort := func() {
		short = append(short, ours.drain(ctx, b, server.NewDatabase(b), pid, to, 1000))
	}
	drainShort()

	opts := queueOptions{Kind: "postgres", URL: server.NewDatabase(b), Target: to.url + "/in/long", Concurrency: rateAtOnce}
	began := time.Now()
	fill(ctx, b, opts.URL, backlogKeys, backlogPer)
	fmt.Fprintf(os.Stderr, "    %d enqueued in %v\n", backlogKeys*backlogPer, time.Since(began).Round(time.Second))
	to.post("/clear")
	m := start(b, delivererRole, opts)
	to.await(ctx, 1, time.Minute)
	perSecond := to.over(backlogFor)
	resident := residentMemory(m.pid())
	wrong := to.seen()
	m.end()
	drainShort()

	beside := medianOf(short, drained.rate)
	r.add(Figure{Section: "backlog", Subject: "postgres", Name: "a million wait, over 100000 keys: delivered", Value: perSecond, Unit: "/s",
		Peer: beside, Versus: "short queue", Least: 0.7 * beside},
		Figure{Section: "backlog", Subject: "postgres", Name: "resident memory of the instance", Value: float64(resident) / mib, Unit: "MiB", Bound: 200},
		Figure{Section: "backlog", Subject: "postgres", Name: "out of order or twice", Value: float64(wrong.Misordered + wrong.Again), Limited: true, Count: int(wrong.Distinct)})
}

// snapshot delivers while another transaction in the same database stays open,
// which has read and written, so that nothing that is deleted or replaced
// meanwhile can be cleaned away; and then the same without it, because a queue of
// that length has a course of its own.
func snapshot(ctx context.Context, b *bed, o options, r *Report) {
	server := startPostgres(b, nil)
	pid := postmaster(b, server)
	to := startSink(b)
	full := server.NewDatabase(b)
	fill(ctx, b, full, 1000, snapshotPer)
	with := course(ctx, b, to, pid, copyOf(ctx, b, server, full, "with_snapshot"), true)
	without := course(ctx, b, to, pid, full, false)
	for i := range with {
		name := fmt.Sprintf("a transaction open for %d min", i-1)
		switch i {
		case 0:
			name = "before a transaction is opened beside"
		case len(with) - 1:
			name = "after it has ended"
		}
		f := Figure{Section: "snapshot", Subject: "postgres", Name: name + ": delivered", Value: with[i].perSecond, Unit: "/s",
			Peer: without[i].perSecond, Versus: "without"}
		if i > 0 && i < len(with)-1 {
			f.Least = 0.8 * f.Peer
		}
		r.add(f, Figure{Section: "snapshot", Subject: "postgres", Name: name + ": processor of the server for each", Value: micros(with[i].server), Unit: "µs",
			Peer: micros(without[i].server), Versus: "without"})
	}
}

// stretch is what was delivered during windowOf.
type stretch struct {
	perSecond float64
	server    time.Duration // of a processor, for each
}

// course delivers for minutes and returns what it did at the beginning, in each
// minute from 0 to 3 while a transaction was open, and after that; or at the same moments
// without that transaction.
func course(ctx context.Context, b *bed, to *sink, pid int, url string, open bool) (out []stretch) {
	to.post("/clear")
	m := start(b, delivererRole, queueOptions{Kind: "postgres", URL: url, Target: to.url + "/in/old", Concurrency: rateAtOnce})
	defer m.end()
	to.await(ctx, 1, time.Minute)
	next := func() {
		n, before := to.seen().Distinct, cpuTimes(pid)
		perSecond := to.over(windowOf)
		if n = to.seen().Distinct - n; n == 0 {
			b.Fatalf("bench: nothing is delivered any more")
		}
		out = append(out, stretch{perSecond, ran(before, cpuTimes(pid)) / time.Duration(n)})
		fmt.Fprintf(os.Stderr, "    open %v: %s/s, %s µs of server each\n", open, number(perSecond), number(micros(out[len(out)-1].server)))
	}
	next()
	conn, err := pgx.Connect(ctx, url)
	b.check(err, "connecting")
	defer conn.Close(ctx)
	if open {
		if _, err = conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ"); err == nil {
			_, err = conn.Exec(ctx, "SELECT txid_current()")
		}
	}
	opened := time.Now()
	for minute := range 4 {
		time.Sleep(time.Until(opened.Add(time.Duration(minute) * time.Minute)))
		next()
	}
	if open && err == nil {
		_, err = conn.Exec(ctx, "COMMIT")
	}
	b.check(err, "the transaction beside")
	next()
	return out
}

// copyOf is a new database with all that is in another one.
func copyOf(ctx context.Context, b *bed, server *realserver.PostgresServer, url, name string) string {
	conn, err := pgx.Connect(ctx, server.URL())
	b.check(err, "connecting")
	defer conn.Close(ctx)
	from, err := pgx.ParseConfig(url)
	b.check(err, "reading a URL")
	sql := fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s STRATEGY file_copy", name, from.Database)
	_, err = conn.Exec(ctx, sql)
	b.check(err, "%s", sql)
	return strings.Replace(url, "/"+from.Database, "/"+name, 1)
}
