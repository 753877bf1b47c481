package target

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/sawtooth"
	"github.com/understudy-ha/understudy/internal/untrusted"
)

// ledgerDecides is within what time a ledger that works has decided.
const ledgerDecides = 2 * time.Minute

// refuseBatch reports what is wrong with a batch that no ledger can take under its id, or could never decide.
func refuseBatch(a dispatch.Assignment) (dispatch.Answer, bool) {
	b, err := sawtooth.OnlyBatch(a.Payload)
	if err == nil {
		err = b.CheckForm()
	}
	switch {
	case err != nil:
		return dispatch.Answer{Outcome: dispatch.InvalidMessage, Detail: err.Error()}, true
	case b.ID != a.ID:
		return dispatch.Answer{Outcome: dispatch.InvalidMessage,
			Detail: fmt.Sprintf("the batch's id is not its header signature %.16s…", b.ID)}, true
	}
	return dispatch.Answer{}, false
}

// refuseID answers the question about a batch that cannot be at a ledger: it was never sent, and would spoil the
// question about others.
func refuseID(a dispatch.Assignment) (dispatch.Answer, bool) {
	return dispatch.Answer{Outcome: dispatch.InvalidMessage, Detail: "its id is not a header signature"}, !sawtooth.ValidID(a.ID)
}

// classifyLedger reads the answer to a submission. readError tells what the ledger's own error says, and its outcome if
// that is not the one of the status.
func classifyLedger(r reply, now time.Time, readError func(reply) (detail string, own dispatch.Outcome)) dispatch.Answer {
	if r.status == http.StatusAccepted { // it has the batch, however its answer ended
		a := dispatch.Answer{Outcome: dispatch.Accepted, Code: r.status, Link: linkOf(r.body)}
		if broken, ok := r.broken(); ok {
			a.Detail = broken.Detail
		} else if a.Link == "" {
			a.Detail = "the answer cannot be read: it has no link to the batch's status"
		}
		return a
	}
	if a, ok := r.broken(); ok {
		return a
	}
	a := dispatch.Answer{Code: r.status}
	a.RetryAfter, _ = untrusted.RetryAfter(r.header, now)
	a.Detail, a.Outcome = readError(r)
	if a.Outcome != "" {
		return a
	}
	switch {
	case r.status == http.StatusBadRequest, r.status == http.StatusRequestEntityTooLarge:
		a.Outcome = dispatch.InvalidMessage
	case r.status == http.StatusTooManyRequests:
		a.Outcome = dispatch.Busy
	case r.status == http.StatusUnauthorized, r.status == http.StatusForbidden, r.status == http.StatusNotFound,
		r.status == http.StatusMethodNotAllowed, r.status >= 300 && r.status < 400:
		a.Outcome = dispatch.Misconfigured // no ledger that looked at the batch answers like this
	default:
		a.Outcome = dispatch.Uncertain
	}
	return a
}

func linkOf(body []byte) string {
	var answer struct {
		Link string `json:"link"`
	}
	if json.Unmarshal(body, &answer) != nil || len(answer.Link) > maxLink {
		return ""
	}
	return untrusted.Words(answer.Link)
}

// readStatuses reads the body of an answer about batches into into, or returns the answer for all of them: that of a
// question without an answer, or with one that is an error, of which detail has the words.
func readStatuses(r reply, into any, detail func(reply) string) (dispatch.Answer, bool) {
	if a, ok := r.broken(); ok {
		a.Outcome = dispatch.Uncertain
		return a, false
	}
	a := dispatch.Answer{Outcome: dispatch.Uncertain, Code: r.status, Detail: "the answer leaves it out"}
	if r.status != http.StatusOK {
		a.Detail = detail(r)
		return a, false
	}
	if err := json.Unmarshal(r.body, into); err != nil {
		a.Detail = "the answer cannot be read: " + untrusted.Words(err.Error())
		return a, false
	}
	return a, true
}

// statusAnswer is what a status of either ledger says about a batch.
func statusAnswer(status string, reasons []sawtooth.Reason) dispatch.Answer {
	a := dispatch.Answer{Code: http.StatusOK, Outcome: statusOutcome(status)}
	if a.Outcome == dispatch.InvalidMessage {
		a.Detail = sawtooth.ReasonText(reasons)
	}
	return a
}

// statusOutcome reads a status by its name, in any case: ledgers and receivers of webhooks use the same.
func statusOutcome(status string) dispatch.Outcome {
	switch strings.ToLower(status) {
	case "committed":
		return dispatch.Done
	case "valid":
		return dispatch.Executed
	case "invalid":
		return dispatch.InvalidMessage
	case "pending":
		return dispatch.Accepted
	case "unknown":
		return dispatch.NotFound
	}
	return dispatch.Uncertain
}
