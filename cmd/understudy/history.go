package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/internal/plain"
	"github.com/understudy-ha/understudy/internal/usage"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

func (a *app) historyCommand() *cobra.Command {
	var q history.Query
	var goOn bool
	c := &cobra.Command{
		Use:   "history",
		Short: "Print what changed hands, and why",
		Example: `  understudy history --follow
  understudy history --part role --subject billing --limit 20 -o json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.showHistory(c.Context(), q, goOn)
		},
	}
	c.Flags().BoolVarP(&goOn, "follow", "f", false, "go on with what happens from now on")
	c.Flags().StringVar(&q.Part, "part", "", "only this part, for instance role")
	c.Flags().StringVar(&q.Subject, "subject", "", "only this subject, for instance the role's name")
	c.Flags().IntVarP(&q.Limit, "limit", "n", 100, "the newest so many events")
	return c
}

// showHistory prints the newest events that match, and then goes on if it is wanted.
func (a *app) showHistory(ctx context.Context, q history.Query, goOn bool) error {
	if q.Limit < 1 || q.Limit > history.MaxRead {
		return usage.Errorf("--limit %d: 1 to %d are possible", q.Limit, history.MaxRead)
	}
	return a.withRoles(ctx, func(ctx context.Context, d roleDesk) error {
		q.Newest = true
		call, cancel := context.WithTimeout(ctx, callTimeout)
		events, err := d.Read(call, q)
		cancel()
		if err != nil {
			return err
		}
		if err := a.printEvents(events); err != nil || !goOn {
			return err
		}
		after := q.After
		if len(events) > 0 {
			after = events[len(events)-1].ID
		}
		return d.follow(ctx, after, q.Part, q.Subject, a.printEvents)
	})
}

// follow hands on events as they come, woken by the store and looking once a
// second besides, until ctx ends, which is no error, or tell returns one.
func follow(ctx context.Context, st store.Store, log *slog.Logger, feed *history.Feed, tell func([]history.Event) error) error {
	hub := lease.NewHub(st, nil, log)
	defer hub.Start(ctx)()
	sub := hub.Subscribe()
	defer sub.Close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		events, err := feed.Next(call)
		cancel()
		if err != nil && ctx.Err() == nil {
			log.Warn("the history cannot be read; trying again", "err", err)
		}
		if err := tell(events); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-sub.C():
		case <-tick.C:
		}
	}
}

func (a *app) printEvents(events []history.Event) error {
	for _, e := range events {
		var err error
		if a.json() {
			err = a.printJSON(e)
		} else {
			_, err = fmt.Fprintf(a.stdout, "%s  %s\n", e.At.Local().Format("2006-01-02 15:04:05.000"), plain.Text(e.String()))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
