package fault

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// Way is what a [Proxy] does to what goes one way. The zero Way passes it on.
type Way struct {
	// Hold keeps everything back and delivers it when the way is healed: a
	// network that loses packets which are then sent again.
	Hold bool
	// Swallow loses everything; a connection that lost something ends when the
	// way is healed.
	Swallow bool
	// Delay is added to each piece.
	Delay time.Duration
	// Loss is the share of pieces, below 1, that are lost, each time they come,
	// and come again after Again. Every tenth loss breaks the connection.
	Loss  float64
	Again time.Duration
}

// Proxy is a link to a server that can be spoilt.
type Proxy struct {
	Addr string // what to connect to instead of the server

	target  string
	life    context.Context
	running sync.WaitGroup

	mu       sync.Mutex
	up, down Way           // towards the server, and back
	changed  chan struct{} // closed and replaced when they change
	conns    map[net.Conn]bool
	random   *rand.Rand
}

// NewProxy starts a proxy in front of the target that ends with the test.
func NewProxy(tb testing.TB, target string, seed uint64) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	life, end := context.WithCancel(context.Background())
	p := &Proxy{Addr: l.Addr().String(), target: target, life: life, changed: make(chan struct{}),
		conns: map[net.Conn]bool{}, random: rand.New(rand.NewPCG(seed, 0))}
	p.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() { p.serve(client) })
		}
	})
	tb.Cleanup(func() { l.Close(); end(); p.running.Wait() })
	return p
}

// Set spoils, or heals, what goes up to the server and down from it.
func (p *Proxy) Set(up, down Way) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.up, p.down = up, down
	close(p.changed)
	p.changed = make(chan struct{})
}

// Reset breaks all connections at once.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer p.track(client)()
	if !p.wait(0, &p.up) {
		return
	}
	server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		return
	}
	forget := p.track(server)
	p.running.Go(func() { defer forget(); defer client.Close(); p.pump(client, server, &p.down) })
	defer server.Close()
	p.pump(server, client, &p.up)
}

// pump passes on what comes, the end of the stream included, until that end.
func (p *Proxy) pump(dst, src net.Conn, way *Way) {
	piece := make([]byte, 32<<10)
	for {
		n, err := src.Read(piece)
		p.mu.Lock()
		w, broken := *way, false
		for p.random.Float64() < w.Loss {
			w.Delay += w.Again
			broken = broken || p.random.IntN(10) == 0
		}
		p.mu.Unlock()
		if !p.wait(w.Delay, way) || w.Swallow || broken {
			return
		}
		if _, failed := dst.Write(piece[:n]); err != nil || failed != nil {
			return
		}
	}
}

// wait lets the delay pass, and then the time while the way is shut; false when
// the proxy is closed first.
func (p *Proxy) wait(delay time.Duration, way *Way) bool {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	for passed := timer.C; ; {
		p.mu.Lock()
		shut, changed := way.Hold || way.Swallow, p.changed
		p.mu.Unlock()
		if passed == nil && !shut {
			return true
		}
		select {
		case <-passed:
			passed = nil
		case <-changed:
		case <-p.life.Done():
			return false
		}
	}
}

// track lets Reset break the connection until it is forgotten.
func (p *Proxy) track(c net.Conn) (forget func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
	unhook := context.AfterFunc(p.life, func() { c.Close() })
	return func() { unhook(); c.Close(); p.mu.Lock(); delete(p.conns, c); p.mu.Unlock() }
}
