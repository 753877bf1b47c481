package api

import (
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// refusalsEvery is how often a line says that callers are refused for one reason.
const refusalsEvery = time.Minute

// refusals logs requests that are refused because of who sends them, or how often: one line a minute for each reason, with
// whom the latest came from. Their number is in understudy_http_requests_total.
type refusals struct {
	log *slog.Logger
	now func() time.Time

	mu     sync.Mutex
	byCode map[string]*refusal // few: the codes of problems
}

type refusal struct {
	count  int // since the last line
	logged time.Time
}

func newRefusals(log *slog.Logger) *refusals {
	return &refusals{log: log, now: time.Now, byCode: map[string]*refusal{}}
}

// record logs a request that was answered with the status, if that is a refusal; err is nil when its handler wrote the answer.
func (f *refusals) record(r *http.Request, who caller, status int, err error) {
	var code string
	switch status {
	case http.StatusUnauthorized:
		code = "unauthorized"
	case http.StatusForbidden, http.StatusMisdirectedRequest, http.StatusTooManyRequests:
		code = "heartbeats refused" // by the intake, which writes its own answers
	default:
		return
	}
	if err != nil {
		code = problemOf(err).Code
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	of := f.byCode[code]
	if of == nil {
		of = &refusal{}
		f.byCode[code] = of
	}
	of.count++
	if now := f.now(); of.logged.IsZero() || now.Sub(of.logged) >= refusalsEvery {
		f.log.Warn("requests refused", "why", code, "count", of.count, "last_address", addressOf(r).String(), "token", who.token.Name, "route", r.Pattern)
		of.count, of.logged = 0, now
	}
}
