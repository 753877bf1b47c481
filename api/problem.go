package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/store"
)

var (
	errUnauthorized = errors.New("send the header: Authorization: Bearer TOKEN")
	errScope        = errors.New("the token may not do this")
	errManages      = errors.New("tokens are managed with the token of the server's configuration, or by `understudy token` on a host that reaches the store")
	errLimited      = errors.New("too many requests")
	errNoTokens     = errors.New("this server's store keeps no tokens")
	errCrossOrigin  = errors.New("a page of another site may not ask for changes")
	errHost         = errors.New("misdirected request")
	errProxied      = errors.New("a server without a token does not answer through a proxy")
	errNoRoute      = errors.New("there is nothing here; see /openapi.json")
	errMethod       = errors.New("this path does not take that method; see the header Allow")
	errRange        = errors.New("the range of the request is not in the value")
	errNotPrimary   = errors.New("this instance is not primary of the role")
	errNotReady     = errors.New("the store has not answered lately")
	errBusy         = errors.New("too many are waiting here already")
	errStopping     = errors.New("the server is stopping")
)

// errNotWritten is an [errNotReady] of a store that answers reads.
var errNotWritten error = notWritten{}

type notWritten struct{}

func (notWritten) Error() string        { return "the store has not accepted" }
func (notWritten) Is(target error) bool { return target == errNotReady }

// scopeError is what a token lacks.
type scopeError struct {
	need access.Scope
	has  access.Token
}

func (e scopeError) Error() string {
	return fmt.Sprintf("this needs a token with the scope %s; token %q has %s", e.need, e.has.Name, e.has.Scopes)
}

func (e scopeError) Unwrap() error { return errScope }

// limitedError is errLimited with when to ask again.
type limitedError struct {
	scope access.Scope
	rate  Rate
	retry time.Duration
}

func (e limitedError) Error() string {
	return fmt.Sprintf("too many requests (%s): %v a second are allowed, and %d at once", e.scope, e.rate.PerSecond, e.rate.Burst)
}

func (e limitedError) Unwrap() error { return errLimited }

// heldError is [lease.ErrHeld] with what the caller may want to know.
type heldError struct {
	lease lease.Lease
	retry time.Duration
}

func (e heldError) Error() string {
	switch l := e.lease; {
	case l.Free() && l.Successor != "":
		return fmt.Sprintf("%s is kept for %q", l.ID, l.Successor)
	case l.Free():
		return fmt.Sprintf("somebody else took %s in the same moment", l.ID)
	default:
		return fmt.Sprintf("%s is held by %q", l.ID, l.Holder.Name)
	}
}

func (e heldError) Unwrap() error { return lease.ErrHeld }

// mapping is what becomes of an error in HTTP.
type mapping struct {
	err    error
	status int
	code   string
}

// statuses maps errors to statuses and codes; the first that matches counts, so
// that an outcome that is unknown is never taken for one that is known.
func statuses() []mapping { return append(partStatuses(), ownStatuses()...) }

// partStatuses are those of the parts' errors.
func partStatuses() []mapping {
	return []mapping{
		{lease.ErrUnknown, http.StatusGatewayTimeout, "unknown_outcome"},
		{shard.ErrNoAgent, http.StatusServiceUnavailable, "no_agent"},
		{lease.ErrUnavailable, http.StatusServiceUnavailable, "store_unavailable"},
		{lease.ErrDamaged, http.StatusServiceUnavailable, "store_damaged"},
		{lease.ErrTwoHosts, http.StatusServiceUnavailable, "two_hosts"},
		{store.ErrSchema, http.StatusServiceUnavailable, "store_schema"},
		{lease.ErrHeld, http.StatusConflict, "held"},
		{lease.ErrNotHeld, http.StatusConflict, "not_held"},
		{lease.ErrLapsed, http.StatusGone, "lapsed"},
		{elect.ErrVacant, http.StatusNotFound, "vacant"},
		{lease.ErrNotFound, http.StatusNotFound, "not_found"},
		{lease.ErrUnsafeTiming, http.StatusBadRequest, "unsafe_timing"},
		{lease.ErrInvalid, http.StatusBadRequest, "invalid"},
		{dispatch.ErrNoQueue, http.StatusNotFound, "no_queue"},
		{errNoBatch, http.StatusNotFound, "no_batch"},
		{dispatch.ErrNoMessage, http.StatusNotFound, "no_message"},
		{dispatch.ErrState, http.StatusConflict, "wrong_state"},
		{dispatch.ErrUncertain, http.StatusConflict, "uncertain"},
		{monitor.ErrAlarmOpen, http.StatusConflict, "alarm_open"},
		{monitor.ErrNoSource, http.StatusNotFound, "no_source"},
		{monitor.ErrNoCheck, http.StatusNotFound, "no_event"},
		{monitor.ErrNoAlarm, http.StatusNotFound, "no_alarm"},
		{cache.ErrNotFound, http.StatusNotFound, "not_found"},
		{cache.ErrBadKey, http.StatusBadRequest, "invalid"},
		{cache.ErrTooLarge, http.StatusRequestURITooLong, "key_too_long"},
		{cache.ErrFailed, http.StatusBadGateway, "source_failed"},
		{cache.ErrPartitioned, http.StatusServiceUnavailable, "partitioned"},
		{cache.ErrOverloaded, http.StatusServiceUnavailable, "busy"},
		{cache.ErrBroken, http.StatusServiceUnavailable, "broken"},
		{cache.ErrNotMember, http.StatusServiceUnavailable, "not_member"},
		{cache.ErrPassive, http.StatusServiceUnavailable, "passive"},
		{cache.ErrClosed, http.StatusServiceUnavailable, "stopping"},
		{shard.ErrNoPrimary, http.StatusServiceUnavailable, "no_primary"},
		{shard.ErrNotFound, http.StatusNotFound, "not_found"},
		{shard.ErrLocked, http.StatusConflict, "under_way"},
		{shard.ErrChanged, http.StatusConflict, "changed"},
		{shard.ErrTaken, http.StatusConflict, "taken"},
		{shard.ErrFailed, http.StatusConflict, "not_done"},
	}
}

// ownStatuses are those of the API's own errors.
func ownStatuses() []mapping {
	return []mapping{
		{errNoShards, http.StatusNotFound, "no_shards"},
		{errNoCache, http.StatusNotFound, "no_cache"},
		{errNotYet, http.StatusGatewayTimeout, "not_yet"},
		{errNotHere, http.StatusGatewayTimeout, "not_here"},
		{errUnready, http.StatusServiceUnavailable, "not_ready"},
		{errNoMonitor, http.StatusNotFound, "store_without_sources"},
		{errNoJobs, http.StatusNotFound, "store_without_jobs"},
		{job.ErrNotFound, http.StatusNotFound, "no_job"},
		{job.ErrBusy, http.StatusConflict, "job_busy"},
		{job.ErrStale, http.StatusConflict, "run_over"},
		{errNoQueues, http.StatusNotFound, "store_without_queues"},
		{errScope, http.StatusForbidden, "missing_scope"},
		{errQuota, http.StatusForbidden, "quota_used_up"},
		{errManages, http.StatusForbidden, "config_token_needed"},
		{errLimited, http.StatusTooManyRequests, "too_many_requests"},
		{errNoTokens, http.StatusNotFound, "store_without_tokens"},
		{access.ErrNotFound, http.StatusNotFound, "no_token"},
		{access.ErrTaken, http.StatusConflict, "taken"},
		{access.ErrFull, http.StatusConflict, "too_many_tokens"},
		{errUnauthorized, http.StatusUnauthorized, "unauthorized"},
		{errCrossOrigin, http.StatusForbidden, "cross_origin"},
		{errHost, http.StatusMisdirectedRequest, "wrong_host"},
		{errProxied, http.StatusForbidden, "token_needed"},
		{errNoRoute, http.StatusNotFound, "no_route"},
		{errMethod, http.StatusMethodNotAllowed, "method_not_allowed"},
		{errRange, http.StatusRequestedRangeNotSatisfiable, "range"},
		{errNotPrimary, http.StatusServiceUnavailable, "not_primary"},
		{errNotReady, http.StatusServiceUnavailable, "not_ready"},
		{monitor.ErrNotConfigured, http.StatusServiceUnavailable, "not_ready"},
		{errBusy, http.StatusServiceUnavailable, "busy"},
		{errStopping, http.StatusServiceUnavailable, "stopping"},
		{context.DeadlineExceeded, http.StatusGatewayTimeout, "unknown_outcome"},
		{context.Canceled, http.StatusServiceUnavailable, "stopping"},
	}
}

// problemOf is the only place where errors become HTTP.
func problemOf(err error) apitype.Problem {
	p := apitype.Problem{Status: http.StatusInternalServerError, Code: "internal", Detail: "see the log of the server"}
	for _, m := range statuses() {
		if errors.Is(err, m.err) {
			p.Status, p.Code, p.Detail = m.status, m.code, err.Error()
			break
		}
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		p.Status, p.Code = http.StatusRequestEntityTooLarge, "too_large"
		p.Detail = fmt.Sprintf("the body has more than %d bytes", tooLarge.Limit)
	}
	switch p.Code {
	case "unknown_outcome":
		p.Detail += "; it may have been done: look before you believe either"
	case "store_unavailable", "busy", "stopping", "partitioned", "not_member", "not_yet", "no_primary", "under_way", "changed":
		p.RetryAfterMS = 1000
	}
	if failure, ok := errors.AsType[*cache.Failure](err); ok {
		p.RetryAfterMS = max(1, failure.RetryAfter.Milliseconds())
	}
	if held, ok := errors.AsType[heldError](err); ok {
		p.RetryAfterMS = max(1, held.retry.Milliseconds())
		p.Term = held.lease.Term
		if !held.lease.Free() {
			p.Holder = new(viewInstance(held.lease.Holder))
		}
	}
	if limited, ok := errors.AsType[limitedError](err); ok {
		p.RetryAfterMS = max(1, limited.retry.Milliseconds())
	}
	p.Title = http.StatusText(p.Status)
	return p
}
