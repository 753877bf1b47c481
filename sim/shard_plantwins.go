package sim

import (
	"context"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/agent"
)

// planTwins break what keeps plans apart, and primaries to theirs.
func planTwins() []ShardTwin {
	return []ShardTwin{
		{Name: "a plan that replaces another has its epoch", Caught: "two plans have epoch", Need: orphaned, Agent: decides(func(before shard.Row, d *shard.RowUpdate) {
			if p := d.Row.Plan; p != nil && before.Plan != nil && p.Epoch > before.Plan.Epoch {
				p.Epoch, d.Row.Epoch = before.Plan.Epoch, before.Epoch
				for i := range d.Commands {
					d.Commands[i].Epoch = p.Epoch
				}
			}
		})},
		{Name: "a dead orchestrator's plan stays", Caught: "a plan or a request is under way", Need: orphaned, Agent: decides(func(before shard.Row, d *shard.RowUpdate) {
			if p := d.Row.Plan; p != nil && before.Plan != nil && p.Epoch != before.Plan.Epoch {
				d.Row.Rev = -1
			}
		})},
		{Name: "nobody yields", Caught: "the switchover of a settled shard", Agent: func(h *shardHost, c *agent.Config) {
			c.Commands = unyielding{c.Commands}
			decides(func(_ shard.Row, d *shard.RowUpdate) { d.Commands = withoutYield(d.Commands) })(h, c)
		}},
		{Name: "dead replicas look alive", Caught: "was known to be dead", Need: orphaned, Agent: registry(func(r *brokenRegistry) {
			r.view = func(v *shard.View) {
				for i := range v.Nodes {
					if n := &v.Nodes[i]; n.ID != v.Row.Primary {
						n.Age, n.Condition = 0, shard.Up
					}
				}
			}
		})},
		{Name: "a plan's primary stays open", Caught: "after the first of epoch", Need: copying, Agent: func(h *shardHost, c *agent.Config) {
			engine(func(e *brokenEngine) {
				e.fence = func(ctx context.Context, f shard.Fence, n int) error {
					if p := h.w.view().Row.Plan; f == shard.Closed && p != nil && h.is(p.From) && p.Phase != shard.Following {
						return ctx.Err()
					}
					return e.Engine.SetFence(ctx, f, n)
				}
			})(h, c)
		}},
		{Name: "a primary opens on an old view", Caught: "after the first of epoch", Need: divided, Agent: func(h *shardHost, c *agent.Config) {
			registry(func(r *brokenRegistry) {
				var old shard.View // in which it was the primary
				var at time.Time
				r.view = func(v *shard.View) {
					switch {
					case h.is(v.Row.Primary):
						old, at = *v, time.Now()
						old.Row, old.Row.Plan, old.Nodes = v.Row.Copy(), nil, slices.Clone(v.Nodes)
					case old.Row.Rev != 0 && time.Since(at) < 10*h.w.setup.Timing.Timeout:
						*v = old
						v.Nodes = slices.Clone(old.Nodes)
					}
				}
			})(h, c)
		}},
		{Name: "a primary installs itself under a plan that was replaced", Caught: "epochs fell", Need: orphaned, Agent: func(h *shardHost, c *agent.Config) {
			registry(func(r *brokenRegistry) {
				var mine shard.Row // whose plan promotes the host's node
				var at time.Time
				r.view = func(v *shard.View) {
					switch p := v.Row.Plan; {
					case h.is(v.Row.Primary):
						mine = shard.Row{}
					case p != nil && p.Phase == shard.Promoting && h.is(p.To):
						mine, at = v.Row.Copy(), time.Now()
					case mine.Rev != 0 && time.Since(at) < 2*h.w.setup.Timing.Timeout:
						rev := v.Row.Rev
						v.Row = mine.Copy()
						v.Row.Rev = rev
					}
				}
			})(h, c)
		}},
	}
}

// orphaned shards have plans whose orchestrators die, and operators who ask for some.
func orphaned(s *ShardSetup) {
	s.Nodes, s.Length, s.Orchestrators, s.Operators = 3, 2*time.Minute, true, true
}

// decides breaks decisions, which f sees beside the row as it is.
func decides(f func(before shard.Row, d *shard.RowUpdate)) func(*shardHost, *agent.Config) {
	return func(h *shardHost, c *agent.Config) {
		registry(func(r *brokenRegistry) {
			r.decide = func(ctx context.Context, d shard.RowUpdate) (int64, error) {
				d.Row, d.Commands = d.Row.Copy(), slices.Clone(d.Commands)
				f(h.w.view().Row, &d)
				return r.Registry.UpdateRow(ctx, d)
			}
		})(h, c)
	}
}

// unyielding sends no primary the command to give the lease up.
type unyielding struct{ shard.Commands }

func (u unyielding) Send(ctx context.Context, cs ...shard.Command) error {
	return u.Commands.Send(ctx, withoutYield(slices.Clone(cs))...)
}

func withoutYield(cs []shard.Command) []shard.Command {
	return slices.DeleteFunc(cs, func(c shard.Command) bool { return c.Order == shard.OrderYield })
}
