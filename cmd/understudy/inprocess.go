package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/shard/catalog"
	"github.com/understudy-ha/understudy/store"
)

// Use callAPI, or apiRunE in a command, unless the calls take longer together (withAPI, where f bounds its own, or with
// withTimeout and payloadTimeout), the parts of a server must run beside them (withRunningAPI), or the store is opened in
// a way of its own (withAPIOn).

// withAPI lets f use the API: that of the server which --server names, else one that answers within this process, on
// the store. f bounds its own calls.
func (a *app) withAPI(ctx context.Context, f func(context.Context, *client.Client) error) error {
	return a.withAPIOn(ctx, false, a.openStore, f)
}

// withRunningAPI is withAPI for commands that follow what happens, or ask about shards: within this process, what a
// server keeps up to date by itself is kept up to date as well.
func (a *app) withRunningAPI(ctx context.Context, f func(context.Context, *client.Client) error) error {
	return a.withAPIOn(ctx, true, a.openStore, f)
}

// callAPI is withAPI for calls that take no longer than callTimeout together.
func (a *app) callAPI(ctx context.Context, f func(context.Context, *client.Client) error) error {
	return a.withAPI(ctx, withTimeout(callTimeout, f))
}

// apiRunE is the RunE of a command that calls the API within callTimeout.
func (a *app) apiRunE(f func(ctx context.Context, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return a.callAPI(cmd.Context(), func(ctx context.Context, c *client.Client) error { return f(ctx, c, args) })
	}
}

// pause waits, and reports whether ctx continues.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// withTimeout gives f a deadline.
func withTimeout(d time.Duration, f func(context.Context, *client.Client) error) func(context.Context, *client.Client) error {
	return func(ctx context.Context, c *client.Client) error {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		return f(ctx, c)
	}
}

// withAPIOn is withAPI on the store that open opens, if no server is named; running: see withRunningAPI.
func (a *app) withAPIOn(ctx context.Context, running bool, open func(context.Context) (store.Store, error), f func(context.Context, *client.Client) error) error {
	if a.remote() {
		c, err := a.server()
		if err != nil {
			return err
		}
		return withAdvice(apiError(f(ctx, c)))
	}
	st, err := open(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	return withAdvice(a.nameStore(st, inProcessError(a.StoreURL, a.serveInProcess(ctx, st, running, f))))
}

// inProcessError is apiError for an API that this process serves to itself: what did not answer is the store.
func inProcessError(storeURL string, err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok && errors.Is(failed, context.DeadlineExceeded) {
		text := fmt.Sprintf("the store %s did not answer in time; a change may have been made: look before you repeat it", termtext.URL(storeURL))
		return codedError{text, "", lease.ErrUnavailable}
	}
	return apiError(err)
}

// nameStore names the store where the API says only that its store does not keep what was asked for. The calls are for their
// errors alone, which do that.
func (a *app) nameStore(st store.Store, err error) error {
	coded, _ := errors.AsType[codedError](err)
	switch coded.code {
	case "store_without_queues":
		_, err = a.Queues(st)
	case "store_without_jobs":
		_, err = a.Jobs(st)
	case "store_without_sources":
		_, err = a.Monitor(st)
	}
	return err
}

// withAdvice says what to do about something that does not exist.
func withAdvice(err error) error {
	switch {
	case errors.Is(err, dispatch.ErrNoQueue):
		return fmt.Errorf("%w; see: understudy queue list. \"queue run\" and \"queue add --make\" create queues", err)
	case errors.Is(err, job.ErrNotFound):
		return fmt.Errorf("%w; see: understudy job list. \"job run\" adds jobs", err)
	case errors.Is(err, monitor.ErrNoCheck):
		return fmt.Errorf("%w; see: understudy monitor config show. \"monitor config apply\" and \"monitor run --check\" add checks", err)
	case errors.Is(err, monitor.ErrNoSource):
		return fmt.Errorf("%w; see: understudy source list", err)
	case errors.Is(err, monitor.ErrNoAlarm):
		return fmt.Errorf("%w; see: understudy alarm list", err)
	}
	return err
}

// serveInProcess answers the API on a store for as long as f runs.
func (a *app) serveInProcess(ctx context.Context, st store.Store, running bool, f func(context.Context, *client.Client) error) error {
	token := rand.Text() // shows that the caller may do what the token of a server's configuration allows
	cfg := api.Config{
		Store: st, Token: token, Operator: operator(), Version: version(), Logger: slog.New(slog.DiscardHandler), // errors are those of the command
		Timeout: payloadTimeout, // f bounds its calls
		Limits:  api.Limits{Read: api.Rate{PerSecond: -1}, Act: api.Rate{PerSecond: -1}, Ingest: api.Rate{PerSecond: -1}},
	}
	parts := []func(context.Context) error{}
	if shards, ok := st.(store.Shards); ok {
		dir, err := catalog.New(catalog.Config{Registry: shards.Registry(), Logger: a.Log})
		if err != nil {
			return err
		}
		cfg.Shards, parts = dir, append(parts, dir.Run)
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
	c, err := client.New(client.Config{URL: "http://localhost", Token: token, HTTP: httpClient(&http.Transport{DialContext: l.dial})})
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
