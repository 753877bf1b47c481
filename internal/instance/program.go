package instance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/guard"
	"github.com/understudy-ha/understudy/internal/secret"
	"github.com/understudy-ha/understudy/lease"
)

// Program is the program that runs while its role is held.
type Program struct {
	Log       *slog.Logger
	Argv      []string
	StopGrace time.Duration
	// PassStore leaves UNDERSTUDY_STORE and UNDERSTUDY_TOKEN, which are secrets, in the program's environment.
	PassStore bool
	current   atomic.Pointer[guard.Process]
}

// Run is the work of a campaign: the program, dead before trust ends.
func (g *Program) Run(ctx context.Context, term elect.Term) error {
	until, changed := term.Session.Until()
	p, err := guard.Start(ctx, guard.Config{
		Argv:  g.Argv,
		Env:   g.environ(os.Environ(), term),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		StopGrace: g.StopGrace, Deadline: until, Logger: g.Log,
	})
	if err != nil {
		return startResult(err, lease.BootClock().Now() > until-g.StopGrace)
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
			until, changed = term.Session.Until()
			p.Extend(until)
		case <-stop:
			stop = nil
			p.Stop()
		case <-ended:
			return programResult(ctx, exit, waitErr)
		}
	}
}

// environ is the program's environment, made of that of this process.
func (g *Program) environ(own []string, term elect.Term) []string {
	if !g.PassStore {
		own = secret.DropFrom(own)
	}
	return append(own,
		"UNDERSTUDY_ROLE="+term.Role,
		"UNDERSTUDY_ID="+term.Instance.ID,
		"UNDERSTUDY_NAME="+term.Instance.Name,
		"UNDERSTUDY_TERM="+strconv.FormatInt(term.Number, 10))
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
		return Exit{exit.Code}
	default:
		return nil
	}
}

// ForwardSignals passes signals on to the program while it runs, and drops them
// while there is none: a standby must not die of a signal that is meant for the
// primary's program.
func (g *Program) ForwardSignals() (stop func()) {
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

// Exit is the exit of a guarded program, to be passed on as it is.
type Exit struct{ Code int }

// Error is what the history says; on the terminal the program has said itself
// what was wrong.
func (e Exit) Error() string { return fmt.Sprintf("exit code %d", e.Code) }
