package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
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

// sides in the order of their turns.
func sides(kind string) []side {
	ours := side{kind, fill}
	if kind != "postgres" {
		return []side{ours}
	}
	return []side{ours, {riverKind, riverFill}}
}

// drained is a queue that was delivered from the first message to the last.
type drained struct {
	seen
	// What each used of a processor for one message.
	server, deliverer, sink time.Duration
	resident                int64 // of the deliverer, in the end
}

// drain fills a database and has all of it delivered. pid is the server's, or 0.
func (s side) drain(ctx context.Context, b *bed, url string, pid int, to *sink, keys, jobs int, o queueOptions) drained {
	s.fill(ctx, b, url, keys, jobs/keys)
	to.post("/clear")
	o.Kind, o.URL, o.Target = s.kind, url, to.url+"/in/"+s.kind
	server, taker := cpuTimes(pid), cpuTimes(to.pid())
	m := startDeliverer(b, o)
	got := drained{seen: to.await(ctx, int64(jobs), 10*time.Minute)}
	each := func(pid int, before map[int]time.Duration) time.Duration {
		return ran(before, cpuTimes(pid)) / time.Duration(jobs)
	}
	self := m.cmd.Process.Pid
	got.server, got.deliverer, got.sink = each(pid, server), each(self, nil), each(to.pid(), taker)
	got.resident = residentMemory(self)
	m.tell("stop")
	stopped := m.await(saidStopped, time.Minute)
	fmt.Fprintf(os.Stderr, "    %s: %s/s, %d again, %d misordered; %s µs of server, %s of deliverer, %s of sink each; %d MiB; %s\n", s.kind, number(got.rate()),
		got.Again, got.Misordered, number(micros(got.server)), number(micros(got.deliverer)), number(micros(got.sink)), got.resident/mib, stopped.more)
	return got
}

// ran is how long processes ran between two moments. Those that ended are left
// out: the kernel counts them in hundredths of a second.
func ran(before, after map[int]time.Duration) (sum time.Duration) {
	for pid, t := range after {
		if pid != -1 {
			sum += max(0, t-before[pid])
		}
	}
	return sum
}

// bareRate is what a client without any queue reaches: the limit of the sink and
// of the machine.
func bareRate(ctx context.Context, b *bed, to *sink) float64 {
	to.post("/clear")
	client := http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{MaxIdleConns: rateAtOnce, MaxIdleConnsPerHost: rateAtOnce}}
	var next atomic.Int64
	var workers sync.WaitGroup
	for range rateAtOnce {
		workers.Go(func() {
			for i := int(next.Add(1)); i <= rateJobs; i = int(next.Add(1)) {
				body := bytes.NewReader(message(keyName(i%1000), i/1000+1, 0))
				resp, err := client.Post(to.url+"/in/bare", "application/json", body)
				if err != nil {
					b.Fatalf("bench: posting: %v", err)
				}
				resp.Body.Close()
			}
		})
	}
	workers.Wait()
	return to.seen().rate()
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
	r.add(Figure{Section: "rate", Subject: "bare client", Name: "POSTs without a queue", Value: bareRate(ctx, b, to), Unit: "/s"})
	for _, keys := range []int{1000, 100} {
		got := map[string][]drained{}
		for range o.drains {
			for _, s := range sides("postgres") {
				got[s.kind] = append(got[s.kind], s.drain(ctx, b, server.NewDatabase(b), pid, to, keys, rateJobs, queueOptions{Concurrency: o.atOnce, Profile: o.cpuProf}))
			}
		}
		addRates(r, keys, got["postgres"], got[riverKind])
	}
	var embedded []drained
	for range o.drains {
		embedded = append(embedded, side{"sqlite", fill}.drain(ctx, b, startOne(b, "sqlite").url, 0, to, 1000, rateJobs/5, queueOptions{Concurrency: o.atOnce}))
	}
	r.add(Figure{Section: "rate", Subject: "sqlite", Name: "1000 keys: delivered", Unit: "/s", Count: len(embedded),
		Value: medianOf(embedded, func(d drained) float64 { return d.rate() })})
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
		{"delivered", "/s", func(d drained) float64 { return d.rate() }},
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
