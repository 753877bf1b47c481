package main

import (
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/shardagent"
	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/shard"
)

func (a *app) shardAgentCommand() *cobra.Command {
	var f shardagent.Flags
	c := &cobra.Command{
		Use:   "agent SHARD --node HOST:PORT --data DIR [flags] [-- redis-server ARG…]",
		Short: "Run the agent of a shard node: report it, fence it, and replace a primary that is lost",
		Long: `Run the agent of a shard node, on the node's host. The first node of a new shard becomes its primary; the
others follow it, and are members once they have a whole copy. When the primary's process or host dies, hangs or is cut
off, the agents promote the most up-to-date replica.

While the agent runs, its node is open for writes only as the primary, under a lease that is renewed after a test write
to the node. If the agent itself dies, the node goes on as it is, and nothing fails over.

With a program after "--" the agent starts and supervises the node, which then always starts with its fence closed. The
program runs in the data folder. It outlives a crash of the agent; SIGINT, SIGTERM and SIGHUP hand a primary over, close
it, and stop it (with --keep-node it runs on, closed). A node that was started otherwise is left as it is
(with --hand-over a primary is handed over first).

With --listen the agent answers load balancers (/primary, /replica?lag=, /health, /liveness, /readiness and more, as
Patroni does), operators (/status, /cluster, /history) and Prometheus (/metrics), and gives promises to other agents, by which
a primary goes on while the store is down. With --sentinel it answers clients that find a primary through Redis Sentinel.

An unsafe timing is refused: T ≥ 3·I + T/5, in which the fence closes.`,
		Example: `  # A Redis that is there already:
  understudy shard agent orders --node 10.0.0.1:6379 --data /var/lib/understudy --listen 10.0.0.1:8008 --store postgres://db/app

  # A Redis that the agent starts:
  understudy shard agent orders --node 127.0.0.1:7001 --data ./n1 -- redis-server --port 7001 --save ""

  # A takeover within one to three seconds, from a shard of which no write may lack a replica:
  understudy shard agent orders --node 10.0.0.1:6379 --data /var/lib/understudy --interval 200ms --timeout 1s --min-replicas 1`,
		Args: agentArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.ForShard(args[0], args[1:], a.Log); err != nil {
				return err
			}
			if err := a.needStore(); err != nil {
				return err
			}
			a.warnOfExposed(&f)
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGHUP)
			defer stop()
			return shardagent.Run(ctx, &a.Host, &f)
		},
	}
	f.Register(c.Flags())
	for _, key := range []string{"interval", "timeout"} { // of a session, as the server's
		strictyaml.MarkKey(c.Flags(), key, new(settings.Server), key)
	}
	return c
}

// agentArgs wants SHARD [-- PROGRAM [ARG…]].
func agentArgs(c *cobra.Command, args []string) error {
	dash := c.ArgsLenAtDash()
	switch {
	case len(args) == 0 || dash == 0:
		return usererr.Errorf("%s: SHARD is missing; see --help", c.CommandPath())
	case dash < 0 && len(args) > 1 || dash > 1:
		return usererr.Errorf("%s: %q is one argument too many; write the node's program after --, as in: %s %s … -- redis-server", c.CommandPath(), args[1], c.CommandPath(), args[0])
	case dash == 1 && len(args) > 1 && strings.HasPrefix(args[1], "-"):
		return usererr.Errorf("%s: %q is not a program; flags of the agent go before --, and the node's program comes first after it", c.CommandPath(), args[1])
	case dash == 1 && len(args) == 1:
		return usererr.Errorf("%s: the node's program is missing after --", c.CommandPath())
	}
	return shard.ValidateName(args[0])
}
