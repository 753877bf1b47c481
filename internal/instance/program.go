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

// Program is the program that runs while its role is held, or in a run of a job.
type Program struct {
	Log       *slog.Logger
	Argv      []string
	StopGrace time.Duration
	// PassStore leaves UNDERSTUDY_STORE and UNDERSTUDY_TOKEN, which are secrets, in the program's environment.
	PassStore bool
	// StoreURL is where the role's lease is. If this process is killed, a watcher that has ended the program releases the
	// lease there; "": it lapses.
	StoreURL string
	current  atomic.Pointer[run]
}

// run is one start of the program.
type run struct {
	process  atomic.Pointer[guard.Process] // nil until it has started
	deadline atomic.Int64                  // by which it is dead: a reading of [lease.BootClock]
	ended    chan struct{}                 // closed when nothing of it is alive
	exit     guard.Exit                    // valid then, as is err
	err      error
}

// Run is the work of a campaign: the program, dead before trust ends.
func (p *Program) Run(ctx context.Context, term elect.Term) error {
	return p.runUnder(ctx, term.Session, p.afterwards(term), os.Stdin, os.Stdout, os.Stderr,
		"UNDERSTUDY_ROLE="+term.Role,
		"UNDERSTUDY_ID="+term.Instance.ID,
		"UNDERSTUDY_NAME="+term.Instance.Name,
		"UNDERSTUDY_PLACE="+strconv.Itoa(term.Place()),
		"UNDERSTUDY_TERM="+strconv.FormatInt(term.Number, 10))
}

// runUnder runs the program under a session, with more in its environment. afterwards is what a watcher does if this process is
// killed.
func (p *Program) runUnder(ctx context.Context, session *lease.ActiveSession, afterwards *guard.Afterwards, stdin, stdout, stderr *os.File, vars ...string) error {
	until, changed := session.Until()
	r := &run{ended: make(chan struct{})}
	r.deadline.Store(int64(until))
	p.current.Store(r)
	process, err := guard.Start(ctx, guard.Config{
		Argv:  p.Argv,
		Env:   p.environ(os.Environ(), vars...),
		Stdin: stdin, Stdout: stdout, Stderr: stderr,
		StopGrace: p.StopGrace, Deadline: until, Afterwards: afterwards, Logger: p.Log,
	})
	if err != nil {
		close(r.ended)
		return startResult(err, lease.BootClock().Now() > until-p.StopGrace)
	}
	r.process.Store(process)
	go func() {
		r.exit, r.err = process.Wait()
		close(r.ended)
	}()
	stop := ctx.Done()
	for {
		select {
		case <-changed:
			// A session that the store refused has no end of trust any more. No other
			// instance can hold the role before the last one, so the program keeps its grace.
			if until, changed = session.Until(); until > 0 {
				r.deadline.Store(int64(until))
				process.Extend(until)
			}
		case <-stop:
			stop = nil
			process.Stop()
		case <-r.ended:
			return programResult(ctx, r.exit, r.err)
		}
	}
}

// reportWait is how long the report of a watcher may take that has killed the program in time.
const reportWait = 2 * time.Second

// Overrun is for [elect.Config]: trust has ended, and Run has not returned. That is no overrun if a
// watcher killed the program before: this process may only hear of it late.
func (p *Program) Overrun() {
	r := p.current.Load()
	if r == nil {
		return // nothing was started
	}
	select {
	case <-r.ended:
		if late := r.exit.At - time.Duration(r.deadline.Load()); r.process.Load() != nil && (r.err != nil || r.exit.At == 0 || late > 0) {
			p.Log.Error("the program was alive after the end of trust", "late", max(0, late), "err", r.err)
		}
	case <-time.After(reportWait):
		p.Log.Error("the program still runs after the end of trust")
	}
}

// environ is the program's environment, made of that of this process.
func (p *Program) environ(own []string, vars ...string) []string {
	if !p.PassStore {
		own = secret.DropFrom(own)
	}
	return append(own, vars...)
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
func (p *Program) ForwardSignals() (stop func()) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, guard.Forwarded()...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := range signals {
			if r := p.current.Load(); r != nil && r.process.Load() != nil {
				_ = r.process.Load().Signal(s) // it has ended, or is about to
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

// ExitCode is what a job shows.
func (e Exit) ExitCode() int { return e.Code }
