package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/cache"
	cacheclient "github.com/understudy-ha/understudy/cache/client"
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

// exitCode maps errors to exit codes.
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
	case errors.Is(err, lease.ErrLost), errors.Is(err, elect.ErrMoved):
		return exitLost
	case errors.Is(err, lease.ErrUnknown), errors.Is(err, lease.ErrUnavailable):
		return exitUnreachable // of several errors, what is known of one does not hide that nobody answered about another
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
		return answerExitCode(err)
	}
}

// mayRecover reports whether an error may be over soon, so that what watches or retries tries again: no retry helps a damaged store.
func mayRecover(err error) bool {
	return exitCode(err) == exitUnreachable && !errors.Is(err, lease.ErrDamaged)
}

// answerExitCode maps what a cache answers over its own protocol, and any server over HTTP.
func answerExitCode(err error) int {
	var answer *client.Error
	var broken *url.Error
	switch {
	case errors.Is(err, cacheclient.ErrConfig), errors.Is(err, cacheclient.ErrBadRequest), errors.Is(err, cacheclient.ErrTooLarge):
		return exitUsage
	case errors.Is(err, cacheclient.ErrNotFound):
		return exitAbsent
	case errors.Is(err, cacheclient.ErrTimeout), errors.Is(err, cacheclient.ErrPartitioned), errors.Is(err, cacheclient.ErrOverloaded), errors.As(err, &broken):
		return exitUnreachable
	case !errors.As(err, &answer):
		return exitFailed
	}
	switch answer.Status {
	case http.StatusBadRequest, http.StatusRequestURITooLong:
		return exitUsage
	case http.StatusNotFound:
		return exitAbsent
	case http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return exitUnreachable
	}
	return exitFailed
}
