package sabledb

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/understudy-ha/understudy/internal/resp"
)

// guard is a connection that is kept: that it still answers proves that the server was not started again, which would be
// the only sign of a crash.
type guard struct {
	dial func(ctx context.Context) (*conn, error)
	turn chan struct{} // held by the goroutine that uses c
	c    *conn

	mu  sync.Mutex
	run run
}

// run is what is known of the server's present run.
type run struct {
	id string
	// suspect: another run was there before it, and that is not written down yet.
	suspect bool
	role    string
}

func newGuard(dial func(ctx context.Context) (*conn, error)) *guard {
	return &guard{dial: dial, turn: make(chan struct{}, 1)}
}

// check proves that the server is the one that it was, or notes that it may not be. A caller that gives up does not
// break the connection.
func (g *guard) check(ctx context.Context) error {
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		err := g.renew(ctx)
		<-g.turn
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// renew makes the connection if there is none that answers.
func (g *guard) renew(ctx context.Context) error {
	if g.c != nil {
		if _, err := g.c.do(ctx, []string{"PING"}); err == nil {
			return nil
		}
		_ = g.c.Close()
		g.c = nil
		g.mu.Lock()
		g.run.suspect = true
		g.mu.Unlock()
	}
	c, err := g.dial(ctx)
	if err != nil {
		return err
	}
	all, err := c.do(ctx, []string{"INFO"})
	if err == nil {
		err = g.read(all[0])
	}
	if err != nil {
		_ = c.Close()
		return err
	}
	g.c = c
	return nil
}

// read takes what INFO says.
func (g *guard) read(info resp.Reply) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	fields := map[string]string{}
	for line := range strings.Lines(info.Text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = strings.TrimSpace(value)
	}
	switch {
	case fields["redis_version"] != "" || fields["valkey_version"] != "":
		return errors.New("it is a Redis or Valkey, not a SableDB: use redis://HOST:PORT")
	case fields["node_id"] == "":
		return errors.New("it is not a SableDB: INFO tells no node_id")
	}
	g.run.id, g.run.role = fields["node_id"], fields["role"]
	return nil
}

func (g *guard) server() run {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.run
}

// trust: that the server may be another run is written down now.
func (g *guard) trust() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.run.suspect = false
}

func (g *guard) close() {
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	if g.c != nil {
		_ = g.c.Close()
		g.c = nil
	}
}
