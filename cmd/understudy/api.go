package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store"
)

// The way of a command to the API. withAPIOn decides: with --server it is that server's, else one that answers within this
// process, on the store (inprocess.go).
//
//	callAPI          calls that take no longer than callTimeout together, beside opening the store; apiRunE is a command that does nothing else
//	withAPI          calls that take longer: f bounds each, or is wrapped by withTimeout
//	withRunningAPI   calls that read shards or streams: these are kept up to date meanwhile
//	withAPIOn        the store is opened in a way of its own
//
// A server answers a parameter that it does not know as if it was not there: what an older one lists may be more than a flag
// asked for.
//
// f may return the errors of the client as they are: withAPIOn gives them their meaning (apiError), and adds advice. A command that
// looks at an error itself, with errors.Is or exitCode, calls apiError before.

// callAPI is withAPI for calls that take no longer than callTimeout together, once the store is open.
func (a *app) callAPI(ctx context.Context, f func(context.Context, *client.Client) error) error {
	return a.withAPI(ctx, withTimeout(callTimeout, f))
}

// apiRunE is the RunE of a command that calls the API within callTimeout.
func (a *app) apiRunE(f func(ctx context.Context, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return a.callAPI(cmd.Context(), func(ctx context.Context, c *client.Client) error { return f(ctx, c, args) })
	}
}

// withAPI lets f use the API: that of the server which --server names, else one that answers within this process, on
// the store. f bounds its own calls.
func (a *app) withAPI(ctx context.Context, f func(context.Context, *client.Client) error) error {
	return a.withAPIOn(ctx, false, a.openStore, f)
}

// withRunningAPI is withAPI for commands that follow what happens or are about shards: an API within this process then also reads the
// shards and follows the store meanwhile, as a server does (Run of shard/catalog and of api.Server).
func (a *app) withRunningAPI(ctx context.Context, f func(context.Context, *client.Client) error) error {
	return a.withAPIOn(ctx, true, a.openStore, f)
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
	if a.usesServer() {
		c, err := a.serverClient()
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
	return withAdvice(a.nameStore(inProcessError(a.serveInProcess(ctx, st, running, f))))
}

// serverClient returns a client of the server that resolveEndpoint chose. Nothing is sent yet.
func (a *app) serverClient() (*client.Client, error) {
	a.warnOfVariables()
	if a.serverErr != nil {
		return nil, a.serverErr
	}
	token, err := tokenIn(a.tokenFile)
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Config{URL: a.serverURL, Token: token, HTTP: httpClient(http.DefaultTransport)})
	if err != nil {
		return nil, usererr.Errorf("--server: %v", err)
	}
	return c, nil
}

// withAdvice says what to do about something that does not exist.
func withAdvice(err error) error {
	switch {
	case errors.Is(err, dispatch.ErrNoQueue):
		return fmt.Errorf("%w; see: understudy queue list. \"queue run\" and \"queue add --create\" create queues", err)
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

// nameStore names the store where the API says only that its store does not keep what was asked for.
func (a *app) nameStore(err error) error {
	coded, _ := errors.AsType[codedError](err)
	switch coded.code {
	case "store_without_queues":
		return a.NotSupported("queues")
	case "store_without_jobs":
		return a.NotSupported("jobs")
	case "store_without_sources":
		return a.NotSupported("sources")
	}
	return err
}

// actOnEach does one thing with each name, within callTimeout each.
func (a *app) actOnEach(ctx context.Context, verb, noun string, names []string, act func(ctx context.Context, c *client.Client, name string) error) error {
	return a.withAPI(ctx, func(ctx context.Context, c *client.Client) error {
		return forEach(names, func(name string) error {
			call, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			if err := act(call, c, name); err != nil {
				return apiError(err)
			}
			return a.printDone(verb, noun, name)
		})
	})
}

// forEach does something with each name, continues after one with which it cannot be done, unless nobody answers any
// more, and returns all errors.
func forEach(names []string, do func(name string) error) error {
	var failed []error
	for i, name := range names {
		err := do(name)
		if err == nil {
			continue
		}
		if failed = append(failed, fmt.Errorf("%s: %w", name, err)); exitCode(err) == exitUnreachable {
			if i < len(names)-1 {
				failed = append(failed, errRest)
			}
			break
		}
	}
	return errors.Join(failed...)
}

// errRest follows the error at which a list ended.
var errRest = errors.New("the rest was not tried")

// removeByAPI deletes something by the API, which bounds the call itself, and prints the verb.
func (a *app) removeByAPI(ctx context.Context, verb, noun, name string, remove func(context.Context, *client.Client) error) error {
	return a.withAPI(ctx, func(ctx context.Context, c *client.Client) error {
		if err := remove(ctx, c); err != nil {
			return err
		}
		return a.printDone(verb, noun, name)
	})
}
