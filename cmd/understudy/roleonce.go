package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

func (a *app) roleOnceCommand() *cobra.Command {
	var f programFlags
	var every time.Duration
	c := &cobra.Command{
		Use:   "once ROLE --every PERIOD [flags] -- CMD [ARG…]",
		Short: "Run a job once per period, on whichever instance is up",
		Long: `Run the job once in each period, from start to start, on one of the instances that
run this command for the same role. It goes on until it is interrupted. Periods are
counted by the store's clock. A run whose instance dies is not repeated before the
next period; a run that takes longer than the period delays the next one. What
each run ended with is in the history.`,
		Example: `  understudy role once nightly-report --every 24h -- ./report
  understudy role once cleanup --every 10m --store postgres://db/app -- sh -c 'psql app -f cleanup.sql'`,
		Args: nameAndProgram("ROLE", "", elect.ValidateRole),
		RunE: func(c *cobra.Command, args []string) error {
			if every <= 0 {
				return usererr.Errorf("--every says how often, for instance --every 1h")
			}
			if err := f.validate(); err != nil {
				return err
			}
			return a.roleOnce(c.Context(), args[0], args[1:], every, f)
		},
	}
	f.register(c.Flags())
	c.Flags().DurationVar(&every, "every", 0, "the `PERIOD`, for instance 10m or 24h")
	return c
}

func (a *app) roleOnce(ctx context.Context, job string, argv []string, every time.Duration, f programFlags) error {
	return a.runProgram(ctx, &f, argv, true, func(ctx context.Context, _ store.Store, k *lease.Keeper, program *instance.Program) error {
		cfg := elect.OnceConfig{Keeper: k, Job: job, Every: every, StopGrace: f.role.StopGrace, Overrun: program.Overrun, Logger: a.Log}
		for {
			worked := false
			err := elect.Once(ctx, cfg, func(ctx context.Context, term elect.Term) error {
				worked = true
				return program.Run(ctx, term)
			})
			var child instance.Exit
			switch {
			case ctx.Err() != nil:
				return err
			case errors.As(err, &child):
				a.Log.Warn("the job failed", "role", job, "exit", child.Code)
			case !worked && (errors.Is(err, lease.ErrLost) || errors.Is(err, lease.ErrResign)):
				a.Log.Warn("the job was not started in this period", "role", job, "err", err)
			case errors.Is(err, lease.ErrLost), errors.Is(err, lease.ErrResign):
				a.Log.Warn("the job was stopped", "role", job, "err", err)
			case err != nil && !worked: // the settings are not valid, or the session cannot go on
				return err
			case err != nil:
				// It could not be started, as on a host that is short of processes or files, or not be guarded. The
				// next try is a period away.
				a.Log.Warn("the job failed", "role", job, "err", err)
			}
		}
	})
}
