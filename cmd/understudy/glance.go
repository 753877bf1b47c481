package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/store"
)

// withServer lets f ask a server. Without one the API answers here, on the store, within this
// process: status shows what a server would.
func (a *app) withServer(ctx context.Context, f func(context.Context, *client.Client) error) error {
	if a.remote() {
		c, err := a.server()
		if err != nil {
			return err
		}
		return f(ctx, c)
	}
	st, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	return a.serveHere(ctx, st, f)
}

// serveHere runs the API on a store for as long as f runs.
func (a *app) serveHere(ctx context.Context, st store.Store, f func(context.Context, *client.Client) error) error {
	cfg := api.Config{Store: st, Version: version(), Logger: a.Log}
	parts := []func(context.Context) error{}
	if shards, ok := st.(store.Shards); ok {
		dir, err := shard.NewDirectory(shard.DirectoryConfig{Registry: shards.Registry(), Logger: a.Log})
		if err != nil {
			return err
		}
		cfg.Shards, parts = dir, append(parts, dir.Run)
	}
	server, err := api.New(cfg)
	if err != nil {
		return err
	}
	within := newInner()
	answers := api.NewHTTPServer(server.Handler(), a.Log)
	parts = append(parts, server.Run)
	c, err := client.New(client.Config{URL: "http://localhost", HTTP: httpClient(&http.Transport{DialContext: within.dial})})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	for _, part := range parts {
		all.Go(func() { _ = part(running) }) // they end with nil, when they are told to
	}
	all.Go(func() { _ = answers.Serve(within) })
	defer all.Wait()
	defer stop()
	defer answers.Close()
	return f(ctx, c)
}

// inner is a listener that only this process reaches.
type inner struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newInner() *inner { return &inner{conns: make(chan net.Conn), done: make(chan struct{})} }

func (l *inner) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	mine, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return mine, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Accept implements [net.Listener].
func (l *inner) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (l *inner) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr implements [net.Listener].
func (l *inner) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// situation is all that status shows.
type situation struct {
	Needs     []client.Need        `json:"needs"` // what a person has to look at
	MoreNeeds int64                `json:"more_needs"`
	Errors    []string             `json:"errors,omitempty"` // what could not be read
	Held      []client.Held        `json:"held"`
	Store     client.StoreInfo     `json:"store"`
	Server    *client.ServerInfo   `json:"server,omitempty"`
	Roles     []client.Role        `json:"roles"`
	Shards    []client.Shard       `json:"shards"`
	Queues    []client.Queue       `json:"queues"`
	Monitor   *client.Monitor      `json:"monitor,omitempty"`
	Cache     *client.CacheCluster `json:"cache,omitempty"`
	Instances []client.Session     `json:"instances"`
	History   []client.Event       `json:"history"`
}

// shownEvents is how many of the latest events status asks for.
const shownEvents = 10

// look asks for all of it. A part that the store does not keep, or the server does not
// run, is left out.
func look(ctx context.Context, c *client.Client) (s situation, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	ask := func(optional bool, f func() error) {
		if err != nil {
			return
		}
		if err = f(); optional && missing(err) {
			err = nil
		}
	}
	var server client.Server
	var overview client.Overview
	ask(false, func() (err error) { s.Roles, err = c.Roles(ctx); return err })
	ask(false, func() (err error) { server, err = c.Server(ctx); return err })
	ask(false, func() (err error) { s.Instances, err = c.Sessions(ctx); return err })
	ask(false, func() (err error) { s.History, err = c.History(ctx, client.Query{Limit: shownEvents}); return err })
	ask(true, func() (err error) { s.Shards, err = allShards(ctx, c); return err })
	ask(true, func() (err error) { s.Queues, err = c.Queues(ctx); return err })
	ask(true, func() error {
		m, err := c.Monitor(ctx)
		if err == nil && len(m.Events)+len(m.Members) > 0 {
			s.Monitor = &m
		}
		return err
	})
	ask(true, func() error {
		peers, err := c.CachePeers(ctx)
		if err == nil {
			s.Cache = &peers
		}
		return err
	})
	ask(false, func() (err error) { overview, err = c.Overview(ctx); return err })
	if err != nil {
		return s, heard(err)
	}
	s.Store, s.Server = server.Store, &server.Server
	s.Needs, s.MoreNeeds, s.Held, s.Errors = overview.Needs, overview.MoreNeeds, overview.Held, overview.Errors
	s.Roles, s.Shards, s.Queues = orEmpty(s.Roles), orEmpty(s.Shards), orEmpty(s.Queues)
	s.Instances, s.History, s.Needs, s.Held = orEmpty(s.Instances), orEmpty(s.History), orEmpty(s.Needs), orEmpty(s.Held)
	return s, nil
}

// orEmpty keeps null out of JSON.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// missing: the store keeps no such thing, or the server runs none.
func missing(err error) bool {
	answer, ok := errors.AsType[*client.Error](err)
	return ok && answer.Status == http.StatusNotFound && answer.Code != client.NotUnderstudy
}

// allShards lists them.
func allShards(ctx context.Context, c *client.Client) (out []client.Shard, err error) {
	const page = 500
	for after := ""; ; after = out[len(out)-1].Shard {
		some, err := shardsAfter(ctx, c, client.ShardQuery{After: after, Limit: page})
		if err != nil {
			return nil, err
		}
		if out = append(out, some...); len(some) < page {
			return out, nil
		}
	}
}

// shardsAfter waits for a server that has not read the shards yet, which takes moments.
func shardsAfter(ctx context.Context, c *client.Client, q client.ShardQuery) ([]client.Shard, error) {
	for {
		shards, err := c.Shards(ctx, q)
		if answer, ok := errors.AsType[*client.Error](err); !ok || answer.Code != "not_ready" {
			return shards, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the shards were not read yet: %w", context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}
