package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/cache/wire"
	"github.com/understudy-ha/understudy/cache/zmtp"
	"github.com/understudy-ha/understudy/lease"
)

const (
	lostSource = 2 * time.Second // how long each fetch takes
	lostRounds = 20
)

// announcements hears what peers say to each other.
type announcements struct {
	clock lease.Clock
	to    []*zmtp.Dialer

	mu   sync.Mutex
	last map[string]time.Duration // by url and key: the last time that a fetch was announced
}

// hearPeers listens to the peers as one of them would.
func hearPeers(b *bed, peers []*cachePeer) *announcements {
	a := &announcements{clock: lease.BootClock(), last: map[string]time.Duration{}}
	codec := wire.Codec{Self: "bench"}
	for _, p := range peers {
		d, err := zmtp.Dial(p.url, zmtp.Config{Kind: zmtp.SUB, Subscribe: [][]byte{[]byte("*")}, ReconnectMax: 50 * time.Millisecond, Handler: zmtp.Handler{
			Message: func(_ *zmtp.Conn, m zmtp.Message) {
				from, said, err := codec.Decode(m)
				if announce, ok := said.(protocol.Announce); ok && err == nil {
					a.mu.Lock()
					a.last[from+" "+announce.Key] = a.clock.Now()
					a.mu.Unlock()
				}
			},
		}})
		b.check(err, "listening to %s", p.url)
		b.Cleanup(func() { _ = d.Close() })
		a.to = append(a.to, d)
	}
	return a
}

// complete tells whether it is connected to every peer.
func (a *announcements) complete() bool {
	return !slices.ContainsFunc(a.to, func(d *zmtp.Dialer) bool { return d.Conn() == nil })
}

func (a *announcements) of(p *cachePeer, key string) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last[p.url+" "+key]
}

// lost kills and stops the peer that fetches, in the middle of a fetch.
func lost(ctx context.Context, b *bed, o options, r *Report) {
	from := startOrigin(b)
	peers := startPeers(ctx, b, from, false)
	t := &loss{b: b, from: from, peers: peers, heard: hearPeers(b, peers)}
	from.set(lostSource, hotValue)
	var killed, silent sample
	for i := range lostRounds {
		took, _ := t.round(ctx, fmt.Sprintf("kill-%02d", i), func(p *cachePeer) { p.proc.Signal(syscall.SIGKILL) })
		killed = append(killed, took)
		t.revive()
	}
	for i := range lostRounds {
		_, since := t.round(ctx, fmt.Sprintf("stop-%02d", i), func(p *cachePeer) { p.proc.Signal(syscall.SIGSTOP) })
		silent = append(silent, since)
		t.revive()
	}
	add := func(name string, s sample, bound time.Duration) {
		r.add(Figure{Section: "lost", Subject: "cache", Name: name + ", median", Value: millis(s.median()), Unit: "ms", Bound: millis(bound), Count: len(s)},
			Figure{Section: "lost", Subject: "cache", Name: name + ", worst", Value: millis(s.max()), Unit: "ms", Bound: millis(bound), Count: len(s)})
	}
	add("killed: until the next fetch", killed, 30*time.Millisecond)
	add("stopped: until the next fetch, from the last announcement", silent, announceTimeout+100*time.Millisecond)
}

// loss ends the peer that fetches.
type loss struct {
	b      *bed
	from   *origin
	peers  []*cachePeer
	heard  *announcements
	victim *cachePeer
}

// round asks every peer for a key, ends the one that fetches it, and returns how long
// it took from there until another has asked the source, and from its last
// announcement.
func (t *loss) round(ctx context.Context, key string, end func(*cachePeer)) (took, silent time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	var askers sync.WaitGroup
	failed := make([]error, len(t.peers))
	for i, p := range t.peers {
		askers.Go(func() { failed[i] = p.get(ctx, key) })
	}
	first := t.from.await(t.b, key, 1, 10*time.Second)
	t.victim = t.peers[first.peer]
	// Anywhere within the fetch, which is announced every second.
	time.Sleep(100*time.Millisecond + rand.N(lostSource-400*time.Millisecond))
	at := t.from.clock.Now()
	end(t.victim)
	announced := t.heard.of(t.victim, key)
	if announced == 0 {
		t.b.Fatalf("bench: a fetch was not announced")
	}
	next := t.from.await(t.b, key, 2, 20*time.Second)
	if next.peer == first.peer {
		t.b.Fatalf("bench: peer %d fetches again, although it was ended", next.peer)
	}
	// The others have the value now.
	time.AfterFunc(lostSource+5*time.Second, cancel)
	for i, p := range t.peers {
		if p != t.victim {
			t.b.check(p.get(ctx, key), "peer %d has no value after the takeover", i)
		}
	}
	cancel()
	askers.Wait()
	return next.at - at, next.at - announced
}

// revive has the victim run again, and waits until it votes.
func (t *loss) revive() {
	t.victim.proc.Kill()
	t.victim.start()
	waitFor(t.b, "the peer that was ended votes again, and is heard", func() bool { return t.victim.votes() && t.heard.complete() })
	time.Sleep(200 * time.Millisecond) // what was subscribed to is on its way
}
