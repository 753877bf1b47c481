package target

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/sawtooth"
	"github.com/understudy-ha/understudy/internal/untrusted"
)

// SawtoothConfig tells where a Sawtooth REST API is. Its URL is that under which
// /batches is found.
type SawtoothConfig struct {
	HTTPConfig
}

// Sawtooth submits batches to the REST API of a Sawtooth validator. It asks the
// same node to which it submitted: the status of a batch is that node's own.
type Sawtooth struct {
	client *client
}

// Facts of its API.
const (
	sawtoothByGet = 15  // ids that are asked for by GET; more by POST
	sawtoothMany  = 500 // ids that are asked for at once

	codeSendTimeout = 19 // the validator never got the request
	codeNotReady    = 15 // it has no first block yet
	codeWrongType   = 42
	codeNoBatch     = 71
)

// NewSawtooth returns a target for a Sawtooth REST API.
func NewSawtooth(c SawtoothConfig) (*Sawtooth, error) {
	cl, err := newClient(c.HTTPConfig)
	if err != nil {
		return nil, err
	}
	return &Sawtooth{client: cl}, nil
}

// Name implements [dispatch.Target].
func (s *Sawtooth) Name() string { return "sawtooth " + s.client.place() }

// Semantics implements [dispatch.Target]. A validator drops without a word what it
// has scheduled or committed. What it found invalid it does not have: a request
// that was held up for long enough can make it judge that batch once more.
func (s *Sawtooth) Semantics() dispatch.Semantics {
	return dispatch.Semantics{Resend: true, Deduplicates: true, HasStatus: true, StatusLimit: sawtoothMany, Forgets: true}
}

// Submit implements [dispatch.Target].
func (s *Sawtooth) Submit(ctx context.Context, a dispatch.Assignment) dispatch.Answer {
	if refused, ok := refuse(a); ok {
		return refused
	}
	header := http.Header{"Content-Type": {"application/octet-stream"}, "User-Agent": {agent}}
	r := s.client.do(ctx, http.MethodPost, s.client.base.JoinPath("batches"), header, a.Payload, maxAnswer)
	return judgeSawtooth(r, time.Now())
}

// refuse tells what is wrong with a batch that no ledger can take under its id.
func refuse(a dispatch.Assignment) (dispatch.Answer, bool) {
	id, err := sawtooth.OnlyID(a.Payload)
	switch {
	case err != nil:
		return dispatch.Answer{Outcome: dispatch.Refused, Detail: err.Error()}, true
	case id != a.ID:
		return dispatch.Answer{Outcome: dispatch.Refused,
			Detail: fmt.Sprintf("the batch's id is not its header signature %.16s…", id)}, true
	}
	return dispatch.Answer{}, false
}

// sawtoothFault is the body of an answer that is an error.
type sawtoothFault struct {
	Error struct {
		Code    int    `json:"code"`
		Title   string `json:"title"`
		Message string `json:"message"`
	} `json:"error"`
}

func readFault(r reply) (code int, detail string) {
	var f sawtoothFault
	if json.Unmarshal(r.body, &f) != nil || f.Error.Code == 0 {
		return 0, said(r)
	}
	return f.Error.Code, untrusted.Words(fmt.Sprintf("%s (code %d): %s", f.Error.Title, f.Error.Code, f.Error.Message))
}

func judgeSawtooth(r reply, now time.Time) dispatch.Answer {
	if r.status == http.StatusAccepted { // it has the batch, however its answer ended
		return dispatch.Answer{Outcome: dispatch.Accepted, Code: r.status, Link: linkOf(r.body)}
	}
	if a, ok := r.broken(); ok {
		return a
	}
	a := dispatch.Answer{Code: r.status, Outcome: dispatch.Uncertain}
	a.RetryAfter, _ = untrusted.RetryAfter(r.header, now)
	code, detail := readFault(r)
	a.Detail = detail
	switch {
	case r.status == http.StatusBadRequest && code != codeWrongType, r.status == http.StatusRequestEntityTooLarge:
		a.Outcome = dispatch.Refused
	case r.status == http.StatusTooManyRequests,
		r.status == http.StatusRequestTimeout && code == codeSendTimeout,
		r.status == http.StatusServiceUnavailable && code == codeNotReady:
		a.Outcome = dispatch.Busy
	case misdirected(r.status), code == codeWrongType:
		a.Outcome = dispatch.Rejected
	}
	return a
}

// misdirected tells answers that do not come from a ledger that looked at a batch.
func misdirected(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
		return true
	}
	return status >= 300 && status < 400
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

// Status implements [dispatch.Target].
func (s *Sawtooth) Status(ctx context.Context, as []dispatch.Assignment) []dispatch.Answer {
	out := make([]dispatch.Answer, len(as))
	var ids []string
	places := map[string]int{}
	for i, a := range as {
		if !sawtooth.ValidID(a.ID) { // it was never sent, and would spoil the question
			out[i] = dispatch.Answer{Outcome: dispatch.Refused, Detail: "its id is no header signature"}
			continue
		}
		places[a.ID] = i
		ids = append(ids, a.ID)
	}
	if len(ids) == 0 {
		return out
	}
	found, otherwise := s.statuses(ctx, ids)
	var lost []string
	for _, id := range ids {
		status, ok := found[id]
		switch {
		case !ok:
			out[places[id]] = otherwise
		case status.Outcome == dispatch.NotFound:
			lost = append(lost, id)
		default:
			out[places[id]] = status
		}
	}
	several(len(lost), func(i int) { out[places[lost[i]]] = s.evidence(ctx, lost[i]) })
	return out
}

// statuses asks for many; otherwise is the answer for those that are not found in
// what came.
func (s *Sawtooth) statuses(ctx context.Context, ids []string) (found map[string]dispatch.Answer, otherwise dispatch.Answer) {
	to := s.client.base.JoinPath("batch_statuses")
	header := http.Header{"User-Agent": {agent}}
	var r reply
	if len(ids) <= sawtoothByGet {
		query := *to
		query.RawQuery = "id=" + strings.Join(ids, ",")
		r = s.client.do(ctx, http.MethodGet, &query, header, nil, maxStatuses)
	} else {
		header["Content-Type"] = []string{"application/json"}
		body, err := json.Marshal(ids)
		if err != nil {
			return nil, dispatch.Answer{Outcome: dispatch.Uncertain, Detail: err.Error()}
		}
		r = s.client.do(ctx, http.MethodPost, to, header, body, maxStatuses)
	}
	if a, ok := r.broken(); ok {
		a.Outcome = dispatch.Uncertain
		return nil, a
	}
	if r.status != http.StatusOK {
		_, detail := readFault(r)
		return nil, dispatch.Answer{Outcome: dispatch.Uncertain, Code: r.status, Detail: detail}
	}
	return readSawtooth(r.body)
}

func readSawtooth(body []byte) (map[string]dispatch.Answer, dispatch.Answer) {
	otherwise := dispatch.Answer{Outcome: dispatch.Uncertain, Code: http.StatusOK, Detail: "the answer leaves it out"}
	var answer struct {
		Data []struct {
			ID      string `json:"id"`
			Status  string `json:"status"`
			Invalid []struct {
				ID      string `json:"id"`
				Message string `json:"message"`
			} `json:"invalid_transactions"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		otherwise.Detail = "the answer cannot be read: " + untrusted.Words(err.Error())
		return nil, otherwise
	}
	found := make(map[string]dispatch.Answer, len(answer.Data))
	for _, d := range answer.Data {
		a := dispatch.Answer{Code: http.StatusOK, Outcome: ledgerOutcome(d.Status)}
		if a.Outcome == dispatch.Refused {
			var reasons []sawtooth.Reason
			for _, t := range d.Invalid {
				reasons = append(reasons, sawtooth.Reason{Transaction: t.ID, Message: t.Message})
			}
			a.Detail = sawtooth.ReasonText(reasons)
		}
		found[d.ID] = a
	}
	return found, otherwise
}

// ledgerOutcome reads the statuses of both ledgers.
func ledgerOutcome(status string) dispatch.Outcome {
	switch strings.ToUpper(status) {
	case "COMMITTED":
		return dispatch.Done
	case "VALID":
		return dispatch.Executed
	case "INVALID":
		return dispatch.Refused
	case "PENDING":
		return dispatch.Accepted
	case "UNKNOWN":
		return dispatch.NotFound
	}
	return dispatch.Uncertain
}

// evidence looks for a batch in the blocks, which do not forget.
func (s *Sawtooth) evidence(ctx context.Context, id string) dispatch.Answer {
	to := s.client.base.JoinPath("batches", url.PathEscape(id))
	r := s.client.do(ctx, http.MethodGet, to, http.Header{"User-Agent": {agent}}, nil, maxStatuses)
	if r.status == http.StatusOK && strings.Contains(string(r.body), `"`+id+`"`) { // the body is the batch, and may be cut
		return dispatch.Answer{Outcome: dispatch.Done, Code: r.status, Detail: "found in a block"}
	}
	if a, ok := r.broken(); ok {
		a.Outcome = dispatch.Uncertain
		return a
	}
	code, detail := readFault(r)
	if code == codeNoBatch {
		return dispatch.Answer{Outcome: dispatch.NotFound, Code: r.status, Detail: "the ledger does not know it"}
	}
	return dispatch.Answer{Outcome: dispatch.Uncertain, Code: r.status, Detail: detail}
}
