package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/shard"
)

// removing deletes something by the API, which bounds the call itself, and says so.
func (a *app) removing(ctx context.Context, did, noun, name string, remove func(context.Context, *client.Client) error) error {
	return a.withRunningAPI(ctx, func(ctx context.Context, c *client.Client) error {
		if err := remove(ctx, c); err != nil {
			return apiError(err)
		}
		return a.printDone(did, noun, name)
	})
}

func (a *app) queueRemoveCommand() *cobra.Command {
	var messages int64
	c := &cobra.Command{
		Use:   "remove QUEUE",
		Short: "Remove a queue that no instance delivers",
		Long: `Remove a queue that no instance delivers, with all that was ever in it. Messages that wait, are scheduled, in flight or
dead letters are lost by that: --with-messages names how many, as "queue list" shows them (DEPTH, SCHEDULED and DEAD);
without it the queue must have none. Who asked is kept in the history.`,
		Example: `  understudy queue remove orders
  understudy queue remove orders --with-messages 12`,
		Args: startingWith(dispatch.ValidateQueue, "QUEUE"),
		RunE: func(c *cobra.Command, args []string) error {
			if messages < 0 {
				return usererr.Errorf("--with-messages %d is negative", messages)
			}
			return a.removing(c.Context(), "remove", "queue", args[0], func(ctx context.Context, c *client.Client) error {
				return c.RemoveQueue(ctx, args[0], messages, operator())
			})
		},
	}
	c.Flags().Int64Var(&messages, "with-messages", 0, "lose `N` messages with it; it must be their exact number")
	return c
}

func (a *app) shardRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove SHARD",
		Short: "Remove a shard whose agents have stopped",
		Long: `Remove a shard whose agents have stopped. The data on its nodes stays; an agent that is started again makes a new
shard of the name. Who asked is kept in the history.`,
		Example: "  understudy shard remove orders",
		Args:    startingWith(shard.ValidateName, "SHARD"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.removing(c.Context(), "remove", "shard", args[0], func(ctx context.Context, c *client.Client) error {
				return c.RemoveShard(ctx, args[0], operator())
			})
		},
	}
}

func (a *app) sourceRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove CHECK SOURCE",
		Short: "Remove a source that has no open alarm",
		Long: `Remove a source that has no open alarm ("source retire" ends one). A source that still sends heartbeats is learned
again, unless its check is fixed. Who asked is kept in the history.`,
		Example: "  understudy source remove nightly-backup db-1",
		Args:    exactly("CHECK", "SOURCE"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.removing(c.Context(), "remove", "source", args[1], func(ctx context.Context, c *client.Client) error {
				return c.RemoveSource(ctx, args[0], args[1], operator())
			})
		},
	}
}

func (a *app) checkCommand() *cobra.Command {
	c := &cobra.Command{Use: "check", Short: "Checks, which say what is expected of sources", Example: "  understudy monitor check remove nightly-backup"}
	c.AddCommand(&cobra.Command{
		Use:   "remove CHECK",
		Short: "Remove a check: its alarms end, and its sources are forgotten",
		Long: `Remove a check: its alarms end, and its sources are forgotten. A server whose file has the check adds it again when it
starts. Who asked is kept in the history.`,
		Example: "  understudy monitor check remove nightly-backup",
		Args:    exactly("CHECK"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.removing(c.Context(), "remove", "check", args[0], func(ctx context.Context, c *client.Client) error {
				return c.RemoveCheck(ctx, args[0], operator())
			})
		},
	})
	return c
}
