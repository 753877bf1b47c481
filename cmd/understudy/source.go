package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/internal/plain"
	"github.com/understudy-ha/understudy/internal/usage"
	"github.com/understudy-ha/understudy/monitor"
)

func (a *app) sourceCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "source",
		Short: "Sources of the monitor: list, show, beat, declare, pause, resume, retire",
		Long: `A source is a machine, a job or a program that sends beats under the name of an event, which
says what is expected of it. See "monitor" and "alarm".`,
		Example: `  understudy source beat nightly-backup db-1
  understudy source list --state down
  understudy source pause nightly-backup db-1 --for 2h --note "new disk"`,
	}
	c.AddCommand(a.sourceListCommand(), a.sourceShowCommand(), a.sourceBeatCommand(), a.sourceDeclareCommand(),
		a.sourcePauseCommand(), a.sourceResumeCommand(), a.sourceRetireCommand())
	return c
}

func (a *app) sourceListCommand() *cobra.Command {
	var q monitor.SourceQuery
	var state, label string
	var limit int
	c := &cobra.Command{
		Use:   "list",
		Short: "List sources by event name and name",
		Long: `List sources by event name and name. QUIET is how long ago the last beat came, LEFT how long
the source may still be quiet. RECENT shows the last intervals, the newest first: a beat came (#) or
not (.). The states are up, down, paused and retired.`,
		Example: `  understudy source list --state down
  understudy source list --event nightly-backup --label site=north
  understudy source list --state retired -o json | jq -r .source`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			if err := sourceFilter(&q, state, label); err != nil {
				return err
			}
			return a.withSources(c.Context(), func(ctx context.Context, t sourceDesk) error {
				sources, more, err := pages(ctx, limit, func(ctx context.Context, n int) ([]monitor.SourceRecord, error) {
					q.Limit = n
					page, err := t.Sources(ctx, q)
					if len(page) > 0 {
						q.AfterEvent, q.AfterSource = page[len(page)-1].Event, page[len(page)-1].Source
					}
					return page, err
				})
				if err != nil {
					return err
				}
				return errors.Join(a.printSources(sources), a.tellMore(more))
			})
		},
	}
	c.Flags().StringVar(&q.Event, "event", "", "only of this `EVENT` name")
	c.Flags().StringVar(&state, "state", "", "only in this `STATE`: up, down, paused or retired")
	c.Flags().StringVar(&label, "label", "", "only with this label, `NAME=VALUE`")
	c.Flags().IntVarP(&limit, "limit", "n", 100, "at most so many")
	return c
}

// sourceFilter reads what the flags select.
func sourceFilter(q *monitor.SourceQuery, state, label string) error {
	states := []monitor.State{monitor.Up, monitor.Down, monitor.Paused, monitor.Retired}
	if q.State = monitor.State(state); state != "" && !slices.Contains(states, q.State) {
		return usage.Errorf("--state %q: the states are up, down, paused and retired", state)
	}
	if label == "" {
		return nil
	}
	var ok bool
	if q.Label, q.Value, ok = strings.Cut(label, "="); !ok || q.Label == "" {
		return usage.Errorf("--label %q: use NAME=VALUE", label)
	}
	return nil
}

func (a *app) printSources(sources []monitor.SourceRecord) error {
	var rows []string
	for _, s := range sources {
		if a.json() {
			if err := a.printJSON(api.ViewSource(s)); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, row(s.Event, s.Source, sourceState(s), sourceQuiet(s), sourceLeft(s), s.Beats, recent(s.Recent, 20), s.Path, s.Alarm))
	}
	if a.json() {
		return nil
	}
	return a.table("EVENT\tSOURCE\tSTATE\tQUIET\tLEFT\tBEATS\tRECENT\tPATH\tALARM", rows)
}

func sourceState(s monitor.SourceRecord) string {
	text := string(s.State)
	switch {
	case s.State == monitor.Down:
		text += ", " + string(s.Reason)
	case s.Alarm != "":
		text += ", alarm stands"
	case s.State == monitor.Up && s.Last.IsZero():
		text += ", unseen"
	}
	if s.Running {
		text += ", running"
	}
	return text
}

func sourceQuiet(s monitor.SourceRecord) string {
	if s.Last.IsZero() {
		return "never beat"
	}
	return plain.Brief(s.Quiet)
}

func sourceLeft(s monitor.SourceRecord) string {
	switch {
	case s.State != monitor.Up && s.State != monitor.Down:
		return ""
	case s.Left < 0:
		return "overdue " + plain.Brief(-s.Left)
	default:
		return plain.Brief(s.Left)
	}
}

// recent shows up to most of the last intervals.
func recent(beats []bool, most int) string {
	var out strings.Builder
	for _, beat := range beats[:min(len(beats), most)] {
		if beat {
			out.WriteByte('#')
		} else {
			out.WriteByte('.')
		}
	}
	return out.String()
}

// labelText is labels as the flags take them.
func labelText(labels map[string]string) string {
	out := make([]string, 0, len(labels))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, name+"="+labels[name])
	}
	return strings.Join(out, ", ")
}

func (a *app) sourceShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show EVENT SOURCE",
		Short: "Show a source with its last alarms",
		Example: `  understudy source show nightly-backup db-1
  understudy source show nightly-backup db-1 -o json | jq .left_ms`,
		Args: exactly("EVENT", "SOURCE"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.askSources(c.Context(), func(ctx context.Context, t sourceDesk) error {
				found, err := t.Sources(ctx, monitor.SourceQuery{Event: args[0], Source: args[1], Limit: 1})
				if err == nil && len(found) == 0 {
					err = fmt.Errorf("%w: %q of event %q", monitor.ErrNoSource, args[1], args[0])
				}
				if err != nil {
					return err
				}
				if a.json() {
					return a.printJSON(api.ViewSource(found[0]))
				}
				alarms, err := t.Alarms(ctx, monitor.AlarmQuery{Event: args[0], Source: args[1], Limit: 10})
				if err != nil {
					return err
				}
				return a.printSource(found[0], alarms)
			})
		},
	}
}

func (a *app) printSource(s monitor.SourceRecord, alarms []monitor.Alarm) error {
	last := "never"
	if !s.Last.IsZero() {
		last = fmt.Sprintf("%s, %s ago, by %s", when(s.Last), plain.Brief(s.Quiet), s.Path)
	}
	by := "its first beat"
	if s.Declared {
		by = "a declaration"
	}
	err := a.printFacts([][2]string{
		{"event", s.Event}, {"source", s.Source}, {"state", sourceState(s)}, {"last beat", last}, {"left", sourceLeft(s)},
		{"sent", whenSent(s.Sent)}, {"sequence", orNothing(s.Seq)}, {"exit code", orNothing(s.Code)},
		{"beats", fmt.Sprint(s.Beats)}, {"recent", recent(s.Recent, 64)}, {"known by", by}, {"labels", labelText(s.Labels)},
		{"alarm", s.Alarm}, {"down since", when(s.Since)}, {"until", when(s.Until)}, {"note", s.Note},
	})
	if err != nil || len(alarms) == 0 {
		return err
	}
	fmt.Fprintln(a.stdout)
	return a.printAlarms(alarms)
}

// whenSent is the time that a sender put into its beat.
func whenSent(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05.000") + " by its own clock"
}
