package zmtp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/internal/connlimit"
)

// Listener accepts connections. Its methods may be called from any goroutine.
type Listener struct {
	cfg     *Config
	ln      net.Listener
	limit   *connlimit.Limit
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	pub     atomic.Pointer[[]*Conn] // PUB: those that are connected; never changed in place

	failed atomic.Int64

	mu      sync.Mutex
	all     map[*Conn]bool // true: connected; false: in handshake
	dropped int64          // by the connections that have ended
}

// Listen binds tcp://host:port at once and accepts in the background, until Close. The
// host may be * (all interfaces), the port * or 0 (the kernel chooses).
func Listen(addr string, cfg Config) (*Listener, error) {
	at, err := ParseAddr(addr, true)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	resolved, err := cfg.resolve(true)
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", at)
	if err != nil {
		return nil, fmt.Errorf("zmtp: listen on %s: %w", addr, err)
	}
	l := &Listener{cfg: resolved, ln: ln, all: map[*Conn]bool{}}
	l.limit = connlimit.New(resolved.MaxConns, true, resolved.Log.With("port", l.Addr()))
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.pub.Store(&[]*Conn{})
	l.running.Go(l.accept)
	return l, nil
}

// Addr is tcp://host:port, with the port as chosen.
func (l *Listener) Addr() string { return "tcp://" + l.ln.Addr().String() }

// Publish queues a message for every connection with a subscription that is a prefix of
// the first frame. It never waits, and returns for how many it was queued; those whose
// queue is full miss it. It is for PUB; other kinds have no subscriptions.
func (l *Listener) Publish(m Message) int {
	if len(m) == 0 {
		return 0
	}
	n := 0
	for _, c := range *l.pub.Load() {
		if c.subs.match(m[0]) && c.push(m) {
			n++
		}
	}
	return n
}

// Dropped counts the messages that found a queue or the budget full, on all connections so far.
func (l *Listener) Dropped() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.dropped
	for c := range l.all {
		n += c.Dropped()
	}
	return n
}

// Refused counts the connections that were closed because of MaxConns.
func (l *Listener) Refused() int64 { return l.limit.Refused() }

// Failed counts the connections that ended in the handshake, or because the other side broke the protocol.
func (l *Listener) Failed() int64 { return l.failed.Load() }

// Close stops listening and ends all connections, which are given up to a second to take what was
// sent. It returns when everything has ended, handlers included.
func (l *Listener) Close() error {
	l.cancel()
	err := l.ln.Close()
	l.mu.Lock()
	for c, connected := range l.all {
		if connected {
			c.shutdown()
		} else {
			c.fail(ErrClosed)
		}
	}
	l.mu.Unlock()
	patience := time.AfterFunc(linger, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for c := range l.all {
			c.fail(ErrClosed)
		}
	})
	defer patience.Stop()
	l.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil // closed before
	}
	return err
}

func (l *Listener) accept() {
	ln := connlimit.Patient(l.ctx, l.ln, l.cfg.Log)
	for {
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		if l.ctx.Err() != nil {
			_ = nc.Close()
			return
		}
		if !l.limit.Admit(nc, true) {
			_ = nc.Close()
			continue
		}
		c := newConn(l.cfg, nc, "tcp://"+nc.RemoteAddr().String())
		if !l.admit(c) {
			_ = c.fail(ErrClosed)
			continue
		}
		l.running.Go(func() { l.serve(c) })
	}
}

// admit refuses connections after Close.
func (l *Listener) admit(c *Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return false
	}
	l.all[c] = false
	return true
}

func (l *Listener) serve(c *Conn) {
	defer l.limit.Forget(c.nc)
	err := c.handshake(true)
	if err == nil {
		err = l.connected(c)
	}
	if err != nil {
		c.fail(err)
		l.mu.Lock()
		delete(l.all, c)
		l.mu.Unlock()
		l.failed.Add(1)
		l.cfg.Log.Debug("zmtp: handshake failed", "peer", c.addr, "err", err)
		return
	}
	defer l.removeConn(c)
	err = c.serve()
	if errors.Is(err, ErrProtocol) || errors.Is(err, ErrTooLarge) {
		l.failed.Add(1)
	}
	l.cfg.Log.Debug("zmtp: disconnected", "peer", c.addr, "err", err)
}

func (l *Listener) connected(c *Conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return ErrClosed
	}
	l.all[c] = true
	l.limit.SetBusy(c.nc)
	l.publishers()
	l.cfg.Log.Debug("zmtp: connected", "peer", c.addr)
	return nil
}

func (l *Listener) removeConn(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, c)
	l.dropped += c.Dropped()
	l.publishers()
}

// publishers renews what Publish reads. It needs the lock.
func (l *Listener) publishers() {
	if l.cfg.Kind != PUB {
		return
	}
	conns := make([]*Conn, 0, len(l.all))
	for c, connected := range l.all {
		if connected {
			conns = append(conns, c)
		}
	}
	l.pub.Store(&conns)
}

// sleep waits, but not beyond the end of ctx or a kick.
func sleep(ctx context.Context, kick <-chan struct{}, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-kick:
	case <-ctx.Done():
	}
}
