package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// instanceFlags are the name, the address and the timing of a session, and the stop grace: of role run, role once and job run, and
// of doctor, which judges them.
type instanceFlags struct {
	session settings.Server // of which the name, the address and the timing are used
	role    settings.Role   // of which the flags are used
}

// programFlags are those of the commands that run a program under a role or a job.
type programFlags struct{ instanceFlags }

func (f *programFlags) register(fs *pflag.FlagSet) {
	f.instanceFlags.register(fs)
	strictyaml.Bind(fs, &f.role, "pass_store")
}

func (f *instanceFlags) register(fs *pflag.FlagSet) {
	f.session.Name = instance.Hostname()
	strictyaml.Bind(fs, &f.session, "name", "address", "interval", "timeout")
	strictyaml.Bind(fs, &f.role, "stop_grace")
}

func (f *instanceFlags) validate() error {
	if f.role.StopGrace == 0 { // the default, for a campaign
		return usererr.Errorf("--stop-grace cannot be zero; leave it out for %v", elect.DefaultStopGrace)
	}
	return f.validateFor(f.role.StopGrace)
}

func (f *instanceFlags) validateFor(grace time.Duration) error {
	if err := f.session.Timing().Validate(grace); err != nil {
		return err
	}
	return lease.NewInstance(f.session.Name, f.session.Address).Validate()
}

type roleRunFlags struct {
	programFlags
	exitOnLoss bool
}

func (a *app) roleRunCommand() *cobra.Command {
	var f roleRunFlags
	c := &cobra.Command{
		Use:   "run ROLE [flags] -- CMD [ARG…]",
		Short: "Run a program while this instance is primary of a role",
		Long: `Wait until this instance is primary of the role, then run the program. It is
stopped (SIGTERM, then SIGKILL after the stop grace) before the store can give the
role to another instance, with everything that it started, on Linux even if this
process is stopped or killed.

The program gets UNDERSTUDY_ROLE, UNDERSTUDY_ID, UNDERSTUDY_NAME, UNDERSTUDY_PLACE
(for role state) and UNDERSTUDY_TERM, the fencing token: send it along with everything that must not be
done twice. Of this process's environment it gets all but UNDERSTUDY_STORE and
UNDERSTUDY_TOKEN, which are secrets; --pass-store leaves them in. SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH and SIGCONT are passed on to it;
SIGINT and SIGTERM stop it and release the role.

When the program ends by itself, the role is released and this command exits as the
program did. After the role was lost or resigned it campaigns again;
with --exit-on-loss it exits with 5 when the role was lost, also because the role of
--with moved, and with 0 when it was resigned. A standby logs once a minute which instance is primary.`,
		Example: `  understudy role run billing -- ./billing --port 8080
  understudy role run billing --name web-1 --address 10.0.0.1:8080 -- ./billing
  understudy role run worker --holders 3 -- ./worker
  understudy role run billing --interval 200ms --timeout 2s --stop-grace 500ms -- ./billing`,
		Args: nameAndProgram("ROLE", "", elect.ValidateRole),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.validate(); err != nil {
				return err
			}
			if f.role.Holders < 1 { // 0 would be the default
				return usererr.Errorf("--holders %d; 1 to %d are possible", f.role.Holders, elect.MaxHolders)
			}
			return a.roleRun(c.Context(), args[0], args[1:], f)
		},
	}
	f.register(c.Flags())
	strictyaml.Bind(c.Flags(), &f.role, "holders", "with")
	c.Flags().BoolVar(&f.exitOnLoss, "exit-on-loss", false, "exit when the role was lost or that of --with moved (5), or it was resigned (0), and when the store cannot be reached at the start (4)")
	c.Flags().Bool("restart", true, "what the command does by itself")
	_ = c.Flags().MarkDeprecated("restart", "it has no effect: the command campaigns again by itself; --exit-on-loss ends it")
	return c
}

// runProgram opens the store, for which it waits if patient, and starts an instance on it. Then it calls run, which decides when to
// run the program that argv names.
func (a *app) runProgram(ctx context.Context, f *programFlags, argv []string, patient bool, run func(context.Context, store.Store, *lease.Keeper, *instance.Program) error) error {
	program := &instance.Program{Log: a.Log, Argv: argv, StopGrace: f.role.StopGrace, PassStore: f.role.PassStore, StoreURL: a.StoreURL}
	defer program.ForwardSignals()()
	if err := a.needStore(); err != nil {
		return err
	}
	a.warnOfExposed()
	return a.Run(ctx, instance.Opening{Patient: patient}, f.session.Instance(), func(ctx context.Context, st store.Store, k *lease.Keeper) error {
		return run(ctx, st, k, program)
	})
}

func (a *app) roleRun(ctx context.Context, role string, argv []string, f roleRunFlags) error {
	err := a.runProgram(ctx, &f.programFlags, argv, !f.exitOnLoss, func(ctx context.Context, _ store.Store, k *lease.Keeper, program *instance.Program) error {
		campaign := elect.Run
		if f.exitOnLoss {
			campaign = elect.Campaign
		}
		return campaign(ctx, elect.Config{
			Keeper: k, Role: role, Holders: f.role.Holders, With: f.role.With, StopGrace: f.role.StopGrace, Overrun: program.Overrun, Logger: a.Log,
		}, program.Run)
	})
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, lease.ErrResign):
		return nil
	case errors.Is(err, elect.ErrMoved): // how the program ended that was stopped for this says nothing
		return elect.ErrMoved
	}
	return err
}
