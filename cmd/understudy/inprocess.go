package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/shard/catalog"
	"github.com/understudy-ha/understudy/store"
)

// inProcessError is apiError for an API that this process serves to itself: its errors are logged in this command's log,
// just before.
func inProcessError(err error) error {
	err = apiError(err)
	if coded, ok := err.(codedError); ok && coded.code == "internal" { // a wrapped one stays as it is: the text around it says more
		return fmt.Errorf("%w: the line of the log before this one says why", errInternal)
	}
	return err
}

// silentStore is the error of a request to an API that this process serves to itself: what did not answer in time is the store.
type silentStore struct {
	error
	url string
}

func (e silentStore) Unwrap() error { return e.error }

// innerTransport sends requests to such an API.
type innerTransport struct {
	http.RoundTripper
	storeURL string
}

// RoundTrip implements [http.RoundTripper].
func (t innerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.RoundTripper.RoundTrip(r)
	if errors.Is(err, context.DeadlineExceeded) {
		err = silentStore{err, t.storeURL}
	}
	return answer, err
}

// serveInProcess answers the API on a store for as long as f runs.
func (a *app) serveInProcess(ctx context.Context, st store.Store, running bool, f func(context.Context, *client.Client) error) error {
	token := rand.Text() // shows that the caller may do what the token of a server's configuration allows
	cfg := api.Config{
		Store: st, Token: token, Operator: operator(), Version: version(), Logger: slog.New(errorsOnly{a.Log.Handler()}),
		Timeout: payloadTimeout, // f bounds its calls
		Limits:  api.Limits{Read: api.Rate{PerSecond: -1}, Act: api.Rate{PerSecond: -1}, Ingest: api.Rate{PerSecond: -1}},
	}
	parts := []func(context.Context) error{}
	if shards, ok := st.(store.Shards); ok {
		views, err := catalog.New(catalog.Config{Registry: shards.Registry(), Logger: a.Log})
		if err != nil {
			return err
		}
		cfg.Shards, parts = views, append(parts, views.Run)
	}
	server, err := api.New(cfg)
	if err != nil {
		return err
	}
	if parts = append(parts, server.Run); !running {
		parts = nil
	}
	l := newInnerListener()
	answers := api.NewHTTPServer(server.Handler(), a.Log)
	c, err := client.New(client.Config{URL: "http://localhost", Token: token, HTTP: httpClient(innerTransport{&http.Transport{DialContext: l.dial}, a.StoreURL})})
	if err != nil {
		return err
	}
	partCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	for _, part := range parts {
		all.Go(func() { _ = part(partCtx) }) // they return nil when their context ends
	}
	all.Go(func() { _ = answers.Serve(l) })
	defer all.Wait()
	defer stop()
	defer answers.Close()
	return f(ctx, c)
}

// errorsOnly is a log without what the errors of the command say already: only reasons that the API does not show are left.
type errorsOnly struct{ slog.Handler }

// Enabled implements [slog.Handler].
func (h errorsOnly) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError && h.Handler.Enabled(ctx, level)
}

// innerListener is a listener that only this process reaches.
type innerListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newInnerListener() *innerListener {
	return &innerListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *innerListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
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
func (l *innerListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (l *innerListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr implements [net.Listener].
func (l *innerListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
