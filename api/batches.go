package api

import (
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

// BatchView is a batch, as every surface shows it in JSON, without its payload.
type BatchView struct {
	Queue       string         `json:"queue"`
	Key         string         `json:"key"`
	ID          string         `json:"id"`
	Seq         int64          `json:"seq"`
	State       dispatch.State `json:"state"`
	ContentType string         `json:"content_type"`
	Size        int            `json:"size"`
	// Attempts, Term, Code and Detail are of the last submission.
	Attempts int    `json:"attempts"`
	Term     int64  `json:"term"`
	Code     int    `json:"code,omitempty"`
	Detail   string `json:"detail,omitempty"`
	Link     string `json:"link,omitempty"`
	// Blocks: its key waits for a person because of it.
	Blocks   bool       `json:"blocks"`
	Enqueued time.Time  `json:"enqueued"`
	Begun    *time.Time `json:"begun,omitempty"`
	Ended    *time.Time `json:"ended,omitempty"`
	// Trail is its history; lists leave it out.
	Trail []dispatch.Step `json:"trail,omitempty"`
}

// ViewBatch shows a batch.
func ViewBatch(b dispatch.Record) BatchView {
	return BatchView{
		Queue: b.Queue, Key: b.Key, ID: b.ID, Seq: b.Seq, State: b.State, ContentType: b.ContentType, Size: b.Size,
		Attempts: b.Attempts, Term: b.Term, Code: b.Code, Detail: b.Detail, Link: b.Link, Blocks: b.Blocks,
		Enqueued: b.Enqueued, Begun: orNone(b.Begun), Ended: orNone(b.Ended), Trail: b.Trail,
	}
}

func orNone(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC())
}

// batchCursor is where a list of batches goes on.
type batchCursor struct {
	AfterKey string `json:"after_key"`
	AfterSeq int64  `json:"after_seq"`
}

func (s *Server) listBatches(w http.ResponseWriter, r *http.Request) error {
	q, err := batchQuery(r)
	if err != nil {
		return err
	}
	batches, err := s.desk.Batches(r.Context(), q)
	if err != nil {
		return err
	}
	out := struct {
		Batches []BatchView  `json:"batches"`
		Next    *batchCursor `json:"next,omitempty"` // what to ask for next, if there may be more
	}{Batches: make([]BatchView, 0, len(batches))}
	for _, b := range batches {
		out.Batches = append(out.Batches, ViewBatch(b))
		if len(out.Batches) == q.Limit {
			out.Next = &batchCursor{AfterKey: b.Key, AfterSeq: b.Seq}
		}
	}
	return writeJSON(w, http.StatusOK, out)
}

func batchQuery(r *http.Request) (q dispatch.BatchQuery, err error) {
	if q.Queue, err = queueName(r); err != nil {
		return q, err
	}
	if q.Key, err = filter(r, "key"); err != nil {
		return q, err
	}
	if q.AfterKey, err = filter(r, "after_key"); err != nil {
		return q, err
	}
	if q.AfterSeq, err = number(r, "after_seq", 0, 1<<62, 0); err != nil {
		return q, err
	}
	limit, err := number(r, "limit", 1, dispatch.MaxPage, 100)
	if err != nil {
		return q, err
	}
	q.Limit = int(limit)
	if text := r.URL.Query().Get("state"); text != "" {
		if q.State, err = ParseState(text); err != nil {
			return q, err
		}
	}
	return q, nil
}

// named reads the batch that the request names.
func (s *Server) named(r *http.Request) (dispatch.Record, error) {
	queue, id, err := batchID(r)
	if err != nil {
		return dispatch.Record{}, err
	}
	return s.desk.Batch(r.Context(), queue, id)
}

func (s *Server) getBatch(w http.ResponseWriter, r *http.Request) error {
	b, err := s.named(r)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, ViewBatch(b))
}

// getPayload answers with what was stored. Whoever stored it chose its type, so
// that a browser must neither show nor run it.
func (s *Server) getPayload(w http.ResponseWriter, r *http.Request) error {
	b, err := s.named(r)
	if err != nil {
		return err
	}
	lift(w, time.Minute)
	kind := b.ContentType
	if _, _, err := mime.ParseMediaType(kind); err != nil {
		kind = dispatch.DefaultContentType
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Disposition", "attachment")
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox; frame-ancestors 'none'")
	h.Set("Content-Length", strconv.Itoa(len(b.Payload)))
	_, _ = w.Write(b.Payload) // an error is a caller who has gone
	return nil
}

// act is what a person or a program may do with one batch.
func (s *Server) act(action dispatch.Action) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		queue, id, err := batchID(r)
		if err != nil {
			return err
		}
		var body struct {
			By string `json:"by"`
		}
		if err := readJSON(r, &body); err != nil {
			return err
		}
		who, err := by(r, body.By)
		if err != nil {
			return err
		}
		if err := s.desk.Act(r.Context(), queue, id, action, who); err != nil {
			return err
		}
		s.queues.forget()
		s.board.nudge()
		return writeJSON(w, http.StatusOK, map[string]string{"queue": queue, "id": id, "action": string(action)})
	}
}

func batchID(r *http.Request) (queue, id string, err error) {
	if queue, err = queueName(r); err != nil {
		return "", "", err
	}
	id = r.PathValue("id")
	return queue, id, lease.ValidateText("batch id", id, 1, dispatch.MaxID)
}

// ParseState reads the name of a batch's state; errors wrap lease.ErrInvalid.
func ParseState(text string) (dispatch.State, error) {
	names := make([]string, 0, len(dispatch.States()))
	for _, s := range dispatch.States() {
		if string(s) == text {
			return s, nil
		}
		names = append(names, string(s))
	}
	return "", fmt.Errorf("%w: state %.50q: the states are %s", lease.ErrInvalid, text, strings.Join(names, ", "))
}
