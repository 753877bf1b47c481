package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

const (
	intakeSources = 100_000
	arraySize     = 500
	intakeFor     = 3 * time.Second
	// fleetEvent is the check of the fleet.
	fleetEvent = "fleet"
	fleetFlag  = fleetEvent + ",interval=60s,missed=3"
)

// waysToSend are those, and what each should reach on PostgreSQL and SQLite.
var waysToSend = []struct {
	name  string
	o     senderOptions
	least map[string]float64
}{
	{name: "arrays of 500, 8 connections", o: senderOptions{Way: byArray, Each: arraySize, Conns: 8},
		least: map[string]float64{"postgres": 80_000, "sqlite": 15_000}},
	{name: "ping URLs, 64 connections", o: senderOptions{Way: byPing, Each: 1, Conns: 64}, least: map[string]float64{"postgres": 8000, "sqlite": 0}},
	{name: "one in a POST, 64 connections", o: senderOptions{Way: byPost, Each: 1, Conns: 64}, least: map[string]float64{"postgres": 8000, "sqlite": 0}},
}

// intakeRound is one round of heartbeats.
type intakeRound struct {
	lots
	used
}

func (b intakeRound) each(name string) float64 { return micros(b.of[name]) / float64(max(1, b.Count)) }

// takeIn measures how many heartbeats are taken in and stored, and what one costs.
func takeIn(ctx context.Context, b *bed, o options, r *Report) {
	for _, kind := range []string{"postgres", "sqlite"} {
		g := newRig(ctx, b, kind)
		in := g.start(fleetFlag)
		for i, shape := range waysToSend {
			shape.o.Address, shape.o.Event, shape.o.Sources = in.address, fleetEvent, intakeSources
			sender := start(b, senderRole, shape.o)
			if i == 0 { // they are learned, and each row of theirs takes the place that it keeps
				tellLots(b, sender, "once 0 %d", intakeSources)
				tellLots(b, sender, "hammer 5s")
			}
			var all []intakeRound
			for range o.drains {
				m := g.meter(in)
				got := tellLots(b, sender, "hammer %v", intakeFor)
				one := intakeRound{got, m.read()}
				fmt.Fprintf(os.Stderr, "    %s/s, p99 %v\n", number(got.rate()), got.P99.Round(time.Microsecond))
				all = append(all, one)
			}
			sender.end()
			addIntake(r, kind, shape.name, shape.least[kind], all)
		}
		in.stop()
	}
}

func addIntake(r *Report, kind, name string, least float64, all []intakeRound) {
	add := func(what, unit string, least float64, of func(intakeRound) float64) {
		var values []float64
		for _, b := range all {
			values = append(values, of(b))
		}
		r.add(Figure{Section: "intake", Subject: kind, Name: name + ": " + what, Value: median(values), Unit: unit, Least: least, Count: len(all)})
	}
	add("stored", "/s", least, func(b intakeRound) float64 { return b.rate() })
	add("processor for each: instance", "µs", 0, func(b intakeRound) float64 { return b.each("instance") })
	if kind != "sqlite" {
		add("processor for each: server", "µs", 0, func(b intakeRound) float64 { return b.each("server") })
	}
}
