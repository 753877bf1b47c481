package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/job"
)

func (a *app) jobCommand() *cobra.Command {
	c := &cobra.Command{
		Use:         "job",
		Short:       "Run programs on a schedule that survives a host; show runs and their output",
		Annotations: requires("jobs"),
		Example: `  understudy job run backup --schedule '30 2 * * *' --zone Europe/Berlin -- ./backup
  understudy job list
  understudy job logs backup`,
	}
	c.AddCommand(a.jobRunCommand(), a.jobListCommand(), a.jobShowCommand(), a.jobRunsCommand(), a.jobLogsCommand(),
		a.jobActCommand("trigger", "Run jobs once, at once, on an instance that offers them", "triggered", (*client.Client).TriggerJob),
		a.jobActCommand("pause", "Stop the schedule of jobs; a run that is on continues", "paused", (*client.Client).PauseJob),
		a.jobActCommand("resume", "Continue the schedule of jobs", "resumed", (*client.Client).ResumeJob),
		a.jobActCommand("forget", "Remove jobs that no instance offers any more, with their runs", "forgotten", forgetJob))
	return c
}

func forgetJob(c *client.Client, ctx context.Context, name, by string) (apitype.Job, error) {
	return apitype.Job{Name: name}, c.ForgetJob(ctx, name, by)
}

func (a *app) jobListCommand() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the jobs, how their last run ended and when the next one is due",
		Long:    `List the jobs. The states are scheduled, queued, running, paused, ended (nothing more comes) and overdue: it should have run, and no instance has.`,
		Example: "  understudy job list -o json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			after := ""
			return printPagesOfAPI(c.Context(), a, limit, func(ctx context.Context, c *client.Client, n int) ([]apitype.Job, string, error) {
				page, err := c.Jobs(ctx, after, n)
				after = page.Next
				return page.Jobs, page.Next, err
			}, a.printJobs)
		},
	}
	c.Flags().IntVarP(&limit, "limit", "n", 100, "list at most this many")
	return c
}

func (a *app) printJobs(jobs []apitype.Job) error {
	return printList(a, jobs, "JOB\tSTATE\tSCHEDULE\tNEXT\tLAST\tENDED\tINSTANCE\tALARM", func(j apitype.Job) string {
		next, last, ended, on := "", "", "", ""
		if len(j.Next) > 0 {
			next = when(j.Next[0])
		}
		if j.Last != nil {
			last, ended, on = j.Last.State, when(j.Last.Ended), j.Last.Instance
		}
		for _, r := range j.Open {
			if r.Instance != "" {
				on = r.Instance
			}
		}
		alarm := ""
		if j.Alarm != nil && j.Alarm.Cleared.IsZero() {
			alarm = j.Alarm.Reason
		}
		return row(j.Name, j.State, j.Schedule, next, last, ended, on, alarm)
	})
}

func (a *app) jobShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show NAME",
		Short:   "Show a job, its next times and its last run",
		Example: "  understudy job show backup",
		Args:    exactly("NAME"),
		RunE: a.apiRunE(func(ctx context.Context, c *client.Client, args []string) error {
			j, err := c.Job(ctx, args[0])
			if err != nil {
				return err
			}
			return printAs(a, j, a.printJob)
		}),
	}
}

func (a *app) printJob(j apitype.Job) error {
	zone := zoneOf(j.Schedule)
	var next []string
	for _, t := range j.Next {
		text := when(t)
		if zone != nil {
			text += t.In(zone).Format(" (15:04:05 MST)")
		}
		next = append(next, text)
	}
	times := strings.Join(next, ", ")
	if j.PausedBy != "" && times != "" {
		times = "if resumed: " + times // until then they are skipped
	}
	facts := [][2]string{
		{"job", j.Name}, {"state", j.State}, {"paused by", j.PausedBy}, {"schedule", j.Schedule},
		{"next", times},
		{"overlap", j.Overlap}, {"missed", j.Missed}, {"retries", strconv.Itoa(j.Retries)},
		{"deadline", durationOrBlank(j.DeadlineMS)}, {"jitter", durationOrBlank(j.JitterMS)}, {"added", when(j.Created)},
	}
	for _, r := range j.Open {
		facts = append(facts, [2]string{r.State, runText(r)})
	}
	facts = append(facts, [2]string{"alarm", alarmText(j)}, [2]string{"alarms go to", j.AlarmHost})
	if j.Last != nil {
		facts = append(facts, [2]string{"last run", runText(*j.Last)})
	}
	var counts strings.Builder
	for _, state := range job.States() {
		if n := j.Ended[string(state)]; n > 0 {
			fmt.Fprintf(&counts, " %s %d", state, n)
		}
	}
	return a.printFacts(append(facts, [2]string{"runs", counts.String()}))
}

// alarmText says since when the job's alarm stands, and whether anyone has been told.
func alarmText(j apitype.Job) string {
	a := j.Alarm
	if a == nil {
		return ""
	}
	text := fmt.Sprintf("%s since %s", a.Reason, when(a.Raised))
	if !a.Cleared.IsZero() {
		text += ", ended " + when(a.Cleared)
	}
	switch {
	case a.Sent && a.Cleared.IsZero():
		return text + ", sent"
	case a.NoSink:
		return text + ", not sent: no sink is set (start the job with --alarm URL, or give the monitor a sink)"
	case a.Tries > 0:
		return fmt.Sprintf("%s, not sent in %d tries", text, a.Tries)
	}
	return text + ", not sent yet"
}

// zoneOf is the time zone that a schedule names; nil for none.
func zoneOf(schedule string) *time.Location {
	first, _, _ := strings.Cut(schedule, " ")
	_, name, ok := strings.Cut(first, "=")
	if !ok {
		return nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil
	}
	return zone
}

func runText(r apitype.Run) string {
	text := fmt.Sprintf("of %s %s", when(r.Scheduled), r.State)
	if r.Instance != "" {
		text += fmt.Sprintf(" on %s, term %d, attempt %d, %s", r.Instance, r.Term, r.Attempt, millis(r.DurationMS))
	}
	if r.Why != "" {
		text += ": " + r.Why
	}
	return text
}

func (a *app) jobRunsCommand() *cobra.Command {
	var q client.RunQuery
	var limit int
	c := &cobra.Command{
		Use:   "runs NAME",
		Short: "List the runs of a job, the latest first",
		Long: `List the runs of a job, the latest first. The states are queued, running, succeeded, failed, timed_out, cancelled,
lost (its instance died: it may have ended or not), missed (no instance was there) and skipped (another run was on, or the job
was paused).`,
		Example: `  understudy job runs backup
  understudy job runs backup --state failed -n 10`,
		Args: exactly("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			q.Job = args[0]
			return printPagesOfAPI(c.Context(), a, limit, func(ctx context.Context, c *client.Client, n int) ([]apitype.Run, string, error) {
				q.Limit = n
				page, err := c.Runs(ctx, q)
				q.Before = page.Next
				return page.Runs, page.Next, err
			}, a.printRuns)
		},
	}
	c.Flags().StringVar(&q.State, "state", "", "only in this `STATE`")
	c.Flags().IntVarP(&limit, "limit", "n", 20, "list at most this many")
	return c
}

func (a *app) printRuns(runs []apitype.Run) error {
	return printList(a, runs, "SCHEDULED\tSTATE\tINSTANCE\tLATE\tTOOK\tATTEMPT\tTERM\tWHY", func(r apitype.Run) string {
		late, took, term := "", "", ""
		if !r.Started.IsZero() {
			late, took, term = millis(r.LateMS).String(), millis(r.DurationMS).String(), strconv.FormatInt(r.Term, 10)
		}
		why := r.Why
		if r.Trigger != "" {
			why = strings.TrimSuffix("triggered by "+r.Trigger+"; "+why, "; ")
		}
		return row(when(r.Scheduled), r.State, r.Instance, late, took, r.Attempt, term, why)
	})
}

func (a *app) jobActCommand(verb, short, did string, act func(*client.Client, context.Context, string, string) (apitype.Job, error)) *cobra.Command {
	return &cobra.Command{
		Use:     verb + " NAME…",
		Short:   short,
		Example: "  understudy job " + verb + " backup",
		Args:    atLeast("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withAPI(c.Context(), func(ctx context.Context, c *client.Client) error {
				for _, name := range args {
					call, cancel := context.WithTimeout(ctx, callTimeout)
					j, err := act(c, call, name, operator())
					cancel()
					if err != nil {
						return err
					}
					if err := a.print(j, "%s: %s", did, name); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}
