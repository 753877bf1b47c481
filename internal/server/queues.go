package server

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// servedQueues are what a server delivers, ready to run.
type servedQueues struct {
	list    []servedQueue
	keepers claimKeepers
}

type servedQueue struct {
	host       *instance.Host
	cfg        *settings.Queue
	queues     store.Queues
	dispatcher *dispatch.Dispatcher
	front      net.Listener // nil without one
}

// serveQueues makes what delivers the queues of the file. Nothing runs yet.
func serveQueues(ctx context.Context, h *instance.Host, cfg *settings.Server, st store.Store, instance lease.Instance) (out *servedQueues, err error) {
	out = &servedQueues{keepers: claimKeepers{host: h, store: st, instance: instance}}
	if len(cfg.Queues) == 0 {
		return out, nil
	}
	queues, err := h.Queues(st)
	if err != nil {
		return nil, err
	}
	for i := range cfg.Queues {
		q := servedQueue{host: h, cfg: &cfg.Queues[i], queues: queues}
		if err := q.prepare(ctx, &out.keepers); err != nil {
			out.close()
			return nil, fmt.Errorf("queue %q: %w", q.cfg.Queue, err)
		}
		out.list = append(out.list, q)
	}
	return out, nil
}

func (q *servedQueue) prepare(ctx context.Context, keepers *claimKeepers) error {
	to, err := q.cfg.Target()
	if err != nil {
		return err
	}
	k, err := keepers.of(q.cfg.Windows())
	if err != nil {
		return err
	}
	if q.dispatcher, err = newDispatcher(ctx, q.host, q.queues, k, q.cfg, to); err != nil {
		return err
	}
	if q.cfg.Front != nil {
		q.front, err = q.cfg.Front.NewListener()
	}
	return err
}

func (q *servedQueue) run(ctx context.Context) error {
	return deliver(ctx, q.host.Log, q.queues, q.dispatcher, q.cfg, q.front)
}

// close lets go of what was prepared and never ran.
func (s *servedQueues) close() {
	for _, q := range s.list {
		if q.front != nil {
			q.front.Close()
		}
	}
}

func (s *servedQueues) stats() []func() dispatch.Stats {
	out := make([]func() dispatch.Stats, 0, len(s.list))
	for _, q := range s.list {
		out = append(out, q.dispatcher.Stats)
	}
	return out
}

// claimKeepers are the sessions under which a server's queues are claimed: one
// for all queues of the same windows.
type claimKeepers struct {
	host     *instance.Host
	store    store.Store
	instance lease.Instance
	list     []*lease.Keeper
}

// of returns the keeper that serves queues of these windows.
func (c *claimKeepers) of(w claim.Windows) (*lease.Keeper, error) {
	timing := w.Timing()
	if i := slices.IndexFunc(c.list, func(k *lease.Keeper) bool { return k.Timing() == timing }); i >= 0 {
		return c.list[i], nil
	}
	k, err := lease.NewKeeper(lease.KeeperConfig{
		Store: c.store, Roster: c.store, Instance: c.instance, Timing: timing, Logger: c.host.Log,
	})
	if err != nil {
		return nil, err
	}
	c.list = append(c.list, k)
	return k, nil
}

// start keeps the sessions until stop is called, which returns when they have ended.
// One that cannot continue cancels everything.
func (c *claimKeepers) start(ctx context.Context, cancel context.CancelCauseFunc) (stop func()) {
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	var kept sync.WaitGroup
	for _, k := range c.list {
		kept.Go(func() {
			if err := k.Run(ctx); err != nil {
				cancel(fmt.Errorf("claims: %w", err))
			}
		})
	}
	return func() { end(); kept.Wait() }
}
