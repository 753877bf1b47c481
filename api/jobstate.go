package api

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/internal/attention"
	"github.com/understudy-ha/understudy/internal/prometheus"
	"github.com/understudy-ha/understudy/job"
)

// maxJobLabels is how many jobs have metrics, and may need attention: those in trouble, and the first others by name.
const maxJobLabels = 100

// jobsSeen are the jobs as they were read last, by name.
type jobsSeen struct {
	jobs []job.Job
	more bool // there are others
	now  time.Time
}

func newJobsReader(s *Server) *sharedRead[jobsSeen] {
	return &sharedRead[jobsSeen]{subject: "the jobs", running: s.running, load: s.readJobs}
}

// readJobs goes through all jobs, because one in trouble has any name, and keeps maxJobLabels of them.
func (s *Server) readJobs(ctx context.Context) (out jobsSeen, err error) {
	const most = 1000 // at once
	type ranked struct {
		job.Job
		rank int
	}
	var kept []ranked
	for after, again := "", true; again; {
		page, now, err := s.jobs.List(ctx, job.Query{After: after, Limit: most})
		if err != nil {
			return jobsSeen{}, err
		}
		for _, j := range page {
			kept = append(kept, ranked{j, rankOfJob(j, now)})
		}
		slices.SortStableFunc(kept, func(a, b ranked) int { return cmp.Compare(a.rank, b.rank) })
		out.now, out.more = now, out.more || len(kept) > maxJobLabels
		if again = len(page) == most; again {
			after = page[most-1].Name
		}
		if len(kept) > maxJobLabels {
			kept = slices.Clone(kept[:maxJobLabels]) // so that the rest of the pages is freed
		}
	}
	for _, k := range kept {
		out.jobs = append(out.jobs, k.Job)
	}
	slices.SortFunc(out.jobs, func(a, b job.Job) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// rankOfJob is the lower the more a job needs attention.
func rankOfJob(j job.Job, now time.Time) int {
	rank := 2
	if hasFailed(j) {
		rank = 1
	}
	for _, n := range attention.Job(j, now, true) {
		if rank = min(rank, 1); n.Severity == attention.Bad {
			return 0
		}
	}
	return rank
}

// hasFailed reports whether the last run was bad, or one before it that no good one has followed.
func hasFailed(j job.Job) bool {
	return j.Last.State.Bad() || j.Alarm.Stands() && j.Alarm.Reason != job.Overdue
}

// collectJobs adds what the store knows about the jobs.
func (s *Server) collectJobs(m prometheus.Scrape) {
	if _, up := s.poller.readiness(); !up || s.jobs == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeWithin)
	defer cancel()
	seen, err := s.jobsSeen.fresh(ctx, overviewFresh)
	if err != nil {
		s.log.Debug("jobs cannot be read for metrics", "err", err)
		return
	}
	for _, j := range seen.jobs {
		collectJob(m, j, seen.now)
	}
}

func collectJob(m prometheus.Scrape, j job.Job, now time.Time) {
	m = m.With("understudy_job_", "name", j.Name) // "job" is a label of Prometheus itself
	_, running := j.Running()
	m.Flag("running", "1 while a run of the job is on.", running)
	m.Flag("overdue", "1 while the job should have run, and no instance has.", stateOfJob(j, now) == jobOverdue)
	m.Flag("last_run_failed", "1 from a run that failed, timed out, was lost or was missed until the next good one.", hasFailed(j))
	m.Gauge("next_run_timestamp_seconds", "The next scheduled time, in seconds since 1970; 0: there is none.", unixOrZero(j.Next))
	for _, state := range job.States() {
		if state.Ended() {
			m.Counter("runs_total", "Runs of the job that have ended, by how.", float64(j.Ended[state]), "state", string(state))
		}
	}
}

func unixOrZero(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}
