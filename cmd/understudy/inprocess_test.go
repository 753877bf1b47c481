package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/testkit/syncbuffer"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/store/memory"
)

// hangingStore does not answer, or fails as no store should.
type hangingStore struct {
	*memory.Store
	err error
}

func (s hangingStore) answer(ctx context.Context) error {
	if s.err == nil {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return s.err
}

func (s hangingStore) List(ctx context.Context, _, _ string, _ int) ([]lease.Lease, error) {
	return nil, s.answer(ctx)
}

func (s hangingStore) QueueAdmin() dispatch.Admin { return hangingQueues{s.Store.QueueAdmin(), s} }
func (s hangingStore) Registry() shard.Registry   { return hangingRegistry{s.Store.Registry(), s} }

type hangingQueues struct {
	dispatch.Admin
	store hangingStore
}

func (q hangingQueues) CreateQueue(ctx context.Context, _ string) error { return q.store.answer(ctx) }
func (q hangingQueues) Queues(ctx context.Context) ([]dispatch.Overview, error) {
	return nil, q.store.answer(ctx)
}

type hangingRegistry struct {
	shard.Registry
	store hangingStore
}

func (r hangingRegistry) ReadView(ctx context.Context, _ string) (shard.View, error) {
	return shard.View{}, r.store.answer(ctx)
}

// onHangingStore runs f with the API of such a store, and returns what f does and what is logged.
func onHangingStore(t *testing.T, reason error, f func(context.Context, *app, *client.Client) error) (log string, err error) {
	var out syncbuffer.Buffer
	a := &app{stdout: &out, stderr: &out, output: "table"}
	a.StoreURL = "postgres://me:secret@db/app"
	if err := a.logAs("", ""); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = inProcessError(a.serveInProcess(ctx, hangingStore{memory.New(nil), reason}, false, func(ctx context.Context, c *client.Client) error { return f(ctx, a, c) }))
	synctest.Wait() // requests that were given up log, too
	return out.String(), err
}

// TestSlowStoreIsNamed: a command that serves the API to itself has no server that could be unreachable, nor one with a log.
func TestSlowStoreIsNamed(t *testing.T) {
	for name, x := range map[string]struct {
		reason error
		text   string
	}{
		"it hangs": {nil, "the store postgres://me:***@db/app did not answer in time"},
		"it fails": {errors.New("it broke"), "the line of the log before this one says why"},
	} {
		for _, watcher := range []string{"role", "status", "shard switchover"} {
			synctest.Test(t, func(t *testing.T) {
				log, _ := onHangingStore(t, x.reason, watchers()[watcher])
				if !strings.Contains(log, x.text) || strings.Contains(log, "the server") || strings.Contains(log, "secret") {
					t.Errorf("%s, of a store of which %s, logs:\n%s", watcher, name, log)
				}
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		_, err := onHangingStore(t, nil, func(ctx context.Context, _ *app, c *client.Client) error {
			return withTimeout(callTimeout, func(ctx context.Context, c *client.Client) error { return c.CreateQueue(ctx, "orders") })(ctx, c)
		})
		if text := err.Error(); !errors.Is(err, lease.ErrUnknown) || !strings.HasPrefix(text, "the store postgres://") || !strings.HasSuffix(text, " did not answer in time; a change may have been made: look before you repeat it") {
			t.Errorf("a change: %v", err)
		}
		_, err = onHangingStore(t, nil, func(ctx context.Context, _ *app, c *client.Client) error {
			return withTimeout(callTimeout, func(ctx context.Context, c *client.Client) error { _, err := c.Roles(ctx); return err })(ctx, c)
		})
		if text := err.Error(); errors.Is(err, lease.ErrUnknown) || exitCode(err) != exitUnreachable || !strings.HasSuffix(text, " did not answer in time") {
			t.Errorf("a read: %v", err)
		}
	})
}
