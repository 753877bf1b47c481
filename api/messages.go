package api

import (
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

// viewMessage shows a message.
func viewMessage(b dispatch.Record) apitype.Message {
	out := apitype.Message{
		Queue: b.Queue, Key: b.Key, ID: b.ID, Seq: b.Seq, State: string(b.State), ContentType: b.ContentType, Size: b.Size,
		Attempts: b.Attempts, Term: b.Term, Code: b.Code, Detail: b.Detail, Link: b.Link, Blocks: b.Blocks,
		Enqueued: b.Enqueued, Begun: b.Begun.UTC(), Ended: b.Ended.UTC(),
	}
	for _, s := range b.Trail {
		out.Trail = append(out.Trail, apitype.MessageStep{
			At: s.At, State: string(s.State), Term: s.Term, Attempt: s.Attempt, Code: s.Code, Detail: s.Detail,
		})
	}
	return out
}

func (s *Server) listMessages(w http.ResponseWriter, r *http.Request) error {
	q, err := messageQuery(r)
	if err != nil {
		return err
	}
	messages, err := s.queueAdmin.Messages(r.Context(), q)
	if err != nil {
		return err
	}
	out := apitype.Messages{Messages: make([]apitype.Message, 0, len(messages))}
	for _, b := range messages {
		out.Messages = append(out.Messages, viewMessage(b))
		if len(out.Messages) == q.Limit {
			out.Next = cursor(b.Key, strconv.FormatInt(b.Seq, 10))
		}
	}
	return writeJSON(w, http.StatusOK, out)
}

func messageQuery(r *http.Request) (q dispatch.MessageQuery, err error) {
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
	after, err := afterCursor(r, 2)
	if err != nil {
		return q, err
	}
	if after != nil {
		q.AfterKey = after[0]
		if q.AfterSeq, err = strconv.ParseInt(after[1], 10, 64); err != nil {
			return q, fmt.Errorf("%w: after: %q is not a number", lease.ErrInvalid, after[1])
		}
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

// namedMessage reads the batch that the request names.
func (s *Server) namedMessage(r *http.Request) (dispatch.Record, error) {
	queue, id, err := messageID(r)
	if err != nil {
		return dispatch.Record{}, err
	}
	return s.queueAdmin.Message(r.Context(), queue, id)
}

func (s *Server) getMessage(w http.ResponseWriter, r *http.Request) error {
	b, err := s.namedMessage(r)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, viewMessage(b))
}

// getPayload answers with what was stored. Whoever stored it chose its type, so
// that a browser must neither show nor run it.
func (s *Server) getPayload(w http.ResponseWriter, r *http.Request) error {
	b, err := s.namedMessage(r)
	if err != nil {
		return err
	}
	extendWriteDeadline(w, time.Minute)
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

// messageAction is what a person or a program may do with one batch.
func (s *Server) messageAction(action dispatch.Action) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		queue, id, err := messageID(r)
		if err != nil {
			return err
		}
		var body apitype.Caller
		if err := readJSON(r, &body); err != nil {
			return err
		}
		who, err := requesterOf(r, body.By)
		if err != nil {
			return err
		}
		if err := s.queueAdmin.Act(r.Context(), queue, id, action, who); err != nil {
			return err
		}
		s.queues.invalidate()
		s.poller.requestState()
		return writeJSON(w, http.StatusOK, apitype.MessageAction{Queue: queue, ID: id, Action: string(action)})
	}
}

func messageID(r *http.Request) (queue, id string, err error) {
	if queue, err = queueName(r); err != nil {
		return "", "", err
	}
	id = r.PathValue("id")
	return queue, id, lease.ValidateText("message id", id, 1, dispatch.MaxID)
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
