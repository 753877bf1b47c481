package target

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/sawtooth"
)

// ScabbardConfig tells where a Splinter node is. Its URL is that under which
// /scabbard is found; its token is sent whole ("Cylinder:…", "Biome:…").
type ScabbardConfig struct {
	HTTPConfig
	// OtherServices are other services of the circuits, by their addresses: https://HOST/scabbard/CIRCUIT/SERVICE. They are asked
	// for a batch that its own service does not know, or does not decide, with the same token.
	OtherServices []string
}

// Scabbard submits batches to the scabbard services of a Splinter node. The key
// of a batch names the service: CIRCUIT::SERVICE.
type Scabbard struct {
	client  *client
	also    []otherService
	silence silence // of its own node's receipts
	// searching holds a place for each search among receipts under way.
	searching chan struct{}
}

// Facts of its API.
const (
	scabbardTogether    = 15 // ids that are asked for in one request
	scabbardStatusLimit = 60 // ids that are asked for at once
	scabbardVersion     = "1"
	searchesAtOnce      = 2
)

// NewScabbard returns a target for a Splinter node.
func NewScabbard(c ScabbardConfig) (*Scabbard, error) {
	cl, err := newClient(c.HTTPConfig)
	if err != nil {
		return nil, err
	}
	s := &Scabbard{client: cl, searching: make(chan struct{}, searchesAtOnce)}
	for _, address := range c.OtherServices {
		other, err := parseOtherService(address)
		if err != nil {
			return nil, err
		}
		s.also = append(s.also, other)
	}
	return s, nil
}

// Name implements [dispatch.Target].
func (s *Scabbard) Name() string { return "scabbard " + s.client.place() }

// Semantics implements [dispatch.Target].
func (s *Scabbard) Semantics() dispatch.Semantics {
	return dispatch.Semantics{HasStatus: true, StatusLimit: scabbardStatusLimit, Forgets: true, Decides: ledgerDecides}
}

func (s *Scabbard) header() http.Header {
	return http.Header{"SplinterProtocolVersion": {scabbardVersion}, "User-Agent": {agent}}
}

// place is a resource of the service that a key names.
func (s *Scabbard) place(key, resource string) (*url.URL, error) {
	circuit, service, err := sawtooth.ParseService(key)
	if err != nil {
		return nil, err
	}
	return s.client.base.JoinPath("scabbard", circuit, service, resource), nil
}

// Submit implements [dispatch.Target].
func (s *Scabbard) Submit(ctx context.Context, a dispatch.Assignment) dispatch.Answer {
	if refused, ok := refuseBatch(a); ok {
		return refused
	}
	to, err := s.place(a.Key, "batches")
	if err != nil {
		return dispatch.Answer{Outcome: dispatch.InvalidMessage, Detail: err.Error()}
	}
	header := s.header()
	header["Content-Type"] = []string{"application/octet-stream"}
	r := s.client.do(ctx, http.MethodPost, to, header, a.Payload, maxAnswer)
	return classifyLedger(r, time.Now(), func(r reply) (string, dispatch.Outcome) {
		var version struct {
			Spoken json.RawMessage `json:"splinter_protocol"`
		}
		if json.Unmarshal(r.body, &version) == nil && version.Spoken != nil {
			return messageOf(r), dispatch.Misconfigured // the node speaks another version: it has not looked at the batch
		}
		return messageOf(r), ""
	})
}

func messageOf(r reply) string {
	var answer struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(r.body, &answer) == nil && answer.Message != "" {
		return r.words(answer.Message)
	}
	return errorText(r)
}

// Status implements [dispatch.Target].
func (s *Scabbard) Status(ctx context.Context, as []dispatch.Assignment) []dispatch.Answer {
	out := make([]dispatch.Answer, len(as))
	byKey := map[string][]int{}
	for i, a := range as {
		if refused, ok := refuseID(a); ok {
			out[i] = refused
			continue
		}
		byKey[a.Key] = append(byKey[a.Key], i)
	}
	type question struct {
		key    string
		places []int
	}
	var questions []question
	for key, places := range byKey {
		for part := range slices.Chunk(places, scabbardTogether) {
			questions = append(questions, question{key, part})
		}
	}
	concurrently(len(questions), func(i int) {
		q := questions[i]
		ids := make([]string, len(q.places))
		for j, place := range q.places {
			ids[j] = as[place].ID
		}
		for j, answer := range s.statuses(ctx, q.key, ids) {
			if a := as[q.places[j]]; needsEvidence(a, answer) {
				answer = s.evidence(ctx, a, answer)
			}
			out[q.places[j]] = answer
		}
	})
	return out
}

// statuses asks a service about batches. A question that could not be answered
// as a whole is put again for each: older nodes answer 408 if one of them is not decided.
func (s *Scabbard) statuses(ctx context.Context, key string, ids []string) []dispatch.Answer {
	to, err := s.place(key, "")
	if err != nil {
		return slices.Repeat([]dispatch.Answer{{Outcome: dispatch.InvalidMessage, Detail: err.Error()}}, len(ids))
	}
	return s.statusesAt(ctx, to, ids)
}

func (s *Scabbard) statusesAt(ctx context.Context, service *url.URL, ids []string) []dispatch.Answer {
	to := service.JoinPath("batch_statuses")
	to.RawQuery = "ids=" + strings.Join(ids, ",")
	r := s.client.do(ctx, http.MethodGet, to, s.header(), nil, maxStatuses)
	if r.status == http.StatusRequestTimeout && len(ids) > 1 && ctx.Err() == nil {
		out := make([]dispatch.Answer, len(ids))
		for i := range ids {
			out[i] = s.statusesAt(ctx, service, ids[i:i+1])[0]
		}
		return out
	}
	var answer []struct {
		ID     string `json:"id"`
		Status struct {
			Type    string `json:"statusType"`
			Message []struct {
				Transaction string `json:"transaction_id"`
				Message     string `json:"error_message"`
			} `json:"message"`
		} `json:"status"`
	}
	otherwise, ok := readStatuses(r, &answer, messageOf)
	out := slices.Repeat([]dispatch.Answer{otherwise}, len(ids))
	if !ok {
		return out
	}
	for _, b := range answer {
		var reasons []sawtooth.Reason
		for _, t := range b.Status.Message {
			reasons = append(reasons, sawtooth.Reason(t))
		}
		a := statusAnswer(b.Status.Type, reasons)
		if a.Outcome == dispatch.NotFound {
			a.Detail = "the service does not know it, or has forgotten it"
		}
		if i := slices.Index(ids, b.ID); i >= 0 {
			out[i] = a
		}
	}
	return out
}
