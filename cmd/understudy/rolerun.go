package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/guard"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// instanceFlags are those of every command that runs an instance.
type instanceFlags struct {
	name, address string
	timing        lease.Timing
	stopGrace     time.Duration
}

func (f *instanceFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.name, "name", hostname(), "`NAME` of this instance, for people and for --to")
	fs.StringVar(&f.address, "address", "", "`ADDRESS` at which clients reach this instance, for \"role who\"")
	fs.DurationVar(&f.timing.Interval, "interval", lease.DefaultInterval, "renew the session every `I`")
	fs.DurationVar(&f.timing.Timeout, "timeout", lease.DefaultTimeout, "the session lapses `T` after a renewal; T ≥ 3·I + stop grace")
	fs.DurationVar(&f.stopGrace, "stop-grace", elect.DefaultStopGrace, "time between SIGTERM and SIGKILL for the program")
}

func (f *instanceFlags) validate() error {
	if err := f.timing.Validate(f.stopGrace); err != nil {
		return err
	}
	return lease.NewInstance(f.name, f.address).Validate()
}

type roleRunFlags struct {
	instanceFlags
	holders int
	with    string
	restart bool
}

func (a *app) roleRunCommand() *cobra.Command {
	var f roleRunFlags
	c := &cobra.Command{
		Use:   "run ROLE [flags] -- CMD [ARG…]",
		Short: "Run a program while this instance is primary of a role",
		Long: `Wait until this instance is primary of the role, then run the program. It is
stopped (SIGTERM, then SIGKILL after the stop grace) before the store can give the
role to another instance, with everything that it started, even if this process is
stopped or killed.

The program gets UNDERSTUDY_ROLE, UNDERSTUDY_ID, UNDERSTUDY_NAME and
UNDERSTUDY_TERM, the fencing token: send it along with everything that must not be
done twice. SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and SIGWINCH are passed on to it;
SIGINT and SIGTERM stop it and give the role back.

Exits as the program did; 5 if the role was lost, unless --restart says to campaign
again under a new id.`,
		Example: `  understudy role run billing -- ./billing --port 8080
  understudy role run billing --name web-1 --address 10.0.0.1:8080 --restart -- ./billing
  understudy role run worker --holders 3 -- ./worker
  understudy role run billing --interval 200ms --timeout 2s --stop-grace 500ms -- ./billing`,
		Args: roleAndProgram,
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.validate(); err != nil {
				return err
			}
			if f.holders < 1 {
				return usagef("--holders %d; 1 to %d are possible", f.holders, elect.MaxHolders)
			}
			return a.roleRun(c.Context(), args[0], args[1:], f)
		},
	}
	f.register(c.Flags())
	c.Flags().IntVar(&f.holders, "holders", 1, "how many instances may hold the role at a time; the same for all")
	c.Flags().StringVar(&f.with, "with", "", "hold the role only while an instance of the same name holds `ROLE`")
	c.Flags().BoolVar(&f.restart, "restart", false, "campaign again after the role was lost or resigned")
	return c
}

// roleAndProgram wants ROLE -- CMD [ARG…].
func roleAndProgram(c *cobra.Command, args []string) error {
	dash := c.ArgsLenAtDash()
	switch {
	case len(args) == 0 || dash == 0:
		return usagef("%s: ROLE is missing; see --help", c.CommandPath())
	case dash != 1 || len(args) < 2:
		return usagef("%s: write the program after --, as in: %s %s -- ./program", c.CommandPath(), c.CommandPath(), args[0])
	}
	return elect.ValidateRole(args[0])
}

func (a *app) roleRun(ctx context.Context, role string, argv []string, f roleRunFlags) error {
	program := &guarded{app: a, argv: argv, stopGrace: f.stopGrace}
	defer program.forwardSignals()()
	st, err := a.openPatiently(ctx, f.restart)
	if err != nil {
		return stoppedWith(err)
	}
	defer st.Close()
	for {
		err := a.withKeeper(ctx, st, f.instanceFlags, func(ctx context.Context, k *lease.Keeper) error {
			cfg := elect.Config{
				Keeper: k, Role: role, Holders: f.holders, With: f.with, StopGrace: f.stopGrace, Logger: a.log,
			}
			err := elect.Campaign(ctx, cfg, program.run)
			if f.restart && errors.Is(err, lease.ErrResign) {
				return errors.Join(err, elect.LetOthers(ctx, cfg))
			}
			return err
		})
		again := errors.Is(err, lease.ErrLost) || errors.Is(err, lease.ErrResign) || errors.Is(err, elect.ErrMoved)
		switch {
		case ctx.Err() != nil:
			return stoppedWith(err)
		case !f.restart || !again:
			return err
		}
	}
}

// stoppedWith is the exit of a command that was told to stop: that of the
// program if it had one, and success otherwise.
func stoppedWith(err error) error {
	var child childExit
	if errors.As(err, &child) {
		return child
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// openPatiently opens the store, and goes on trying if it is not there yet.
func (a *app) openPatiently(ctx context.Context, patient bool) (store.Store, error) {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		st, err := a.open(ctx)
		if err != nil && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err == nil || !patient || exitCode(err) != exitUnreachable {
			return st, err
		}
		a.log.Warn("the store cannot be reached; trying again", "err", err)
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// withKeeper runs f with a keeper of a new instance, and ends its session when f
// has returned. f's context also ends if the keeper cannot go on.
func (a *app) withKeeper(ctx context.Context, st store.Store, f instanceFlags, do func(context.Context, *lease.Keeper) error) error {
	k, err := lease.NewKeeper(lease.KeeperConfig{
		Store: st, Roster: st, Instance: lease.NewInstance(f.name, f.address), Timing: f.timing, Logger: a.log,
	})
	if err != nil {
		return err
	}
	doCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	keepCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		if err := k.Run(keepCtx); err != nil {
			cancel(err)
		}
	}()
	defer func() { stop(); <-kept }()
	return do(doCtx, k)
}

// guarded is the program that runs while its role is held.
type guarded struct {
	app       *app
	argv      []string
	stopGrace time.Duration
	current   atomic.Pointer[guard.Process]
}

// run is the work of a campaign: the program, dead before trust ends.
func (g *guarded) run(ctx context.Context, term elect.Term) error {
	until, changed := term.Live.Until()
	p, err := guard.Start(ctx, guard.Config{
		Argv: g.argv,
		Env: append(os.Environ(),
			"UNDERSTUDY_ROLE="+term.Role,
			"UNDERSTUDY_ID="+term.Instance.ID,
			"UNDERSTUDY_NAME="+term.Instance.Name,
			"UNDERSTUDY_TERM="+strconv.FormatInt(term.Number, 10)),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		StopGrace: g.stopGrace, Deadline: until, Logger: g.app.log,
	})
	if err != nil {
		return startResult(err, lease.BootClock().Now() > until-g.stopGrace)
	}
	g.current.Store(p)
	defer g.current.Store(nil)

	ended := make(chan struct{})
	var exit guard.Exit
	var waitErr error
	go func() {
		defer close(ended)
		exit, waitErr = p.Wait()
	}()
	stop := ctx.Done()
	for {
		select {
		case <-changed:
			until, changed = term.Live.Until()
			p.Extend(until)
		case <-stop:
			stop = nil
			p.Stop()
		case <-ended:
			return programResult(ctx, exit, waitErr)
		}
	}
}

// startResult is what it means to a campaign that its program was not started. On
// a host so busy that the deadline came first (late), the role was lost: the
// watchers, which know only the deadline that they were started with, ended too.
func startResult(err error, late bool) error {
	var program *guard.StartError
	if errors.Is(err, guard.ErrTooLate) || late && !errors.As(err, &program) {
		return fmt.Errorf("%w: %w", lease.ErrLost, err)
	}
	return err
}

// programResult is what the end of the program means to its campaign.
func programResult(ctx context.Context, exit guard.Exit, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("guarding the program: %w", err)
	case errors.Is(context.Cause(ctx), lease.ErrLost), exit.Reason == guard.Deadline:
		return lease.ErrLost
	case exit.Reason == guard.WatcherLost, exit.Reason == guard.GuardGone:
		return fmt.Errorf("%w: the program was stopped because its watcher was", lease.ErrLost)
	case exit.Code != 0:
		return childExit{exit.Code}
	default:
		return nil
	}
}

// forwardSignals passes signals on to the program while it runs, and drops them
// while there is none: a standby must not die of a signal that is meant for the
// primary's program.
func (g *guarded) forwardSignals() (stop func()) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, guard.Forwarded()...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := range signals {
			if p := g.current.Load(); p != nil {
				_ = p.Signal(s) // it has ended, or is about to
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
		<-done
	}
}
