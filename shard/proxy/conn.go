package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/internal/backoff"
)

// conn is a client with the node that it is led to.
type conn struct {
	p      *Proxy
	client net.Conn
	ctx    context.Context // of the client
	cancel context.CancelFunc

	// Under p.mu: where it is led, or tried to be, and what ends that; nil before.
	to   *target
	drop context.CancelFunc
	led  bool
}

// run returns when both sides are closed.
func (c *conn) run() {
	defer c.client.Close()
	node, ctx, err := c.connect()
	if err != nil {
		if c.ctx.Err() == nil {
			c.p.noNode.Add(1)
			c.p.cfg.Logger.Warn("a client was closed: nobody to lead it to", "shard", c.p.cfg.Shard, "client", c.client.RemoteAddr().String(), "err", err)
		}
		return
	}
	defer node.Close()
	stop := context.AfterFunc(ctx, func() {
		_ = c.client.Close()
		_ = node.Close()
	})
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { c.p.toNode.Add(c.copy(node, c.client)) })
	both.Go(func() { c.p.toClient.Add(c.copy(c.client, node)) })
	both.Wait()
}

// copy passes on what comes, and its end. A connection that breaks breaks both ways.
func (c *conn) copy(to, from net.Conn) int64 {
	n, err := io.Copy(to, from)
	half, ok := to.(interface{ CloseWrite() error })
	if err != nil || !ok || half.CloseWrite() != nil {
		c.cancel()
	}
	return n
}

// connect reaches a node, and waits for one if need be. The context ends when the client
// must not be led there any more.
func (c *conn) connect() (net.Conn, context.Context, error) {
	limit := time.NewTimer(c.p.cfg.Wait)
	defer limit.Stop()
	tried := map[target]int{}
	for retry := (backoff.Backoff{First: 10 * time.Millisecond, Most: 250 * time.Millisecond}); ; {
		changed := c.p.cfg.Where.Changed()
		node, ctx, err := c.attempt(tried)
		if err == nil {
			return node, ctx, nil
		}
		again := time.NewTimer(retry.Next())
		select {
		case <-c.ctx.Done():
			again.Stop()
			return nil, nil, c.ctx.Err()
		case <-limit.C:
			again.Stop()
			return nil, nil, err
		case <-changed:
		case <-again.C:
		}
		again.Stop()
	}
}

var (
	errUnknown = errors.New("the shard is not known")
	errMoved   = errors.New("it was replaced meanwhile")
)

func (c *conn) attempt(tried map[target]int) (net.Conn, context.Context, error) {
	v, ok := c.p.cfg.Where.Shard(c.p.cfg.Shard)
	if !ok {
		return nil, nil, errUnknown
	}
	all, err := targets(v, c.p.cfg.Route)
	if err != nil {
		return nil, nil, err
	}
	ctx, drop := context.WithCancel(c.ctx)
	to := c.p.pick(c, all, tried, drop)
	tried[to]++
	node, err := c.dial(ctx, to)
	if err != nil {
		drop()
		c.p.unpick(c)
		return nil, nil, err
	}
	c.p.lead(c)
	return node, ctx, nil
}

// dial connects. What changes while it does ends ctx; what changed before the client was bound to the
// node is seen here.
func (c *conn) dial(ctx context.Context, to target) (net.Conn, error) {
	dialer := net.Dialer{Timeout: c.p.cfg.DialTimeout}
	node, err := dialer.DialContext(ctx, "tcp", to.address)
	if err != nil {
		return nil, err
	}
	if v, ok := c.p.cfg.Where.Shard(c.p.cfg.Shard); ok && !to.stays(v) || ctx.Err() != nil {
		_ = node.Close()
		return nil, errMoved
	}
	return node, nil
}

// pick chooses a node for the client and binds it to that, so that a change from here on is
// noticed.
func (p *Proxy) pick(c *conn, all []target, tried map[target]int, drop context.CancelFunc) target {
	p.mu.Lock()
	defer p.mu.Unlock()
	used := map[target]int{}
	for o := range p.conns {
		if o.to != nil {
			used[*o.to]++
		}
	}
	to := least(all, used, tried)
	c.to, c.drop = &to, drop
	return to
}

func (p *Proxy) unpick(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.to, c.drop = nil, nil
}

func (p *Proxy) lead(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.led = true
}
