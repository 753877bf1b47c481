package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/internal/usererr"
)

// queueCommands returns "queue", and "batch", which is its old name. Three verbs are one method, queueActCommand.
func (a *app) queueCommands() []*cobra.Command {
	c := &cobra.Command{
		Use:         "queue",
		Annotations: requires("queues"),
		Short:       "Queues of messages, delivered in order per key: run, add, list, retry, wait",
		Long: `A queue keeps messages until they are delivered: strictly in order per key, at least once, by any
number of instances. It needs SQLite or PostgreSQL.`,
		Example: `  understudy queue run orders --webhook http://127.0.0.1:8080/orders
  echo '{"total": 12}' | understudy queue add orders --key customer-7
  understudy queue keys orders --blocked`,
	}
	old := &cobra.Command{Use: "batch", Short: "The old name of queue", Hidden: true, Example: c.Example, Annotations: c.Annotations}
	for _, noun := range []*cobra.Command{c, old} {
		noun.AddCommand(a.queueRunCommand(), a.queueAddCommand(), a.queueKeysCommand(), a.queueListCommand(), a.queueShowCommand(), a.queueWaitCommand(), a.queueRemoveCommand(),
			a.queueActCommand(dispatch.Retry, "Try messages again that are blocked, delayed or dead-lettered",
				`Try messages again: at once if they block their key or are delayed. Messages that were dead-lettered as
invalid, failed or cancelled go to the end of their key. With --all-blocked the argument is a queue, and every message
that blocks a key of it is tried again.

If its outcome is unknown, or the target has not decided for long, the target may have the message and would act on it
twice; a Scabbard circuit can end by that, and no restart repairs it. Look for it at the target first. Then name it, with
--i-know. It is not sent again if the target says, when asked once more, that it is committed.`),
			a.queueActCommand(dispatch.Skip, "Dead-letter messages that block their key, are delayed or unknown",
				`Dead-letter messages that block their key, are delayed, or have an unknown outcome. They end as failed
(or stay invalid), and the next message of their key goes on. The target may still act on one whose outcome is unknown,
or that it has not decided for long, and then after later messages of its key. With --all-blocked the argument is a queue, and every
message that blocks a key of it is dead-lettered.`),
			a.queueActCommand(dispatch.Cancel, "Remove messages that were never sent",
				`Remove messages that were never sent. They end as cancelled. A message that the target has left undecided
for a long time can be removed too; the target may still act on it, and then after later messages of its key.`))
	}
	queues := a.queueListCommand()
	queues.Use = "queues [QUEUE]"
	old.AddCommand(queues)
	return []*cobra.Command{c, old}
}

func (a *app) printQueues(queues []apitype.Queue) error {
	const header = "QUEUE\tDEPTH\tOLDEST\tKEYS\tIN FLIGHT\tPENDING\tDELAYED\tBLOCKED\tSCHEDULED\tDEAD\tDONE\tINSTANCES (KEYS)"
	return printList(a, queues, header, func(q apitype.Queue) string {
		holders := make([]string, 0, len(q.Holders))
		for _, h := range q.Holders {
			holders = append(holders, fmt.Sprintf("%s (%d)", h.Instance.Name, h.Keys))
		}
		return row(q.Queue, q.Depth, briefOrBlank(millis(q.OldestMS)), q.Keys, q.InFlight, q.Pending, q.Delayed, q.Blocked, q.Scheduled, q.DeadLetters, q.Done, strings.Join(holders, ", "))
	})
}

func (a *app) queueKeysCommand() *cobra.Command {
	var q client.KeyQuery
	var limit int
	c := &cobra.Command{
		Use:   "keys QUEUE",
		Short: "List the keys of a queue that have messages waiting, or the blocked ones",
		Long: `List the keys of a queue that have messages waiting, with the next message of each. A blocked key
waits for an operator, or for a target that has not decided its message for long: see "queue retry" and "queue skip".`,
		Example: `  understudy queue keys orders --blocked
  understudy queue keys orders -o json | jq .depth`,
		Args: startingWith(dispatch.ValidateQueue, "QUEUE"),
		RunE: func(c *cobra.Command, args []string) error {
			q.Queue = args[0]
			return printPagesOfAPI(c.Context(), a, limit, func(ctx context.Context, c *client.Client, n int) ([]apitype.Key, string, error) {
				q.Limit = n
				page, err := c.Keys(ctx, q)
				q.After = page.Next
				return page.Keys, page.Next, err
			}, a.printKeys)
		},
	}
	c.Flags().BoolVar(&q.Blocked, "blocked", false, "only blocked keys")
	c.Flags().BoolVar(&q.Idle, "idle", false, "also keys with nothing to do")
	c.Flags().IntVarP(&limit, "limit", "n", 100, "list at most this many")
	return c
}

func (a *app) printKeys(keys []apitype.Key) error {
	return printList(a, keys, "KEY\tDEPTH\tMESSAGE\tSTATE\tWAITING\tNEXT\tHOLDER\tREASON", func(k apitype.Key) string {
		holder := ""
		if k.Holder != nil {
			holder = k.Holder.Name
		}
		return row(k.Key, k.Depth, k.Head, keyState(k), briefOrBlank(millis(k.WaitingMS)), briefOrBlank(millis(k.NextMS)), holder, termtext.Line(k.Reason))
	})
}

func keyState(k apitype.Key) string {
	if k.Blocked {
		return k.State + ", blocked"
	}
	return k.State
}

func (a *app) queueRemoveCommand() *cobra.Command {
	var messages int64
	c := &cobra.Command{
		Use:   "remove QUEUE",
		Short: "Remove a queue that no instance delivers",
		Long: `Remove a queue that no instance delivers, with all that was ever in it. Messages that wait, are scheduled, in flight or
dead letters are lost by that: --with-messages names how many, as "queue list" shows them (DEPTH, SCHEDULED and DEAD);
without it the queue must have none. The history records who asked.`,
		Example: `  understudy queue remove orders
  understudy queue remove orders --with-messages 12`,
		Args: startingWith(dispatch.ValidateQueue, "QUEUE"),
		RunE: func(c *cobra.Command, args []string) error {
			if messages < 0 {
				return usererr.Errorf("--with-messages %d is negative", messages)
			}
			return a.removeByAPI(c.Context(), "remove", "queue", args[0], func(ctx context.Context, c *client.Client) error {
				return c.RemoveQueue(ctx, args[0], messages, operator())
			})
		},
	}
	c.Flags().Int64Var(&messages, "with-messages", 0, "lose `N` messages with it; it must be their exact number")
	return c
}
