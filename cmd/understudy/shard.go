package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/plain"
	"github.com/understudy-ha/understudy/shard"
)

func (a *app) shardCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "shard",
		Short: "Failover of a database: an agent beside each node, one primary per shard",
		Long: `A shard is a primary and its replicas. Beside each node stands an agent, "shard agent". When the
primary cannot go on, the agents put a replica in its place: the one that has the most, and only
when nothing can be written to the old one any more. Clients find the primary by "shard primary",
"shard proxy", the Sentinel protocol, or the HTTP checks of the agents.

Replication is asynchronous: what no replica had received when a primary died is lost. A
switchover loses nothing.`,
		Example: `  # Beside each of three Redis servers:
  understudy shard agent orders --node 10.0.0.1:6379 --data /var/lib/understudy --store postgres://db/app

  understudy shard topology orders
  redis-cli -u "redis://$(understudy shard primary orders)" PING
  understudy shard switchover orders --to 10.0.0.2:6379`,
	}
	c.AddCommand(a.shardAgentCommand(), a.shardListCommand(), a.shardShowCommand(), a.shardTopologyCommand(), a.shardPrimaryCommand(),
		a.shardSwitchoverCommand(), a.shardFailoverCommand(), a.shardPauseCommand(), a.shardResumeCommand(), a.shardForgetCommand(),
		a.shardHistoryCommand(), a.shardProxyCommand())
	return c
}

// shardName wants SHARD alone.
func shardName(c *cobra.Command, args []string) error {
	if err := exactly("SHARD")(c, args); err != nil {
		return err
	}
	return shard.ValidateName(args[0])
}

// askShard looks at a shard once.
func (a *app) askShard(ctx context.Context, name string, f func(shardSeen) error) error {
	return a.atDesk(ctx, func(ctx context.Context, d shardDesk) error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		s, err := d.look(ctx, name)
		if err != nil {
			return unknownShard(name, err)
		}
		return f(s)
	})
}

// unknownShard names the shard that is not there, and where to look.
func unknownShard(name string, err error) error {
	if errors.Is(err, shard.ErrNotFound) {
		return absentf("no agent has ever reported for shard %q; see: understudy shard list", name)
	}
	return err
}

func (a *app) shardListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the shards, their primaries and how they are",
		Long: `List the shards. HEALTH is that of the primary: fine; unattended (it lives, its agent does not);
doubtful (its agent is silent, and it is not sure yet what that means); over (it is being replaced); stuck (it
is silent, and may still be open for writes: a person has to decide); none (there never was one).`,
		Example: `  understudy shard list
  understudy shard list -o json | jq -r 'select(.health != "fine") | .shard'`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.atDesk(c.Context(), func(ctx context.Context, d shardDesk) error {
				ctx, cancel := context.WithTimeout(ctx, callTimeout)
				defer cancel()
				return a.listShards(ctx, d)
			})
		},
	}
}

func (a *app) listShards(ctx context.Context, d shardDesk) error {
	const page = 200
	var rows []string
	for after := ""; ; {
		shards, err := d.list(ctx, after, page)
		if err != nil {
			return err
		}
		for _, s := range shards {
			after = s.Shard
			if a.json() {
				if err := a.printJSON(s.ShardView); err != nil {
					return err
				}
				continue
			}
			rows = append(rows, shardRow(s.ShardView))
		}
		if len(shards) < page {
			break
		}
	}
	if a.json() {
		return nil
	}
	return a.table("SHARD\tHEALTH\tPRIMARY\tEPOCH\tREPLICAS\tMOST LAG\tNOTE", rows)
}

func shardRow(s api.ShardView) string {
	primary := ""
	if s.Primary != nil {
		primary = s.Primary.Address
	}
	replicas, well, lag := 0, 0, int64(0)
	for _, n := range s.Nodes {
		if n.Primary {
			continue
		}
		replicas++
		if n.Member && n.AgentLives && n.Condition == shard.Up && n.LinkUp != nil && *n.LinkUp {
			well++
			lag = max(lag, n.Lag)
		}
	}
	return row(s.Shard, s.Health, primary, s.Epoch, fmt.Sprintf("%d of %d", well, replicas), lag, plain.Line(shardNote(s)))
}

// shardNote is what is most worth knowing of a shard, in a few words.
func shardNote(s api.ShardView) string {
	switch {
	case s.Plan != nil:
		return fmt.Sprintf("%s under way, %s", s.Plan.Kind, s.Plan.Phase)
	case s.Request != nil:
		return fmt.Sprintf("%s asked for by %s", s.Request.Kind, s.Request.By)
	case s.Paused != nil:
		return "paused by " + s.Paused.By + after(": ", s.Paused.Reason)
	case s.Health != shard.Fine:
		return s.Reason
	}
	for _, n := range s.Nodes {
		if n.Trouble != "" {
			return n.Address + ": " + n.Trouble
		}
	}
	return ""
}

// after puts a text behind its introduction, unless there is none.
func after(intro, text string) string {
	if text == "" {
		return ""
	}
	return intro + text
}

func (a *app) shardPrimaryCommand() *cobra.Command {
	var watch bool
	c := &cobra.Command{
		Use:   "primary SHARD",
		Short: "Print the primary's address; exit 3 if there is none",
		Long: `Print where clients find the primary, HOST:PORT. Exit 3, with the reason, while there is none. With
--watch a line is printed now and at each change, until interrupted; it then goes on while there is no primary, and
while the store is down.`,
		Example: `  redis-cli -u "redis://$(understudy shard primary orders)" PING
  understudy shard primary orders -o json
  understudy shard primary orders --watch -o json | while read -r line; do reload-proxy "$line"; done`,
		Args: shardName,
		RunE: func(c *cobra.Command, args []string) error {
			if watch {
				return a.watchPrimary(c.Context(), args[0])
			}
			return a.askShard(c.Context(), args[0], func(s shardSeen) error {
				at, err := s.whereabouts()
				if err != nil {
					return err
				}
				if a.json() {
					return a.printJSON(at)
				}
				_, err = fmt.Fprintln(a.stdout, plain.Text(at.Address))
				return err
			})
		},
	}
	c.Flags().BoolVarP(&watch, "watch", "w", false, "print a line now and at each change, until interrupted")
	return c
}

// watchPrimary prints where the primary is, and why there is none, at each change.
func (a *app) watchPrimary(ctx context.Context, name string) error {
	if a.remote() {
		return a.watchThrough(ctx, name)
	}
	return a.withDirectory(ctx, name, func(ctx context.Context, dir *shard.Directory) error {
		last := ""
		for {
			changed := dir.Changed()
			at, err := whereabouts(dir, name)
			now := fmt.Sprint(at, err)
			if _, stale := dir.Freshness(); stale == nil && now != last {
				last = now
				if err := a.printWhereabouts(name, at, err); err != nil {
					return err
				}
			}
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
			case <-time.After(time.Second): // before the first reading nothing changes
			}
		}
	})
}

func whereabouts(dir *shard.Directory, name string) (shard.Endpoint, error) {
	v, ok := dir.Shard(name)
	if !ok {
		return shard.Endpoint{}, fmt.Errorf("%w: no agent has ever reported for shard %q", shard.ErrNoPrimary, name)
	}
	return v.Whereabouts()
}

func (a *app) printWhereabouts(name string, at shard.Endpoint, why error) error {
	switch {
	case a.json() && why != nil:
		return a.printJSON(map[string]any{"shard": name, "address": nil, "why": why.Error()})
	case a.json():
		return a.printJSON(at)
	}
	text := fmt.Sprintf("%s epoch %d", at.Address, at.Epoch)
	if why != nil {
		text = "none (" + why.Error() + ")"
	}
	_, err := fmt.Fprintf(a.stdout, "%s  %s  %s\n", time.Now().Format("15:04:05.000"), plain.Text(name), plain.Text(text))
	return err
}

// withDirectory keeps the view of one shard fresh while f runs.
func (a *app) withDirectory(ctx context.Context, name string, f func(context.Context, *shard.Directory) error) error {
	st, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	shards, err := instance.Shards(st)
	if err != nil {
		return err
	}
	dir, err := shard.NewDirectory(shard.DirectoryConfig{Registry: onlyShard{shards.Registry(), name}, Logger: a.Log})
	if err != nil {
		return err
	}
	return alongside(ctx, dir.Run, func(ctx context.Context) error { return f(ctx, dir) })
}

// alongside runs f while something else runs, and returns when both have ended.
func alongside(ctx context.Context, other func(context.Context) error, f func(context.Context) error) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- other(running) }()
	err := f(ctx)
	stop()
	return errors.Join(err, <-ended)
}

// onlyShard is a registry in which there is one shard: who follows it alone need not
// read all others.
type onlyShard struct {
	shard.Registry
	name string
}

// List implements [shard.Registry].
func (o onlyShard) List(ctx context.Context, after string, _ int) ([]shard.View, error) {
	if after >= o.name {
		return nil, nil
	}
	v, err := o.Look(ctx, o.name)
	if errors.Is(err, shard.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []shard.View{v}, nil
}

// Watch implements [shard.Registry].
func (o onlyShard) Watch(ctx context.Context, _ string, wake func(string)) error {
	return o.Registry.Watch(ctx, o.name, wake)
}

func (a *app) shardHistoryCommand() *cobra.Command {
	q := history.Query{Part: shard.Space}
	var goOn bool
	c := &cobra.Command{
		Use:   "history SHARD",
		Short: "Print what happened to a shard, and the steps of its latest plan",
		Example: `  understudy shard history orders
  understudy shard history orders --follow
  understudy shard history orders -n 20 -o json`,
		Args: shardName,
		RunE: func(c *cobra.Command, args []string) error {
			q.Subject = args[0]
			err := a.showHistory(c.Context(), q, goOn)
			if err != nil || goOn || a.json() {
				return err
			}
			return a.askShard(c.Context(), args[0], func(s shardSeen) error {
				return errors.Join(a.printPlan("under way", s, s.Plan), a.printPlan("latest", s, s.Last))
			})
		},
	}
	c.Flags().BoolVarP(&goOn, "follow", "f", false, "go on with what happens from now on")
	c.Flags().IntVarP(&q.Limit, "limit", "n", 100, "the newest so many events")
	return c
}
