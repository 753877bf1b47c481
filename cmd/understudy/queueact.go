package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/store"
)

// errNotCommitted: a message that was waited for ended in another state, or did not end.
var errNotCommitted = errors.New("not committed")

func (a *app) queueActCommand(action dispatch.Action, short, long string) *cobra.Command {
	var queue string
	var blocked, iKnow bool
	var q client.MessageQuery
	name := string(action)
	c := &cobra.Command{
		Use:   name + " ID…",
		Short: short,
		Long:  long + " The history records who asked.",
		Example: fmt.Sprintf(`  understudy queue %[1]s order-42
  understudy queue %[1]s --state %[2]s orders`, name, map[dispatch.Action]string{dispatch.Retry: "failed", dispatch.Skip: "delayed", dispatch.Cancel: "queued --key customer-7"}[action]),
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case iKnow && (blocked || q.State != ""):
				return usererr.Errorf("%s: --i-know needs IDs: look for each message at the target first", c.CommandPath())
			case action == dispatch.Retry && mayHaveIt(q.State):
				return usererr.Errorf("%s: the target may have messages that are "+q.State+", so they are not retried all at once; look for each at the target, then: understudy queue retry --i-know ID…", c.CommandPath())
			case queue != "" && (blocked || q.State != ""): // of two queues, the one meant could be either
				given := "--state"
				if blocked {
					given = "--all-blocked"
				}
				return usererr.Errorf("%s: --queue says where IDs are; %s acts on a queue that is named as the argument", c.CommandPath(), given)
			case blocked && (q.State != "" || q.Key != ""):
				return usererr.Errorf("%s: --all-blocked stands alone, without --state and --key", c.CommandPath())
			case q.Key != "" && q.State == "":
				return usererr.Errorf("%s: --key needs --state, which says which of its messages", c.CommandPath())
			case blocked || q.State != "":
				return exactly("QUEUE")(c, args)
			}
			if len(args) == 0 {
				return exactly("ID")(c, args)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return a.withAPI(c.Context(), func(ctx context.Context, c *client.Client) error {
				act := actor{app: a, api: c, action: action}
				if iKnow {
					act.action = dispatch.RetryUnknown
				}
				switch {
				case blocked:
					return act.onBlocked(ctx, args[0])
				case q.State != "":
					q.Queue = args[0]
					return act.onState(ctx, q)
				}
				return act.onIDs(ctx, queue, args)
			})
		},
	}
	c.Flags().StringVar(&queue, "queue", "", "the `QUEUE` that they are in, if several have such ids")
	c.Flags().StringVar(&q.State, "state", "", "every message in this `STATE` of a queue, named instead of IDs")
	c.Flags().StringVar(&q.Key, "key", "", "with --state: only messages of this `KEY`")
	c.Use = name + " {ID… | --state STATE [--key KEY] QUEUE}"
	if action == dispatch.Retry {
		c.Flags().BoolVar(&iKnow, "i-know", false, "also if the target may have it: you checked that it does not, or twice is harmless")
	}
	if action != dispatch.Cancel {
		c.Flags().BoolVar(&blocked, "all-blocked", false, "every message that blocks a key of this queue, named instead of IDs")
		c.Use = name + " {ID… | --state STATE [--key KEY] QUEUE | --all-blocked QUEUE}"
		c.Example += fmt.Sprintf("\n  understudy queue %s --all-blocked orders", name)
	}
	return c
}

// mayHaveIt reports that the target may have a message in this state, so that a retry needs its ID and --i-know.
func mayHaveIt(state string) bool {
	switch dispatch.State(state) {
	case dispatch.Unknown, dispatch.Pending, dispatch.Valid:
		return true
	}
	return false
}

// actor applies one action to many messages.
type actor struct {
	app    *app
	api    *client.Client
	action dispatch.Action
}

func (t actor) onIDs(ctx context.Context, queue string, ids []string) error {
	return forEach(ids, func(id string) error { return t.onID(ctx, queue, id) })
}

func (t actor) onID(ctx context.Context, queue, id string) error {
	ctx, cancel := context.WithTimeout(ctx, payloadTimeout)
	defer cancel()
	if queue == "" {
		m, err := findMessage(ctx, t.api, "", id)
		if errors.Is(err, dispatch.ErrNoMessage) {
			return dispatch.ErrNoMessage // each names the ID
		}
		if err != nil {
			return err
		}
		queue = m.Queue
	}
	act := map[dispatch.Action]func(ctx context.Context, queue, id, by string) error{
		dispatch.Retry: t.api.Retry, dispatch.RetryUnknown: t.api.RetryUnknown, dispatch.Skip: t.api.Skip, dispatch.Cancel: t.api.Cancel,
	}[t.action]
	if err := act(ctx, queue, id, operator()); err != nil {
		return apiError(err)
	}
	return t.app.print(map[string]string{"queue": queue, "id": id, "action": string(t.action)}, "%s: %s in %s", pastTense(string(t.action)), id, queue)
}

// onBlocked acts on the messages that block a key. Those that the target may have are never retried all at once.
func (t actor) onBlocked(ctx context.Context, queue string) error {
	q := client.KeyQuery{Queue: queue, Blocked: true, Limit: dispatch.MaxPage}
	left := 0
	err := t.onPages(ctx, queue, func(ctx context.Context) (ids []string, next string, err error) {
		page, err := t.api.Keys(ctx, q)
		for _, k := range page.Keys {
			if t.action == dispatch.Retry && mayHaveIt(k.State) {
				left++
				continue
			}
			ids = append(ids, k.Head)
		}
		q.After = page.Next
		return ids, page.Next, err
	})
	if left > 0 {
		err = errors.Join(err, fmt.Errorf("%d left as they are, because the target may have them: look for each there (understudy queue keys %s --blocked), then: understudy queue retry --i-know ID…", left, queue))
	}
	return err
}

// onState acts on the messages that are in a state now.
func (t actor) onState(ctx context.Context, q client.MessageQuery) error {
	if _, err := api.ParseState(q.State); err != nil {
		return err
	}
	q.Limit = dispatch.MaxPage
	done := map[string]bool{} // one that is retried may soon be in the same state again, further on
	return t.onPages(ctx, q.Queue, func(ctx context.Context) (ids []string, next string, err error) {
		page, err := t.api.Messages(ctx, q)
		for _, m := range page.Messages {
			if !done[m.ID] {
				done[m.ID] = true
				ids = append(ids, m.ID)
			}
		}
		q.After = page.Next
		return ids, page.Next, err
	})
}

// onPages acts on the messages of every page. Where nobody answers it ends: what follows on the next page must not be acted on
// before what is left of this one. All errors are returned, for the names of messages whose outcome is unknown.
func (t actor) onPages(ctx context.Context, queue string, page func(context.Context) (ids []string, next string, err error)) error {
	if err := dispatch.ValidateQueue(queue); err != nil {
		return err
	}
	var failed []error
	for {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		ids, next, err := page(call)
		cancel()
		if err != nil {
			return errors.Join(append(failed, apiError(err))...)
		}
		err = t.onIDs(ctx, queue, ids)
		if err != nil {
			failed = append(failed, err)
		}
		unanswered := exitCode(err) == exitUnreachable
		if unanswered && next != "" && !errors.Is(err, errRest) {
			failed = append(failed, errRest)
		}
		if unanswered || next == "" || ctx.Err() != nil {
			return errors.Join(failed...)
		}
	}
}

func (a *app) queueWaitCommand() *cobra.Command {
	var queue string
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "wait ID…",
		Short: "Wait until messages are final; exit 0 if all were committed",
		Long: `Wait until messages are final, and print each with its final state. Exits 0 if all were committed; 1 if one
ended as invalid, failed or cancelled, or was not final in time; 3 if there is no such message. A message that blocks
its key is waited for: an operator may retry or skip it.`,
		Example: `  understudy queue wait order-42 --timeout 1m
  understudy queue add orders --key customer-7 order.json | xargs understudy queue wait`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exactly("ID")(c, args)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if timeout < 0 {
				return usererr.Errorf("--timeout %v is negative", timeout)
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

// waitAll waits for the messages. A store that cannot be reached yet is waited for as well.
func (a *app) waitAll(ctx context.Context, queue string, ids []string) error {
	opened := false
	open := func(ctx context.Context) (store.Store, error) {
		if err := a.needStore(); err != nil {
			return nil, err
		}
		st, err := a.Open(ctx, instance.Opening{Patient: true, MustExist: true})
		opened = err == nil
		return st, err
	}
	err := a.withAPIOn(ctx, false, open, func(ctx context.Context, c *client.Client) error { return a.waitFor(ctx, c, queue, ids) })
	if err != nil && !opened && !a.usesServer() {
		return waited(ctx, err, "the store cannot be reached")
	}
	return err
}

func (a *app) waitFor(ctx context.Context, c *client.Client, queue string, ids []string) error {
	var failed []error
	for _, id := range ids {
		b, err := a.awaitFinal(ctx, c, queue, id)
		if err != nil {
			return err
		}
		if err := a.print(b, "%s  %s", b.ID, messageState(b)); err != nil {
			return err
		}
		if b.State != string(dispatch.Committed) {
			failed = append(failed, fmt.Errorf("%s is %w: %s", b.ID, errNotCommitted, endOf(b)))
		}
	}
	return errors.Join(failed...)
}

func endOf(b apitype.Message) string {
	if b.Detail == "" {
		return b.State
	}
	return b.State + ": " + termtext.Line(b.Detail)
}

// waited is what the end of a wait means: that the time is up, or what went wrong.
func waited(ctx context.Context, err error, last string) error {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return fmt.Errorf("%w in time: %s", errNotCommitted, last)
	}
	return err
}

// awaitFinal returns a message, of whatever queue, when it is final.
func (a *app) awaitFinal(ctx context.Context, c *client.Client, queue, id string) (m apitype.Message, err error) {
	const most = time.Second
	next, last, final, reported := 20*time.Millisecond, "not seen yet", false, false
	err = a.poll(ctx, pollOptions{subject: []any{"message", id}, timeout: payloadTimeout}, func(ctx context.Context) (pause time.Duration, err error) {
		if m, err = findMessage(ctx, c, queue, id); err != nil {
			if queue != "" {
				err = fmt.Errorf("%s in %s: %w", id, queue, err)
			}
			return 0, err
		}
		queue, last = m.Queue, endOf(m)
		if final = dispatch.State(m.State).IsFinal() && !m.Blocks; final {
			return 0, nil
		}
		if m.Blocks && !reported {
			reported = true
			fmt.Fprintf(a.stderr, "%s waits for an operator (%s); see: understudy queue retry %s\n", termtext.Text(id), termtext.Text(last), termtext.Text(id))
		}
		pause, next = next, min(next*3/2, most)
		return pause, nil
	})
	if err == nil && !final {
		err = waited(ctx, context.Cause(ctx), id+" is "+last)
	}
	return m, err
}
