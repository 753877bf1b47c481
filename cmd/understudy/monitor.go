package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/plain"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store"
)

func (a *app) monitorCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "monitor",
		Short: "Raise an alarm when a source falls silent: run, configure, show",
		Long: `Sources send beats. One that falls silent for longer than its event name allows raises one
alarm (ONSET), which ends when it returns (ABATED). Any number of instances share the work. See
also "source" and "alarm". Stores with sources are SQLite and PostgreSQL.`,
		Example: `  understudy monitor run --event nightly-backup,interval=24h,missed=1,grace=1h --webhook https://ops.example/hook
  understudy source beat nightly-backup db-1
  understudy monitor status`,
	}
	c.AddCommand(a.monitorRunCommand(), a.monitorStatusCommand(), a.monitorConfigCommand(),
		a.dropCommand("sink", "SINK", monitor.DropSink, "Sinks, which are told of alarms",
			"Tell a sink of no more alarms",
			`Tell a sink of no more alarms. What waits in its queue stays there: see "batch keys alarms.SINK".
An instance that delivers to it registers it again when it starts: take it out there first.`, "understudy monitor sink drop pager"),
		a.dropCommand("path", "PATH", monitor.DropPath, "Paths, which are ways that beats take",
			"Forget a path that is used no more",
			`Forget a path that is used no more, such as a router that was taken out. While it is known and not
proven to work, the sources that beat through it last are not judged: they would all look silent.
Afterwards they are judged by the path that was proven last.`, "understudy monitor path drop router.old"))
	return c
}

// dropCommand is a noun whose only verb is to drop one.
func (a *app) dropCommand(noun, arg string, verb monitor.Verb, about, short, long, example string) *cobra.Command {
	c := &cobra.Command{Use: noun, Short: about, Example: "  " + example}
	var note string
	drop := &cobra.Command{
		Use: "drop " + arg, Short: short, Long: long + " Who asked is kept in the history.", Example: "  " + example, Args: exactly(arg),
		RunE: func(c *cobra.Command, args []string) error {
			return a.askMonitor(c.Context(), func(ctx context.Context, t monitor.Table) error {
				o, err := t.Overview(ctx)
				if err != nil {
					return err
				}
				if !dropKnown(o, verb, args[0]) {
					return absentf("no such %s: %q; see: understudy monitor status", noun, args[0])
				}
				if err := t.Act(ctx, monitor.Action{Verb: verb, Source: args[0], Who: who(), Note: note}); err != nil {
					return err
				}
				return a.tellDone("drop", noun, args[0])
			})
		},
	}
	drop.Flags().StringVar(&note, "note", "", "`WHY`, for the history")
	c.AddCommand(drop)
	return c
}

// dropKnown tells whether there is something to drop.
func dropKnown(o monitor.Overview, verb monitor.Verb, name string) bool {
	if verb == monitor.DropSink {
		return slices.Contains(o.Sinks, name)
	}
	return slices.ContainsFunc(o.Paths, func(p monitor.PathRecord) bool { return p.Name == name })
}

// tellDone says what was done to what.
func (a *app) tellDone(did, noun, name string) error {
	if a.json() {
		return a.printJSON(map[string]string{"action": did, noun: name})
	}
	_, err := fmt.Fprintf(a.stdout, "%s: %s\n", did, plain.Text(name))
	return err
}

// withMonitor opens the store and lets f use its table; f bounds its own calls.
func (a *app) withMonitor(ctx context.Context, f func(context.Context, monitor.Table) error) error {
	st, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	t, err := a.Monitor(st)
	if err != nil {
		return err
	}
	return monitorAdvice(f(ctx, t))
}

// askMonitor is withMonitor within callTimeout.
func (a *app) askMonitor(ctx context.Context, f func(context.Context, monitor.Table) error) error {
	return a.withMonitor(ctx, func(ctx context.Context, t monitor.Table) error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return f(ctx, t)
	})
}

// monitorAdvice says what to do about what is not there.
func monitorAdvice(err error) error {
	switch {
	case errors.Is(err, monitor.ErrNoEvent):
		return fmt.Errorf("%w; see: understudy monitor config show. \"monitor config apply\" and \"monitor run --event\" add event names", err)
	case errors.Is(err, monitor.ErrNoSource):
		return fmt.Errorf("%w; see: understudy source list", err)
	case errors.Is(err, monitor.ErrNoAlarm):
		return fmt.Errorf("%w; see: understudy alarm list", err)
	}
	return err
}

func (a *app) monitorStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the monitor at a glance: event names, paths, sinks, instances",
		Long: `Show the monitor at a glance. UNSEEN sources were declared, and never beat. A path that is
"blind" is not taken to work: time goes by, and counts against no source that beats through it. A sink's
WAITING alarms are not delivered yet; those BLOCKED wait for a person: see "batch keys alarms.SINK".`,
		Example: `  understudy monitor status
  understudy monitor status -o json | jq .standing`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.ask(c.Context(), func(ctx context.Context, st store.Store) error {
				t, err := a.Monitor(st)
				if err != nil {
					return err
				}
				o, err := t.Overview(ctx)
				if err != nil {
					return err
				}
				queues, err := a.sinkQueues(ctx, st)
				if err != nil {
					// Counting very many keys may take longer than anybody waits.
					a.Log.Warn("what waits for the sinks could not be counted", "err", err)
				}
				if a.json() {
					return a.printJSON(statusJSON(o, queues))
				}
				return a.printMonitor(o, queues)
			})
		},
	}
}

// sinkQueues are the queues from which sinks are told, by sink.
func (a *app) sinkQueues(ctx context.Context, st store.Store) (map[string]dispatch.Overview, error) {
	q, err := a.Queues(st)
	if err != nil {
		return nil, err
	}
	all, err := q.Desk().Queues(ctx)
	out := map[string]dispatch.Overview{}
	for _, o := range all {
		if sink, ok := strings.CutPrefix(o.Queue, monitor.QueueOf("")); ok {
			out[sink] = o
		}
	}
	return out, err
}

// monitorStatus is the monitor with the queues of its sinks.
type monitorStatus struct {
	api.MonitorView
	SinkQueues []api.QueueView `json:"sink_queues"`
}

func statusJSON(o monitor.Overview, queues map[string]dispatch.Overview) monitorStatus {
	out := monitorStatus{MonitorView: api.ViewMonitor(o), SinkQueues: []api.QueueView{}}
	for _, s := range o.Sinks {
		if q, ok := queues[s]; ok {
			out.SinkQueues = append(out.SinkQueues, api.ViewQueue(q))
		}
	}
	return out
}

func (a *app) printMonitor(o monitor.Overview, queues map[string]dispatch.Overview) error {
	configured := "never"
	if !o.Configured.IsZero() {
		configured = when(o.Configured) + " from " + plain.Line(o.Origin)
	}
	fmt.Fprintf(a.stdout, "configured  %s\nstanding    %d alarms\n", plain.Text(configured), o.Standing)
	if o.Error != "" {
		fmt.Fprintf(a.stdout, "refused     %s\n", plain.Text(strings.ReplaceAll(o.Error, "\n", " ")))
	}
	var rows []string
	for _, e := range o.Events {
		rows = append(rows, row(e.Name, expectation(e.Event), e.Up, e.Down, e.Paused, e.Retired, e.Unseen, eventState(e.Expected)))
	}
	paths := make([]string, 0, len(o.Paths))
	for _, p := range o.Paths {
		seeing := "seeing"
		if !p.Seeing {
			seeing = "blind"
		}
		paths = append(paths, row(p.Name, seeing, plain.Brief(p.Quiet), orDash(p.Blind)))
	}
	sinks := make([]string, 0, len(o.Sinks))
	for _, s := range o.Sinks {
		q, oldest := queues[s], ""
		if q.Depth > 0 {
			oldest = orDash(q.Oldest)
		}
		if _, known := queues[s]; !known {
			sinks = append(sinks, row(s, "?", "?", "?", "?", tellers(o, s)))
			continue
		}
		sinks = append(sinks, row(s, q.Depth, q.Blocked, oldest, q.Done, tellers(o, s)))
	}
	members := make([]string, 0, len(o.Members))
	for _, m := range o.Members {
		active := ""
		if m.Active {
			active = "active"
		}
		members = append(members, row(m.Instance.Name, m.Host, m.Process, m.Service, active, m.Partitions, strings.Join(m.Sinks, ", ")))
	}
	for _, t := range []struct {
		header string
		rows   []string
	}{
		{"EVENT\tEXPECTED\tUP\tDOWN\tPAUSED\tRETIRED\tUNSEEN\tSTATE", rows},
		{"PATH\tSTATE\tPROVEN\tBLIND FOR", paths},
		{"SINK\tWAITING\tBLOCKED\tOLDEST\tOVER\tTOLD BY", sinks},
		{"INSTANCE\tHOST\tPROCESS\tSERVICE\tROLE\tPARTITIONS\tSINKS", members},
	} {
		fmt.Fprintln(a.stdout)
		if err := a.table(t.header, t.rows); err != nil {
			return err
		}
	}
	return nil
}

// tellers are the instances that tell a sink.
func tellers(o monitor.Overview, sink string) string {
	n := 0
	for _, m := range o.Members {
		if slices.Contains(m.Sinks, sink) {
			n++
		}
	}
	switch n {
	case 0:
		return "nobody: drop it, or start an instance with it"
	case 1:
		return "1 instance"
	}
	return fmt.Sprintf("%d instances", n)
}

// expectation is what is expected of the sources of an event, in few words.
func expectation(e monitor.Event) string {
	text := "every " + plain.Duration(e.Interval)
	if e.Schedule != "" {
		text = "at " + e.Schedule
	}
	text += fmt.Sprintf(" × %d", e.Missed)
	if e.Grace > 0 {
		text += " + " + plain.Duration(e.Grace)
	}
	return text
}

func eventState(e monitor.Expected) string {
	switch {
	case e.Removed:
		return "removed"
	case e.Paused:
		return "paused"
	}
	return ""
}
