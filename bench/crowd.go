package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
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
	// crowdWindow is how long each state of the crowd is looked at.
	crowdWindow = 30 * time.Second
)

// crowd measures what many instances cost the database: each renews once per
// second and holds a role of its own. Then it lets one role go round among 100
// standbys, and counts what each hand-over costs.
func crowd(ctx context.Context, b *bed, o options, r *Report) {
	for _, kind := range o.kinds {
		if kind != "postgres" && kind != peerKind {
			continue
		}
		p := place{kind: kind}
		bare := 0.0
		if kind == peerKind {
			p = startOne(b, kind)
		} else {
			server := startPostgres(b, map[string]string{"max_connections": strconv.Itoa(4*o.crowd + 100)})
			p.url, p.pid = server.NewDatabase(b), postmaster(b, server)
			bare = bareCrowd(ctx, b, o, r, p)
		}
		crowdOf(b, o, r, p, bare)
	}
}

// crowdOf takes the figures of one place; bare is the share that updates alone
// take, 0 when it is not known.
func crowdOf(b *bed, o options, r *Report, p place, bare float64) {
	opt := workerOptions{url: p.url, timing: lease.Timing{}.WithDefaults(), parties: perWorker, own: true, watched: sharedRole}
	var workers []*member
	for first := 0; first < o.crowd; first += perWorker {
		opt.first = first
		workers = append(workers, launchWorker(b, opt))
		if len(workers)%2 == 0 { // a few at a time: starting is not what is measured
			workers[len(workers)-2].await(saidReady, 5*time.Minute)
			workers[len(workers)-1].await(saidReady, time.Minute)
		}
	}
	time.Sleep(2 * opt.timing.Timeout)

	add := func(name string, value float64, unit string, more ...func(*Figure)) {
		f := Figure{Section: "crowd", Subject: p.kind, Name: name, Value: value, Unit: unit}
		for _, m := range more {
			m(&f)
		}
		r.add(f)
	}
	beside := func(f *Figure) { f.Peer, f.Versus = bare, "bare updates" }
	bound := func(f *Figure) {
		if p.kind != peerKind {
			f.Bound = 5
		}
	}
	who := fmt.Sprintf("%d instances", o.crowd)
	before := callsOf(workers)
	share, _ := cpuShare(b, p.pid, crowdWindow)
	calls := callsOf(workers).minus(before)
	seconds := crowdWindow.Seconds()
	add(who+": share of the machine", share, "%", bound, beside)
	if p.kind != peerKind {
		add(who+": processes of the server", float64(len(cpuTimes(p.pid))-1), "")
	}
	add(who+": renewals", calls["renew"]/seconds, "/s")
	add(who+": other calls", calls.others()/seconds, "/s")
	quiet := calls.others()

	for _, w := range workers[:standbys/perWorker] {
		w.tell("again %s %s", sharedRole, sharedHold)
	}
	time.Sleep(2 * opt.timing.Timeout)
	for _, w := range workers {
		w.drain()
	}
	before = callsOf(workers)
	share, _ = cpuShare(b, p.pid, crowdWindow)
	calls = callsOf(workers).minus(before)
	rounds := gather(workers)
	who = fmt.Sprintf("%d standbys", standbys)
	n := func(f *Figure) { f.Count = len(rounds) }
	var times sample
	var soon, claims, later int
	for _, x := range rounds {
		times = append(times, x.took)
		soon, claims, later = soon+x.soon, claims+x.claims, later+x.later
	}
	if len(rounds) == 0 {
		b.Fatalf("bench: %s: no hand-over among %d standbys in %v", p.kind, standbys, crowdWindow)
	}
	each := float64(len(rounds))
	add(who+": hand-over, median", millis(times.median()), "ms", n)
	add(who+": hand-over, worst", millis(times.max()), "ms", n)
	add(who+": share of the machine meanwhile", share, "%")
	if p.kind == peerKind {
		return // its client does not tell its calls
	}
	add(who+": attempts to take it, per hand-over", float64(claims)/each, "calls", n)
	add(who+": their calls within 100 ms of the release", float64(soon)/each, "calls", n)
	add(who+": their calls within 1 s of the release", float64(later)/each, "calls", n)
	add(fmt.Sprintf("all %d: calls that a hand-over adds", o.crowd), (calls.others()-quiet)/each, "calls", n)
}

// round is one hand-over of the shared role.
type round struct {
	took        time.Duration
	soon, later int // calls about the role within 100 ms and 1 s
	claims      int // those of them that tried to take it
}

// gather finds the hand-overs in what the workers said.
func gather(workers []*member) (rounds []round) {
	var all []said
	for _, w := range workers {
		all = append(all, w.drain()...)
	}
	slices.SortFunc(all, func(a, b said) int { return int(a.at - b.at) })
	for i, s := range all {
		if s.what != saidStopping {
			continue
		}
		x := round{took: -1}
		for _, next := range all[i+1:] {
			past := next.at - s.at
			if past > time.Second {
				break
			}
			switch next.what {
			case saidStarted:
				if x.took < 0 {
					x.took = past
				}
			case saidCall:
				x.later++
				if past <= 100*time.Millisecond {
					x.soon++
				}
				if next.more == "acquire" {
					x.claims++
				}
			}
		}
		if x.took >= 0 {
			rounds = append(rounds, x)
		}
	}
	return rounds
}

// tally is how often each method was called.
type tally map[string]float64

func callsOf(workers []*member) tally {
	sum := tally{}
	for _, w := range workers {
		w.tell("calls")
	}
	for _, w := range workers {
		for _, word := range strings.Fields(w.keepUntil(saidCalls, time.Minute).more) {
			method, n, _ := strings.Cut(word, "=")
			count, _ := strconv.ParseFloat(n, 64)
			sum[method] += count
		}
	}
	return sum
}

func (t tally) minus(before tally) tally {
	out := tally{}
	for method, n := range t {
		out[method] = n - before[method]
	}
	return out
}

func (t tally) others() (n float64) {
	for method, count := range t {
		if method != "renew" {
			n += count
		}
	}
	return n
}

// cpuShare is the share of the machine's processors that a server and its
// children take during the window.
func cpuShare(b *bed, pid int, window time.Duration) (percent float64, used time.Duration) {
	began := time.Now()
	before := cpuTimes(pid)
	time.Sleep(window)
	after := cpuTimes(pid)
	took := time.Since(began)
	for id, now := range after {
		used += now - before[id]
	}
	if len(after) == 0 {
		b.Fatalf("bench: process %d has ended", pid)
	}
	return 100 * used.Seconds() / took.Seconds() / float64(runtime.NumCPU()), used
}

// bareCrowd measures the least that a renewal could be: as many connections as
// there are instances, and each updates a row of its own once per second.
func bareCrowd(ctx context.Context, b *bed, o options, r *Report, p place) (percent float64) {
	ctx, cancel := context.WithCancel(ctx)
	cfg, err := pgx.ParseConfig(p.url)
	if err != nil {
		b.Fatalf("bench: %v", err)
	}
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
		if err != nil {
			b.Fatalf("bench: connection %d: %v", i, err)
		}
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
	percent, _ = cpuShare(b, p.pid, crowdWindow/2)
	cancel()
	side.Wait()
	r.add(Figure{Section: "crowd", Subject: p.kind, Name: fmt.Sprintf("%d connections, each one bare update per second: share of the machine", o.crowd), Value: percent, Unit: "%"})
	return percent
}
