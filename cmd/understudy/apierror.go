package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/store"
)

// codedError is an error in the words of the API, and the error of this program that its code stands for.
type codedError struct {
	text string
	code string
	is   error
}

func (e codedError) Error() string { return e.text }
func (e codedError) Unwrap() error { return e.is }

// tooManyError: a server has had too many requests. It is after how many milliseconds to come back.
type tooManyError int64

func (tooManyError) Error() string { return "too many requests" }

var (
	// errRefused: a refusal that no error of this program stands for.
	errRefused = errors.New("refused")
	// errInternal: the reason is in the log of whatever serves the API.
	errInternal = errors.New("internal error")
)

// errorsByCode are the errors that the codes of the API stand for.
func errorsByCode() map[string]error {
	return map[string]error{
		"vacant": elect.ErrVacant, "not_found": lease.ErrNotFound, "not_held": lease.ErrNotHeld,
		"no_queue": dispatch.ErrNoQueue, "no_message": dispatch.ErrNoMessage, "no_batch": dispatch.ErrNoMessage, "wrong_state": dispatch.ErrState, "uncertain": dispatch.ErrUncertain,
		"no_event": monitor.ErrNoCheck, "unknown_event": monitor.ErrNoCheck, "no_source": monitor.ErrNoSource, "no_alarm": monitor.ErrNoAlarm,
		"no_primary": shard.ErrNoPrimary, "under_way": shard.ErrLocked, "changed": shard.ErrChanged, "not_done": shard.ErrFailed, "no_agent": shard.ErrNoAgent,
		"no_token": access.ErrNotFound, "no_job": job.ErrNotFound, "job_busy": job.ErrBusy, "store_without_jobs": usererr.Err,
		"unsafe_timing": lease.ErrUnsafeTiming, "invalid": lease.ErrInvalid, "too_large": lease.ErrInvalid,
		"store_without_queues": usererr.Err, "store_without_sources": usererr.Err, "store_without_tokens": usererr.Err, "no_shards": usererr.Err,
		"store_unavailable": lease.ErrUnavailable, "busy": lease.ErrUnavailable, "stopping": lease.ErrUnavailable, "not_ready": lease.ErrUnavailable,
		"two_hosts": lease.ErrTwoHosts, "unknown_outcome": lease.ErrUnknown, "store_damaged": lease.ErrDamaged, "store_schema": store.ErrSchema,
		"held": lease.ErrHeld, "lapsed": lease.ErrLapsed, "alarm_open": monitor.ErrAlarmOpen, "run_over": job.ErrStale,
		"taken": errRefused, "too_many_tokens": access.ErrFull, "quota_used_up": errRefused, "internal": errInternal,
	}
}

// apiError gives what a client returned the error of this program that its code stands for.
func apiError(err error) error {
	answer, ok := errors.AsType[*client.Error](err)
	if !ok {
		return transportError(err)
	}
	switch is := errorsByCode()[answer.Code]; {
	case errors.Is(is, errInternal):
		return codedError{fmt.Sprintf("%v: %s", is, termtext.Line(answer.Error())), answer.Code, is}
	case is != nil:
		return codedError{answer.Error(), answer.Code, is}
	}
	text := fmt.Sprintf("the server refused with %d: %s", answer.Status, termtext.Line(answer.Error()))
	switch {
	case answer.Status == http.StatusTooManyRequests:
		return codedError{text, answer.Code, tooManyError(answer.RetryAfterMS)}
	case answer.Code == client.NotUnderstudy && answer.Status >= http.StatusInternalServerError:
		// What stands before the server says that it is not there, or did not answer.
		return codedError{answer.Detail, answer.Code, lease.ErrUnknown}
	case answer.Code == client.NotUnderstudy:
		return errors.New(answer.Detail + "; is it the address of a server?")
	case answer.Status == http.StatusUnauthorized:
		return errors.New(text + "; give a token with --token-file, or set UNDERSTUDY_TOKEN")
	}
	return errors.New(text)
}

// transportError is what went wrong before there was an answer.
func transportError(err error) error {
	failed, ok := errors.AsType[*url.Error](err)
	if !ok || errors.Is(err, context.Canceled) {
		return err
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return codedError{fmt.Sprintf("%v; SSL_CERT_FILE names certificates to trust", failed.Err), "", lease.ErrUnavailable}
	}
	if errors.As(err, new(notSent)) && !errors.Is(err, context.DeadlineExceeded) {
		return codedError{fmt.Sprintf("the server cannot be reached: %v", failed.Err), "", lease.ErrUnavailable}
	}
	return noAnswer(failed)
}

// noAnswer is the error of a request that got none: a change may have been made nevertheless.
func noAnswer(failed *url.Error) error {
	from := "the server"
	if silent, ok := errors.AsType[silentStore](failed); ok {
		from = "the store " + termtext.URL(silent.url)
	}
	text, is := fmt.Sprintf("%s did not answer: %v", from, failed.Err), lease.ErrUnavailable
	if errors.Is(failed, context.DeadlineExceeded) {
		text = from + " did not answer in time"
	}
	if failed.Op != "Get" && !errors.As(failed, new(notSent)) {
		text, is = text+"; a change may have been made: look before you repeat it", lease.ErrUnknown
	}
	return codedError{text, "", is}
}
