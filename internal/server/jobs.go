package server

import (
	"context"
	"fmt"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/job"
)

// serveJobs makes what offers the jobs of the file, if there are any. Nothing runs yet.
func (s *served) serveJobs(ctx context.Context) error {
	if len(s.cfg.Jobs) == 0 {
		return nil
	}
	jobs, err := s.host.Jobs(s.store)
	if err != nil {
		return err
	}
	cfg := job.Config{Keeper: s.keeper, Store: jobs, Logger: s.host.Log}
	programs := map[string]*instance.Program{}
	for i := range s.cfg.Jobs {
		j := &s.cfg.Jobs[i]
		def, err := j.Definition()
		if err != nil {
			return err
		}
		offer := job.Offer{Name: j.Job, Definition: def, With: j.With}
		if j.Message != nil {
			offer.Work, err = s.addsMessage(ctx, j)
		} else {
			p := &instance.Program{Log: s.host.Log, Argv: j.Command, StopGrace: j.StopGrace, PassStore: j.PassStore, StoreURL: s.host.StoreURL}
			programs[j.Job], offer.Work = p, p.RunJob
			cfg.StopGrace = max(cfg.StopGrace, j.StopGrace)
		}
		if err != nil {
			return fmt.Errorf("job %q: %w", j.Job, err)
		}
		cfg.Offers = append(cfg.Offers, offer)
	}
	cfg.Overrun = func(name string) {
		if p := programs[name]; p != nil {
			p.Overrun()
		}
	}
	s.jobs = &cfg
	return cfg.Validate()
}

// addsMessage is the work of a job that adds a message to a queue, which is created if it is not there.
func (s *served) addsMessage(ctx context.Context, j *settings.Job) (job.Work, error) {
	queues, err := s.host.Queues(s.store)
	if err != nil {
		return nil, err
	}
	admin := queues.QueueAdmin()
	call, cancel := context.WithTimeout(ctx, instance.CallTimeout)
	defer cancel()
	if err := admin.CreateQueue(call, j.Message.Queue); err != nil {
		return nil, err
	}
	return func(ctx context.Context, t job.Task) error {
		m, err := j.Message.Of(t.Job, t.Scheduled)
		if err != nil {
			return err
		}
		call, cancel := context.WithTimeout(ctx, instance.CallTimeout)
		defer cancel()
		added, err := admin.Add(call, []dispatch.Message{m})
		if err != nil {
			return err
		}
		what := "added message"
		if !added[0] {
			what = "an earlier attempt had added message"
		}
		_, err = fmt.Fprintf(t.Output, "%s %q to queue %s\n", what, m.ID, m.Queue)
		return err
	}, nil
}
