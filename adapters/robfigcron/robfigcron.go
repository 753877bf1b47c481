package robfigcron

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/robfig/cron/v3"

	"github.com/understudy-ha/understudy/elect"
)

// IfPrimary runs jobs only while this instance holds the candidate's role. Run the candidate beside cron. A job that wants its context
// and term calls the candidate's RunIfPrimary itself. What is not run is logged at DEBUG; log may be nil.
func IfPrimary(c *elect.Candidate, log *slog.Logger) cron.JobWrapper {
	log = orDiscard(log)
	return func(j cron.Job) cron.Job {
		return cron.FuncJob(func() {
			if err := c.RunIfPrimary(func(context.Context, elect.Term) error { j.Run(); return nil }); err != nil {
				log.Debug("job left to another instance", "err", err)
			}
		})
	}
}

// Once returns a job that runs the work unless any instance has started it less than cfg.Every ago, or still runs it. ctx ends when the
// program does. The error of the work, and why it was not started, go to cfg.Logger. It panics if the configuration is not valid.
func Once(ctx context.Context, cfg elect.OnceConfig, work elect.Work) cron.Job {
	cfg.NoWait = true
	if err := cfg.Validate(); err != nil {
		panic(err) // as for a schedule that is written wrong, and not once a day in a log
	}
	log := orDiscard(cfg.Logger).With("job", cfg.Job)
	return cron.FuncJob(func() {
		switch err := elect.Once(ctx, cfg, work); {
		case errors.Is(err, elect.ErrNotDue):
			log.Debug("job left to another instance", "err", err)
		case err != nil && ctx.Err() == nil:
			log.Warn("job failed, or was not started", "err", err)
		}
	})
}

func orDiscard(log *slog.Logger) *slog.Logger { return cmp.Or(log, slog.New(slog.DiscardHandler)) }
