package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/guard"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/shard"
)

// The exit codes, as the help of the root command documents them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitAbsent      = 3
	exitUnreachable = 4
	exitLost        = 5
)

// errAbsent: what was asked for is not there.
var errAbsent = errors.New("absent")

// absentError is shown without the word that marks it.
type absentError struct{ msg string }

func (e absentError) Error() string        { return e.msg }
func (e absentError) Is(target error) bool { return target == errAbsent }

func absentf(format string, args ...any) error {
	return absentError{fmt.Sprintf(format, args...)}
}

// exitCode is the only place that maps errors to exit codes.
func exitCode(err error) int {
	var child instance.Exit
	var start *guard.StartError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &start):
		return start.Code
	case errors.As(err, &child):
		return child.Code
	case errors.Is(err, lease.ErrLost):
		return exitLost
	case errors.Is(err, usererr.Err), errors.Is(err, lease.ErrInvalid), errors.Is(err, lease.ErrUnsafeTiming), errors.Is(err, elect.ErrHolders), errors.Is(err, cache.ErrConfig):
		return exitUsage
	case errors.Is(err, elect.ErrVacant), errors.Is(err, lease.ErrNotFound), errors.Is(err, lease.ErrNotHeld),
		errors.Is(err, dispatch.ErrNoQueue), errors.Is(err, dispatch.ErrNoMessage),
		errors.Is(err, monitor.ErrNoSource), errors.Is(err, monitor.ErrNoCheck), errors.Is(err, monitor.ErrNoAlarm),
		errors.Is(err, job.ErrNotFound), errors.Is(err, shard.ErrNotFound), errors.Is(err, shard.ErrNoPrimary), errors.Is(err, errAbsent):
		return exitAbsent
	case instance.Unreachable(err), errors.Is(err, lease.ErrDamaged):
		return exitUnreachable
	default:
		return cacheExitCode(err)
	}
}

func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usererr.Errorf("%s takes no arguments; see --help", c.CommandPath())
	}
	return nil
}

// exactly checks the number of arguments and names the ones that are missing; a [NAME] may be.
func exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < len(names) && names[len(args)][0] != '[' {
			return usererr.Errorf("%s: %s is missing; see --help", c.CommandPath(), names[len(args)])
		}
		if len(args) > len(names) {
			return usererr.Errorf("%s: %q is one argument too many; see --help", c.CommandPath(), args[len(names)])
		}
		return nil
	}
}

// nameAndProgram wants NAME -- CMD [ARG…].
func nameAndProgram(name, flags string, validate func(string) error) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		dash := c.ArgsLenAtDash()
		switch {
		case len(args) == 0 || dash == 0:
			return usererr.Errorf("%s: %s is missing; see --help", c.CommandPath(), name)
		case dash != 1 || len(args) < 2:
			return usererr.Errorf("%s: write the program after --, as in: %s %s%s -- ./program", c.CommandPath(), c.CommandPath(), args[0], flags)
		}
		return validate(args[0])
	}
}

// startingWith checks the number of arguments, and the first of them.
func startingWith(validate func(string) error, names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := exactly(names...)(c, args); err != nil {
			return err
		}
		return validate(args[0])
	}
}
