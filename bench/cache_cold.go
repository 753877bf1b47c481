package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
)

const (
	coldAtOnce = 300    // keys asked for at once
	coldKeys   = 10_000 // keys of a pass
	coldSource = 50 * time.Millisecond
)

// coldBed is what both sections of cold keys need: peers with a slow source, and
// clients of the cache and of the source alone.
type coldBed struct {
	b              *bed
	from           *origin
	peers          []*cachePeer
	clients, alone *member
}

func newColdBed(ctx context.Context, b *bed) *coldBed {
	c := &coldBed{b: b, from: startOrigin(b)}
	c.peers = startPeers(ctx, b, c.from, false)
	c.from.set(coldSource, hotValue)
	var servers []string
	for _, p := range c.peers {
		servers = append(servers, p.api)
	}
	c.clients = start(b, loadRole, loadOptions{Kind: "socket", Servers: servers, Conns: len(servers), Flight: coldAtOnce})
	c.alone = start(b, loadRole, loadOptions{Kind: "origin", Servers: []string{c.from.url}})
	return c
}

// cold asks all three peers at once for keys that nobody has, 300 at a time, and
// then the source alone, without a cache.
func cold(ctx context.Context, b *bed, o options, r *Report) {
	c := newColdBed(ctx, b)
	var asked, direct []sample
	again := 0
	for pass := range o.drains {
		all, more := c.pass(fmt.Sprintf("idle%d", pass))
		asked, again = append(asked, all), again+more
		direct = append(direct, c.directly(fmt.Sprintf("direct%d", pass)))
	}
	addCold(r, "cold", asked, direct, again, true)
}

// busy is cold while a process for each core uses that up.
func busy(ctx context.Context, b *bed, o options, r *Report) {
	c := newColdBed(ctx, b)
	for range runtime.NumCPU() {
		start(b, spinRole, struct{}{})
	}
	all, again := c.pass("busy")
	addCold(r, "busy", []sample{all}, []sample{c.directly("direct")}, again, false)
}

// pass asks every peer for each of the keys, and returns how long each took, and how
// many fetches there were beyond the first of a key.
func (c *coldBed) pass(prefix string) (all sample, again int) {
	c.from.forget()
	for i := 0; i < coldKeys; i += coldAtOnce {
		got := tellLots(c.b, c.clients, "each %s %d %d", prefix, i, min(i+coldAtOnce, coldKeys))
		all = append(all, got.Samples...)
	}
	keys, again := c.from.asks(prefix)
	if again > 0 {
		c.explain(prefix)
	}
	if keys != coldKeys {
		c.b.Fatalf("bench: %d keys were fetched, not %d", keys, coldKeys)
	}
	return all, again
}

// explain shows some of the keys that were fetched more than once, and what the peers
// said meanwhile.
func (c *coldBed) explain(prefix string) {
	c.from.mu.Lock()
	defer c.from.mu.Unlock()
	shown := 0
	for key, asked := range c.from.asked {
		if len(asked) > 1 && strings.HasPrefix(key, prefix) && shown < 10 {
			c.b.Logf("    %s was fetched at (boot time, by peer) %v", key, asked)
			shown++
		}
	}
	for _, p := range c.peers {
		c.b.Logf("    %s\n%s", p.url, p.proc.Output())
	}
}

// directly asks the source for as much, without a cache.
func (c *coldBed) directly(prefix string) (all sample) {
	for i := 0; i < coldKeys/4; i += coldAtOnce {
		got := tellLots(c.b, c.alone, "each %s %d %d", prefix, i, min(i+coldAtOnce, coldKeys))
		all = append(all, got.Samples...)
	}
	return all
}

// addCold records the median of the passes, with the source asked directly beside.
func addCold(r *Report, section string, asked, direct []sample, again int, bounded bool) {
	for _, f := range []struct {
		name  string
		of    func(sample) time.Duration
		bound time.Duration
	}{
		{"median", sample.median, coldSource + 15*time.Millisecond},
		{"p99", sample.p99, coldSource + 60*time.Millisecond},
		{"worst", sample.max, 0},
	} {
		of := func(all []sample) float64 {
			var values []float64
			for _, s := range all {
				values = append(values, millis(f.of(s)))
			}
			return median(values)
		}
		figure := Figure{Section: section, Subject: "cache", Name: "to the first value, " + f.name, Value: of(asked), Unit: "ms",
			Peer: of(direct), Versus: "origin itself", Count: len(slices.Concat(asked...))}
		if bounded {
			figure.Bound = millis(f.bound)
		}
		r.add(figure)
	}
	r.add(Figure{Section: section, Subject: "cache", Name: "fetches beyond the first of a key", Value: float64(again), Limited: true, Count: len(asked) * coldKeys})
}
