package server

import (
	"context"

	"github.com/understudy-ha/understudy/internal/jobalarm"
	"github.com/understudy-ha/understudy/job"
)

// watchJobs sends the alarms of the store's jobs, also of those that nobody offers any more, to the sinks of the monitor.
func (s *served) watchJobs(part func(string, func(context.Context) error)) {
	jobs, err := s.host.Jobs(s.store)
	if err != nil {
		return // it keeps none
	}
	cfg := job.AlarmConfig{
		Store: jobs, Leases: s.store, Send: jobalarm.Sender(s.store), Clock: s.keeper.Clock(),
		CallTimeout: s.keeper.Timing().CallTimeout(), Takeover: s.keeper.Timing().WorstTakeover(), Logger: s.host.Log,
	}
	part("alarms of jobs", func(ctx context.Context) error { return job.WatchAlarms(ctx, cfg) })
}
