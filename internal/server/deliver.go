package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/sdnotify"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/startlistener"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// RunQueue delivers one queue, as an instance of that name, until ctx ends.
func RunQueue(ctx context.Context, h *instance.Host, q *settings.Queue, name string) error {
	if err := h.CheckStoreSupports("queues"); err != nil {
		return err
	}
	to, err := q.Target()
	if err != nil {
		return err
	}
	var front net.Listener
	if q.Front != nil {
		if front, err = q.Front.NewListener(); err != nil {
			return err
		}
		defer front.Close()
	}
	who := instance.Identity{Name: name, Timing: q.Windows().Timing()}
	return h.Run(ctx, instance.Opening{Patient: true}, who, func(ctx context.Context, st store.Store, k *lease.Keeper) error {
		queues, err := h.Queues(st)
		if err != nil {
			return err
		}
		d, err := newDispatcher(ctx, h, queues, k, q, to)
		if err != nil {
			return err
		}
		// Here, and not in deliver: a server is ready when all its parts are.
		sdnotify.Ready()
		defer context.AfterFunc(ctx, sdnotify.Stopping)()
		return deliver(ctx, h.Log, queues, d, q, front)
	})
}

// deliver runs until ctx ends or the front fails.
func deliver(ctx context.Context, log *slog.Logger, queues store.Queues, d *dispatch.Dispatcher, q *settings.Queue, front net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if front != nil {
			cancel(serveFront(ctx, log, front, queues, q))
		}
	}()
	defer func() { cancel(nil); <-ended }()
	if err := d.Run(ctx); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// newDispatcher makes the queue and what delivers it.
func newDispatcher(ctx context.Context, h *instance.Host, queues store.Queues, k *lease.Keeper, q *settings.Queue, to dispatch.Target) (*dispatch.Dispatcher, error) {
	d, err := dispatch.New(dispatch.Config{
		Name: q.Queue, Keeper: k, Claims: queues.Claims(), Queue: queues.Queue(), Admin: queues.QueueAdmin(), Target: to,
		Windows: q.Windows(), SubmitTimeout: q.Deadline(), Concurrency: q.Concurrency, Rate: q.Rate,
		OnFailure: dispatch.OnFailure(q.OnFailure), Retry: q.RetryPolicy(), KeepFor: q.Keep, UndecidedAfter: q.UndecidedAfter, Logger: h.Log,
	})
	if err != nil {
		return nil, err
	}
	call, cancel := context.WithTimeout(ctx, instance.CallTimeout)
	defer cancel()
	if err := queues.QueueAdmin().CreateQueue(call, q.Queue); err != nil {
		return nil, err
	}
	idle, submitting := d.WorstTakeover()
	h.Log.Info("delivering", "queue", q.Queue, "target", to.Name(), "store", termtext.URL(h.StoreURL),
		"takeover_of_idle_keys_within", idle, "takeover_in_mid_submission_within", submitting)
	return d, nil
}

// A front reads up to 10 MiB, and its clients may wait for their batches for nearly
// five minutes; not when it stops.
const (
	frontReads  = time.Minute
	frontWrites = 6 * time.Minute
	frontStops  = time.Second
)

// serveFront answers on a listener of its own until ctx ends.
func serveFront(ctx context.Context, log *slog.Logger, l net.Listener, queues store.Queues, q *settings.Queue) error {
	handler, err := q.FrontHandler(queues, log)
	if err != nil {
		return err
	}
	// A page of another site must not submit from a browser on this host.
	server := api.NewHTTPServer(http.NewCrossOriginProtection().Handler(handler), log)
	server.ReadTimeout, server.WriteTimeout = frontReads, frontWrites
	stopped := make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		defer close(stopped)
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), frontStops)
		defer cancel()
		if server.Shutdown(call) != nil { // some wait for their batches, and will ask again
			_ = server.Close()
		}
	})()
	log.Info("front", "queue", q.Queue, "url", "http://"+l.Addr().String(), "dialect", q.Front.Dialect)
	if err := startlistener.Serve(server, l, log); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-stopped
	return nil
}
