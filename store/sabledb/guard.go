package sabledb

import (
	"context"
	"errors"
	"fmt"
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
	id, role string
	// breaks counts the connections that broke: after each, another run may have come. Of them noted are written down.
	breaks, noted int
}

func newGuard(dial func(ctx context.Context) (*conn, error)) *guard {
	return &guard{dial: dial, turn: make(chan struct{}, 1)}
}

// check proves that the server is the one that it was, or notes that it may not be. id is what the server is called on
// another connection of the caller's, "" if that is not known yet. A caller that gives up does not break the connection.
func (g *guard) check(ctx context.Context, id string) error {
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		err := g.renew(ctx, id)
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

// renew makes the connection if there is none that answers and leads to that server.
func (g *guard) renew(ctx context.Context, id string) error {
	if g.c != nil {
		if id == "" || id == g.server().id {
			if _, err := g.c.do(ctx, []string{"PING"}); err == nil {
				return nil
			}
		}
		_ = g.c.Close()
		g.c = nil
		g.mu.Lock()
		g.run.breaks++
		g.mu.Unlock()
	}
	c, err := g.dial(ctx)
	if err != nil {
		return err
	}
	all, err := c.do(ctx, []string{"INFO"})
	var got, role string
	if err == nil {
		got, role, err = parseInfo(all[0])
	}
	if err == nil && id != "" && got != id {
		err = fmt.Errorf("two servers answer at this address, %s and %s: name the primary", id, got)
	}
	if err != nil {
		_ = c.Close()
		return err
	}
	g.c = c
	g.mu.Lock()
	defer g.mu.Unlock()
	g.run.id, g.run.role = got, role
	return nil
}

// parseInfo returns what INFO says of the server.
func parseInfo(info resp.Reply) (id, role string, err error) {
	fields := map[string]string{}
	for line := range strings.Lines(info.Text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = strings.TrimSpace(value)
	}
	switch {
	case fields["redis_version"] != "" || fields["valkey_version"] != "":
		return "", "", errors.New("it is a Redis or Valkey, not a SableDB: use redis://HOST:PORT")
	case fields["node_id"] == "":
		return "", "", errors.New("it is not a SableDB: INFO tells no node_id")
	}
	return fields["node_id"], fields["role"], nil
}

func (g *guard) server() run {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.run
}

// note: that the server may be another run is written down, by a call that knew of so many breaks.
func (g *guard) note(breaks int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.run.noted = max(g.run.noted, breaks)
}

func (g *guard) close() {
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	if g.c != nil {
		_ = g.c.Close()
		g.c = nil
	}
}
