package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

const (
	// trickleEvent is of sources that send one heartbeat.
	trickleEvent = "trickle"
	trickleFlag  = trickleEvent + ",interval=1s,missed=1"
	trickleRate  = 75 // outages in a second
	trickleFor   = 15 * time.Second

	// crowdEvent is of those that fall silent together.
	crowdEvent = "crowd"
	crowdFlag  = crowdEvent + ",interval=6s,missed=1"
	crowdSize  = 10_000
	crowdRest  = 3 * time.Second // between two heartbeats of them, less than they may be silent
	// crowdWithin is until all alarms should have been delivered.
	crowdWithin = 5 * time.Second
)

// outages lets sources with numbers from first on send one heartbeat, in irregular intervals, and
// returns how many they were when that ends. The sources are new.
func outages(b *bed, address string, first int, during time.Duration) (n int) {
	o := &senderOptions{Address: address, Event: trickleEvent, Way: byPing}
	free := make(chan *senderConn, 8)
	for range cap(free) {
		c, err := dialSender(o)
		b.check(err, "connecting")
		defer c.conn.Close()
		free <- c
	}
	var sending sync.WaitGroup
	for at := time.Now(); during > 0; n++ {
		pause := time.Duration(rand.ExpFloat64() * float64(time.Second) / trickleRate)
		during -= pause
		at = at.Add(pause)
		time.Sleep(time.Until(at))
		c, source := <-free, first+n
		sending.Go(func() {
			defer func() { free <- c }()
			b.check(c.send(1, func(int) int { return source }), "a heartbeat")
		})
	}
	sending.Wait()
	return n
}

// silence measures how long it takes from the moment at which a source's limit has
// passed until the sink hears of it.
func silence(ctx context.Context, b *bed, o options, r *Report) {
	for _, kind := range []string{"postgres", "sqlite"} {
		g := newRig(ctx, b, kind)
		in := g.start(trickleFlag, crowdFlag)
		n := outages(b, in.address, 0, trickleFor)
		told := lates(g.sink.await(b, monitor.Onset, n, time.Minute))
		bounds := map[string]float64{"postgres": 300}
		for _, f := range []struct {
			name  string
			value time.Duration
			bound float64
		}{{"p50", told.median(), 0}, {"p99", told.p99(), bounds[kind]}} {
			r.add(Figure{Section: "silence", Subject: kind, Name: "limit passed until the sink has the alarm, " + f.name, Value: millis(f.value), Unit: "ms", Bound: f.bound, Count: len(told)})
		}
		g.crowds(r, in, kind, min(3, o.drains))
		r.add(Figure{Section: "silence", Subject: kind, Name: "alarms that arrived twice", Value: float64(g.sink.twice()), Limited: true})
		in.stop()
	}
}

func lates(all []alarm) (out sample) {
	for _, a := range all {
		out = append(out, a.late())
	}
	return out
}

// spread is how long it took from when the first of a crowd turned until the sink was told of
// the last.
func (g *rig) spread(turn monitor.Transition) time.Duration {
	all := g.sink.await(g.b, turn, crowdSize, 2*time.Minute)
	first, last := all[0].started, all[0].told
	for _, a := range all {
		if a.started.Before(first) {
			first = a.started
		}
		if a.told.After(last) {
			last = a.told
		}
	}
	fmt.Fprintf(os.Stderr, "    %d %s: all told after %v\n", len(all), turn, last.Sub(first).Round(time.Millisecond))
	return last.Sub(first)
}

// crowds lets many sources fall silent at once, and return at once.
func (g *rig) crowds(r *Report, in *instance, kind string, rounds int) {
	sender := start(g.b, senderRole, senderOptions{Address: in.address, Event: crowdEvent, Way: byArray, Each: arraySize, Conns: 4, Sources: crowdSize})
	tellLots(g.b, sender, "once 0 %d", crowdSize) // they are learned
	got := map[monitor.Transition]sample{}
	var server, instance []float64
	for round := range rounds {
		g.sink.forget()
		m := g.meter(in)
		turns := 1
		if round > 0 { // they go on until all are known to be back, however long that takes
			turns = 2
			for began := time.Now(); g.sink.count(monitor.Abated) < crowdSize && time.Since(began) < time.Minute; {
				tellLots(g.b, sender, "once 0 %d", crowdSize)
				g.sink.wait(monitor.Abated, crowdSize, crowdRest)
			}
			got[monitor.Abated] = append(got[monitor.Abated], g.spread(monitor.Abated))
		}
		tellLots(g.b, sender, "once 0 %d", crowdSize)
		got[monitor.Onset] = append(got[monitor.Onset], g.spread(monitor.Onset))
		u := m.read()
		of := float64(turns * crowdSize)
		server, instance = append(server, micros(u.of["server"])/of), append(instance, micros(u.of["instance"])/of)
	}
	sender.end()
	for turn, name := range map[monitor.Transition]string{monitor.Onset: "silent", monitor.Abated: "back"} {
		if s := got[turn]; len(s) > 0 {
			f := Figure{Section: "silence", Subject: kind, Name: fmt.Sprintf("%d sources %s at once: until the last alarm arrives, median", crowdSize, name), Value: s.median().Seconds(), Unit: "s", Count: len(s)}
			if kind == "postgres" {
				f.Bound = crowdWithin.Seconds()
			}
			r.add(f)
		}
	}
	r.add(Figure{Section: "silence", Subject: kind, Name: "processor for each alarm: instance", Value: median(instance), Unit: "µs", Count: len(instance)})
	if kind != "sqlite" {
		r.add(Figure{Section: "silence", Subject: kind, Name: "processor for each alarm: server", Value: median(server), Unit: "µs", Count: len(server)})
	}
}

const killRounds = 3

// killed ends one of two instances, and measures how long its sources are not watched.
func killed(ctx context.Context, b *bed, o options, r *Report) {
	g := newRig(ctx, b, "postgres")
	stays := g.start(trickleFlag)
	var worst sample
	first, more := 0, 0
	for range min(killRounds, o.drains) {
		dies := g.start()
		waitFor(b, "both instances have their share", func() bool { return dies.metric("partitions") >= 30 && stays.metric("partitions") >= 30 })
		g.sink.forget()
		at := make(chan time.Time, 1)
		go func() {
			time.Sleep(3*time.Second + rand.N(time.Second))
			at <- time.Now()
			dies.proc.Kill()
		}()
		n := outages(b, stays.address, first, 9*time.Second)
		first += n
		all := g.sink.await(b, monitor.Onset, n, time.Minute)
		kill := <-at
		var before, after sample
		for _, a := range all {
			if a.told.Before(kill) {
				before = append(before, a.late())
			} else {
				after = append(after, a.late())
			}
		}
		more += len(all) - n
		worst = append(worst, after.max())
		fmt.Fprintf(os.Stderr, "    %d alarms; late by %v before, by %v at worst after it was killed\n", len(all), before.median().Round(time.Millisecond), after.max().Round(time.Millisecond))
	}
	bound := monitor.DefaultWindow + time.Second
	r.add(Figure{Section: "killed", Subject: "postgres", Name: "the same after one of two is killed: the latest alarm, worst", Value: millis(worst.max()), Unit: "ms", Bound: millis(bound), Count: len(worst)},
		Figure{Section: "killed", Subject: "postgres", Name: "alarms beyond one for each outage", Value: float64(more), Limited: true, Count: first})
}
