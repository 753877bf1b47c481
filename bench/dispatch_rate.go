package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"
)

const (
	// rateJobs are put into a queue before anybody delivers it.
	rateJobs = 100_000
	// rateAtOnce submissions are under way at once. River is at its best with
	// about as many here.
	rateAtOnce = 200
	riverKind  = "river"
)

func keyName(k int) string { return fmt.Sprintf("key-%06d", k) }

// side is one way to deliver, with a database of its own.
type side struct {
	kind string
	fill func(ctx context.Context, b *bed, url string, keys, per int)
}

// ours and rivers take turns.
var (
	ours   = side{"postgres", fill}
	rivers = side{riverKind, riverFill}
)

// drained is a queue that was delivered from the first message to the last.
type drained struct {
	seen
	// What each used of a processor for one message.
	server, deliverer, sink time.Duration
}

// drain fills a database and has all of it delivered. pid is the server's.
func (s side) drain(ctx context.Context, b *bed, url string, pid int, to *sink, keys int) drained {
	s.fill(ctx, b, url, keys, rateJobs/keys)
	to.post("/clear")
	server, taker := cpuTimes(pid), cpuTimes(to.m.pid())
	m := start(b, delivererRole, queueOptions{Kind: s.kind, URL: url, Target: to.url + "/in/" + s.kind, Concurrency: rateAtOnce})
	got := drained{seen: to.await(ctx, rateJobs, 10*time.Minute)}
	each := func(pid int, before map[int]time.Duration) time.Duration {
		return ran(before, cpuTimes(pid)) / rateJobs
	}
	got.server, got.deliverer, got.sink = each(pid, server), each(m.pid(), nil), each(to.m.pid(), taker)
	m.sendCommand("stop")
	stopped := m.await(saidStopped, time.Minute)
	fmt.Fprintf(os.Stderr, "    %s: %s/s, %d again, %d misordered; %s\n", s.kind, number(got.rate()), got.Again, got.Misordered, stopped.more)
	return got
}

// ran is how long processes ran between two moments. Those that ended are left
// out: the kernel counts them in hundredths of a second.
func ran(before, after map[int]time.Duration) (sum time.Duration) {
	for pid, t := range after {
		if pid > 0 { // of one that runs
			sum += max(0, t-before[pid])
		}
	}
	return sum
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)/2]
}

// rate compares what is delivered in a second with River's jobs, each in a
// database of its own on the same server, in turns.
func rate(ctx context.Context, b *bed, o options, r *Report) {
	server := startPostgres(b, nil)
	pid := postmaster(b, server)
	to := startSink(b)
	for _, keys := range []int{1000, 100} {
		got := map[string][]drained{}
		for range o.drains {
			for _, s := range []side{ours, rivers} {
				got[s.kind] = append(got[s.kind], s.drain(ctx, b, server.NewDatabase(b), pid, to, keys))
			}
		}
		addRates(r, keys, got[ours.kind], got[riverKind])
	}
}

func medianOf(all []drained, of func(drained) float64) float64 {
	var values []float64
	for _, d := range all {
		values = append(values, of(d))
	}
	return median(values)
}

func addRates(r *Report, keys int, ours, river []drained) {
	atLeast := map[int]float64{1000: 1, 100: 0.8}[keys]
	for _, f := range []struct {
		name, unit string
		of         func(drained) float64
	}{
		{"delivered", "/s", drained.rate},
		{"processor for each: server", "µs", func(d drained) float64 { return micros(d.server) }},
		{"processor for each: deliverer", "µs", func(d drained) float64 { return micros(d.deliverer) }},
		{"processor for each: sink", "µs", func(d drained) float64 { return micros(d.sink) }},
	} {
		figure := Figure{Section: "rate", Subject: "postgres", Name: fmt.Sprintf("%d keys: %s", keys, f.name), Unit: f.unit,
			Value: medianOf(ours, f.of), Peer: medianOf(river, f.of), Versus: riverKind, Count: len(ours)}
		if f.unit == "/s" {
			figure.Least = atLeast * figure.Peer
		}
		r.add(figure)
	}
	wrong := Figure{Section: "rate", Subject: "postgres", Name: fmt.Sprintf("%d keys: out of order or twice", keys), Count: len(ours) * rateJobs, Limited: true}
	for _, d := range ours {
		wrong.Value += float64(d.Misordered + d.Again)
	}
	r.add(wrong)
}
