package sim

import (
	"context"
	"errors"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// engines reach the nodes from the host, where its agent reaches them.
func (h *shardHost) engines() shard.Engines {
	return shardEngines{Engines: h.w.nodes.Engines(h.address), h: h}
}

type shardEngines struct {
	shard.Engines
	h *shardHost
}

// deaf reports whether the agent does not reach the node at an address.
func (e shardEngines) deaf(address string) bool {
	w := e.h.w
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.hosts {
		if o.address == address {
			return w.deaf[[2]int{e.h.i, o.i}]
		}
	}
	return false
}

func (e shardEngines) ProbePeer(ctx context.Context, address string) shard.Reachability {
	if e.deaf(address) {
		<-ctx.Done()
		return shard.TimedOut
	}
	return e.Engines.ProbePeer(ctx, address)
}

func (e shardEngines) At(address string) shard.Engine {
	return shardEngine{e.Engines.At(address), e, address}
}

// Lanes of an engine: see [shard.Engine].
const (
	fenceLane = "fence"
	roleLane  = "role"
)

type shardEngine struct {
	shard.Engine
	e       shardEngines
	address string
}

// act has something done with a node. What a node has received that hangs is done when it continues, whoever waits for it:
// in the order of a host's calls in a lane, otherwise in any order. A way that is cut after that does not undo it, and a
// process that ends takes it along. What is sent on a way that is cut never comes: it is not done later, and nothing waits for it.
func (e shardEngine) act(ctx context.Context, lane string, f func(context.Context, shard.Engine) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if e.e.deaf(e.address) {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	w, n := e.e.h.w, e.e.h.w.nodes.At(e.address)
	if n == nil || w.nodes.IsCut(e.e.h.address, e.address) {
		return f(ctx, e.Engine)
	}
	before, finish := w.joinLane(e.e.h.name+" "+e.address+" "+lane, n.Hung())
	if finish == nil {
		return f(ctx, e.Engine)
	}
	run, done := n.State().Run, make(chan error, 1)
	w.flying.Go(func() {
		defer finish()
		<-before
		if n.State().Run != run {
			done <- errors.New("connection reset")
			return
		}
		later, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		done <- f(later, w.nodes.Engines(e.address).At(e.address)) // it has come: no cut is in its way
	})
	select {
	case err := <-done:
		if w.nodes.IsCut(e.e.h.address, e.address) {
			<-ctx.Done() // so is the answer's
			return context.Cause(ctx)
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// joinLane returns what a call waits for, and how it lets the next one go; no finish for a call that need not wait.
func (w *shardWorld) joinLane(lane string, hung bool) (before <-chan struct{}, finish func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.lanes[lane]
	if !hung && last == nil {
		return nil, nil
	}
	if last == nil {
		last = make(chan struct{})
		close(last)
	}
	mine := make(chan struct{})
	w.lanes[lane] = mine
	return last, func() {
		close(mine)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.lanes[lane] == mine {
			delete(w.lanes, lane)
		}
	}
}

func (e shardEngine) Probe(ctx context.Context) (s shard.State, err error) {
	if e.e.deaf(e.address) {
		<-ctx.Done()
		return s, context.Cause(ctx)
	}
	return e.Engine.Probe(ctx)
}

func (e shardEngine) TryWrite(ctx context.Context) error {
	if e.e.deaf(e.address) {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return e.Engine.TryWrite(ctx)
}

func (e shardEngine) SetFence(ctx context.Context, f shard.Fence, n int) error {
	return e.act(ctx, fenceLane, func(ctx context.Context, node shard.Engine) error {
		if f != shard.Closed {
			e.e.h.w.judge.opening(e.address)
		}
		err := node.SetFence(ctx, f, n)
		e.e.h.w.judge.trace("   %s| fence of %s: %s %d: %v", e.e.h.name, e.address, f, n, err)
		return err
	})
}

func (e shardEngine) Pause(ctx context.Context, d time.Duration) error {
	return e.act(ctx, roleLane, func(ctx context.Context, node shard.Engine) error { return node.Pause(ctx, d) })
}

func (e shardEngine) Promote(ctx context.Context) error {
	return e.act(ctx, roleLane, func(ctx context.Context, node shard.Engine) error { return node.Promote(ctx) })
}

func (e shardEngine) Follow(ctx context.Context, address string) error {
	return e.act(ctx, roleLane, func(ctx context.Context, node shard.Engine) error { return node.Follow(ctx, address) })
}
