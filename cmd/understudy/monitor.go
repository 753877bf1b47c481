package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/monitor"
)

func (a *app) monitorCommand() *cobra.Command {
	c := &cobra.Command{
		Use:         "monitor",
		Annotations: requires("sources"),
		Short:       "Raise an alarm when a source falls silent: run, configure, show",
		Long: `Sources send heartbeats. A source that is silent for longer than its check allows raises one alarm
(ONSET), which ends when the source returns (ABATED). Any number of instances share the work. See also "source" and
"alarm". The monitor needs SQLite or PostgreSQL.`,
		Example: `  understudy monitor run --check nightly-backup,interval=24h,missed=1,grace=1h --webhook https://ops.example/hook
  understudy source beat nightly-backup db-1
  understudy monitor status`,
	}
	c.AddCommand(a.monitorRunCommand(), a.monitorStatusCommand(), a.monitorConfigCommand(), a.monitorCheckCommand(), a.monitorSinkCommand(), a.monitorPathCommand())
	return c
}

func (a *app) monitorSinkCommand() *cobra.Command {
	return a.removeCommand("sink", "Sinks, which receive alarms", "Remove a sink; it gets no more alarms",
		`Remove a sink; it gets no more alarms. Those that wait in its queue stay there: see "queue keys
alarms.SINK". An instance that delivers to it registers it again when it starts: remove it from the configuration first.`,
		"understudy monitor sink remove pager", (*client.Client).RemoveSink)
}

func (a *app) monitorPathCommand() *cobra.Command {
	return a.removeCommand("path", "Intake paths, by which heartbeats arrive", "Forget an intake path that is no longer used",
		`Forget an intake path that is no longer used, such as a router that was removed. While a path is known
and not proven to work, the sources whose last heartbeat came by it are not judged: they would all look silent. Afterwards
they are judged by the path that was proven last.`,
		"understudy monitor path remove router.old", (*client.Client).RemovePath)
}

// removeCommand is a noun whose only verb is to remove one; drop is its old name.
func (a *app) removeCommand(noun, about, short, long, example string, remove func(c *client.Client, ctx context.Context, name, by, note string) error) *cobra.Command {
	c := &cobra.Command{Use: noun, Short: about, Example: "  " + example}
	arg := strings.ToUpper(noun)
	for _, verb := range []string{"remove", "drop"} {
		var note string
		one := &cobra.Command{
			Use: verb + " " + arg, Short: short, Long: long + " The history records who asked.", Example: "  " + example, Args: exactly(arg),
			Hidden: verb == "drop",
			RunE: func(c *cobra.Command, args []string) error {
				return a.removeByAPI(c.Context(), verb, noun, args[0], func(ctx context.Context, c *client.Client) error {
					return remove(c, ctx, args[0], operator(), note)
				})
			},
		}
		one.Flags().StringVar(&note, "note", "", "`WHY`, for the history")
		c.AddCommand(one)
	}
	return c
}

func (a *app) monitorStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the monitor at a glance: checks, paths, sinks, instances",
		Long: `Show the monitor at a glance. UNSEEN sources were declared and have sent no heartbeat. While a path is
"blind", it is not known to work, and the time counts against none of its sources. A sink's WAITING alarms are not
delivered yet; BLOCKED ones wait for an operator: see "queue keys alarms.SINK".`,
		Example: `  understudy monitor status
  understudy monitor status -o json | jq .open`,
		Args: noArgs,
		RunE: a.apiRunE(func(ctx context.Context, c *client.Client, _ []string) error {
			m, err := c.Monitor(ctx)
			if err != nil {
				return err
			}
			queues, err := c.Queues(ctx)
			if err != nil {
				// Counting very many keys may take longer than anybody waits.
				a.Log.Warn("waiting alarms of the sinks could not be counted", "err", err)
			}
			status := monitorStatus{Monitor: m, SinkQueues: []apitype.Queue{}}
			for _, sink := range m.Sinks {
				if q, ok := queueOf(queues, sink); ok {
					status.SinkQueues = append(status.SinkQueues, q)
				}
			}
			return printAs(a, status, a.printMonitor)
		}),
	}
}

// monitorStatus is the monitor with the queues of its sinks.
type monitorStatus struct {
	apitype.Monitor
	SinkQueues []apitype.Queue `json:"sink_queues"`
}

// queueOf finds the queue that delivers to a sink.
func queueOf(queues []apitype.Queue, sink string) (apitype.Queue, bool) {
	i := slices.IndexFunc(queues, func(q apitype.Queue) bool { return q.Queue == monitor.SinkQueue(sink) })
	if i < 0 {
		return apitype.Queue{}, false
	}
	return queues[i], true
}

// openAlarms is how many alarms are open; a server of the version before says it by the old name alone.
func openAlarms(m apitype.Monitor) int64 { return cmp.Or(m.Open, m.Standing) }

func (a *app) printMonitor(m monitorStatus) error {
	configured := "never"
	if !m.Configured.IsZero() {
		configured = when(m.Configured) + " from " + termtext.Line(m.Origin)
	}
	fmt.Fprintf(a.stdout, "configured  %s\nopen        %d alarms\n", termtext.Text(configured), openAlarms(m.Monitor))
	if m.ConfigError != "" {
		fmt.Fprintf(a.stdout, "refused     %s\n", termtext.Text(strings.ReplaceAll(m.ConfigError, "\n", " ")))
	}
	var rows []string
	for _, e := range m.Checks {
		rows = append(rows, row(e.Name, expectation(e.Check), e.Up, e.Down, e.PausedSources, e.Retired, e.Unseen, checkState(e)))
	}
	paths := make([]string, 0, len(m.Paths))
	for _, p := range m.Paths {
		pathState, lastProbe := "up", "never"
		if !p.Working {
			pathState = "blind"
		}
		if p.QuietMS != nil {
			lastProbe = termtext.Brief(millis(*p.QuietMS))
		}
		paths = append(paths, row(p.Path, pathState, lastProbe, briefOrBlank(millis(p.BlindMS))))
	}
	sinks := make([]string, 0, len(m.Sinks))
	for _, s := range m.Sinks {
		q, known := queueOf(m.SinkQueues, s)
		if !known {
			sinks = append(sinks, row(s, "?", "?", "?", "?", "?", deliveringInstances(m.Monitor, s)))
			continue
		}
		oldest := ""
		if q.Depth > 0 {
			oldest = briefOrBlank(millis(q.OldestMS))
		}
		sinks = append(sinks, row(s, q.Depth, q.Refused, q.Blocked, oldest, q.Done, deliveringInstances(m.Monitor, s)))
	}
	members := make([]string, 0, len(m.Members))
	for _, one := range m.Members {
		active := ""
		if one.Active {
			active = "active"
		}
		members = append(members, row(one.Instance.Name, one.Host, one.Process, one.Service, active, one.Partitions, strings.Join(one.Sinks, ", ")))
	}
	for _, t := range []struct {
		header string
		rows   []string
	}{
		{"CHECK\tEXPECTED\tUP\tDOWN\tPAUSED\tRETIRED\tUNSEEN\tSTATE", rows},
		{"PATH\tSTATE\tLAST PROBE\tBLIND FOR", paths},
		{"SINK\tWAITING\tREFUSED\tBLOCKED\tOLDEST\tDONE\tDELIVERED BY", sinks},
		{"INSTANCE\tHOST\tPROCESS\tSERVICE\tROLE\tPARTITIONS\tSINKS", members},
	} {
		fmt.Fprintln(a.stdout)
		if err := a.table(t.header, t.rows); err != nil {
			return err
		}
	}
	return nil
}

// deliveringInstances is how many instances deliver to a sink, in words.
func deliveringInstances(m apitype.Monitor, sink string) string {
	n := 0
	for _, one := range m.Members {
		if slices.Contains(one.Sinks, sink) {
			n++
		}
	}
	switch n {
	case 0:
		return "none: drop it, or start an instance with it"
	case 1:
		return "1 instance"
	}
	return fmt.Sprintf("%d instances", n)
}

// expectation is what is expected of the sources of a check, in few words.
func expectation(e apitype.Check) string {
	text := "every " + termtext.Duration(millis(e.IntervalMS))
	if e.Schedule != "" {
		text = "at " + e.Schedule
	}
	text += fmt.Sprintf(" × %d", e.Missed)
	if e.GraceMS > 0 {
		text += " + " + termtext.Duration(millis(e.GraceMS))
	}
	return text
}

func checkState(e apitype.CheckCount) string {
	switch {
	case e.Removed:
		return "removed"
	case e.Paused:
		return "paused"
	}
	return ""
}

func (a *app) monitorCheckCommand() *cobra.Command {
	c := &cobra.Command{Use: "check", Short: "Checks, which say what is expected of sources", Example: "  understudy monitor check remove nightly-backup"}
	c.AddCommand(&cobra.Command{
		Use:   "remove CHECK",
		Short: "Remove a check: its alarms end, and its sources are forgotten",
		Long: `Remove a check: its alarms end, and its sources are forgotten. A server whose file has the check adds it again when it
starts. The history records who asked.`,
		Example: "  understudy monitor check remove nightly-backup",
		Args:    exactly("CHECK"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.removeByAPI(c.Context(), "remove", "check", args[0], func(ctx context.Context, c *client.Client) error {
				return c.RemoveCheck(ctx, args[0], operator())
			})
		},
	})
	return c
}
