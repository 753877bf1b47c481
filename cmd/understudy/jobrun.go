package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
)

type jobRunFlags struct {
	programFlags
	schedule, zone, anchor string
	jitter, deadline       time.Duration
	overlap, missed        string
	retries                int
	retrySafe              bool
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
16 KiB of its output are kept: see "understudy job logs".`,
		Example: `  understudy job run backup --schedule '30 2 * * *' --zone Europe/Berlin --store postgres://db/app -- ./backup
  understudy job run cleanup --schedule 'every 10m' --deadline 5m -- ./cleanup
  understudy job run report --schedule '0 6 * * mon' --retry 3 --retry-safe -- ./report`,
		Args: func(c *cobra.Command, args []string) error {
			dash := c.ArgsLenAtDash()
			switch {
			case len(args) == 0 || dash == 0:
				return usererr.Errorf("%s: NAME is missing; see --help", c.CommandPath())
			case dash != 1 || len(args) < 2:
				return usererr.Errorf("%s: write the program after --, as in: %s %s --schedule @daily -- ./program", c.CommandPath(), c.CommandPath(), args[0])
			}
			return job.ValidateName(args[0])
		},
		RunE: func(c *cobra.Command, args []string) error {
			def, err := f.definition()
			if err != nil {
				return err
			}
			if err := f.validate(); err != nil {
				return err
			}
			return a.jobRun(c.Context(), args[0], args[1:], def, f.programFlags)
		},
	}
	f.register(c.Flags())
	flags := c.Flags()
	flags.StringVar(&f.schedule, "schedule", "", "`WHEN`: a crontab, a period or a date, for instance '30 2 * * *', 'every 90m' or '2026-12-24 18:00'")
	flags.StringVar(&f.zone, "zone", "", "time `ZONE` of the schedule, such as Europe/Berlin (default UTC)")
	flags.StringVar(&f.anchor, "anchor", "", "`TIME` from which a period is counted, in RFC 3339 (default: when the job was added)")
	flags.DurationVar(&f.jitter, "jitter", 0, "start each run so much later at most, the same on every instance")
	flags.DurationVar(&f.deadline, "deadline", 0, "stop a run that takes longer (default: never)")
	flags.StringVar(&f.overlap, "overlap", string(job.Forbid), "when its time comes while it runs: forbid (skip the new run), queue or replace (stop the old one)")
	flags.StringVar(&f.missed, "missed", string(job.MissedOne), "of times that passed with no instance there, run: one (the latest), skip (none) or all")
	flags.IntVar(&f.retries, "retry", 0, "repeat a run that failed up to `N` times; needs --retry-safe")
	flags.BoolVar(&f.retrySafe, "retry-safe", false, "running the program twice for one time does no harm: lost runs are repeated, too")
	return c
}

func (f *jobRunFlags) definition() (job.Definition, error) {
	d := job.Definition{
		Schedule: f.schedule, JitterMS: f.jitter.Milliseconds(), DeadlineMS: f.deadline.Milliseconds(),
		Overlap: job.Overlap(f.overlap), Missed: job.Missed(f.missed), Retries: f.retries,
	}
	switch {
	case strings.TrimSpace(f.schedule) == "":
		return d, usererr.Errorf("--schedule says when, for instance --schedule '30 2 * * *' or --schedule 'every 90m'")
	case f.retries > 0 && !f.retrySafe:
		return d, usererr.Errorf("--retry runs the program again for the same time: add --retry-safe if that does no harm")
	case f.retrySafe && f.retries == 0:
		d.Retries = 1
	}
	if f.zone != "" {
		d.Schedule = "TZ=" + f.zone + " " + f.schedule
	}
	if f.anchor != "" {
		var err error
		if d.Anchor, err = time.Parse(time.RFC3339, f.anchor); err != nil {
			return d, usererr.Errorf("--anchor %q: write a time like 2026-12-24T18:00:00Z", f.anchor)
		}
	}
	return d, d.Validate()
}

func (a *app) jobRun(ctx context.Context, name string, argv []string, def job.Definition, f programFlags) error {
	program := f.program(a.Host, argv)
	defer program.ForwardSignals()()
	st, err := a.openPatiently(ctx, true)
	if err != nil {
		return instance.Stopped(err)
	}
	defer st.Close()
	jobs, err := a.Jobs(st)
	if err != nil {
		return err
	}
	err = a.WithKeeper(ctx, st, f.who(), func(ctx context.Context, k *lease.Keeper) error {
		return job.Serve(ctx, job.Config{
			Keeper: k, Store: jobs, StopGrace: f.stopGrace, Logger: a.Log,
			Overrun: func(string) { program.Overrun() },
			Offers:  []job.Offer{{Name: name, Definition: def, Work: program.RunJob}},
		})
	})
	if ctx.Err() != nil {
		return instance.Stopped(err)
	}
	return err
}
