package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

func (a *app) statusCommand() *cobra.Command {
	var watch bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show everything at a glance: store, roles, instances, the latest events",
		Example: `  understudy status --watch
  understudy status -o json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			st, err := a.open(c.Context())
			if err != nil {
				return err
			}
			defer st.Close()
			if !watch {
				return a.status(c.Context(), st)
			}
			return a.watchStatus(c.Context(), st)
		},
	}
	c.Flags().BoolVarP(&watch, "watch", "w", false, "show it anew every second, until interrupted")
	return c
}

// situation is all that status shows.
type situation struct {
	info     store.Info
	roles    []elect.Role
	sessions []lease.Session
	events   []history.Event
}

func look(ctx context.Context, st store.Store) (s situation, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if s.info, err = st.Inspect(ctx); err != nil {
		return s, err
	}
	if s.roles, err = elect.Roles(ctx, st); err != nil {
		return s, err
	}
	if s.sessions, err = st.Sessions(ctx); err != nil {
		return s, err
	}
	s.events, err = st.Read(ctx, history.Query{Newest: true, Limit: 10})
	return s, err
}

func (a *app) status(ctx context.Context, st store.Store) error {
	s, err := look(ctx, st)
	if err != nil {
		return err
	}
	if a.json() {
		return a.printJSON(map[string]any{
			"store": s.info, "roles": rolesJSON(s.roles), "instances": sessionsJSON(s.sessions), "history": s.events,
		})
	}
	return a.printSituation(s)
}

func sessionsJSON(sessions []lease.Session) []map[string]any {
	out := []map[string]any{}
	for _, s := range sessions {
		out = append(out, map[string]any{
			"session": s.ID, "instance": s.Instance, "started": s.Started, "renewals": s.Seq,
			"interval_ms": s.Timing.Interval.Milliseconds(), "timeout_ms": s.Timing.Timeout.Milliseconds(),
			"expires_in_ms": s.Remaining.Milliseconds(),
		})
	}
	return out
}

func (a *app) printSituation(s situation) error {
	fmt.Fprintf(a.stdout, "store  %s (%s)\n", clean(s.info.Location), clean(s.info.Server))
	for _, w := range s.info.Warnings {
		fmt.Fprintf(a.stdout, "       warning: %s\n", clean(w))
	}
	fmt.Fprintln(a.stdout)
	if err := a.printRoles(s.roles); err != nil {
		return err
	}
	fmt.Fprintln(a.stdout)
	var rows []string
	for _, n := range s.sessions {
		rows = append(rows, row(n.Instance.Name, n.Instance.Address, n.Instance.ID, n.Started.Local().Format(time.DateTime),
			n.Timing.Interval.String()+"/"+n.Timing.Timeout.String(), brief(n.Remaining)))
	}
	if err := a.table("INSTANCE\tADDRESS\tID\tSTARTED\tI/T\tLEFT", rows); err != nil {
		return err
	}
	fmt.Fprintln(a.stdout)
	return a.printEvents(s.events)
}

// watchStatus redraws until ctx ends. A store that does not answer is shown as
// such, and asked again.
func (a *app) watchStatus(ctx context.Context, st store.Store) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		// Cleared only when the next picture is there, so that nothing flickers and
		// the last one stays while the store does not answer.
		var picture bytes.Buffer
		if !a.json() {
			picture.WriteString("\x1b[H\x1b[2J")
		}
		painter := *a
		painter.stdout = &picture
		err := painter.status(ctx, st)
		switch {
		case err == nil:
			if _, err := picture.WriteTo(a.stdout); err != nil {
				return err
			}
		case ctx.Err() != nil:
			return nil
		case exitCode(err) != exitUnreachable:
			return err
		default:
			fmt.Fprintf(a.stderr, "%s  %s\n", time.Now().Format("15:04:05"), clean(err.Error()))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
