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
	sawtoothByGet       = 15  // ids that are asked for by GET; more by POST
	sawtoothStatusLimit = 500 // ids that are asked for at once

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
	return dispatch.Semantics{Resend: true, Deduplicates: true, HasStatus: true, StatusLimit: sawtoothStatusLimit, Forgets: true, Decides: ledgerDecides}
}

// Submit implements [dispatch.Target].
func (s *Sawtooth) Submit(ctx context.Context, a dispatch.Assignment) dispatch.Answer {
	if refused, ok := refuseBatch(a); ok {
		return refused
	}
	header := http.Header{"Content-Type": {"application/octet-stream"}, "User-Agent": {agent}}
	r := s.client.do(ctx, http.MethodPost, s.client.base.JoinPath("batches"), header, a.Payload, maxAnswer)
	return classifyLedger(r, time.Now(), func(r reply) (string, dispatch.Outcome) {
		code, detail := readFault(r)
		switch {
		case code == codeWrongType:
			return detail, dispatch.Misconfigured
		case r.status == http.StatusRequestTimeout && code == codeSendTimeout,
			r.status == http.StatusServiceUnavailable && code == codeNotReady:
			return detail, dispatch.Busy
		}
		return detail, ""
	})
}

// readFault reads the body of an answer that is an error.
func readFault(r reply) (code int, detail string) {
	var f struct {
		Error struct {
			Code    int    `json:"code"`
			Title   string `json:"title"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(r.body, &f) != nil || f.Error.Code == 0 {
		return 0, errorText(r)
	}
	return f.Error.Code, r.words(fmt.Sprintf("%s (code %d): %s", f.Error.Title, f.Error.Code, f.Error.Message))
}

// Status implements [dispatch.Target].
func (s *Sawtooth) Status(ctx context.Context, as []dispatch.Assignment) []dispatch.Answer {
	out := make([]dispatch.Answer, len(as))
	var ids []string
	places := map[string]int{}
	for i, a := range as {
		if refused, ok := refuseID(a); ok {
			out[i] = refused
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
	concurrently(len(lost), func(i int) { out[places[lost[i]]] = s.findInBlocks(ctx, lost[i]) })
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
	var answer struct {
		Data []struct {
			ID      string `json:"id"`
			Status  string `json:"status"`
			Invalid []struct {
				Transaction string `json:"id"`
				Message     string `json:"message"`
			} `json:"invalid_transactions"`
		} `json:"data"`
	}
	otherwise, ok := readStatuses(r, &answer, func(r reply) string { _, detail := readFault(r); return detail })
	if !ok {
		return nil, otherwise
	}
	found = make(map[string]dispatch.Answer, len(answer.Data))
	for _, d := range answer.Data {
		var reasons []sawtooth.Reason
		for _, t := range d.Invalid {
			reasons = append(reasons, sawtooth.Reason(t))
		}
		found[d.ID] = statusAnswer(d.Status, reasons)
	}
	return found, otherwise
}

// findInBlocks looks for a batch in the blocks, which do not forget.
func (s *Sawtooth) findInBlocks(ctx context.Context, id string) dispatch.Answer {
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
