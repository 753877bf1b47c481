package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/plain"
	"github.com/understudy-ha/understudy/internal/usage"
)

// errNotCommitted: a batch that was waited for ended otherwise, or did not end.
var errNotCommitted = errors.New("not committed")

func (a *app) batchActCommand(action dispatch.Action, short, long string) *cobra.Command {
	var queue string
	var blocked bool
	name := string(action)
	c := &cobra.Command{
		Use:   name + " ID…",
		Short: short,
		Long:  long + " Who asked is kept in the history.",
		Example: fmt.Sprintf(`  understudy batch %[1]s order-42
  understudy batch list orders --state delayed -o json | jq -r .id | xargs understudy batch %[1]s --queue orders`, name),
		Args: func(c *cobra.Command, args []string) error {
			if blocked {
				return exactly("QUEUE")(c, args)
			}
			if len(args) == 0 {
				return exactly("ID")(c, args)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return a.withDesk(c.Context(), func(ctx context.Context, d dispatch.Desk) error {
				act := actor{app: a, desk: d, action: action}
				if blocked {
					return act.allBlocked(ctx, args[0])
				}
				return act.each(ctx, queue, args)
			})
		},
	}
	c.Flags().StringVar(&queue, "queue", "", "the `QUEUE` that they are in, if several have such ids")
	if action != dispatch.Cancel {
		c.Flags().BoolVar(&blocked, "all-blocked", false, "all batches that block a key of the queue that is named instead of ids")
		c.Use = name + " {ID… | --all-blocked QUEUE}"
		c.Example += fmt.Sprintf("\n  understudy batch %s --all-blocked orders", name)
	}
	return c
}

// actor does the same with many batches.
type actor struct {
	app    *app
	desk   dispatch.Desk
	action dispatch.Action
}

// each goes on after a batch with which it cannot be done, and returns all that
// was wrong.
func (t actor) each(ctx context.Context, queue string, ids []string) error {
	var failed []error
	for _, id := range ids {
		err := t.one(ctx, queue, id)
		if err != nil && exitCode(err) == exitUnreachable {
			return errors.Join(append(failed, fmt.Errorf("%s: %w", id, err))...)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", id, err))
		}
	}
	return errors.Join(failed...)
}

func (t actor) one(ctx context.Context, queue, id string) error {
	ctx, cancel := context.WithTimeout(ctx, payloadTimeout)
	defer cancel()
	if queue == "" {
		b, err := t.desk.Batch(ctx, "", id)
		if err != nil {
			return err
		}
		queue = b.Queue
	}
	if err := t.desk.Act(ctx, queue, id, t.action, who()); err != nil {
		return err
	}
	return t.tell(queue, id)
}

func (t actor) tell(queue, id string) error {
	if t.app.json() {
		return t.app.printJSON(map[string]string{"queue": queue, "id": id, "action": string(t.action)})
	}
	_, err := fmt.Fprintf(t.app.stdout, "%s: %s in %s\n", t.action, plain.Text(id), plain.Text(queue))
	return err
}

func (t actor) allBlocked(ctx context.Context, queue string) error {
	q := dispatch.KeyQuery{Queue: queue, Blocked: true}
	var failed []error
	for {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		keys, err := t.desk.Keys(call, q)
		cancel()
		if err != nil {
			return err
		}
		var ids []string
		for _, k := range keys {
			q.After = k.Key
			ids = append(ids, k.Head)
		}
		if err := t.each(ctx, queue, ids); err != nil {
			failed = append(failed, err)
		}
		if len(keys) < dispatch.MaxPage || ctx.Err() != nil {
			return errors.Join(failed...)
		}
	}
}

func (a *app) batchWaitCommand() *cobra.Command {
	var queue string
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "wait ID…",
		Short: "Wait until batches are over; exit 0 if they were all committed",
		Long: `Wait until batches are over, and print each with the state in which it ended. Exits 0
if all were committed; 1 if one ended as invalid, failed or cancelled, or was not over
in time; 3 if there is no such batch. A batch that blocks its key is waited for: a person may
retry or skip it.`,
		Example: `  understudy batch wait order-42 --timeout 1m
  understudy batch add orders --key customer-7 order.json | xargs understudy batch wait`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exactly("ID")(c, args)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if timeout < 0 {
				return usage.Errorf("--timeout %v is negative", timeout)
			}
			ctx, cancel := c.Context(), context.CancelFunc(func() {})
			if timeout > 0 {
				ctx, cancel = context.WithTimeout(ctx, timeout)
			}
			defer cancel()
			return a.waitAll(ctx, queue, args)
		},
	}
	c.Flags().StringVar(&queue, "queue", "", "the `QUEUE` that they are in, if several have such ids")
	c.Flags().DurationVar(&timeout, "timeout", 0, "give up after `D`; 0 waits for ever")
	return c
}

func (a *app) waitAll(ctx context.Context, queue string, ids []string) error {
	if a.remote() {
		return a.withDesk(ctx, func(ctx context.Context, d dispatch.Desk) error { return a.waitAt(ctx, d, queue, ids) })
	}
	st, err := a.openPatiently(ctx, true)
	if err != nil {
		return waited(ctx, err, "the store cannot be reached")
	}
	defer st.Close()
	q, err := a.Queues(st)
	if err != nil {
		return err
	}
	return a.waitAt(ctx, q.Desk(), queue, ids)
}

func (a *app) waitAt(ctx context.Context, d dispatch.Desk, queue string, ids []string) error {
	w := waiter{app: a, desk: d}
	var failed []error
	for _, id := range ids {
		b, err := w.wait(ctx, queue, id)
		if err != nil {
			return withAdvice(err)
		}
		if a.json() {
			err = a.printJSON(api.ViewBatch(b))
		} else {
			_, err = fmt.Fprintf(a.stdout, "%s  %s\n", plain.Text(b.ID), batchState(b))
		}
		if err != nil {
			return err
		}
		if b.State != dispatch.Committed {
			failed = append(failed, fmt.Errorf("%s is %w: %s", b.ID, errNotCommitted, endOf(b)))
		}
	}
	return errors.Join(failed...)
}

func endOf(b dispatch.Record) string {
	if b.Detail == "" {
		return string(b.State)
	}
	return string(b.State) + ": " + plain.Line(b.Detail)
}

// waited is what the end of a wait means: that the time is up, or what went wrong.
func waited(ctx context.Context, err error, last string) error {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return fmt.Errorf("%w in time: %s", errNotCommitted, last)
	}
	return err
}

// waiter looks at a batch until it is over.
type waiter struct {
	app  *app
	desk dispatch.Desk
}

// wait returns the batch when it is over. A store that does not answer is asked again.
func (w waiter) wait(ctx context.Context, queue, id string) (dispatch.Record, error) {
	const first, most = 20 * time.Millisecond, time.Second
	last, told := "not seen yet", false
	for pause := first; ; pause = min(pause*3/2, most) {
		b, err := w.look(ctx, queue, id)
		switch {
		case err != nil && ctx.Err() != nil:
			return b, waited(ctx, context.Cause(ctx), id+" is "+last)
		case err != nil && exitCode(err) == exitUnreachable:
			w.app.Log.Warn("the store does not answer; trying again", "err", err)
		case err != nil:
			return b, err
		case b.State.Final() && !b.Blocks:
			return b, nil
		default:
			queue, last = b.Queue, endOf(b)
		}
		if b.Blocks && !told {
			told = true
			fmt.Fprintf(w.app.stderr, "%s waits for a person (%s); see: understudy batch retry %s\n", plain.Text(id), plain.Text(endOf(b)), plain.Text(id))
		}
		select {
		case <-ctx.Done():
			return b, waited(ctx, context.Cause(ctx), id+" is "+last)
		case <-time.After(pause):
		}
	}
}

// look reads the batch without its payload, once it is known where it is.
func (w waiter) look(ctx context.Context, queue, id string) (dispatch.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, payloadTimeout)
	defer cancel()
	if queue == "" {
		return w.desk.Batch(ctx, "", id)
	}
	found, err := w.desk.Batches(ctx, dispatch.BatchQuery{Queue: queue, IDs: []string{id}, Limit: 1})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s in %s: %w", id, queue, dispatch.ErrNoBatch)
	}
	if err != nil {
		return dispatch.Record{}, err
	}
	return found[0], nil
}
