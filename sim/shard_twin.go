package sim

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/agent"
)

// ShardTwin is a shard that is broken on purpose, in one way: see [Twin].
type ShardTwin struct {
	Name string
	// Caught is what the judge has to say of it.
	Caught string
	// Agent breaks what an agent is given.
	Agent func(*shardHost, *agent.Config)
	// Need makes sure that a run has what the fault needs to show.
	Need func(*ShardSetup)
}

// ShardTwins returns every one that the simulation must catch.
func ShardTwins() []ShardTwin {
	// allLeft has agents take every replica for one that cannot satisfy the primary's fence.
	allLeft := registry(func(r *brokenRegistry) {
		r.view = func(v *shard.View) {
			for i := range v.Nodes {
				v.Nodes[i].Needs = shard.MaxMembers
			}
		}
	})
	return append(planTwins(), []ShardTwin{
		{Name: "the fence is not closed", Caught: "after the first of epoch", Need: divided, Agent: engine(func(e *brokenEngine) {
			e.fence = func(ctx context.Context, f shard.Fence, n int) error {
				if f == shard.Closed {
					return ctx.Err()
				}
				return e.Engine.SetFence(ctx, f, n)
			}
		})},
		// Replicas that leave would hide it: without their acknowledgements the armed fence closes.
		{Name: "promises are not kept", Caught: "after the first of epoch", Need: divided, Agent: func(h *shardHost, c *agent.Config) {
			allLeft(h, c)
			c.Promisers = forgetters{c.Promisers, h}
		}},
		{Name: "only some promise", Caught: "after the first of epoch", Need: divided, Agent: func(h *shardHost, c *agent.Config) {
			allLeft(h, c)
			c.Promisers = forger{c.Promisers, h, func(i int) bool { return i%2 == 1 }}
		}},
		{Name: "one signal is enough", Caught: "a healthy primary is deposed", Need: unattended, Agent: registry(func(r *brokenRegistry) {
			r.view = func(v *shard.View) {
				for i := range v.Nodes {
					n := &v.Nodes[i]
					if n.Link != nil {
						n.Link = &shard.Upstream{Address: n.Link.Address, Input: -1, Up: true}
					}
					if n.Opinion != nil {
						n.Opinion = &shard.Opinion{Of: n.Opinion.Of, Reachability: shard.TimedOut, Silence: time.Hour}
					}
					if n.ID == v.Row.Primary {
						n.Condition = shard.Silent
					}
				}
			}
		})},
		{Name: "replicas behind a cut do not count", Caught: "after the first of epoch", Need: stranded, Agent: allLeft},
		{Name: "an empty store asks for no epoch", Caught: "acknowledged writes", Need: emptied, Agent: func(h *shardHost, c *agent.Config) {
			forgetEpoch(h)
			registry(func(r *brokenRegistry) {
				r.view = func(v *shard.View) {
					for i := range v.Nodes {
						v.Nodes[i].Epoch = 0
					}
				}
			})(h, c)
		}},
		{Name: "a restarted primary compares with nobody", Caught: "acknowledged writes", Need: rolledBack, Agent: registry(func(r *brokenRegistry) {
			r.view = func(v *shard.View) {
				for i := range v.Nodes {
					if n := &v.Nodes[i]; n.ID != v.Row.Primary && v.Row.Plan == nil {
						n.Txn, n.Age = 0, 0
						n.Interval = 0
					}
				}
			}
		})},
		{Name: "a restarted primary does not look at its log", Caught: "acknowledged writes", Need: rolledBackAmongRestarts, Agent: registry(func(r *brokenRegistry) {
			r.view = func(v *shard.View) {
				for i := range v.Nodes {
					v.Nodes[i].PrimaryLog = shard.PrimaryLog{}
				}
			}
		})},
		{Name: "what the shard had when its primary began does not count", Caught: "had become the primary", Need: diesTwice, Agent: registry(func(r *brokenRegistry) {
			r.view = func(v *shard.View) {
				v.Row.Lineages = slices.Clone(v.Row.Lineages)
				for i := range v.Row.Lineages {
					v.Row.Lineages[i].End = 0
				}
			}
		})},
		{Name: "replicas are not detached", Caught: "stands still", Need: forced, Agent: engine(func(e *brokenEngine) {
			e.follow = func(ctx context.Context, address string) error {
				if address == "" {
					return ctx.Err()
				}
				return e.Engine.Follow(ctx, address)
			}
		})},
		{Name: "a half copy counts as whole", Caught: "with half a copy", Need: halves, Agent: engine(func(e *brokenEngine) {
			e.probe = func(s *shard.State) {
				s.Synced = true
				if s.Link != nil {
					s.Link.Syncing = false
				}
			}
		})},
		{Name: "a switchover does not wait for the last writes", Caught: "acknowledged writes", Need: copying, Agent: engine(func(e *brokenEngine) {
			e.probe = func(s *shard.State) {
				if s.Role == shard.Replica {
					s.Txn += 1000
				}
			}
		})},
	}...)
}

// divided shards are split all the time; copying ones have replicas that take their time, and people
// who switch, unattended ones agents that die, forced ones people who fail over, and replicas that lag.
func divided(s *ShardSetup) {
	s.Nodes, s.Length, s.Only = 3, 2*time.Minute, "divided"
}

func unattended(s *ShardSetup) {
	s.Nodes, s.Length, s.Only = 3, 2*time.Minute, "unattended"
}

func forced(s *ShardSetup) {
	s.Nodes, s.Length, s.Only = 3, 3*time.Minute, "forced"
}

func copying(s *ShardSetup) {
	s.Nodes, s.Length, s.Operators, s.CopyTime, s.Only = 3, 2*time.Minute, true, 10*time.Second, "copying"
}

// halves are copying, and have nobody else who could be promoted.
func halves(s *ShardSetup) {
	copying(s)
	s.Nodes, s.Disks = 2, true
}

// forgetters promise, so that their replicas stay, and have forgotten it at once. Who cannot be asked promises too.
type forgetters struct {
	shard.Promisers
	h *shardHost
}

func (f forgetters) RequestPromise(ctx context.Context, address string, p shard.Promise, _ string) (string, error) {
	secret, short := f.h.w.view().Row.Secret, p
	short.For = 1
	_, _ = f.Promisers.RequestPromise(ctx, address, short, short.Sign(secret, "ask"))
	return p.Sign(secret, "give"), nil
}

// forger answers for others that they promise.
type forger struct {
	shard.Promisers
	h      *shardHost
	forges func(to int) bool
}

func (f forger) RequestPromise(ctx context.Context, address string, p shard.Promise, mac string) (string, error) {
	if o := f.h.w.hostOf(p.To); o != nil && f.forges(o.i+f.h.i) {
		return p.Sign(f.h.w.view().Row.Secret, "give"), nil
	}
	return f.Promisers.RequestPromise(ctx, address, p, mac)
}

// brokenRegistry is a registry of which some methods do something else; nil ones do not.
type brokenRegistry struct {
	shard.Registry
	decide func(context.Context, shard.RowUpdate) (int64, error)
	mu     sync.Mutex // of view, which several tasks of an agent call
	view   func(*shard.View)
}

func registry(breaks func(*brokenRegistry)) func(*shardHost, *agent.Config) {
	return func(_ *shardHost, c *agent.Config) {
		r := &brokenRegistry{Registry: c.Registry}
		breaks(r)
		c.Registry = r
	}
}

func (r *brokenRegistry) UpdateRow(ctx context.Context, d shard.RowUpdate) (int64, error) {
	if r.decide != nil {
		return r.decide(ctx, d)
	}
	return r.Registry.UpdateRow(ctx, d)
}

func (r *brokenRegistry) Report(ctx context.Context, n shard.Record, urgent bool) (shard.View, error) {
	return r.shown(r.Registry.Report(ctx, n, urgent))
}

func (r *brokenRegistry) ReadView(ctx context.Context, name string) (shard.View, error) {
	return r.shown(r.Registry.ReadView(ctx, name))
}

func (r *brokenRegistry) shown(v shard.View, err error) (shard.View, error) {
	if r.view != nil && err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.view(&v)
	}
	return v, err
}

// brokenEngine is an engine of which some methods do something else; nil ones do not.
type brokenEngine struct {
	shard.Engine
	fence  func(context.Context, shard.Fence, int) error
	follow func(context.Context, string) error
	probe  func(*shard.State)
}

type brokenEngines struct {
	shard.Engines
	breaks func(*brokenEngine)
}

func engine(breaks func(*brokenEngine)) func(*shardHost, *agent.Config) {
	return func(_ *shardHost, c *agent.Config) { c.Engines = brokenEngines{c.Engines, breaks} }
}

func (b brokenEngines) At(address string) shard.Engine {
	e := &brokenEngine{Engine: b.Engines.At(address)}
	b.breaks(e)
	return e
}

func (e *brokenEngine) SetFence(ctx context.Context, f shard.Fence, n int) error {
	if e.fence != nil {
		return e.fence(ctx, f, n)
	}
	return e.Engine.SetFence(ctx, f, n)
}

func (e *brokenEngine) Follow(ctx context.Context, address string) error {
	if e.follow != nil {
		return e.follow(ctx, address)
	}
	return e.Engine.Follow(ctx, address)
}

func (e *brokenEngine) Probe(ctx context.Context) (shard.State, error) {
	s, err := e.Engine.Probe(ctx)
	if err == nil && e.probe != nil {
		e.probe(&s)
	}
	return s, err
}
