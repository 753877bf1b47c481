package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/internal/plain"
	"github.com/understudy-ha/understudy/monitor"
)

func (a *app) alarmCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "alarm",
		Short: "Alarms of the monitor: list, show, acknowledge",
		Long: `An alarm is one outage of a source: it begins with an ONSET and ends with an ABATED of the
same request id. See "monitor" and "source".`,
		Example: `  understudy alarm list --standing
  understudy alarm acknowledge 3f0c…`,
	}
	c.AddCommand(a.alarmListCommand(), a.alarmShowCommand(), a.alarmAcknowledgeCommand())
	return c
}

func (a *app) alarmListCommand() *cobra.Command {
	var q monitor.AlarmQuery
	var limit int
	c := &cobra.Command{
		Use:   "list",
		Short: "List alarms, the newest first, those that ended too",
		Long: `List alarms, the newest first; those that ended are there until they are pruned. STARTED is
when the outage began, ENDED how it ended: by a beat (ABATED), or because the source was retired or
its event name removed.`,
		Example: `  understudy alarm list --standing
  understudy alarm list --event nightly-backup --source db-1 -n 20
  understudy alarm list --standing -o json | jq -r .id | xargs understudy alarm acknowledge`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			return a.withSources(c.Context(), func(ctx context.Context, t sourceDesk) error {
				alarms, more, err := pages(ctx, limit, func(ctx context.Context, n int) ([]monitor.Alarm, error) {
					q.Limit = n
					page, err := t.Alarms(ctx, q)
					if len(page) > 0 {
						q.Before, q.BeforeID = page[len(page)-1].Raised, page[len(page)-1].ID
					}
					return page, err
				})
				if err != nil {
					return err
				}
				return errors.Join(a.printAlarms(alarms), a.tellMore(more))
			})
		},
	}
	c.Flags().StringVar(&q.Event, "event", "", "only of this `EVENT` name")
	c.Flags().StringVar(&q.Source, "source", "", "only of this `SOURCE`")
	c.Flags().BoolVar(&q.Standing, "standing", false, "only those that stand")
	c.Flags().IntVarP(&limit, "limit", "n", 100, "at most so many")
	return c
}

func (a *app) printAlarms(alarms []monitor.Alarm) error {
	var rows []string
	for _, al := range alarms {
		if a.json() {
			if err := a.printJSON(api.ViewAlarm(al)); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, row(al.ID, al.Event, alarmSubject(al), al.Reason, when(al.Started), alarmEnd(al), alarmLasted(al), al.Acknowledged))
	}
	if a.json() {
		return nil
	}
	return a.table("ALARM\tEVENT\tSOURCE\tREASON\tSTARTED\tENDED\tFOR\tACKNOWLEDGED", rows)
}

// alarmSubject is a source, or the group that an alarm is of.
func alarmSubject(al monitor.Alarm) string {
	if al.Source == "" {
		return fmt.Sprintf("group %s, %d sources", al.Group, al.Members)
	}
	return al.Source
}

func alarmEnd(al monitor.Alarm) string {
	if al.Ended.IsZero() {
		return "stands"
	}
	return when(al.Ended) + " " + string(al.End)
}

func alarmLasted(al monitor.Alarm) string {
	if al.Ended.IsZero() {
		return ""
	}
	return plain.Brief(al.Ended.Sub(al.Started))
}

func (a *app) alarmShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show ID",
		Short:   "Show an alarm",
		Example: "  understudy alarm show 3f0c… -o json",
		Args:    exactly("ID"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.askSources(c.Context(), func(ctx context.Context, t sourceDesk) error {
				found, err := t.Alarms(ctx, monitor.AlarmQuery{ID: args[0], Limit: 1})
				if err == nil && len(found) == 0 {
					err = fmt.Errorf("%w: %q", monitor.ErrNoAlarm, args[0])
				}
				if err != nil {
					return err
				}
				if a.json() {
					return a.printJSON(api.ViewAlarm(found[0]))
				}
				return a.printAlarm(found[0])
			})
		},
	}
}

func (a *app) printAlarm(al monitor.Alarm) error {
	return a.printFacts([][2]string{
		{"alarm", al.ID}, {"event", al.Event}, {"source", alarmSubject(al)}, {"reason", string(al.Reason)},
		{"started", when(al.Started)}, {"raised", when(al.Raised)}, {"ended", alarmEnd(al)}, {"lasted", alarmLasted(al)},
		{"told with", al.Group}, {"labels", labelText(al.Labels)}, {"seen by", al.Acknowledged},
	})
}

// printFacts prints what is known, each on its line.
func (a *app) printFacts(facts [][2]string) error {
	for _, f := range facts {
		if f[1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(a.stdout, "%-10s %s\n", f[0], plain.Text(plain.Line(f[1]))); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) alarmAcknowledgeCommand() *cobra.Command {
	var note string
	c := &cobra.Command{
		Use:     "acknowledge ID…",
		Aliases: []string{"ack"},
		Short:   "Say that somebody has seen alarms",
		Long: `Say that somebody has seen alarms: their names stand beside them, for others to see. Nothing
else changes: an alarm ends when its source returns. Who and why is kept in the history.`,
		Example: `  understudy alarm acknowledge 3f0c… --note "disk is being replaced"
  understudy alarm list --standing -o json | jq -r .id | xargs understudy alarm acknowledge`,
		Args: atLeast("ID"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.actOnEach(c.Context(), "acknowledge", "alarm", args, func(id string) monitor.Action {
				return monitor.Action{Verb: monitor.Acknowledge, Alarm: id, Who: who(), Note: note}
			})
		},
	}
	c.Flags().StringVar(&note, "note", "", "`WHY`, for the history")
	return c
}

// actOnEach goes on after one with which it cannot be done, and returns all that
// was wrong.
func (a *app) actOnEach(ctx context.Context, did, noun string, names []string, action func(string) monitor.Action) error {
	return a.withSources(ctx, func(ctx context.Context, t sourceDesk) error {
		var failed []error
		for _, name := range names {
			call, cancel := context.WithTimeout(ctx, callTimeout)
			err := t.Act(call, action(name))
			cancel()
			if err == nil {
				if err = a.tellDone(did, noun, name); err != nil {
					return err
				}
				continue
			}
			if failed = append(failed, fmt.Errorf("%s: %w", name, err)); exitCode(err) == exitUnreachable {
				break
			}
		}
		return errors.Join(failed...)
	})
}

// atLeast checks that every argument is there; the last may be repeated.
func atLeast(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		return exactly(names...)(c, args[:min(len(args), len(names))])
	}
}
