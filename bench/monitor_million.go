package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/monitor"
)

const (
	millionSources = 1_000_000
	millionEvery   = 60 * time.Second
	millionFor     = 60 * time.Second
)

// preload makes sources by SQL, as they are when they have beaten for a while: when they
// are looked at next is spread over the time after which each is looked at again.
var preload = []string{
	`INSERT INTO understudy.monitor_source (event, name, number, known, base, declared)
	 SELECT e.id, 'source-' || lpad(i::text, 7, '0'), i + 1, $1 - 3600000000, $1 - 3600000000, false
	   FROM understudy.monitor_event e, generate_series(0, $2::int - 1) i WHERE e.name = 'fleet' ORDER BY i`,
	`INSERT INTO understudy.monitor_beat (id, at, path, beats, recent, width, room)
	 SELECT s.id, $1 - (random() * 59000000)::bigint, p.id, 60, -1, 60000000, ''
	   FROM understudy.monitor_source s, understudy.monitor_path p WHERE p.name = 'http' AND $2::int > 0 ORDER BY s.id`,
	`INSERT INTO understudy.monitor_due (id, due)
	 SELECT s.id, $1 + (random() * 120000000)::bigint FROM understudy.monitor_source s WHERE $2::int > 0 ORDER BY s.id`,
	`UPDATE understudy.monitor_event SET numbered = $2::int WHERE name = 'fleet' AND $1::bigint > 0`,
	`INSERT INTO understudy.monitor_count (event, state, seen, n)
	 SELECT e.id, 'up', true, $2::int FROM understudy.monitor_event e WHERE e.name = 'fleet' AND $1::bigint > 0`,
}

// million watches over a million sources that beat once a minute, by one instance
// that takes in all of their beats too.
func million(ctx context.Context, b *bed, o options, r *Report) {
	g := newRig(ctx, b, "postgres")
	in := g.start(fleetFlag) // makes the tables, and the event name
	in.stop()
	g.fillMillion(ctx)

	began := time.Now()
	in = g.start(fleetFlag)
	waitFor(b, "the instance looks after all partitions", func() bool { return in.metric("partitions") >= monitor.Partitions })
	sender := start(b, senderRole, beatOptions{Address: in.address, Event: fleetEvent, Way: byArray, Each: beatArray, Conns: 4, Sources: millionSources})
	tellLots(b, sender, "once 0 1")
	r.add(Figure{Section: "million", Subject: "postgres", Name: "start-up: until the first beat is stored, and all are looked after", Value: time.Since(began).Seconds(), Unit: "s", Bound: 5})

	tellLots(b, sender, "once 0 %d", millionSources)
	rate := float64(millionSources) / millionEvery.Seconds()
	tellLots(b, sender, "pace 10s %f", rate)
	judged := in.metric("judged_total")
	m := g.meter(in)
	got := tellLots(b, sender, "pace %v %f", millionFor, rate)
	u := m.read()
	judged = (in.metric("judged_total") - judged) / u.took.Seconds()
	fmt.Fprintf(os.Stderr, "    %s beats and %s judged a second; p99 of a request %v\n", number(got.rate()), number(judged), got.P99.Round(time.Millisecond))
	r.add(Figure{Section: "million", Subject: "postgres", Name: "instance, its intake included, of one core", Value: u.share("instance"), Unit: "%", Bound: 25},
		Figure{Section: "million", Subject: "postgres", Name: "PostgreSQL, of one core", Value: u.share("server"), Unit: "%"},
		Figure{Section: "million", Subject: "postgres", Name: "resident memory of the instance", Value: float64(residentMemory(in.pid())) / mib, Unit: "MiB", Bound: 300},
		Figure{Section: "million", Subject: "postgres", Name: "false alarms", Value: in.metric(`turns_total{turn="ONSET"}`), Limited: true, Count: millionSources})
	in.stop()
}

func (g *rig) fillMillion(ctx context.Context) {
	conn, err := pgx.Connect(ctx, g.store.url)
	g.b.check(err, "connecting")
	defer conn.Close(ctx)
	began := time.Now()
	for _, sql := range preload {
		_, err := conn.Exec(ctx, sql, time.Now().UnixMicro(), millionSources)
		g.b.check(err, "%s", sql)
	}
	_, err = conn.Exec(ctx, "VACUUM (ANALYZE) understudy.monitor_source, understudy.monitor_beat, understudy.monitor_due")
	g.b.check(err, "cleaning up")
	fmt.Fprintf(os.Stderr, "    %d sources made in %v\n", millionSources, time.Since(began).Round(time.Second))
}
