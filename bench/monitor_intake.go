package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

const (
	beatSources = 100_000
	beatArray   = 500
	beatsFor    = 3 * time.Second
	// fleetEvent is what they beat under.
	fleetEvent = "fleet"
	fleetFlag  = fleetEvent + ",interval=60s,missed=3"
)

// beatShapes are ways to send, and what each should reach on PostgreSQL and SQLite.
var beatShapes = []struct {
	name  string
	o     beatOptions
	least map[string]float64
}{
	{name: "arrays of 500, 8 connections", o: beatOptions{Way: byArray, Each: beatArray, Conns: 8},
		least: map[string]float64{"postgres": 80_000, "sqlite": 15_000}},
	{name: "ping URLs, 64 connections", o: beatOptions{Way: byPing, Each: 1, Conns: 64}, least: map[string]float64{"postgres": 8000, "sqlite": 0}},
	{name: "one in a POST, 64 connections", o: beatOptions{Way: byPost, Each: 1, Conns: 64}, least: map[string]float64{"postgres": 8000, "sqlite": 0}},
}

// beaten is one round of beats.
type beaten struct {
	lots
	used
}

func (b beaten) each(name string) float64 { return micros(b.of[name]) / float64(max(1, b.Count)) }

// takeIn measures how many beats are taken in and stored, and what one costs.
func takeIn(ctx context.Context, b *bed, o options, r *Report) {
	for _, kind := range []string{"postgres", "sqlite"} {
		g := newRig(ctx, b, kind)
		in := g.start(fleetFlag)
		addLoad(r, "intake", kind+" at the start")
		var others []float64
		for i, shape := range beatShapes {
			shape.o.Address, shape.o.Event, shape.o.Sources = in.address, fleetEvent, beatSources
			sender := startBeats(b, shape.o)
			if i == 0 { // they are learned, and each row of theirs takes the place that it keeps
				learned := tellLots(b, sender, "once 0 %d", beatSources)
				r.add(Figure{Section: "intake", Subject: kind, Name: "first beats, of sources that are learned", Value: learned.rate(), Unit: "/s", Count: learned.Count})
				tellLots(b, sender, "hammer 5s")
			}
			var all []beaten
			for range o.drains {
				m := g.meter(in, sender)
				got := tellLots(b, sender, "hammer %v", beatsFor)
				one := beaten{got, m.read()}
				fmt.Fprintf(os.Stderr, "    %s/s, p99 %v; instance %s, server %s, sender %s µs each; others %s cores\n", number(got.rate()), got.P99.Round(time.Microsecond),
					number(one.each("instance")), number(one.each("server")), number(one.each("sender")), number(one.others))
				all = append(all, one)
				others = append(others, one.others)
			}
			sender.end()
			addBeats(r, kind, shape.name, shape.least[kind], all)
		}
		r.add(Figure{Section: "intake", Subject: kind, Name: "resident memory of the instance", Value: float64(residentMemory(in.pid())) / mib, Unit: "MiB"})
		addBusy(r, "intake", others...)
		in.stop()
	}
}

func addBeats(r *Report, kind, name string, least float64, all []beaten) {
	add := func(what, unit string, least float64, of func(beaten) float64) {
		var values []float64
		for _, b := range all {
			values = append(values, of(b))
		}
		r.add(Figure{Section: "intake", Subject: kind, Name: name + ": " + what, Value: median(values), Unit: unit, Least: least, Count: len(all)})
	}
	add("stored", "/s", least, func(b beaten) float64 { return b.rate() })
	add("until a request is answered, p50", "ms", 0, func(b beaten) float64 { return millis(b.P50) })
	add("until a request is answered, p99", "ms", 0, func(b beaten) float64 { return millis(b.P99) })
	for _, who := range []string{"instance", "server", "sender"} {
		if who == "server" && kind == "sqlite" {
			continue
		}
		add("processor for each: "+who, "µs", 0, func(b beaten) float64 { return b.each(who) })
	}
}
