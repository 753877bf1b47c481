package target

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/untrusted"
)

// classify reads the answer to a submission, by the table in docs/targets.md. resent: the receiver may have the message from
// an earlier attempt. (A retry by an operator counts attempts from 1 again.)
func (w *Webhook) classify(r reply, resent bool, now time.Time) dispatch.Answer {
	if a, ok := r.broken(); ok {
		return a
	}
	a := dispatch.Answer{Code: r.status}
	after, hasAfter := untrusted.RetryAfter(r.header, now)
	a.RetryAfter = after
	switch {
	case r.status == http.StatusAccepted && r.header.Get("Location") != "" && !w.cfg.Final:
		return accepted(a, w.client.base, r.header.Get("Location"))
	case r.status >= 200 && r.status < 300:
		a.Outcome = dispatch.Done
		return a
	case r.status >= 300 && r.status < 400:
		return redirected(a, r)
	}
	a.Outcome, a.Detail = webhookOutcome(r, resent, hasAfter), errorText(r)
	a.RequestEnded = requestEnded(r.status)
	a.Permanent = isPermanent(r.status)
	return a
}

func accepted(a dispatch.Answer, base *url.URL, link string) dispatch.Answer {
	if _, err := location(base, link); err != nil {
		a.Outcome, a.Detail = dispatch.Uncertain, "accepted, but "+err.Error()
		return a
	}
	a.Outcome, a.Link = dispatch.Accepted, link
	return a
}

func redirected(a dispatch.Answer, r reply) dispatch.Answer {
	a.Outcome = OutcomeOf(a.Code)
	a.Permanent = isPermanent(a.Code)
	a.Detail = statusText(a.Code) + ": redirects are not followed"
	if to := r.header.Get("Location"); to != "" {
		a.Detail += "; it names " + r.words(to)
	}
	return a
}

func webhookOutcome(r reply, resent, hasAfter bool) dispatch.Outcome {
	switch r.status {
	case http.StatusConflict, http.StatusPreconditionFailed:
		_, err := strconv.ParseInt(r.header.Get(HeaderTerm), 10, 64)
		switch {
		case err == nil:
			return dispatch.Busy
		case r.status == http.StatusConflict && (resent || hasAfter):
			return dispatch.Uncertain
		}
	case http.StatusServiceUnavailable:
		if hasAfter {
			return dispatch.Busy
		}
	}
	return OutcomeOf(r.status)
}

// OutcomeOf is what a status that is not 2xx says about a request by itself: the
// table of the webhook without what headers and earlier attempts add to it.
func OutcomeOf(status int) dispatch.Outcome {
	switch status {
	case http.StatusTooEarly, http.StatusTooManyRequests:
		return dispatch.Busy
	case http.StatusRequestTimeout:
		return dispatch.Uncertain
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusProxyAuthRequired, http.StatusGone,
		http.StatusMisdirectedRequest, http.StatusUpgradeRequired, http.StatusNotImplemented,
		http.StatusHTTPVersionNotSupported, http.StatusLoopDetected, http.StatusNotExtended,
		http.StatusNetworkAuthenticationRequired:
		return dispatch.Misconfigured
	}
	switch {
	case status >= 400 && status < 500:
		return dispatch.InvalidMessage
	case status >= 300 && status < 400 && status != http.StatusSeeOther:
		return dispatch.Misconfigured
	}
	return dispatch.Uncertain
}

// isPermanent reports that an address answers like this because nothing is there that takes messages.
func isPermanent(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusPermanentRedirect, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusGone, http.StatusNotImplemented:
		return true
	}
	return false
}

// requestEnded reports that the receiver has finished with the request. Other statuses may come from a proxy that has
// lost patience with a receiver that continues.
func requestEnded(status int) bool {
	switch status {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable:
		return true
	}
	return false
}

// errorText is the status of an answer, and what the target said.
func errorText(r reply) string {
	// More than is shown: a part of a secret at the end would not be recognised.
	if s := r.words(string(r.body[:min(len(r.body), maxAnswer)])); s != "" {
		return fmt.Sprintf("HTTP %d: %s", r.status, s)
	}
	return statusText(r.status)
}

// statusText is a status with its name in the standard.
func statusText(status int) string {
	return strings.TrimSuffix(fmt.Sprintf("HTTP %d: %s", status, http.StatusText(status)), ": ")
}

// classifyStatus reads the answer to the question what became of a message.
func classifyStatus(r reply, now time.Time) dispatch.Answer {
	if a, ok := r.broken(); ok {
		a.Outcome = dispatch.Uncertain
		return a
	}
	a := dispatch.Answer{Code: r.status}
	a.RetryAfter, _ = untrusted.RetryAfter(r.header, now)
	kind, _, _ := mime.ParseMediaType(r.header.Get("Content-Type"))
	switch {
	case r.status == http.StatusOK && (kind == "application/json" || strings.HasSuffix(kind, "+json")):
		a.Outcome, a.Detail = statusMember(r)
		return a
	case r.status == http.StatusAccepted:
		a.Outcome = dispatch.Accepted
		return a
	case r.status >= 200 && r.status < 300, r.status == http.StatusSeeOther:
		a.Outcome = dispatch.Done
		return a
	case r.status == http.StatusNotFound:
		a.Outcome = dispatch.NotFound
	case r.status == http.StatusGone:
		a.Outcome = dispatch.InvalidMessage
	default:
		a.Outcome = dispatch.Uncertain
	}
	a.Detail = errorText(r)
	return a
}

func statusMember(r reply) (dispatch.Outcome, string) {
	var status struct {
		Status  string `json:"status"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(r.body, &status); err != nil {
		return dispatch.Uncertain, "its status is not a JSON object: " + r.words(err.Error())
	}
	outcome := statusOutcome(status.Status)
	if outcome == dispatch.Uncertain {
		return outcome, "its status says neither committed, pending, valid, invalid nor unknown"
	}
	return outcome, r.words(status.Message)
}
