package shardtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// Engines reaches the nodes from the host of the node at an address.
func (w *World) Engines(host string) shard.Engines { return engines{w, host} }

type engines struct {
	w    *World
	host string
}

func (e engines) Name() string                   { return "world" }
func (e engines) FenceDelay() time.Duration      { return e.w.FenceDelay }
func (e engines) At(address string) shard.Engine { return engine{e, address} }

func (e engines) ProbePeer(ctx context.Context, address string) shard.Reachability {
	err := e.reach(ctx, address, func(*Node) error { return nil })
	switch {
	case err == nil:
		return shard.Reachable
	case errors.Is(err, shard.ErrNodeGone):
		return shard.Refused
	}
	return shard.TimedOut
}

// reach has f done by the node, when it can be reached and continues.
func (e engines) reach(ctx context.Context, address string, f func(*Node) error) error {
	for {
		e.w.mu.Lock()
		n := e.w.nodes[address]
		if n == nil || !e.w.reaches(e.host, address) {
			e.w.mu.Unlock()
			<-ctx.Done()
			return context.Cause(ctx)
		}
		if !n.running {
			e.w.mu.Unlock()
			return fmt.Errorf("%w: %s", shard.ErrNodeGone, address)
		}
		if !n.hung {
			defer e.w.mu.Unlock()
			e.w.replicate()
			defer e.w.replicate()
			return f(n)
		}
		moved := n.moved
		e.w.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

type engine struct {
	engines
	address string
}

func (e engine) Close() error { return nil }

func (e engine) Probe(ctx context.Context) (s shard.State, err error) {
	err = e.reach(ctx, e.address, func(n *Node) error { s = n.state(); return nil })
	return s, err
}

func (e engine) TryWrite(ctx context.Context) error {
	for {
		var paused time.Time
		err := e.reach(ctx, e.address, func(n *Node) error {
			if paused = n.paused; time.Now().Before(paused) {
				return nil
			}
			paused = time.Time{}
			return n.refuses()
		})
		if paused.IsZero() {
			return err
		}
		timer := time.NewTimer(time.Until(paused))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

func (e engine) SetFence(ctx context.Context, f shard.Fence, need int) error {
	return e.reach(ctx, e.address, func(n *Node) error { n.fence, n.need = f, need; return nil })
}

func (e engine) Pause(ctx context.Context, d time.Duration) error {
	return e.reach(ctx, e.address, func(n *Node) error { n.paused = time.Now().Add(d); return nil })
}

func (e engine) Promote(ctx context.Context) error {
	return e.reach(ctx, e.address, func(n *Node) error {
		if n.role == shard.Primary {
			return nil
		}
		n.role, n.primary, n.linked, n.copying = shard.Primary, "", false, time.Time{}
		n.before = shard.Lineage{ID: n.lineage.ID, End: n.txn}
		n.lineage = shard.Lineage{ID: n.w.name()}
		return nil
	})
}

func (e engine) Follow(ctx context.Context, address string) error {
	return e.reach(ctx, e.address, func(n *Node) error {
		if n.role == shard.Replica && n.primary == address {
			return nil
		}
		n.role, n.primary, n.linked, n.copying, n.retry = shard.Replica, address, false, time.Time{}, time.Time{}
		return nil
	})
}

// Process is the node's, for the agent that supervises it.
func (n *Node) Process() shard.Process { return process{n} }

type process struct{ n *Node }

func (p process) Start(context.Context) error { p.n.Start(false); return nil }
func (p process) Running() bool               { return p.n.Running() }
func (p process) Kill() error                 { p.n.Kill(); return nil }

func (p process) Done() <-chan struct{} {
	p.n.w.mu.Lock()
	defer p.n.w.mu.Unlock()
	return p.n.done
}

func (p process) PID() int {
	p.n.w.mu.Lock()
	defer p.n.w.mu.Unlock()
	if !p.n.running {
		return 0
	}
	return p.n.pid
}
