package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

const (
	// maxBatchBody is the most that one request may add: one payload as it is, or
	// many in JSON.
	maxBatchBody = dispatch.MaxPayload
	// maxHeavy is how many requests with a body above maxBody are read at once.
	maxHeavy = 8
	// bodyWithin is how long such a body may take to arrive.
	bodyWithin = time.Minute
)

// BatchInput is a batch as it is given in JSON, to the API and to the command
// line. Of the three payloads one may be given.
type BatchInput struct {
	Key         string `json:"key"`
	ID          string `json:"id"`
	ContentType string `json:"content_type"`
	// Payload is text, Base64 any bytes, JSON a value that is stored as it is written.
	Payload *string         `json:"payload"`
	Base64  *[]byte         `json:"payload_base64"`
	JSON    json.RawMessage `json:"payload_json"`
}

// Batch returns the batch that is meant, checked; errors wrap lease.ErrInvalid.
func (in BatchInput) Batch(queue string) (dispatch.Batch, error) {
	b := dispatch.Batch{Queue: queue, Key: in.Key, ID: in.ID, ContentType: in.ContentType}
	given := 0
	kind := ""
	if in.Payload != nil {
		given++
		b.Payload, kind = []byte(*in.Payload), "text/plain; charset=utf-8"
	}
	if in.Base64 != nil {
		given++
		b.Payload = *in.Base64
	}
	if in.JSON != nil {
		given++
		b.Payload, kind = in.JSON, "application/json"
	}
	if given > 1 {
		return b, fmt.Errorf("%w: give one of payload, payload_base64 and payload_json", lease.ErrInvalid)
	}
	if b.ContentType == "" {
		b.ContentType = kind
	}
	b = b.WithDefaults()
	return b, b.Validate()
}

// AddedView tells what became of a batch that was given.
type AddedView struct {
	ID string `json:"id"`
	// Added is false when the queue has a batch of that id: then nothing was stored.
	Added bool `json:"added"`
}

// addBatches stores one payload as it is, when a key is in the query, and
// otherwise those that stand in JSON: all or none.
func (s *Server) addBatches(w http.ResponseWriter, r *http.Request) error {
	queue, err := queueName(r)
	if err != nil {
		return err
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return fmt.Errorf("%w: the query cannot be read: %w", lease.ErrInvalid, err)
	}
	done, err := s.admitBody(w, r)
	if err != nil {
		return err
	}
	defer done()
	if query.Has("key") {
		return s.addOne(w, r, dispatch.Batch{
			Queue: queue, Key: query.Get("key"), ID: query.Get("id"), ContentType: r.Header.Get("Content-Type"),
		})
	}
	return s.addMany(w, r, queue)
}

// admitBody lets bodies that are long take their time, and bounds how many do.
func (s *Server) admitBody(w http.ResponseWriter, r *http.Request) (done func(), err error) {
	if r.ContentLength >= 0 && r.ContentLength <= maxBody {
		return func() {}, nil
	}
	select {
	case s.heavy <- struct{}{}:
	default:
		return nil, errBusy
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyWithin))
	lift(w, bodyWithin+2*s.cfg.Timeout)
	return func() { <-s.heavy }, nil
}

func (s *Server) addOne(w http.ResponseWriter, r *http.Request, b dispatch.Batch) error {
	var err error
	if b.Payload, err = io.ReadAll(r.Body); err != nil {
		return unreadable(err)
	}
	b = b.WithDefaults()
	if err := b.Validate(); err != nil {
		return err
	}
	added, err := s.add(r.Context(), []dispatch.Batch{b})
	if err != nil {
		return err
	}
	status := http.StatusOK
	if added[0] {
		status = http.StatusCreated
	}
	w.Header().Set("Location", "/v1/queues/"+b.Queue+"/batches/"+url.PathEscape(b.ID))
	return writeJSON(w, status, AddedView{ID: b.ID, Added: added[0]})
}

func (s *Server) addMany(w http.ResponseWriter, r *http.Request, queue string) error {
	var body struct {
		Batches []BatchInput `json:"batches"`
	}
	if err := readJSON(r, &body); err != nil {
		return err
	}
	if n := len(body.Batches); n == 0 || n > claim.MaxKeys {
		return fmt.Errorf("%w: %d batches; give 1 to %d as {\"batches\":[{\"key\":…,\"payload\":…}]}, or one payload as the body with ?key=…",
			lease.ErrInvalid, n, claim.MaxKeys)
	}
	batches := make([]dispatch.Batch, len(body.Batches))
	for i, in := range body.Batches {
		b, err := in.Batch(queue)
		if err != nil {
			return fmt.Errorf("batch %d of %d: %w; none was stored", i+1, len(body.Batches), err)
		}
		batches[i] = b
	}
	added, err := s.add(r.Context(), batches)
	if err != nil {
		return err
	}
	out := make([]AddedView, len(batches))
	for i, b := range batches {
		out[i] = AddedView{ID: b.ID, Added: added[i]}
	}
	return writeJSON(w, http.StatusOK, map[string]any{"batches": out})
}

func (s *Server) add(ctx context.Context, batches []dispatch.Batch) ([]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	return s.desk.Add(ctx, batches)
}

// unreadable is a body that did not arrive whole.
func unreadable(err error) error {
	return fmt.Errorf("%w: the body did not arrive whole: %w", lease.ErrInvalid, err)
}
