package proxy

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/internal/connlimit"
)

// tick is how often connections are looked over when nobody tells of a change.
const tick = time.Second

// Stats of a proxy, for metrics.
type Stats struct {
	Conns    int   // clients connected now
	Accepted int64 // since the start
	Refused  int64 // for want of room
	NoNode   int64 // closed because nobody could be connected to in time
	Deposed  int64 // closed because their node was replaced
	ToNode   int64 // bytes from clients to nodes, of connections that have ended
	ToClient int64 // … from nodes to clients
}

// Proxy leads clients to a shard.
type Proxy struct {
	cfg Config

	mu    sync.Mutex
	conns map[*conn]struct{}

	accepted, refused, noNode, deposed, toNode, toClient atomic.Int64
}

// New makes a proxy.
func New(cfg Config) (*Proxy, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Proxy{cfg: cfg.withDefaults(), conns: map[*conn]struct{}{}}, nil
}

// Stats returns how it is used.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{
		Conns: len(p.conns), Accepted: p.accepted.Load(), Refused: p.refused.Load(), NoNode: p.noNode.Load(),
		Deposed: p.deposed.Load(), ToNode: p.toNode.Load(), ToClient: p.toClient.Load(),
	}
}

// Serve leads clients of the listener, which it closes, until ctx ends or the listener breaks,
// and then lets connections continue for Drain. It returns when all are closed: nil if ctx ended.
func (p *Proxy) Serve(ctx context.Context, l net.Listener) error {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx)) // of connections
	defer cancel()
	var watch, all sync.WaitGroup
	watch.Go(func() { p.watch(inner) })
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	err := p.accept(ctx, inner, l, &all)
	stop()
	_ = l.Close()
	drained := make(chan struct{})
	go func() { all.Wait(); close(drained) }()
	timer := time.NewTimer(p.cfg.Drain)
	select {
	case <-timer.C:
	case <-drained:
	}
	timer.Stop()
	cancel()
	<-drained
	watch.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (p *Proxy) accept(ctx, inner context.Context, l net.Listener, all *sync.WaitGroup) error {
	l = connlimit.Patient(ctx, l, p.cfg.Logger)
	for {
		client, err := l.Accept()
		if err != nil {
			return err
		}
		c := p.admit(inner, client)
		if c == nil {
			p.refused.Add(1)
			_ = client.Close()
			continue
		}
		p.accepted.Add(1)
		all.Go(func() {
			c.run()
			p.leave(c)
		})
	}
}

func (p *Proxy) admit(ctx context.Context, client net.Conn) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.conns) >= p.cfg.MaxConns {
		return nil
	}
	c := &conn{p: p, client: client}
	c.ctx, c.cancel = context.WithCancel(ctx)
	p.conns[c] = struct{}{}
	return c
}

func (p *Proxy) leave(c *conn) {
	c.cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// watch closes connections to nodes that are replaced.
func (p *Proxy) watch(ctx context.Context) {
	for {
		changed := p.cfg.Where.Changed()
		if v, ok := p.cfg.Where.Shard(p.cfg.Shard); ok {
			p.mu.Lock()
			for c := range p.conns {
				if c.to == nil || c.to.stays(v) {
					continue
				}
				c.drop()
				if c.led {
					p.deposed.Add(1)
				}
				c.to = nil // once is enough
			}
			p.mu.Unlock()
		}
		timer := time.NewTimer(tick)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}
