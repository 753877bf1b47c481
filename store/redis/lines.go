package redis

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"
)

// line is one connection, with the driver that speaks over it. Whoever has it
// has it alone, and so can cut it off: the driver by itself waits for an answer
// until the deadline, even when its context is cancelled.
type line struct {
	client *redis.Client
	mu     sync.Mutex
	conn   net.Conn // the latest; closed when it is not in use any more
}

func (l *line) connected(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = conn
}

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		_ = l.conn.Close()
	}
}

// lines lends a bounded number of lines, the one that came back last first, so
// that no more are connected than are needed at a time.
type lines struct {
	places chan struct{}
	mu     sync.Mutex
	free   []*line
	all    []*line
}

func newLines(n int, connect func() *line) *lines {
	p := &lines{places: make(chan struct{}, n)}
	for range n {
		p.free = append(p.free, connect())
	}
	p.all = append(p.all, p.free...)
	return p
}

// use lends a line to f, and cuts it when ctx ends before f returns.
func (p *lines) use(ctx context.Context, f func(*redis.Client) error) error {
	select {
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p.mu.Lock()
	l := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	p.mu.Unlock()

	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(cut); l.cut() })
	err := f(l.client)
	if !stop() {
		<-cut // or it would be the next caller's connection
		if err != nil {
			err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		}
	}
	p.mu.Lock()
	p.free = append(p.free, l)
	p.mu.Unlock()
	return err
}

func (p *lines) close() {
	for _, l := range p.all {
		_ = l.client.Close()
	}
}
