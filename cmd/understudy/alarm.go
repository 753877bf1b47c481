package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/termtext"
)

func (a *app) alarmCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "alarm",
		Short: "Alarms of the monitor and of jobs: list, show, acknowledge",
		Long: `An alarm is one outage of a source: it starts with an ONSET and ends with an ABATED of the same
request ID. The alarm of a job has the check "job", and ends with the next good run. See "monitor", "source" and "job".`,
		Example: `  understudy alarm list --open
  understudy alarm acknowledge 3f0c…`,
	}
	c.AddCommand(a.alarmListCommand(), a.alarmShowCommand(), a.alarmAcknowledgeCommand())
	return c
}

func (a *app) alarmListCommand() *cobra.Command {
	var q client.AlarmQuery
	var limit int
	c := &cobra.Command{
		Use:   "list",
		Short: "List alarms, newest first, including ended ones",
		Long: `List alarms, newest first; ended alarms are listed until they are pruned, and those of jobs (check
"job") until their sinks know. STARTED is when the outage started, or the time of the run, ENDED how it ended: by a heartbeat,
a changed check or a good run (ABATED), or because the source was retired or its check removed.`,
		Example: `  understudy alarm list --open
  understudy alarm list --check nightly-backup --source db-1 -n 20
  understudy alarm list --open -o json | jq -r 'select(.check != "job").id' | xargs understudy alarm acknowledge`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return printPagesOfAPI(c.Context(), a, limit, func(ctx context.Context, c *client.Client, n int) ([]apitype.Alarm, string, error) {
				q.Limit = n
				page, err := c.Alarms(ctx, q)
				q.After = page.Next
				return page.Alarms, page.Next, err
			}, a.printAlarms)
		},
	}
	checkFlag(c.Flags(), &q.Check)
	c.Flags().StringVar(&q.Source, "source", "", "only of this `SOURCE`")
	c.Flags().BoolVar(&q.Open, "open", false, "only open alarms")
	strictyaml.Renamed(c.Flags(), "standing", "open")
	c.Flags().IntVarP(&limit, "limit", "n", 100, "list at most this many")
	return c
}

func (a *app) printAlarms(alarms []apitype.Alarm) error {
	return printList(a, alarms, "ALARM\tCHECK\tSOURCE\tREASON\tSTARTED\tENDED\tFOR\tACKNOWLEDGED", func(al apitype.Alarm) string {
		return row(al.ID, al.Check, alarmSubject(al), al.Reason, when(al.Started), alarmEnd(al), alarmLasted(al), al.Acknowledged)
	})
}

// alarmSubject is a source, or the group that an alarm is of.
func alarmSubject(al apitype.Alarm) string {
	if al.Source == "" {
		return fmt.Sprintf("group %s, %d sources", al.Group, al.Members)
	}
	return al.Source
}

func alarmEnd(al apitype.Alarm) string {
	if al.Ended.IsZero() {
		return "open"
	}
	return when(al.Ended) + " " + al.End
}

func alarmLasted(al apitype.Alarm) string {
	if al.Ended.IsZero() {
		return ""
	}
	return termtext.Brief(al.Ended.Sub(al.Started))
}

func (a *app) alarmShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show ID",
		Short:   "Show an alarm",
		Example: "  understudy alarm show 3f0c… -o json",
		Args:    exactly("ID"),
		RunE: a.apiRunE(func(ctx context.Context, c *client.Client, args []string) error {
			al, err := c.Alarm(ctx, args[0])
			if err != nil {
				return err
			}
			return printAs(a, al, a.printAlarm)
		}),
	}
}

func (a *app) printAlarm(al apitype.Alarm) error {
	return a.printFacts([][2]string{
		{"alarm", al.ID}, {"check", al.Check}, {"source", alarmSubject(al)}, {"reason", al.Reason}, {"why", al.Why},
		{"started", when(al.Started)}, {"raised", when(al.Raised)}, {"ended", alarmEnd(al)}, {"lasted", alarmLasted(al)},
		{"grouped with", al.Group}, {"labels", labelText(al.Labels)}, {"acknowledged by", al.Acknowledged},
	})
}

func (a *app) alarmAcknowledgeCommand() *cobra.Command {
	var note string
	c := &cobra.Command{
		Use:     "acknowledge ID…",
		Aliases: []string{"ack"},
		Short:   "Acknowledge alarms",
		Long: `Acknowledge alarms: your name is listed with them. Nothing else changes: an alarm ends when its
source returns. Alarms of jobs cannot be acknowledged. The history keeps who acknowledged it and why.`,
		Example: `  understudy alarm acknowledge 3f0c… --note "disk is being replaced"
  understudy alarm list --open -o json | jq -r 'select(.check != "job").id' | xargs understudy alarm acknowledge`,
		Args: atLeast("ID"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.actOnEach(c.Context(), "acknowledge", "alarm", args, func(ctx context.Context, c *client.Client, id string) error {
				return c.Acknowledge(ctx, id, operator(), termtext.Text(note))
			})
		},
	}
	c.Flags().StringVar(&note, "note", "", "`WHY`, for the history")
	return c
}
