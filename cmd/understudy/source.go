package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/monitor"
)

func (a *app) sourceCommand() *cobra.Command {
	c := &cobra.Command{
		Use:         "source",
		Annotations: requires("sources"),
		Short:       "Sources of the monitor: list, show, beat, declare, pause, resume, retire",
		Long: `A source is a machine, a job or a program that sends heartbeats for a check, which says when they
are expected. See "monitor" and "alarm".`,
		Example: `  understudy source beat nightly-backup db-1
  understudy source list --state down
  understudy source pause nightly-backup db-1 --for 2h --note "new disk"`,
	}
	c.AddCommand(a.sourceListCommand(), a.sourceShowCommand(), a.sourceBeatCommand(), a.sourceDeclareCommand(),
		a.sourcePauseCommand(), a.sourceResumeCommand(), a.sourceRetireCommand(), a.sourceRemoveCommand())
	return c
}

func (a *app) sourceListCommand() *cobra.Command {
	var q client.SourceQuery
	var state, label string
	var limit int
	c := &cobra.Command{
		Use:   "list",
		Short: "List sources by check and name",
		Long: `List sources by check and name. QUIET is how long ago the last heartbeat came, LEFT how long the
source may still be quiet. RECENT shows the last intervals, the newest first: a heartbeat came (#) or not (.). The states are up, down, paused and retired.`,
		Example: `  understudy source list --state down
  understudy source list --check nightly-backup --label site=north
  understudy source list --state retired -o json | jq -r .source`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := sourceFilter(&q, state, label); err != nil {
				return err
			}
			return printPagesOfAPI(c.Context(), a, limit, func(ctx context.Context, c *client.Client, n int) ([]apitype.Source, string, error) {
				q.Limit = n
				page, err := c.Sources(ctx, q)
				q.After = page.Next
				return page.Sources, page.Next, err
			}, a.printSources)
		},
	}
	checkFlag(c.Flags(), &q.Check)
	c.Flags().StringVar(&state, "state", "", "only in this `STATE`: up, down, paused or retired")
	c.Flags().StringVar(&label, "label", "", "only with this label, `NAME=VALUE`")
	c.Flags().IntVarP(&limit, "limit", "n", 100, "list at most this many")
	return c
}

// sourceFilter reads what the flags select.
func sourceFilter(q *client.SourceQuery, state, label string) error {
	states := []monitor.State{monitor.Up, monitor.Down, monitor.Paused, monitor.Retired}
	if q.State = state; state != "" && !slices.Contains(states, monitor.State(state)) {
		return usererr.Errorf("--state %q: the states are up, down, paused and retired", state)
	}
	if label == "" {
		return nil
	}
	var ok bool
	if q.Label, q.Value, ok = strings.Cut(label, "="); !ok || q.Label == "" {
		return usererr.Errorf("--label %q: use NAME=VALUE", label)
	}
	return nil
}

func (a *app) printSources(sources []apitype.Source) error {
	return printList(a, sources, "CHECK\tSOURCE\tSTATE\tQUIET\tLEFT\tBEATS\tRECENT\tPATH\tALARM", func(s apitype.Source) string {
		return row(s.Check, s.Name, sourceState(s), sourceQuiet(s), sourceLeft(s), s.Beats, recent(s.Recent, 20), s.Path, s.Alarm)
	})
}

func sourceState(s apitype.Source) string {
	text := s.State
	switch {
	case s.State == string(monitor.Down):
		text += ", " + s.Reason
	case s.Alarm != "":
		text += ", alarm open"
	case s.State == string(monitor.Up) && s.Last.IsZero():
		text += ", unseen"
	}
	if s.Running {
		text += ", running"
	}
	return text
}

func sourceQuiet(s apitype.Source) string {
	if s.Last.IsZero() {
		return "never beat"
	}
	return quietFor(s)
}

func sourceLeft(s apitype.Source) string {
	switch {
	case s.State != string(monitor.Up) && s.State != string(monitor.Down):
		return ""
	case s.LeftMS == nil:
		return termtext.Brief(math.MaxInt64) // nothing more is expected
	case *s.LeftMS < 0:
		return "overdue " + termtext.Brief(-millis(*s.LeftMS))
	default:
		return termtext.Brief(millis(*s.LeftMS))
	}
}

func quietFor(s apitype.Source) string {
	if s.QuietMS == nil {
		return termtext.Brief(0)
	}
	return termtext.Brief(millis(*s.QuietMS))
}

// recent shows up to most of the last intervals.
func recent(beats string, most int) string {
	return strings.NewReplacer("1", "#", "0", ".").Replace(beats[:min(len(beats), most)])
}

func (a *app) sourceShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show CHECK SOURCE",
		Short: "Show a source with what it reported last, and its last alarms",
		Example: `  understudy source show nightly-backup db-1
  understudy source show nightly-backup db-1 -o json | jq .left_ms`,
		Args: exactly("CHECK", "SOURCE"),
		RunE: a.apiRunE(func(ctx context.Context, c *client.Client, args []string) error {
			found, err := c.Source(ctx, args[0], args[1])
			if err != nil {
				return err
			}
			return printAs(a, found, a.printSource)
		}),
	}
}

func (a *app) printSource(found apitype.SourceAlarms) error {
	s, alarms := found.Source, found.Alarms[:min(len(found.Alarms), 10)]
	last := "never"
	if !s.Last.IsZero() {
		last = fmt.Sprintf("%s, %s ago, by %s", when(s.Last), quietFor(s), s.Path)
	}
	by := "its first beat"
	if s.Declared {
		by = "a declaration"
	}
	err := a.printFacts([][2]string{
		{"check", s.Check}, {"source", s.Name}, {"state", sourceState(s)}, {"last beat", last}, {"left", sourceLeft(s)},
		{"sent", whenSent(s.Sent)}, {"sequence", orNothing(s.Seq)}, {"exit code", orNothing(s.Code)},
		{"beats", fmt.Sprint(s.Beats)}, {"recent", recent(s.Recent, 64)}, {"known by", by}, {"labels", labelText(s.Labels)},
		{"alarm", s.Alarm}, {"down since", when(s.Since)}, {"until", when(s.Until)}, {"note", s.Note},
	})
	if err != nil {
		return err
	}
	if r := found.Report; r != nil {
		fmt.Fprintf(a.stdout, "\nreported %s with %s:\n", when(r.At), r.Kind)
		for line := range strings.Lines(r.Body) {
			fmt.Fprintf(a.stdout, "  %s\n", termtext.Text(line))
		}
	}
	if len(alarms) == 0 {
		return nil
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

// checkFlag makes --check, and --event, which is its old name.
func checkFlag(fs *pflag.FlagSet, check *string) {
	fs.StringVar(check, "check", "", "only of this `CHECK`")
	fs.StringVar(check, "event", "", "the old name of --check")
	fs.Lookup("event").Hidden = true
}
