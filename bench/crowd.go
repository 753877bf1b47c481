package main

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/lease"
)

const (
	// perWorker is how many instances share a process: on this machine a process
	// for each would only measure the machine's scheduler. Each still has a store,
	// that is connections, of its own.
	perWorker = 50
	// standbys contend for one role that its holder gives back every sharedHold.
	standbys   = 100
	sharedRole = "shared"
	sharedHold = 3 * time.Second
	// crowdWindow is how long each state of the crowd is watched.
	crowdWindow = 30 * time.Second
)

// crowd measures what many instances cost the database: each renews once per
// second and holds a role of its own. Then it lets one role go round among 100
// standbys. Last, they are sessions of one server, which each process renews together.
func crowd(ctx context.Context, b *bed, o options, r *Report) {
	share := func(kind, name string) Figure {
		return Figure{Section: "crowd", Subject: kind, Name: fmt.Sprintf("%d instances%s: share of the machine", o.crowd, name), Unit: "%"}
	}
	var peer float64
	if slices.Contains(o.kinds, peerKind) {
		p := startOne(b, peerKind)
		workers := startCrowd(b, o, p)
		f := share(peerKind, "")
		f.Value = cpuShare(b, crowdWindow, p.pid)
		r.add(f)
		peer = f.Value
		handOverInCrowd(b, r, peerKind, workers, 0)
		endCrowd(workers)
	}
	if !slices.Contains(o.kinds, "postgres") {
		return
	}
	server := startPostgres(b, map[string]string{"max_connections": strconv.Itoa(4*o.crowd + 100)})
	p := postgresPlace(b, server)
	f := share("postgres", "")
	f.Peer, f.Versus, f.Bound = bareCrowd(ctx, b, o, p), "bare updates", 5
	workers := startCrowd(b, o, p)
	countCalls(workers)
	f.Value = cpuShare(b, crowdWindow, p.pid)
	_, atRest := countCalls(workers)
	r.add(f)
	handOverInCrowd(b, r, "postgres", workers, atRest)
	endCrowd(workers)

	p = postgresPlace(b, server)
	proc, address := serve(b, buildProgram(ctx, b), p)
	workers = startProcesses(b, o, func(first int) *member {
		return launch(b, sessionsRole, sessionsOptions{Server: address, First: first, Count: perWorker})
	})
	f = share("postgres", " as sessions of one server, with it")
	f.Value = cpuShare(b, crowdWindow, p.pid, proc.Pid())
	if peer > 0 {
		f.Peer, f.Versus, f.Bound = peer, peerKind, 2*peer
	}
	r.add(f)
	endCrowd(workers)
}

// startCrowd starts all instances and returns when they are at rest.
func startCrowd(b *bed, o options, p place) []*member {
	opt := workerOptions{URL: p.url, Timing: lease.Timing{}.WithDefaults(), Parties: perWorker, Own: true}
	return startProcesses(b, o, func(first int) *member {
		opt.First = first
		return launch(b, workerRole, opt)
	})
}

// startProcesses starts a process for every perWorker instances, and returns when they are at rest.
func startProcesses(b *bed, o options, launchOne func(first int) *member) (workers []*member) {
	for first := 0; first < o.crowd; first += perWorker {
		workers = append(workers, launchOne(first))
		if len(workers)%2 == 0 { // a few at a time: starting is not what is measured
			workers[len(workers)-2].await(saidReady, 5*time.Minute)
			workers[len(workers)-1].await(saidReady, time.Minute)
		}
	}
	time.Sleep(2 * lease.DefaultTimeout)
	return workers
}

// endCrowd ends all instances, so that the next ones have the machine.
func endCrowd(workers []*member) {
	var all sync.WaitGroup
	for _, w := range workers {
		all.Go(w.end)
	}
	all.Wait()
}

// handOverInCrowd passes one role among some of the instances, which made so many calls within the window at rest.
func handOverInCrowd(b *bed, r *Report, kind string, workers []*member, atRest float64) {
	for _, w := range workers[:standbys/perWorker] {
		w.sendCommand("again %s %s", sharedRole, sharedHold)
	}
	time.Sleep(2 * lease.DefaultTimeout)
	countCalls(workers)
	for _, w := range workers {
		w.drain()
	}
	time.Sleep(crowdWindow)
	var all []said
	for _, w := range workers {
		all = append(all, w.drain()...)
	}
	attempts, reads := countCalls(workers) // drops what is said meanwhile
	times := handOvers(all)
	if len(times) == 0 {
		b.Fatalf("bench: %s: no hand-over among %d standbys in %v", kind, standbys, crowdWindow)
	}
	r.add(Figure{Section: "crowd", Subject: kind, Name: fmt.Sprintf("%d standbys: hand-over, median", standbys), Value: millis(times.median()), Unit: "ms", Bound: 15, Count: len(times)})
	if kind != peerKind {
		each := float64(len(times))
		r.add(Figure{Section: "crowd", Subject: kind, Name: "… attempts at the role for each", Value: attempts / each, Bound: 3, Count: len(times)})
		r.add(Figure{Section: "crowd", Subject: kind, Name: "… other calls than at rest for each", Value: max(0, reads-atRest) / each, Bound: 20, Count: len(times)})
	}
}

// countCalls is what all workers asked of their stores since the last time.
func countCalls(workers []*member) (attempts, reads float64) {
	for _, w := range workers {
		w.sendCommand("calls")
		s := w.await(saidResult, time.Minute)
		var a, r float64
		if _, err := fmt.Sscan(s.more, &a, &r); err != nil {
			w.b.Fatalf("bench: a worker counted %q: %v", s.more, err)
		}
		attempts, reads = attempts+a, reads+r
	}
	return attempts, reads
}

// handOvers of the one role in what workers said: from each moment at which it was given back
// until it was won, if that took less than a second.
func handOvers(all []said) (times sample) {
	slices.SortFunc(all, func(a, b said) int { return int(a.at - b.at) })
	for i, s := range all[:max(0, len(all)-1)] {
		next := all[i+1]
		if s.what == saidStopping && next.what == saidStarted && next.at-s.at <= time.Second {
			times = append(times, next.at-s.at)
		}
	}
	return times
}

// cpuShare is the share of the machine's processors that servers and their
// children take during the window.
func cpuShare(b *bed, window time.Duration, pids ...int) (percent float64) {
	began, before := time.Now(), map[int]time.Duration{}
	for _, pid := range pids {
		maps.Copy(before, cpuTimes(pid))
	}
	time.Sleep(window)
	var used time.Duration
	for _, pid := range pids {
		after := cpuTimes(pid)
		if len(after) == 0 {
			b.Fatalf("bench: process %d has ended", pid)
		}
		for id, now := range after {
			used += now - before[id]
		}
	}
	took := time.Since(began)
	return 100 * used.Seconds() / took.Seconds() / float64(runtime.NumCPU())
}

// bareCrowd measures the least that a renewal could be: as many connections as
// there are instances, and each updates a row of its own once per second.
func bareCrowd(ctx context.Context, b *bed, o options, p place) (percent float64) {
	ctx, cancel := context.WithCancel(ctx)
	cfg, err := pgx.ParseConfig(p.url)
	b.check(err, "reading a URL")
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	var conns []*pgx.Conn
	for i := range o.crowd {
		conn, err := pgx.ConnectConfig(ctx, cfg.Copy())
		if err == nil && i == 0 {
			_, err = conn.Exec(ctx, "CREATE TABLE bare (id bigint PRIMARY KEY, seq bigint NOT NULL, deadline timestamptz NOT NULL) WITH (fillfactor = 50)")
		}
		if err == nil {
			_, err = conn.Exec(ctx, "INSERT INTO bare VALUES ($1, 0, clock_timestamp())", int64(i))
		}
		b.check(err, "connection %d", i)
		conns = append(conns, conn)
	}
	var side sync.WaitGroup
	for i, conn := range conns {
		side.Go(func() {
			defer conn.Close(context.WithoutCancel(ctx))
			time.Sleep(time.Duration(i) * time.Second / time.Duration(len(conns)))
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				// An update that fails shows as a share that is too small to be true.
				_, _ = conn.Exec(ctx, "UPDATE bare SET seq = seq + 1, deadline = clock_timestamp() WHERE id = $1", int64(i))
			}
		})
	}
	time.Sleep(3 * time.Second)
	percent = cpuShare(b, crowdWindow/2, p.pid)
	cancel()
	side.Wait()
	return percent
}
