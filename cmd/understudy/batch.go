package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/plain"
	"github.com/understudy-ha/understudy/internal/usage"
)

func (a *app) batchCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "batch",
		Short: "Batches, delivered in order per key: run, add, list, retry, wait",
		Long: `A queue keeps batches until they are delivered: strictly in order per key, at least
once, by any number of instances. Stores with queues are SQLite and PostgreSQL.`,
		Example: `  understudy batch run orders --webhook http://127.0.0.1:8080/orders
  echo '{"total": 12}' | understudy batch add orders --key customer-7
  understudy batch keys orders --blocked`,
	}
	c.AddCommand(a.batchRunCommand(), a.batchAddCommand(), a.batchQueuesCommand(), a.batchKeysCommand(), a.batchListCommand(),
		a.batchShowCommand(), a.batchWaitCommand(),
		a.batchActCommand(dispatch.Retry, "Try batches again that are blocked, delayed, unknown or stepped aside",
			`Try batches again: at once those that block their key, are delayed, or whose fate is
unknown (then sending again is your decision). Those that had stepped aside as
invalid, failed or cancelled go to the end of their key. With --all-blocked the
argument is a queue, and every batch that blocks a key of it is tried again.`),
		a.batchActCommand(dispatch.Skip, "Let batches step aside that block their key, are delayed or unknown",
			`Let batches step aside that block their key, are delayed, or whose fate is unknown.
They end as failed (or stay invalid), and the next of their key goes on. With
--all-blocked the argument is a queue, and every batch that blocks a key of it
steps aside.`),
		a.batchActCommand(dispatch.Cancel, "Take out batches that were never sent",
			`Take out batches that were never sent. They end as cancelled.`))
	return c
}

// withAdvice says what to do about a queue that is not there.
func withAdvice(err error) error {
	if errors.Is(err, dispatch.ErrNoQueue) {
		return fmt.Errorf("%w; see: understudy batch queues. \"batch run\" and \"batch add --make\" make queues", err)
	}
	return err
}

func (a *app) batchQueuesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "queues",
		Short: "List the queues: depth, what is under way, what is blocked, who delivers",
		Long: `List the queues. DEPTH counts batches that are not over, DONE those that are, ever.
KEYS have batches waiting; of these some are IN FLIGHT, have a batch that is PENDING at
the target, wait for another attempt (DELAYED) or for a person (BLOCKED). OLDEST is how long
the batch that has waited longest is there, blocked keys left out.`,
		Example: `  understudy batch queues
  understudy batch queues -o json | jq -r 'select(.blocked > 0).queue'`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.askDesk(c.Context(), func(ctx context.Context, d dispatch.Desk) error {
				queues, err := d.Queues(ctx)
				if err != nil {
					return err
				}
				return a.printQueues(queues)
			})
		},
	}
}

func (a *app) printQueues(queues []dispatch.Overview) error {
	var rows []string
	for _, q := range queues {
		if a.json() {
			if err := a.printJSON(api.ViewQueue(q)); err != nil {
				return err
			}
			continue
		}
		holders := make([]string, 0, len(q.Holders))
		for _, h := range q.Holders {
			holders = append(holders, fmt.Sprintf("%s (%d)", h.Instance.Name, h.Keys))
		}
		rows = append(rows, row(q.Queue, q.Depth, orDash(q.Oldest), q.Keys, q.InStep, q.Pending, q.Delayed, q.Blocked, q.Done, strings.Join(holders, ", ")))
	}
	if a.json() {
		return nil
	}
	return a.table("QUEUE\tDEPTH\tOLDEST\tKEYS\tIN FLIGHT\tPENDING\tDELAYED\tBLOCKED\tDONE\tINSTANCES (KEYS)", rows)
}

// orDash is a duration, and nothing when it is none.
func orDash(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return plain.Brief(d)
}

// maxRows is the most that one command lists.
const maxRows = 1_000_000

func checkLimit(n int) error {
	if n < 1 || n > maxRows {
		return usage.Errorf("--limit %d: 1 to %d are possible", n, maxRows)
	}
	return nil
}

func (a *app) batchKeysCommand() *cobra.Command {
	var q dispatch.KeyQuery
	var limit int
	c := &cobra.Command{
		Use:   "keys QUEUE",
		Short: "List the keys of a queue that have something to do, or the blocked ones",
		Long: `List the keys of a queue that have batches waiting, with the batch whose turn it is. A
blocked key waits for a person: see "batch retry" and "batch skip".`,
		Example: `  understudy batch keys orders --blocked
  understudy batch keys orders -o json | jq .depth`,
		Args: exactly("QUEUE"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			q.Queue = args[0]
			return a.withDesk(c.Context(), func(ctx context.Context, d dispatch.Desk) error {
				keys, more, err := pages(ctx, limit, func(ctx context.Context, n int) ([]dispatch.KeyRecord, error) {
					q.Limit = n
					page, err := d.Keys(ctx, q)
					if len(page) > 0 {
						q.After = page[len(page)-1].Key
					}
					return page, err
				})
				if err != nil {
					return err
				}
				return errors.Join(a.printKeys(keys), a.tellMore(more))
			})
		},
	}
	c.Flags().BoolVar(&q.Blocked, "blocked", false, "only those that wait for a person")
	c.Flags().BoolVar(&q.Idle, "idle", false, "also those with nothing to do")
	c.Flags().IntVarP(&limit, "limit", "n", 100, "at most so many")
	return c
}

// pages collects up to limit rows, page by page, each within callTimeout, and
// tells whether there may be more.
func pages[T any](ctx context.Context, limit int, next func(ctx context.Context, n int) ([]T, error)) (out []T, more bool, err error) {
	for len(out) < limit {
		n := min(limit-len(out), dispatch.MaxPage)
		call, cancel := context.WithTimeout(ctx, callTimeout)
		page, err := next(call, n)
		cancel()
		if err != nil {
			return nil, false, err
		}
		if out = append(out, page...); len(page) < n {
			return out, false, nil
		}
	}
	return out, true, nil
}

// tellMore is for people; programs see that they got as many as they asked for.
func (a *app) tellMore(more bool) error {
	if !more || a.json() {
		return nil
	}
	_, err := fmt.Fprintln(a.stderr, "there may be more; see --limit")
	return err
}

func (a *app) printKeys(keys []dispatch.KeyRecord) error {
	var rows []string
	for _, k := range keys {
		if a.json() {
			if err := a.printJSON(api.ViewKey(k)); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, row(k.Key, k.Depth, k.Head, keyState(k), orDash(k.Waiting), orDash(k.Next), k.Holder.Name, plain.Line(k.Reason)))
	}
	if a.json() {
		return nil
	}
	return a.table("KEY\tDEPTH\tBATCH\tSTATE\tWAITING\tNEXT\tHOLDER\tREASON", rows)
}

func keyState(k dispatch.KeyRecord) string {
	if k.Blocked {
		return string(k.State) + ", blocked"
	}
	return string(k.State)
}

func (a *app) batchListCommand() *cobra.Command {
	var q dispatch.BatchQuery
	var state string
	var limit int
	c := &cobra.Command{
		Use:   "list QUEUE",
		Short: "List batches by key and order, those that are over too",
		Long: `List the batches of a queue in the order of their keys, and of each key in the order in
which they are delivered. Batches that are over are there until they are pruned. The states are
queued, submitting, pending, valid, delayed, unknown, committed, invalid, failed and cancelled.`,
		Example: `  understudy batch list orders --key customer-7
  understudy batch list orders --state failed -o json | jq -r .id`,
		Args: exactly("QUEUE"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			q.Queue = args[0]
			if state != "" {
				var err error
				if q.State, err = api.ParseState(state); err != nil {
					return err
				}
			}
			return a.withDesk(c.Context(), func(ctx context.Context, d dispatch.Desk) error {
				batches, more, err := pages(ctx, limit, func(ctx context.Context, n int) ([]dispatch.Record, error) {
					q.Limit = n
					page, err := d.Batches(ctx, q)
					if len(page) > 0 {
						q.AfterKey, q.AfterSeq = page[len(page)-1].Key, page[len(page)-1].Seq
					}
					return page, err
				})
				if err != nil {
					return err
				}
				return errors.Join(a.printBatches(batches), a.tellMore(more))
			})
		},
	}
	c.Flags().StringVar(&q.Key, "key", "", "only batches of this `KEY`")
	c.Flags().StringVar(&state, "state", "", "only batches in this `STATE`")
	c.Flags().IntVarP(&limit, "limit", "n", 100, "at most so many")
	return c
}

func (a *app) printBatches(batches []dispatch.Record) error {
	var rows []string
	for _, b := range batches {
		if a.json() {
			if err := a.printJSON(api.ViewBatch(b)); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, row(b.Key, b.Seq, b.ID, batchState(b), b.Attempts, orNothing(b.Code), b.Size, when(b.Enqueued), plain.Line(b.Detail)))
	}
	if a.json() {
		return nil
	}
	return a.table("KEY\tSEQ\tBATCH\tSTATE\tATTEMPTS\tCODE\tBYTES\tENQUEUED\tDETAIL", rows)
}

func batchState(b dispatch.Record) string {
	if b.Blocks {
		return string(b.State) + ", blocks"
	}
	return string(b.State)
}

func orNothing[N int | int64](n N) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(int64(n), 10)
}

func when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

func (a *app) batchShowCommand() *cobra.Command {
	var queue string
	var payload bool
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Show a batch with its whole history, or its payload",
		Long: `Show a batch with its whole history. With --payload nothing but its payload is printed,
as it was given. The queue must be named if several have a batch of that id.`,
		Example: `  understudy batch show 5X2M…
  understudy batch show order-42 --queue orders --payload >order.json`,
		Args: exactly("ID"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withDesk(c.Context(), func(ctx context.Context, d dispatch.Desk) error {
				ctx, cancel := context.WithTimeout(ctx, payloadTimeout)
				defer cancel()
				b, err := d.Batch(ctx, queue, args[0])
				switch {
				case err != nil:
					return err
				case payload:
					_, err := a.stdout.Write(b.Payload)
					return err
				case a.json():
					return a.printJSON(api.ViewBatch(b))
				}
				return a.printBatch(b)
			})
		},
	}
	c.Flags().StringVar(&queue, "queue", "", "the `QUEUE` that it is in")
	c.Flags().BoolVar(&payload, "payload", false, "print the payload only")
	return c
}

func (a *app) printBatch(b dispatch.Record) error {
	facts := [][2]string{
		{"batch", b.ID}, {"queue", b.Queue}, {"key", fmt.Sprintf("%s, number %d", b.Key, b.Seq)}, {"state", batchState(b)},
		{"payload", fmt.Sprintf("%d bytes of %s", b.Size, b.ContentType)}, {"enqueued", when(b.Enqueued)},
		{"begun", when(b.Begun)}, {"ended", when(b.Ended)}, {"attempts", strconv.Itoa(b.Attempts)},
		{"code", orNothing(b.Code)}, {"detail", b.Detail}, {"status at", b.Link},
	}
	for _, f := range facts {
		if f[1] != "" {
			if _, err := fmt.Fprintf(a.stdout, "%-10s %s\n", f[0], plain.Text(f[1])); err != nil {
				return err
			}
		}
	}
	fmt.Fprintln(a.stdout)
	var rows []string
	for _, s := range b.Trail {
		rows = append(rows, row(s.At.Local().Format("2006-01-02 15:04:05.000"), s.State, orNothing(s.Attempt), orNothing(s.Code), orNothing(s.Term), plain.Line(s.Detail)))
	}
	return a.table("AT\tSTATE\tATTEMPT\tCODE\tTERM\tDETAIL", rows)
}
