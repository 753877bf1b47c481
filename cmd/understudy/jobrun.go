package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/jobalarm"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

type jobRunFlags struct {
	programFlags
	job settings.Job // of which the flags are used
}

func (a *app) jobRunCommand() *cobra.Command {
	var f jobRunFlags
	c := &cobra.Command{
		Use:   "run NAME --schedule WHEN [flags] -- CMD [ARG…]",
		Short: "Run a program on a schedule, on one of the instances that run this command",
		Long: `Run the program at each time of the schedule, on one of the instances that run this command for the same job: put
the same line on every host. It goes on until it is interrupted.

Each scheduled time is run once. A run whose host dies is lost, and repeated only with --retry-safe. The program, with everything
that it started, is dead before another instance may run the job.

The schedule is a crontab ('30 2 * * mon-fri', @daily), a period ('every 90m') or a date ('2026-12-24 18:00'); --zone is
its time zone. What is due is decided by the store's clock.

The program gets UNDERSTUDY_JOB, UNDERSTUDY_SCHEDULED (RFC 3339, UTC), UNDERSTUDY_ATTEMPT, UNDERSTUDY_ID, UNDERSTUDY_NAME
and UNDERSTUDY_TERM, the fencing token: send it along with everything that must not be done twice. Its input is empty; the last
16 KiB of its output are kept: see "understudy job logs".

A job that does not run as it should has one alarm, until the next good run. It goes to --alarm, and to the sinks of the monitor that
shares the store, for as long as an instance of any job runs on it.`,
		Example: `  understudy job run backup --schedule '30 2 * * *' --zone Europe/Berlin --store postgres://db/app -- ./backup
  understudy job run cleanup --schedule 'every 10m' --deadline 5m -- ./cleanup
  understudy job run report --schedule '0 6 * * mon' --retry 3 --retry-safe -- ./report
  understudy job run backup --schedule @daily --alarm https://ops.example/hook -- ./backup`,
		Args: nameAndProgram("NAME", " --schedule @daily", job.ValidateName),
		RunE: func(c *cobra.Command, args []string) error {
			def, err := f.job.Definition()
			if err != nil {
				return err
			}
			if err := f.validate(); err != nil {
				return err
			}
			return a.jobRun(c.Context(), args[0], args[1:], def, &f)
		},
	}
	f.register(c.Flags())
	strictyaml.Bind(c.Flags(), &f.job)
	return c
}

func (a *app) jobRun(ctx context.Context, name string, argv []string, def job.Definition, f *jobRunFlags) error {
	return a.runProgram(ctx, &f.programFlags, argv, true, func(ctx context.Context, st store.Store, k *lease.Keeper, program *instance.Program) error {
		jobs, err := a.Jobs(st)
		if err != nil {
			return err
		}
		// Serve leaves a job out whose date has passed; here nothing else would be left. Of other errors it takes care.
		call, cancel := context.WithTimeout(ctx, instance.CallTimeout)
		_, err = jobs.Change(call, name, job.Define(name, def))
		cancel()
		if errors.Is(err, lease.ErrInvalid) {
			return err
		}
		return job.Serve(ctx, job.Config{
			Keeper: k, Store: jobs, StopGrace: f.role.StopGrace, Logger: a.Log,
			Overrun: func(string) { program.Overrun() }, SendAlarm: jobalarm.Sender(st),
			Offers: []job.Offer{{Name: name, Definition: def, Work: program.RunJob, With: f.job.With}},
		})
	})
}
