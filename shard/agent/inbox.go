package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// inbox holds the commands that wait for the reconciler, and the results of those that were carried out.
type inbox struct {
	*common
	view      *viewCache
	probe     *nodeProbe
	report    *reporter
	reconcile *reconciler

	queue      []shard.Command
	acceptedAt time.Duration // when the latest command came
	results    []shard.Result
}

// receive takes commands out of the node's queue in the store, and has the loop accept them.
func (b *inbox) receive(ctx context.Context) {
	retry := b.cfg.retry(b.cfg.Timing.Interval/8, b.cfg.Timing.Interval)
	for ctx.Err() == nil {
		c, err := func() (shard.Command, error) {
			ctx, cancel := context.WithTimeout(ctx, shard.MaxWait+b.cfg.storeTimeout())
			defer cancel()
			return b.cfg.Commands.Next(ctx, b.id, shard.MaxWait)
		}()
		switch {
		case err == nil:
			b.post(func() { b.accept(c) })
			retry.Reset()
			continue
		case errors.Is(err, shard.ErrNoCommand):
			continue
		}
		if !lease.Sleep(ctx, b.clock, retry.Next()) {
			return
		}
	}
}

// accept puts a command into the queue, unless it is outdated or known.
func (b *inbox) accept(c shard.Command) {
	if why, ok := c.Check(b.cfg.Shard, b.id, b.knownEpoch(b.view.Row)); !ok {
		b.log.Info("command dropped", "command", c.ID, "why", why)
		return
	}
	switch running := b.reconcile.runningCommand(); {
	case !b.report.isRegistered():
		return // the orchestrator sends it again
	case slices.ContainsFunc(b.results, func(r shard.Result) bool { return r.ID == c.ID }):
		b.report.urgent = true // it was carried out; the result did not arrive
		return
	case running != nil && running.ID == c.ID:
		return
	case slices.ContainsFunc(b.queue, func(q shard.Command) bool { return q.ID == c.ID }):
		return
	}
	// Commands of an earlier epoch are outdated from now on.
	b.queue = slices.DeleteFunc(b.queue, func(q shard.Command) bool { return q.Epoch < c.Epoch })
	b.queue, b.acceptedAt = append(b.queue, c), b.now()
	if len(b.queue) > shard.MaxQueue {
		b.queue = b.queue[1:]
	}
	b.reconcile.onCommand(c)
}

// hasPromotion reports whether a promotion waits.
func (b *inbox) hasPromotion() bool {
	return slices.ContainsFunc(b.queue, func(c shard.Command) bool { return c.Order == shard.OrderPromote })
}

// drop takes the oldest command out of the queue.
func (b *inbox) drop() { b.queue = b.queue[1:] }

// acknowledge records a command's result, which is reported at once.
func (b *inbox) acknowledge(c shard.Command, err error, took time.Duration) {
	n := b.probe.state
	r := shard.Result{ID: c.ID, Epoch: c.Epoch, Order: c.Order, Txn: n.Txn, Lineage: n.Lineage, Before: n.Before, Took: took}
	if err != nil {
		r.Error = err.Error()
	}
	b.results = slices.DeleteFunc(b.results, func(r shard.Result) bool { return r.Epoch < c.Epoch })
	b.results = append(b.results, r)
	b.results = b.results[max(0, len(b.results)-shard.MaxResults):]
	b.report.urgent = true
	b.stats.Commands++
}
