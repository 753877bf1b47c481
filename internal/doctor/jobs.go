package doctor

import (
	"context"

	"github.com/understudy-ha/understudy/internal/attention"
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
			out = append(out, findings(attention.Job(j, now, hasSinks))...)
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

// hasSinks reports whether the store's monitor has sinks.
func hasSinks(ctx context.Context, st store.Store) (bool, error) {
	m, ok := st.(store.Monitors)
	if !ok {
		return false, nil
	}
	o, err := m.Monitor().Overview(ctx)
	return len(o.Sinks) > 0, err
}
