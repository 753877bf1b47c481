package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/internal/usererr"
)

func (a *app) historyCommand() *cobra.Command {
	var q client.Query
	var follow bool
	c := &cobra.Command{
		Use:   "history",
		Short: "Print what changed, and why",
		Example: `  understudy history --follow
  understudy history --part role --subject billing --limit 20 -o json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.showHistory(c.Context(), q, follow)
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "print new events as they happen")
	c.Flags().StringVar(&q.Part, "part", "", "only this part: role, once, claim, job, shard, monitor, queue, cache, token, or another space of leases")
	c.Flags().StringVar(&q.Subject, "subject", "", "only this subject, for instance the role's name")
	c.Flags().IntVarP(&q.Limit, "limit", "n", 100, "show this many of the newest events")
	return c
}

// showHistory prints the newest events that match, and then continues if it is wanted.
func (a *app) showHistory(ctx context.Context, q client.Query, follow bool) error {
	if q.Limit < 1 || q.Limit > history.MaxRead {
		return usererr.Errorf("--limit %d: 1 to %d are possible", q.Limit, history.MaxRead)
	}
	show := func(ctx context.Context, c *client.Client) error {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		events, err := c.History(call, q)
		cancel()
		if err != nil {
			return err
		}
		if err := a.printEvents(events); err != nil || !follow {
			return err
		}
		var after int64
		if len(events) > 0 {
			after = events[len(events)-1].ID
		}
		err = c.Events(ctx, client.Follow{Part: q.Part, Subject: q.Subject, After: after, All: after == 0}, func(e apitype.Event) error {
			return a.printEvents([]apitype.Event{e})
		})
		if ctx.Err() != nil {
			return nil // interrupted
		}
		return err
	}
	if follow {
		return a.withRunningAPI(ctx, show)
	}
	return a.withAPI(ctx, show)
}

func (a *app) printEvents(events []apitype.Event) error {
	for _, e := range events {
		if err := a.print(e, "%s  %s", e.At.Local().Format("2006-01-02 15:04:05.000"), historyEvent(e)); err != nil {
			return err
		}
	}
	return nil
}

// historyEvent is an event of the API as the history has it.
func historyEvent(e apitype.Event) history.Event {
	return history.Event{
		ID: e.ID, At: e.At, Part: e.Part, Subject: e.Subject, From: e.From, To: e.To, Term: e.Term, Reason: e.Reason, Duration: millis(e.DurationMS),
	}
}
