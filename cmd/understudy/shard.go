package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/shard"
)

func (a *app) shardCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "shard",
		Short: "Failover of a database: an agent beside each node, one primary per shard",
		Long: `A shard is a primary and its replicas. An agent runs beside each node: "shard agent". When the primary
fails, the agents promote a replica: the most up-to-date one, and only when nothing can be written to the old primary
any more. Clients find the primary by "shard primary",
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
		a.shardSwitchoverCommand(), a.shardFailoverCommand(), a.shardPauseCommand(), a.shardResumeCommand(), a.shardForgetCommand(), a.shardRemoveCommand(),
		a.shardHistoryCommand(), a.shardProxyCommand())
	return c
}

// showShard reads a shard once.
func (a *app) showShard(ctx context.Context, name string, f func(shardSeen) error) error {
	return a.withRunningAPI(ctx, withTimeout(callTimeout, func(ctx context.Context, c *client.Client) error {
		s, err := readShard(ctx, c, name)
		if err != nil {
			return unknownShard(name, err)
		}
		return f(s)
	}))
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
		Short: "List the shards, their primaries and their health",
		Long: `List the shards. HEALTH is that of the primary: fine; unattended (it lives, its agent does not);
doubtful (its agent is silent, and it is not yet known why); failed (it is lost, and is being replaced); stuck (it
is silent, and may still be open for writes: an operator has to decide); none (there never was one).`,
		Example: `  understudy shard list
  understudy shard list -o json | jq -r 'select(.health != "fine") | .shard'`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withRunningAPI(c.Context(), withTimeout(callTimeout, a.listShards))
		},
	}
}

func (a *app) listShards(ctx context.Context, c *client.Client) error {
	shards, err := allShards(ctx, c)
	if err != nil {
		return err
	}
	return printList(a, shards, "SHARD\tHEALTH\tPRIMARY\tEPOCH\tREPLICAS\tMOST LAG\tNOTE", shardRow)
}

func shardRow(s apitype.Shard) string {
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
		if n.Member && n.AgentLives && n.Condition == string(shard.Up) && n.LinkUp != nil && *n.LinkUp {
			well++
			lag = max(lag, n.Lag)
		}
	}
	return row(s.Name, s.Health, primary, s.Epoch, fmt.Sprintf("%d of %d", well, replicas), lag, termtext.Line(shardNote(s)))
}

// shardNote is what is most worth knowing of a shard, in a few words.
func shardNote(s apitype.Shard) string {
	switch {
	case s.Plan != nil:
		return fmt.Sprintf("%s under way, %s", s.Plan.Kind, s.Plan.Phase)
	case s.Request != nil:
		return fmt.Sprintf("%s asked for by %s", s.Request.Kind, s.Request.By)
	case s.Blocked != "":
		return s.Blocked
	case s.Paused != nil:
		return "paused by " + s.Paused.By + after(": ", s.Paused.Reason)
	case s.Health != string(shard.Fine):
		return s.Reason
	}
	for _, n := range s.Nodes {
		if n.Trouble != "" {
			return n.Address + ": " + n.Trouble
		}
	}
	return ""
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
		Args: startingWith(shard.ValidateName, "SHARD"),
		RunE: func(c *cobra.Command, args []string) error {
			if watch {
				return a.withRunningAPI(c.Context(), func(ctx context.Context, c *client.Client) error { return a.watchPrimary(ctx, c, args[0]) })
			}
			return a.showShard(c.Context(), args[0], func(s shardSeen) error {
				at, err := s.primary()
				if err != nil {
					return err
				}
				return a.print(at, "%s", at.Address)
			})
		},
	}
	c.Flags().BoolVarP(&watch, "watch", "w", false, "print a line now and at each change, until interrupted")
	return c
}

// watchPrimary prints where the primary is, and why there is none, at each change. An event of the shard wakes it; a
// read each second finds what has no event.
func (a *app) watchPrimary(ctx context.Context, c *client.Client, name string) error {
	ofShard := func(apitype.Event) bool { return true }
	last := ""
	return wokenBy(ctx, c, client.Follow{Part: shard.Space, Subject: name}, ofShard, func(ctx context.Context, wake <-chan struct{}) error {
		return a.poll(ctx, pollOptions{[]any{"shard", name}, callTimeout, wake}, func(ctx context.Context) (time.Duration, error) {
			var at apitype.ShardPrimary
			s, err := readShard(ctx, c, name)
			switch {
			case err == nil:
				at, err = s.primary()
			case errors.Is(err, shard.ErrNotFound):
				err = fmt.Errorf("%w: no agent has ever reported for shard %q", shard.ErrNoPrimary, name)
			default:
				return 0, err
			}
			if now := fmt.Sprint(at, err); now != last {
				last = now
				return time.Second, a.printPrimary(name, at, err)
			}
			return time.Second, nil
		})
	})
}

func (a *app) printPrimary(name string, at apitype.ShardPrimary, why error) error {
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
	_, err := fmt.Fprintf(a.stdout, "%s  %s  %s\n", time.Now().Format("15:04:05.000"), termtext.Text(name), termtext.Text(text))
	return err
}

func (a *app) shardHistoryCommand() *cobra.Command {
	q := client.Query{Part: shard.Space}
	var follow bool
	c := &cobra.Command{
		Use:   "history SHARD",
		Short: "Print what happened to a shard, and the steps of its latest plan",
		Example: `  understudy shard history orders
  understudy shard history orders --follow
  understudy shard history orders -n 20 -o json`,
		Args: startingWith(shard.ValidateName, "SHARD"),
		RunE: func(c *cobra.Command, args []string) error {
			q.Subject = args[0]
			err := a.showHistory(c.Context(), q, follow)
			if err != nil || follow || a.json() {
				return err
			}
			return a.showShard(c.Context(), args[0], func(s shardSeen) error {
				return errors.Join(a.printPlan("under way", s, s.Plan), a.printPlan("latest", s, s.Last))
			})
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "print new events as they happen")
	c.Flags().IntVarP(&q.Limit, "limit", "n", 100, "show this many of the newest events")
	return c
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
