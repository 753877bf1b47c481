package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/internal/usererr"
)

func (a *app) queueListCommand() *cobra.Command {
	var q client.MessageQuery
	var limit int
	c := &cobra.Command{
		Use:   "list [QUEUE]",
		Short: "List the queues, or the messages of one queue",
		Long: `Without QUEUE, list the queues. DEPTH counts messages that are not final, DONE those that were committed or
cancelled, ever, and DEAD those that ended as invalid or failed, until they are pruned. Of the KEYS that have messages
waiting, some are IN FLIGHT, have a message that is PENDING at the target, wait for another attempt (DELAYED) or for an
operator (BLOCKED). One that the target has not decided for long counts as BLOCKED, not as PENDING; its key goes on when the
target decides. SCHEDULED messages wait for their time, and are not in DEPTH. OLDEST is how long the oldest waiting
message has waited.

With QUEUE, list its messages in the order of their keys, and of each key in the order of delivery. Final messages are
listed until they are pruned, scheduled ones with --state scheduled. The states are scheduled, queued, submitting, pending, valid, delayed, unknown, committed, invalid,
failed and cancelled.`,
		Example: `  understudy queue list
  understudy queue list -o json | jq -r 'select(.blocked > 0).queue'
  understudy queue list orders --key customer-7
  understudy queue list orders --state failed -o json | jq -r .id`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exactly("QUEUE")(c, args)
			}
			if q.Key != "" || q.State != "" || c.Flags().Changed("limit") {
				return usererr.Errorf("%s: --key, --state and --limit select messages of a QUEUE, which is missing", c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.callAPI(c.Context(), func(ctx context.Context, c *client.Client) error {
					queues, err := c.Queues(ctx)
					if err != nil {
						return err
					}
					return a.printQueues(queues)
				})
			}
			q.Queue = args[0]
			return a.listMessages(c.Context(), q, limit)
		},
	}
	c.Flags().StringVar(&q.Key, "key", "", "only messages of this `KEY`")
	c.Flags().StringVar(&q.State, "state", "", "only messages in this `STATE`")
	c.Flags().IntVarP(&limit, "limit", "n", 100, "list at most this many messages")
	return c
}

func (a *app) listMessages(ctx context.Context, q client.MessageQuery, limit int) error {
	if err := dispatch.ValidateQueue(q.Queue); err != nil {
		return err
	}
	if q.State != "" {
		if _, err := api.ParseState(q.State); err != nil {
			return err
		}
	}
	return printPagesOfAPI(ctx, a, limit, func(ctx context.Context, c *client.Client, n int) ([]apitype.Message, string, error) {
		q.Limit = n
		page, err := c.Messages(ctx, q)
		q.After = page.Next
		return page.Messages, page.Next, err
	}, a.printMessages)
}

func (a *app) printMessages(messages []apitype.Message) error {
	return printList(a, messages, "KEY\tSEQ\tMESSAGE\tSTATE\tATTEMPTS\tCODE\tBYTES\tENQUEUED\tDETAIL", func(b apitype.Message) string {
		return row(b.Key, b.Seq, b.ID, messageState(b), b.Attempts, orNothing(b.Code), b.Size, when(b.Enqueued), cmp.Or(notBefore(b), termtext.Line(b.Detail)))
	})
}

// notBefore says until when a scheduled message waits.
func notBefore(b apitype.Message) string {
	if b.NotBefore.IsZero() {
		return ""
	}
	return "not before " + when(b.NotBefore)
}

func messageState(b apitype.Message) string {
	if b.Blocks {
		return b.State + ", blocks"
	}
	return b.State
}

func (a *app) queueShowCommand() *cobra.Command {
	var queue string
	var payload bool
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Show a message with its whole history, or its payload",
		Long: `Show a message with its whole history. With --payload nothing but its payload is printed, as it was
given. Name the queue if several have a message with that ID.`,
		Example: `  understudy queue show 5X2M…
  understudy queue show order-42 --queue orders --payload >order.json`,
		Args: exactly("ID"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withAPI(c.Context(), withTimeout(payloadTimeout, func(ctx context.Context, c *client.Client) error {
				m, err := findMessage(ctx, c, queue, args[0])
				switch {
				case err != nil:
					return err
				case payload:
					bytes, _, err := c.Payload(ctx, m.Queue, m.ID)
					if err == nil {
						_, err = a.stdout.Write(bytes)
					}
					return err
				}
				return printAs(a, m, a.printMessage)
			}))
		},
	}
	c.Flags().StringVar(&queue, "queue", "", "the `QUEUE` that it is in")
	c.Flags().BoolVar(&payload, "payload", false, "print the payload only")
	return c
}

// findMessage reads a message, and looks into every queue if none is named.
func findMessage(ctx context.Context, c *client.Client, queue, id string) (found apitype.Message, err error) {
	if queue != "" {
		found, err = c.Message(ctx, queue, id)
		return found, apiError(err)
	}
	queues, err := c.Queues(ctx)
	if err != nil {
		return found, apiError(err)
	}
	for _, q := range queues {
		m, err := c.Message(ctx, q.Queue, id)
		switch err = apiError(err); {
		case errors.Is(err, dispatch.ErrNoMessage), errors.Is(err, dispatch.ErrNoQueue): // the queue was removed since they were listed
		case err != nil:
			return found, err
		case found.ID != "":
			return found, usererr.Errorf("message %q is in %s and in %s: name the queue", id, found.Queue, q.Queue)
		default:
			found = m
		}
	}
	if found.ID == "" {
		return found, fmt.Errorf("%w: %q", dispatch.ErrNoMessage, id)
	}
	return found, nil
}

func headersText(headers map[string]string) string {
	parts := make([]string, 0, len(headers))
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		parts = append(parts, name+": "+headers[name])
	}
	return strings.Join(parts, "; ")
}

// placeOf is the key of a message, and its number there; a scheduled one has none yet.
func placeOf(b apitype.Message) string {
	if !b.NotBefore.IsZero() {
		return b.Key
	}
	return fmt.Sprintf("%s, number %d", b.Key, b.Seq)
}

func (a *app) printMessage(b apitype.Message) error {
	err := a.printFacts([][2]string{
		{"message", b.ID}, {"queue", b.Queue}, {"key", placeOf(b)}, {"state", messageState(b)},
		{"payload", fmt.Sprintf("%d bytes of %s", b.Size, b.ContentType)}, {"headers", headersText(b.Headers)}, {"enqueued", when(b.Enqueued)}, {"not before", when(b.NotBefore)},
		{"begun", when(b.Begun)}, {"ended", when(b.Ended)}, {"attempts", strconv.Itoa(b.Attempts)},
		{"code", orNothing(b.Code)}, {"detail", b.Detail}, {"status at", b.Link},
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(a.stdout)
	var rows []string
	for _, s := range b.Trail {
		rows = append(rows, row(s.At.Local().Format("2006-01-02 15:04:05.000"), s.State, orNothing(s.Attempt), orNothing(s.Code), orNothing(s.Term), termtext.Line(s.Detail)))
	}
	return a.table("AT\tSTATE\tATTEMPT\tCODE\tTERM\tDETAIL", rows)
}
