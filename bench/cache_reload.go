package main

import (
	"context"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/cache/wire"
	"github.com/understudy-ha/understudy/cache/zmtp"
)

const (
	reloadKeys  = 100_000
	reloadValue = 1 << 10
)

// reload fills the peers through one of them, and restarts them.
func reload(ctx context.Context, b *bed, o options, r *Report) {
	from := startOrigin(b)
	peers := startPeers(ctx, b, from, true)
	from.set(0, reloadValue)
	clients := start(b, loadRole, loadOptions{Kind: "client", Servers: []string{peers[0].api}, Conns: 4, Flight: 32})
	tellLots(b, clients, "each big 0 %d", reloadKeys)
	clients.end()
	for _, p := range peers {
		waitFor(b, "every peer has all copies", func() bool { return p.holds(reloadKeys) })
	}
	time.Sleep(5 * time.Second) // as long as it takes to store them, and for a collection of garbage
	for i, p := range peers {
		who := "the peer that was asked"
		if i > 0 {
			who = fmt.Sprintf("peer %d, which got copies", i+1)
		}
		r.add(Figure{Section: "reload", Subject: "cache", Name: who + ": resident memory", Value: float64(residentMemory(p.proc.Pid())) / mib, Unit: "MiB", Bound: 400})
	}
	var stopped, killed, resident sample
	for i := range 3 * o.drains {
		p := peers[i%len(peers)]
		p.stop()
		stopped = append(stopped, p.untilAnswer(ctx))
		resident = append(resident, time.Duration(residentMemory(p.proc.Pid())))
	}
	for i := range 3 * o.drains {
		p := peers[i%len(peers)]
		p.proc.Kill()
		killed = append(killed, p.untilAnswer(ctx))
	}
	for _, f := range []struct {
		name string
		s    sample
	}{{"stopped gracefully: restart to the first answer", stopped}, {"killed: restart to the first answer", killed}} {
		r.add(Figure{Section: "reload", Subject: "cache", Name: f.name + ", median", Value: millis(f.s.median()), Unit: "ms", Bound: 2000, Count: len(f.s)},
			Figure{Section: "reload", Subject: "cache", Name: f.name + ", worst", Value: millis(f.s.max()), Unit: "ms", Bound: 2000, Count: len(f.s)})
	}
	r.add(Figure{Section: "reload", Subject: "cache", Name: "resident memory after a restart, median", Value: float64(resident.median()) / mib, Unit: "MiB", Bound: 400, Count: len(resident)})
}

// untilAnswer starts the process and returns how long it took until it gave a value
// that it had stored, to a client that tries to connect all the while.
func (p *cachePeer) untilAnswer(ctx context.Context) time.Duration {
	var encoder wire.Encoder
	answered := make(chan error, 1)
	began := time.Now()
	p.start()
	defer func() { waitFor(p.b, "the peer has all copies again", func() bool { return p.holds(reloadKeys) }) }()
	d, err := zmtp.Dial(p.api, zmtp.Config{Kind: zmtp.DEALER, ReconnectMin: time.Millisecond, ReconnectMax: 2 * time.Millisecond, Handler: zmtp.Handler{
		Connected: func(c *zmtp.Conn) {
			c.Send(encoder.Request(&wire.Request{ID: []byte("1"), Op: wire.OpGet, Key: []byte(coldKey("big", reloadKeys/2)),
				Expire: time.Now().Add(time.Minute).UnixMilli(), Extended: true, Patience: 60_000}))
		},
		Message: func(_ *zmtp.Conn, m zmtp.Message) {
			var r wire.Reply
			err := r.Decode(m)
			if err == nil && (r.Kind != wire.ReplyValue || len(r.Value) != reloadValue) {
				err = fmt.Errorf("it does not have what it stored, and answers %v %s", r.Kind, r.Text)
			}
			select {
			case answered <- err:
			default:
			}
		},
	}})
	p.b.check(err, "connecting to %s", p.api)
	defer d.Close()
	select {
	case err = <-answered:
	case <-time.After(time.Minute):
		err = fmt.Errorf("no answer within a minute")
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		p.b.Fatalf("bench: a peer that was started again: %v\n%s", err, p.proc.Output())
	}
	return time.Since(began)
}
