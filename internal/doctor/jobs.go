package doctor

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/store"
)

// jobPage is how many jobs are read at once.
const jobPage = 1000

// checkJobs finds jobs that do not run, or not well, and alarms of them that nobody gets. hasSinks: the store's monitor has some, which get them.
func checkJobs(ctx context.Context, jobs job.Store, hasSinks bool) (out []Finding, err error) {
	total, running := int64(0), int64(0)
	for q := (job.Query{Limit: jobPage}); ; {
		page, now, err := jobs.List(ctx, q)
		if err != nil {
			return out, err
		}
		for _, j := range page {
			total++
			if _, on := j.Running(); on {
				running++
			}
			out = append(out, judgeJob(j, now, hasSinks)...)
		}
		if len(page) < jobPage {
			break
		}
		q.After = page[len(page)-1].Name
	}
	if total == 0 {
		return nil, nil
	}
	return append([]Finding{well("jobs", "%s, of which %d run now", termtext.Count(total, "job"), running)}, out...), nil
}

func judgeJob(j job.Job, now time.Time, hasSinks bool) (out []Finding) {
	since, overdue := j.OverdueSince(now)
	a := j.Alarm
	if overdue {
		out = append(out, bad("job", "%s is overdue for %s: no instance that offers it runs", j.Name, termtext.Brief(now.Sub(since))).
			withAdvice("docs/runbook.md#understudyjoboverdue", "start an instance that offers it: understudy job run %[1]s …, or jobs: in the server's file; or give it up: understudy job forget %[1]s", j.Name))
	} else if a.Stands() {
		run := a.Again
		if run.State == "" {
			run = job.Run{Scheduled: a.Scheduled, State: a.Reason, Why: a.Why}
		}
		out = append(out, warn("job", "%s: the run of %s is %s: %s", j.Name, run.Scheduled.UTC().Format(time.RFC3339), run.State, run.Why).
			withAdvice("docs/runbook.md#understudyjobbad", "run: understudy job runs %[1]s, and job logs %[1]s; a good run ends this: understudy job trigger %[1]s", j.Name))
	}
	if a.Stands() && !a.Sent && j.Definition.AlarmURL == "" && !hasSinks {
		out = append(out, warn("job", "%s: its alarm is sent to no one: no sink is set", j.Name).
			withAdvice("docs/sinks.md", "start the job with --alarm URL, or give the monitor a sink"))
	}
	return out
}

// hasSinks reports whether the store's monitor has sinks.
func hasSinks(ctx context.Context, st store.Store) (bool, error) {
	m, ok := st.(store.Monitors)
	if !ok {
		return false, nil
	}
	o, err := m.Monitor().Overview(ctx)
	return len(o.Sinks) > 0, err
}
