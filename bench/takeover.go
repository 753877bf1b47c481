package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// Takeovers are measured with a timeout that the peer can have too: its shortest
// is 2 s, in whole seconds.
func takeoverTiming() lease.Timing {
	return lease.Timing{Interval: 400 * time.Millisecond, Timeout: 2 * time.Second}
}

// pairsPerStore die side by side, so that the section takes minutes, not hours.
const pairsPerStore = 5

// takeOver measures how long it takes from the last renewal of a primary that
// was accepted, counted from before it was sent, until its successor's work
// starts. The primary is killed with SIGKILL at a random moment of its interval.
func takeOver(ctx context.Context, b *bed, o options, r *Report) {
	timing := takeoverTiming()
	worker := workerOptions{Timing: timing, Beats: true}
	var pairs []*pair
	for _, p := range startAll(b, o.kinds) {
		for i := range pairsPerStore {
			pair := newPair(b, p, "bench-"+string(rune('a'+i)), worker)
			pair.standby.sendCommand("campaign %s 0s", pair.role)
			pairs = append(pairs, pair)
		}
	}
	var side sync.WaitGroup
	for i, p := range pairs {
		side.Go(func() {
			// Not all at once: the machine is not what is measured.
			time.Sleep(time.Duration(i) * timing.Timeout / time.Duration(len(pairs)))
			want := (o.rounds + pairsPerStore - 1) / pairsPerStore
			for tries := 0; len(p.times) < want && tries < 3*want; tries++ {
				p.die(b, worker)
			}
		})
	}
	side.Wait()

	bound := millis(timing.Timeout + 100*time.Millisecond)
	worst := millis(timing.WorstTakeover())
	byKind := map[string]sample{}
	for _, p := range pairs {
		byKind[p.kind] = append(byKind[p.kind], p.times...)
	}
	peer := byKind[peerKind]
	for _, kind := range o.kinds {
		s := byKind[kind]
		figures := []Figure{
			{Name: "takeover, median", Value: millis(s.median()), Peer: millis(peer.median())},
			{Name: "takeover, p99", Value: millis(s.p99()), Bound: bound, Peer: millis(peer.p99())},
			{Name: "takeover, worst", Value: millis(s.max()), Bound: worst, Peer: millis(peer.max())},
		}
		if kind == peerKind {
			for i := range figures {
				figures[i].Bound = 0
			}
		}
		r.addTimes("takeover", kind, len(s), len(peer) > 0, figures)
	}
}

// die kills the primary of a pair, notes when the other one's work started, and
// starts a new standby. A kill in the middle of a renewal is not counted, nor a
// pair whose primary had lost its role while it lived.
func (p *pair) die(b *bed, o workerOptions) {
	// The standby has looked at the lease by then, and the primary has renewed.
	time.Sleep(3*o.Timing.Interval + rand.N(2*o.Timing.Interval))
	o.URL, o.Parties = p.url, 1
	early := append(p.primary.drain(), p.standby.drain()...)
	for _, s := range early {
		if s.what == saidLost || s.what == saidStarted {
			fmt.Fprintf(os.Stderr, "    %s: a primary that lived lost its role\n", p.kind)
			p.primary.kill()
			p.standby.kill()
			fresh := newPair(b, p.place, p.role, o)
			p.primary, p.standby = fresh.primary, fresh.standby
			p.standby.sendCommand("campaign %s 0s", p.role)
			return
		}
	}
	renewed, doubtful := p.primary.kill()
	started := p.standby.await(saidStarted, time.Minute)
	if !doubtful {
		p.times = append(p.times, started.at-renewed)
	}
	p.primary, p.standby = p.standby, start(b, workerRole, o)
	p.standby.sendCommand("campaign %s 0s", p.role)
}
