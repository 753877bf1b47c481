package api

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/internal/prometheus"
	"github.com/understudy-ha/understudy/job"
)

// maxJobLabels is how many jobs have metrics, and may need attention: the first by name.
const maxJobLabels = 100

// jobsSeen are the jobs as they were read last.
type jobsSeen struct {
	jobs []job.Job
	more bool // there are others
	now  time.Time
}

func newJobsReader(s *Server) *sharedRead[jobsSeen] {
	return &sharedRead[jobsSeen]{subject: "the jobs", running: s.running, load: func(ctx context.Context) (out jobsSeen, err error) {
		out.jobs, out.now, err = s.jobs.List(ctx, job.Query{Limit: maxJobLabels + 1})
		out.more = len(out.jobs) > maxJobLabels
		out.jobs = out.jobs[:min(len(out.jobs), maxJobLabels)]
		return out, err
	}}
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
	bad := j.Last.State.Bad() || j.Alarm.Stands() && j.Alarm.Reason != job.Overdue
	m.Flag("last_run_failed", "1 from a run that failed, timed out, was lost or was missed until the next good one.", bad)
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
