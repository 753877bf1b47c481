package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/monitor"
)

const (
	millionSources = 1_000_000
	millionEvery   = 60 * time.Second
	millionFor     = 60 * time.Second
	millionQuiet   = 1_000            // of them, which fall silent at last
	millionLimit   = 3 * millionEvery // as fleetFlag says
	millionGrace   = 20 * time.Second // after which all of those have an alarm, if ever
)

// preload makes sources by SQL, as they are when they have sent heartbeats for a while: when they
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

// million watches over a million sources that send one heartbeat a minute, by one instance
// that takes in all of their heartbeats too.
func million(ctx context.Context, b *bed, o options, r *Report) {
	g := newRig(ctx, b, "postgres")
	in := g.start(fleetFlag) // makes the tables, and the event name
	in.stop()
	g.fillMillion(ctx)

	began := time.Now()
	in = g.start(fleetFlag)
	waitFor(b, "the instance looks after all partitions", func() bool { return in.metric("partitions") >= monitor.Partitions })
	sender := start(b, senderRole, senderOptions{Address: in.address, Event: fleetEvent, Way: byArray, Each: arraySize, Conns: 4, Sources: millionSources})
	tellLots(b, sender, "once 0 1")
	r.add(Figure{Section: "million", Subject: "postgres", Name: "start-up: until the first heartbeat is stored, and all are watched", Value: time.Since(began).Seconds(), Unit: "s", Bound: 5})

	tellLots(b, sender, "once 0 %d", millionSources)
	rate := float64(millionSources) / millionEvery.Seconds()
	tellLots(b, sender, "pace 10s %f", rate)
	judged := in.metric("evaluations_total")
	written := g.written(ctx)
	m := g.meter(in)
	got := tellLots(b, sender, "pace %v %f", millionFor, rate)
	u := m.read()
	written = g.written(ctx).since(written)
	judged = (in.metric("evaluations_total") - judged) / u.took.Seconds()
	fmt.Fprintf(os.Stderr, "    %s heartbeats and %s judged a second; p99 of a request %v\n", number(got.rate()), number(judged), got.P99.Round(time.Millisecond))
	r.add(Figure{Section: "million", Subject: "postgres", Name: "instance, its intake included, of one core", Value: u.share("instance"), Unit: "%", Bound: 25},
		Figure{Section: "million", Subject: "postgres", Name: "PostgreSQL, of one core", Value: u.share("server"), Unit: "%"},
		Figure{Section: "million", Subject: "postgres", Name: "resident memory of the instance", Value: float64(residentMemory(in.pid())) / mib, Unit: "MiB", Bound: 300},
		Figure{Section: "million", Subject: "postgres", Name: "false alarms", Value: in.mustMetric(b, `transitions_total{transition="ONSET"}`), Limited: true, Count: millionSources},
		Figure{Section: "million", Subject: "postgres", Name: "write-ahead log of a heartbeat", Value: float64(written.wal) / float64(got.Count), Unit: "B"},
		Figure{Section: "million", Subject: "postgres", Name: "updates that touch no index", Value: 100 * float64(written.hot) / float64(max(1, written.updated)), Unit: "%"},
		Figure{Section: "million", Subject: "postgres", Name: "size of a source with its indexes", Value: float64(written.size) / millionSources, Unit: "B"})
	g.lateness(ctx, in, rate, r)
	in.stop()
}

// lateness has some sources fall silent while all others go on.
func (g *rig) lateness(ctx context.Context, in *instance, rate float64, r *Report) {
	others := start(g.b, senderRole, senderOptions{
		Address: in.address, Event: fleetEvent, Way: byArray, Each: arraySize, Conns: 4, Sources: millionSources - millionQuiet,
	})
	tellLots(g.b, others, "pace %v %f", millionLimit+millionGrace, rate)
	conn, err := pgx.Connect(ctx, g.store.url)
	g.b.check(err, "connecting")
	defer conn.Close(ctx)
	var alarms int
	var p99, worst float64
	err = conn.QueryRow(ctx, `SELECT count(*), coalesce(percentile_disc(0.99) WITHIN GROUP (ORDER BY late), 0), coalesce(max(late), 0)
		FROM (SELECT extract(epoch FROM raised - started)::float8 AS late FROM understudy.monitor_alarm) a`).Scan(&alarms, &p99, &worst)
	g.b.check(err, "reading the alarms")
	r.add(Figure{Section: "million", Subject: "postgres", Name: "alarms that 1,000 silent sources lack, or have too many", Value: math.Abs(float64(alarms - millionQuiet)), Limited: true, Count: millionQuiet},
		Figure{Section: "million", Subject: "postgres", Name: "limit passed until the alarm is raised, p99", Value: p99 * 1000, Unit: "ms", Count: alarms},
		Figure{Section: "million", Subject: "postgres", Name: "limit passed until the alarm is raised, worst", Value: worst * 1000, Unit: "ms", Bound: 1000, Count: alarms})
}

// written is what PostgreSQL has written so far, and how large the tables of sources are.
type written struct{ wal, updated, hot, size int64 }

func (w written) since(before written) written {
	return written{w.wal - before.wal, w.updated - before.updated, w.hot - before.hot, w.size}
}

func (g *rig) written(ctx context.Context) (w written) {
	conn, err := pgx.Connect(ctx, g.store.url)
	g.b.check(err, "connecting")
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, `SELECT (pg_current_wal_lsn() - '0/0')::bigint, sum(n_tup_upd)::bigint, sum(n_tup_hot_upd)::bigint, sum(pg_total_relation_size(relid))::bigint
		FROM pg_stat_user_tables WHERE relname IN ('monitor_source', 'monitor_beat', 'monitor_due')`).Scan(&w.wal, &w.updated, &w.hot, &w.size)
	g.b.check(err, "reading what was written")
	return w
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
