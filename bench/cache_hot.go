package main

import (
	"context"
	"strings"
	"time"
)

// hotFor is how long each round of a hot key takes.
const hotFor = 2 * time.Second

// hotShapes are connections and requests in flight on each.
var hotShapes = []struct {
	conns, flight int
	name          string
	least, http   float64 // gets in a second, over the api socket and over HTTP
	p50           float64 // at most, in µs
}{
	{conns: 1, flight: 1, name: "1 connection, 1 in flight", p50: 60},
	{conns: 16, flight: 1, name: "16 connections, 1 in flight", least: 35_000, http: 18_000},
	{conns: 16, flight: 8, name: "16 connections, 8 in flight", least: 120_000},
}

// contender is a server with its clients.
type contender struct {
	name    string
	clients *member
	server  int // process id
	got     []lots
	each    []float64 // µs of the server's processor for each reply
}

// round has the clients of one contender ask, and records it.
func (c *contender) round(b *bed) {
	before := cpuTimes(c.server)
	got := tellLots(b, c.clients, "hammer %v", hotFor)
	c.got = append(c.got, got)
	c.each = append(c.each, micros(ran(before, cpuTimes(c.server)))/float64(max(1, got.Count)))
}

func (c *contender) rate() float64 { return c.of(lots.rate) }
func (c *contender) p50() float64  { return c.of(func(l lots) float64 { return micros(l.P50) }) }
func (c *contender) p99() float64  { return c.of(func(l lots) float64 { return micros(l.P99) }) }
func (c *contender) of(f func(lots) float64) float64 {
	var values []float64
	for _, l := range c.got {
		values = append(values, f(l))
	}
	return median(values)
}

// hot asks one of three peers for a key that it has, as fast as it answers, beside a
// bare echo and a bare HTTP server. All take turns.
func hot(ctx context.Context, b *bed, o options, r *Report) {
	from := startOrigin(b)
	from.set(0, hotValue)
	peers := startPeers(ctx, b, from, false)
	peers[0].warm(ctx, "hot")
	bare, addrs := startBare(b)
	peer, side := peers[0].proc.Pid(), bare.pid()
	for _, shape := range hotShapes {
		opts := loadOptions{Key: "hot", Conns: shape.conns, Flight: shape.flight}
		contend := func(name, kind, server string, pid int) *contender {
			opts.Kind, opts.Servers = kind, []string{server}
			return &contender{name: name, clients: start(b, loadRole, opts), server: pid}
		}
		all := []*contender{
			contend("bare echo", "echo", addrs.Echo, side),
			contend("cache", "socket", peers[0].api, peer),
			contend("Go client", "client", peers[0].api, peer),
		}
		if shape.flight == 1 {
			all = append(all, contend("bare net/http", "http", addrs.HTTP, side), contend("HTTP", "http", peers[0].http, peer))
		}
		takeTurns(b, all, o.drains)
		addHot(r, shape.name, shape.least, shape.p50, all[0], all[1:3])
		if shape.flight == 1 {
			addHot(r, shape.name, shape.http, 0, all[3], all[4:])
		}
		for _, c := range all {
			c.clients.end()
		}
	}
}

// takeTurns runs rounds, after one that counts for nothing.
func takeTurns(b *bed, all []*contender, rounds int) {
	for range rounds + 1 {
		for _, c := range all {
			c.round(b)
		}
	}
	for _, c := range all {
		c.got, c.each = c.got[1:], c.each[1:]
	}
}

// addHot records contenders beside the bare one.
func addHot(r *Report, name string, least, p50 float64, bare *contender, all []*contender) {
	versus := strings.TrimPrefix(bare.name, "bare ")
	for _, c := range all {
		add := func(what, unit string, least, bound float64, of func(*contender) float64) {
			r.add(Figure{Section: "hot", Subject: c.name, Name: name + ": " + what, Value: of(c), Unit: unit, Least: least, Bound: bound,
				Peer: of(bare), Versus: versus, Count: len(c.got)})
		}
		add("gets", "/s", least, 0, (*contender).rate)
		add("p50", "µs", 0, p50, (*contender).p50)
		add("p99", "µs", 0, 0, (*contender).p99)
		add("processor of the server for each", "µs", 0, 0, func(c *contender) float64 { return median(c.each) })
	}
}
