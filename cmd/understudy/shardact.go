package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/internal/shardagent"
	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/shard"
)

// defaultWait is how long who asks for a plan waits for it.
const defaultWait = time.Minute

// changeShard does one thing with a shard, within callTimeout, and says that it is done.
func (a *app) changeShard(c *cobra.Command, name, did, message string, f func(context.Context, *client.Client) error) error {
	return a.withRunningAPI(c.Context(), withTimeout(callTimeout, func(ctx context.Context, c *client.Client) error {
		if _, err := readShard(ctx, c, name); err != nil {
			return unknownShard(name, err)
		}
		if err := f(ctx, c); err != nil {
			return shardError(err)
		}
		return a.print(map[string]string{"shard": name, "done": did}, "%s", message)
	}))
}

func (a *app) shardPauseCommand() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:   "pause SHARD",
		Short: "Keep a shard from failing over by itself",
		Long: `Keep a shard from failing over by itself, until "shard resume": for work at its nodes, its network or
its store. A plan that is under way goes on, and switchovers and failovers that an operator asks for are carried
out. Who paused it and why is kept in the history.`,
		Example: `  understudy shard pause orders --reason "new switch in rack 4"`,
		Args:    startingWith(shard.ValidateName, "SHARD"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.changeShard(c, args[0], "pause", fmt.Sprintf("shard %s does not fail over by itself now; end it with: understudy shard resume %s", args[0], args[0]),
				func(ctx context.Context, c *client.Client) error {
					return c.PauseShard(ctx, args[0], reason, operator())
				})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "`WHY`, for the history")
	return c
}

func (a *app) shardResumeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "resume SHARD",
		Short:   "Let a paused shard fail over by itself again",
		Example: "  understudy shard resume orders",
		Args:    startingWith(shard.ValidateName, "SHARD"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.changeShard(c, args[0], "resume", fmt.Sprintf("shard %s fails over by itself again", args[0]),
				func(ctx context.Context, c *client.Client) error { return c.ResumeShard(ctx, args[0], operator()) })
		},
	}
}

func (a *app) shardForgetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "forget SHARD NODE",
		Short: "Remove a node that is gone for good",
		Long: `Remove a node from its shard: what was recorded of it, its membership, and its queue. NODE is its id,
its first characters (4 or more), or an address. Its agent must have stopped: one that still reports would
bring the node back. The primary cannot be forgotten.`,
		Example: "  understudy shard forget orders 10.0.0.3:6379",
		Args:    startingWith(shard.ValidateName, "SHARD", "NODE"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.changeShard(c, args[0], "forget", fmt.Sprintf("node %s of shard %s is forgotten", args[1], args[0]),
				func(ctx context.Context, c *client.Client) error {
					return c.ForgetShardNode(ctx, args[0], args[1], operator())
				})
		},
	}
}

// planFlags are those of what asks for a plan.
type planFlags struct {
	to   string
	wait time.Duration
}

func (f *planFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.to, "to", "", "the `NODE` to promote: its id, its first characters, or an address (default: the best one)")
	c.Flags().DurationVar(&f.wait, "wait", defaultWait, "wait at most this long; withdraw a request that has not started by then")
}

func (f *planFlags) check() error {
	if f.wait <= 0 {
		return usererr.Errorf("--wait %v: it must be positive", f.wait)
	}
	return nil
}

func (a *app) shardSwitchoverCommand() *cobra.Command {
	var f planFlags
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "switchover SHARD",
		Short: "Make a replica the primary, without losing a write",
		Long: `Make a replica the primary while both are healthy. Writes wait until the replica has them all; then it
is promoted, and the others follow it. If that cannot be done within --timeout, the switchover is rolled back. No
acknowledged write is lost either way.

Each step is printed as it ends. Exit 1, with the reason, if it was refused or rolled back.`,
		Example: `  understudy shard switchover orders
  understudy shard switchover orders --to 10.0.0.2:6379 --timeout 2s`,
		Args: startingWith(shard.ValidateName, "SHARD"),
		RunE: func(c *cobra.Command, args []string) error {
			if timeout <= 0 {
				return usererr.Errorf("--timeout %v: it must be positive", timeout)
			}
			if err := f.check(); err != nil {
				return err
			}
			return a.withRunningAPI(c.Context(), func(ctx context.Context, c *client.Client) error {
				return a.askForPlan(ctx, c, args[0], shard.Request{Kind: shard.Switchover, Timeout: timeout}, f)
			})
		},
	}
	f.register(c)
	c.Flags().DurationVar(&timeout, "timeout", shard.DefaultPause, "writes wait for at most this long, then the switchover is rolled back")
	return c
}

func (a *app) shardFailoverCommand() *cobra.Command {
	var f planFlags
	var force bool
	var maxLoss int64
	c := &cobra.Command{
		Use:   "failover SHARD",
		Short: "Replace a primary that is lost, or with --force one that may not be",
		Long: `Replace a primary that is lost, where the agents do not do so by themselves: the shard is paused, or
failed over too often recently. To replace a healthy primary, use "shard switchover".

With --force, also replace a primary that may not be lost, or promote a replica that lacks data: what it lacks is lost.
Without --max-loss it only prints what that would be by the nodes' latest reports, and with which number to go on. Writes
that the old primary accepts until it is closed are lost on top of that: first make sure that it is dead, or cut off
from its clients.`,
		Example: `  understudy shard failover orders
  understudy shard failover orders --to 10.0.0.2:6379 --force
  understudy shard failover orders --to 10.0.0.2:6379 --force --max-loss 4096`,
		Args: startingWith(shard.ValidateName, "SHARD"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if c.Flags().Changed("max-loss") && (!force || maxLoss < 0) {
				return usererr.Errorf("--max-loss belongs to --force, and is 0 or more")
			}
			if force {
				if err := a.checkLoss(c.Context(), args[0], f.to, maxLoss); err != nil {
					return err
				}
			}
			return a.withRunningAPI(c.Context(), func(ctx context.Context, c *client.Client) error {
				return a.askForPlan(ctx, c, args[0], shard.Request{Kind: shard.Failover, Force: force}, f)
			})
		},
	}
	f.register(c)
	c.Flags().BoolVar(&force, "force", false, "even if that loses writes: prints what would be lost, unless --max-loss allows it")
	c.Flags().Int64Var(&maxLoss, "max-loss", -1, "with --force: go on if at most `N` transactions (bytes, on Redis) would be lost by the latest reports")
	strictyaml.Renamed(c.Flags(), "lose", "max-loss")
	return c
}

// askForPlan puts a request to the agents, and prints each step until the plan has ended.
func (a *app) askForPlan(ctx context.Context, c *client.Client, name string, q shard.Request, f planFlags) error {
	waiting, cancel := context.WithTimeout(ctx, f.wait)
	defer cancel()
	var err error
	if q.ID, err = a.requestWhenFree(waiting, c, name, q, f.to); err != nil {
		return err
	}
	p := &progress{app: a, shard: name, request: q.ID, kind: q.Kind}
	plan, err := a.waitForPlan(waiting, c, name, q.ID, p.onView)
	if ended := err == nil || errors.Is(err, shard.ErrFailed); !ended && waiting.Err() != nil {
		plan, err = p.takeBack(ctx, c, f.wait)
	}
	switch {
	case err == nil:
		p.steps(plan)
		return errors.Join(p.err, p.done(plan))
	case errors.Is(err, shard.ErrFailed):
		p.steps(plan)
		return errors.Join(p.err, err)
	case errors.Is(err, shard.ErrNotFound): // another operator has withdrawn it
		return err
	}
	return p.openEnd(err)
}

// requestWhenFree puts the request once the plan before it has ended. It waits only for a
// plan whose replicas have yet to follow.
func (a *app) requestWhenFree(ctx context.Context, c *client.Client, name string, q shard.Request, to string) (string, error) {
	for logged := false; ; {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		s, err := readShard(call, c, name)
		following := err == nil && s.Plan != nil && s.Plan.Phase == string(shard.Following)
		id := ""
		if err = unknownShard(name, err); err == nil && !following {
			id, err = requestPlan(call, c, name, q, to)
		}
		cancel()
		switch {
		case errors.Is(err, shard.ErrLocked):
			return "", fmt.Errorf("%w; see: understudy shard show %s", err, name)
		case err != nil || !following:
			return id, err
		case !logged:
			a.Log.Info("replicas are still switching to the new primary; waiting for them", "shard", name, "epoch", s.Plan.Epoch)
			logged = true
		}
		if !backoff.Sleep(ctx, 100*time.Millisecond) {
			return "", fmt.Errorf("%w: replicas of shard %q are still switching to its new primary (epoch %d); try again, or see: understudy shard show %s", shard.ErrFailed, name, s.Plan.Epoch, name)
		}
	}
}

// progress tells of a plan as it continues. Plans that take each other's place have epochs of
// their own.
type progress struct {
	app     *app
	shard   string
	request string
	kind    shard.Kind

	seen         shardSeen // the latest
	epoch        int64
	printedSteps int // of that epoch
	err          error
}

// onView is called with every view.
func (p *progress) onView(s shardSeen) {
	p.seen = s
	for _, plan := range []*apitype.ShardPlan{s.Plan, s.Last} {
		if plan != nil && plan.Request == p.request {
			p.steps(*plan)
			return
		}
	}
}

// steps tells of those that have ended since.
func (p *progress) steps(plan apitype.ShardPlan) {
	if plan.Epoch != p.epoch && plan.Phase != "" {
		p.epoch, p.printedSteps = plan.Epoch, 0
		if plan.Failed == "" || len(plan.Steps) > 0 {
			p.begins(plan)
		}
	}
	for ; p.printedSteps < len(plan.Steps); p.printedSteps++ {
		step := plan.Steps[p.printedSteps]
		p.print(map[string]any{"shard": p.shard, "request": p.request, "epoch": plan.Epoch, "phase": step.Phase, "took_ms": step.TookMS, "note": step.Note},
			"  %-10s %8s  %s", step.Phase, termtext.Brief(millis(step.TookMS)), step.Note)
	}
}

func (p *progress) begins(plan apitype.ShardPlan) {
	to := "the best replica"
	if named := cmp.Or(plan.To, plan.Wanted); named != "" {
		to = shardagent.Label(p.seen.Shard, named)
	}
	p.print(map[string]any{"shard": p.shard, "request": p.request, "epoch": plan.Epoch, "kind": plan.Kind, "from": plan.From, "to": plan.To},
		"%s of %s, epoch %d: %s → %s", plan.Kind, p.shard, plan.Epoch, shardagent.Label(p.seen.Shard, plan.From), to)
}

// done tells where the primary is now.
func (p *progress) done(plan apitype.ShardPlan) error {
	var took time.Duration
	for _, s := range plan.Steps {
		took += millis(s.TookMS)
	}
	to, _ := p.seen.node(plan.To)
	return p.app.print(map[string]any{"shard": p.shard, "request": p.request, "epoch": plan.Epoch, "done": true, "took_ms": ms(took), "node_id": plan.To, "address": to.Address},
		"done in %s: the primary of %s is %s", termtext.Brief(took), p.shard, shardagent.Label(p.seen.Shard, plan.To))
}

// takeBack withdraws the request if no agent has started its plan, and returns what has become of it, as readPlan does.
func (p *progress) takeBack(ctx context.Context, c *client.Client, wait time.Duration) (apitype.ShardPlan, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if err := shardError(c.CancelShardRequest(ctx, p.shard, p.request, operator())); err != nil {
		return apitype.ShardPlan{}, err
	}
	// An agent may have started the plan just before. The shard as the server shows it can be older than that, the request is not.
	plan, ended, err := readPlan(ctx, c, p.shard, p.request, p.onView)
	switch {
	case errors.Is(err, shard.ErrNotFound):
		err = fmt.Errorf("%w: no agent started the %s of shard %q within %v, and it was withdrawn; are the agents of its members up? See: understudy shard show %s",
			shard.ErrFailed, p.kind, p.shard, wait, p.shard)
	case err == nil && !ended:
		err = fmt.Errorf("%w: the %s of shard %q goes on, in phase %s; see: understudy shard show %s", shard.ErrFailed, p.kind, p.shard, plan.Phase, p.shard)
	}
	return plan, err
}

// openEnd is the error after which nobody knows whether the request is carried out.
func (p *progress) openEnd(err error) error {
	return fmt.Errorf("the %s of shard %q may still be carried out; see: understudy shard show %s: %w", p.kind, p.shard, p.shard, err)
}

func (p *progress) print(v any, format string, args ...any) {
	if p.err == nil {
		p.err = p.app.print(v, format, args...)
	}
}

// ms is a duration in milliseconds, as all JSON has it.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (a *app) shardRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove SHARD",
		Short: "Remove a shard whose agents have stopped",
		Long: `Remove a shard whose agents have stopped. The data on its nodes stays; an agent that is started again makes a new
shard of the name. The history records who asked.`,
		Example: "  understudy shard remove orders",
		Args:    startingWith(shard.ValidateName, "SHARD"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withRunningAPI(c.Context(), func(ctx context.Context, c *client.Client) error {
				if err := c.RemoveShard(ctx, args[0], operator()); err != nil {
					return err
				}
				return a.printDone("remove", "shard", args[0])
			})
		},
	}
}
