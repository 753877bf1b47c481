package guard

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// WatcherArg is the first argument of a process that is to call [Watch] with the
// arguments after it, before it does anything else.
const WatcherArg = "guard-watcher"

var (
	// ErrConfig is wrapped by errors about a [Config] that cannot be used.
	ErrConfig = errors.New("guard: invalid configuration")
	// ErrTooLate is wrapped when the deadline left no time to start the program.
	ErrTooLate = errors.New("guard: the deadline leaves no time to run")
	// ErrEscaped is wrapped when both watchers died before their work was done.
	// The program was killed with them; what it had started may be alive.
	ErrEscaped = errors.New("guard: both watchers died; processes that the program started may be alive")
)

// Config says what to run.
type Config struct {
	// Argv is the program and its arguments. A name without a slash is looked up
	// in the guard's PATH. Required.
	Argv []string
	// Env is the program's environment. Default: that of the guard.
	Env []string
	// Stdin, Stdout and Stderr are given to the program as they are. Nobody else
	// keeps them open. Default: the null device.
	Stdin, Stdout, Stderr *os.File
	// StopGrace is how long a program that was sent SIGTERM has until SIGKILL, less
	// the margin when it is the deadline that stops it. 0 means SIGKILL at once.
	StopGrace time.Duration
	// Deadline by which the program is dead unless [Process.Extend] moves it: a
	// reading of [lease.BootClock]. Required.
	Deadline time.Duration
	// Afterwards is what a watcher does if the guard is gone once nothing of the program is alive. Default: nothing.
	Afterwards *Afterwards
	// Logger hears of watchers that failed. Default: nothing is logged.
	Logger *slog.Logger
}

// Afterwards is done by a watcher that has survived its guard: it becomes this binary once more, with one argument
// and with its standard input, which may hold secrets: neither other processes nor the program can read it. Its
// environment is the program's, its output goes nowhere.
type Afterwards struct {
	Arg   string
	Input []byte // at most maxInput
}

// Validate refuses what cannot be handed over.
func (a Afterwards) Validate() error {
	if a.Arg == "" || len(a.Input) > maxInput {
		return fmt.Errorf("%w: what is to be done afterwards has no argument, or %d bytes of input (at most %d)", ErrConfig, len(a.Input), maxInput)
	}
	return nil
}

// maxInput fits into a pipe, also into a small one.
const maxInput = 4096

// Validate refuses what cannot be run.
func (c Config) Validate() error {
	switch {
	case len(c.Argv) == 0 || c.Argv[0] == "":
		return fmt.Errorf("%w: no program named", ErrConfig)
	case c.StopGrace < 0:
		return fmt.Errorf("%w: stop grace %v is negative", ErrConfig, c.StopGrace)
	case c.Deadline <= 0:
		return fmt.Errorf("%w: no deadline", ErrConfig)
	case c.Afterwards != nil:
		return c.Afterwards.Validate()
	}
	return nil
}

// StartError is a program that could not be started.
type StartError struct {
	Program string
	// Code is what a shell would exit with: 127 if there is no such program, 126
	// if it cannot be executed.
	Code int
	Err  error
}

func (e *StartError) Error() string {
	return fmt.Sprintf("guard: cannot start %q: %v", e.Program, e.Err)
}

func (e *StartError) Unwrap() error { return e.Err }

// Reason is why a program ended.
type Reason string

// The reasons.
const (
	// Exited: it ended by itself.
	Exited Reason = "exited"
	// Stopped: [Process.Stop] was called.
	Stopped Reason = "stopped"
	// Deadline: nobody moved the deadline in time.
	Deadline Reason = "deadline"
	// GuardGone: the guard died, or a watcher was asked to end by a signal from
	// elsewhere.
	GuardGone Reason = "guard gone"
	// WatcherLost: a watcher died.
	WatcherLost Reason = "watcher lost"
)

// Exit is how a program ended.
type Exit struct {
	// Code is the program's exit code; 128 + n when signal n ended it; 137 when
	// nobody was left to see it.
	Code int
	// Reason why it ended.
	Reason Reason
	// At is when a watcher saw that nothing was left alive, as a reading of
	// [lease.BootClock]; 0 when none was there to see it.
	At time.Duration
}
