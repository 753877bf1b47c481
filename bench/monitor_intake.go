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
		for i, shape := range beatShapes {
			shape.o.Address, shape.o.Event, shape.o.Sources = in.address, fleetEvent, beatSources
			sender := start(b, senderRole, shape.o)
			if i == 0 { // they are learned, and each row of theirs takes the place that it keeps
				tellLots(b, sender, "once 0 %d", beatSources)
				tellLots(b, sender, "hammer 5s")
			}
			var all []beaten
			for range o.drains {
				m := g.meter(in)
				got := tellLots(b, sender, "hammer %v", beatsFor)
				one := beaten{got, m.read()}
				fmt.Fprintf(os.Stderr, "    %s/s, p99 %v\n", number(got.rate()), got.P99.Round(time.Microsecond))
				all = append(all, one)
			}
			sender.end()
			addBeats(r, kind, shape.name, shape.least[kind], all)
		}
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
	add("processor for each: instance", "µs", 0, func(b beaten) float64 { return b.each("instance") })
	if kind != "sqlite" {
		add("processor for each: server", "µs", 0, func(b beaten) float64 { return b.each("server") })
	}
}
