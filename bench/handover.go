package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// peerKind is what the stores are compared with.
const peerKind = "etcd"

// pair is two workers on one store, one of them primary.
type pair struct {
	place
	role             string
	primary, standby *member
	times            sample
}

func newPair(b *bed, p place, role string, o workerOptions) *pair {
	o.URL, o.Parties = p.url, 1
	pair := &pair{place: p, role: role, primary: start(b, workerRole, o)}
	pair.primary.sendCommand("campaign %s 0s", role)
	pair.primary.await(saidStarted, time.Minute)
	o.First = 1
	pair.standby = start(b, workerRole, o)
	return pair
}

// handOver measures how long it takes from the moment at which a primary is told
// to stop until its successor's work starts. The stores and the peer take turns,
// so that whatever else the machine does disturbs all alike.
func handOver(ctx context.Context, b *bed, o options, r *Report) {
	var pairs []*pair
	for _, p := range startAll(b, o.kinds) {
		pairs = append(pairs, newPair(b, p, "bench", workerOptions{Timing: lease.Timing{}.WithDefaults()}))
	}
	for range o.rounds {
		time.Sleep(50 * time.Millisecond) // the last primary may still be hearing that its release arrived
		for _, p := range pairs {
			p.standby.sendCommand("campaign %s 0s", p.role)
		}
		// Not a multiple of any polling interval.
		time.Sleep(150*time.Millisecond + rand.N(100*time.Millisecond))
		for _, p := range pairs {
			p.primary.sendCommand("stop")
			stopped := p.primary.await(saidStopping, time.Minute)
			started := p.standby.await(saidStarted, time.Minute)
			p.times = append(p.times, started.at-stopped.at)
			p.primary, p.standby = p.standby, p.primary
		}
	}
	bounds := map[string]float64{"postgres": 15, "redis": 15, "sqlite": 60}
	peer := peerTimes(pairs)
	for _, p := range pairs {
		figures := []Figure{
			{Name: "hand-over, median", Value: millis(p.times.median()), Bound: bounds[p.kind], Peer: millis(peer.median())},
			{Name: "hand-over, p99", Value: millis(p.times.p99()), Peer: millis(peer.p99())},
		}
		r.addTimes("handover", p.kind, len(p.times), len(peer) > 0, figures)
	}
}

func peerTimes(pairs []*pair) (all sample) {
	for _, p := range pairs {
		if p.kind == peerKind {
			all = append(all, p.times...)
		}
	}
	return all
}

// addTimes completes figures in milliseconds of one subject.
func (r *Report) addTimes(section, kind string, n int, compared bool, figures []Figure) {
	for _, f := range figures {
		f.Section, f.Subject, f.Unit, f.Count = section, kind, "ms", n
		if compared && kind != peerKind {
			f.Versus = peerKind
		} else {
			f.Peer = 0
		}
		r.add(f)
	}
}
