package intake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

var (
	errHeavy    = errors.New("too much is being read at once")
	errType     = errors.New("send application/json or application/x-ndjson; curl: -H 'Content-Type: application/json'")
	errEncoding = errors.New("send it as it is, or gzip-compressed")
	errGzip     = errors.New("the body is not gzip-compressed, or is truncated")
	errLarge    = fmt.Errorf("there are more than %d bytes", MaxBody)
	errEvent    = errors.New("this event is not configured, or the source is not declared for it")
	errListener = errors.New("this listener has the versions 5 and 7: POST /eventListener/v7 or /eventListener/v7/eventBatch")
	errPath     = errors.New("a ping path may end in /start, /fail, /log or an exit status")
	errRun      = errors.New("rid is not a UUID; make one for each run, for instance with uuidgen")
	errID       = errors.New("no source has this ID; declare one with the label ping, as in: understudy source declare CHECK SOURCE --label ping=ID")
	errTwice    = errors.New("two sources have this ID; give one of them another label ping")
	errAlerts   = errors.New("this is not a notification of Alertmanager's webhook, with a list of alerts")
	errCode     = errors.New("an exit status is 0 to 255")
)

// fault is how an error is answered.
type fault struct {
	status int
	code   string // what programs look at
	detail string
	retry  bool // it is worth while to ask again
}

// faultOf is the only place where errors become HTTP.
func faultOf(err error) fault {
	var broken *syntaxError
	var large *http.MaxBytesError
	switch {
	case errors.Is(err, errDenied):
		return fault{status: http.StatusUnauthorized, code: "unauthorized", detail: err.Error()}
	case errors.Is(err, errFlood):
		return fault{http.StatusTooManyRequests, "too_many_wrong_keys", err.Error(), true}
	case errors.Is(err, errNotFor):
		return fault{status: http.StatusForbidden, code: string(Forbidden), detail: err.Error()}
	case errors.Is(err, errPostOnly):
		return fault{status: http.StatusMethodNotAllowed, code: "method_not_allowed", detail: err.Error()}
	case errors.Is(err, errEvent), errors.Is(err, monitor.ErrNoSource):
		return fault{status: http.StatusNotFound, code: string(NotKnown), detail: errEvent.Error()}
	case errors.Is(err, errID):
		return fault{status: http.StatusNotFound, code: "unknown_id", detail: err.Error()}
	case errors.Is(err, errTwice):
		return fault{status: http.StatusConflict, code: "ambiguous", detail: err.Error()}
	case errors.Is(err, errPath), errors.Is(err, errListener):
		return fault{status: http.StatusNotFound, code: "no_route", detail: err.Error()}
	case errors.Is(err, errType), errors.Is(err, errEncoding):
		return fault{status: http.StatusUnsupportedMediaType, code: "media_type", detail: err.Error()}
	case errors.Is(err, errMany), errors.Is(err, errLarge), errors.As(err, &large):
		if large != nil {
			err = errLarge
		}
		return fault{status: http.StatusRequestEntityTooLarge, code: "too_large", detail: err.Error()}
	case errors.As(err, &broken):
		return fault{status: http.StatusBadRequest, code: string(Syntax), detail: err.Error()}
	case errors.Is(err, errGzip), errors.Is(err, errCode), errors.Is(err, errBody), errors.Is(err, errRun), errors.Is(err, errAlerts):
		return fault{status: http.StatusBadRequest, code: "invalid", detail: err.Error()}
	case errors.Is(err, monitor.ErrBusy), errors.Is(err, errHeavy):
		return fault{http.StatusTooManyRequests, "busy", err.Error(), true}
	case errors.Is(err, monitor.ErrNotConfigured):
		return fault{http.StatusServiceUnavailable, "not_configured", err.Error(), true}
	case errors.Is(err, lease.ErrUnavailable) && !errors.Is(err, lease.ErrUnknown):
		return fault{http.StatusServiceUnavailable, "store_unavailable", "the store is away, and nothing was stored; send it again", true}
	case errors.Is(err, lease.ErrUnknown), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fault{http.StatusServiceUnavailable, "unknown_outcome", "the store did not answer in time; send it again, which does no harm if it was stored", true}
	case errors.Is(err, lease.ErrInvalid):
		return fault{status: http.StatusBadRequest, code: "invalid", detail: plain(err)}
	}
	return fault{status: http.StatusInternalServerError, code: "internal", detail: "see the log of the server"}
}

// head writes the status of a fault, and what a client needs to know of it.
func (f fault) head(w http.ResponseWriter) {
	h := w.Header()
	switch f.status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="understudy"`)
	case http.StatusMethodNotAllowed:
		h.Set("Allow", http.MethodPost)
	}
	if f.retry {
		h.Set("Retry-After", strconv.Itoa(int(retryAfter/time.Second)))
	}
	w.WriteHeader(f.status)
}

const retryAfter = time.Second

// problem answers with a fault as RFC 9457 has it, as the rest of the API does.
func problem(w http.ResponseWriter, f fault) {
	body := struct {
		Title        string `json:"title"`
		Status       int    `json:"status"`
		Code         string `json:"code"`
		Detail       string `json:"detail,omitempty"`
		RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
	}{Title: http.StatusText(f.status), Status: f.status, Code: f.code, Detail: f.detail}
	if f.retry {
		body.RetryAfterMS = retryAfter.Milliseconds()
	}
	w.Header().Set("Content-Type", "application/problem+json")
	f.head(w)
	_ = json.NewEncoder(w).Encode(body)
}
