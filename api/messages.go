package api

import (
	"fmt"
	"mime"
	"net/http"
	"slices"
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
		Attempts: b.Attempts, Term: b.Term, Code: b.Code, Detail: b.Detail, Link: b.Link, Blocks: b.Blocks, Headers: b.Headers,
		Enqueued: b.Enqueued, Begun: b.Begun.UTC(), Ended: b.Ended.UTC(), NotBefore: b.NotBefore.UTC(),
	}
	for _, s := range b.Trail {
		out.Trail = append(out.Trail, apitype.MessageStep{
			At: s.At, State: string(s.State), Term: s.Term, Attempt: s.Attempt, Code: s.Code, Detail: s.Detail, Action: string(s.Action),
		})
	}
	return out
}

func (s *Server) listMessages(r *http.Request) (out apitype.Messages, err error) {
	queue, err := queueName(r)
	if err != nil {
		return out, err
	}
	params := queryOf(r)
	q := dispatch.MessageQuery{
		Queue: queue, Key: params.stored("key"), State: dispatch.State(params.values.Get("state")), Limit: params.limit(dispatch.MaxPage),
		AfterKey: params.stored("after_key"), AfterSeq: params.number("after_seq", 0, 1<<62, 0),
	}
	if after := params.cursor(2); after != nil {
		q.AfterKey = after[0]
		if q.AfterSeq, err = strconv.ParseInt(after[1], 10, 64); err != nil {
			params.refuse("after: %q is not a number", after[1])
		}
	}
	if q.State != "" {
		if _, err := ParseState(string(q.State)); err != nil {
			params.keep(err)
		}
	}
	if params.err != nil {
		return out, params.err
	}
	messages, err := s.queueAdmin.Messages(r.Context(), q)
	next := nextAfter(messages, q.Limit, func(m dispatch.Record) string { return cursor(m.Key, strconv.FormatInt(m.Seq, 10)) })
	return apitype.Messages{Messages: views(messages, viewMessage), Next: next}, err
}

// namedMessage reads the message that the request names.
func (s *Server) namedMessage(r *http.Request) (dispatch.Record, error) {
	queue, id, err := messageID(r)
	if err != nil {
		return dispatch.Record{}, err
	}
	return s.queueAdmin.Message(r.Context(), queue, id)
}

func (s *Server) getMessage(r *http.Request) (apitype.Message, error) {
	m, err := s.namedMessage(r)
	return viewMessage(m), err
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

// messageAction is what an operator or a program may do with one message, but retry it.
func (s *Server) messageAction(action dispatch.Action) handler {
	return inJSON(func(r *http.Request) (out apitype.MessageAction, err error) {
		body, err := bodyOf[apitype.Caller](r)
		if err != nil {
			return out, err
		}
		return s.actOnMessage(r, action, body.By)
	})
}

func (s *Server) retryMessage(r *http.Request) (out apitype.MessageAction, err error) {
	body, err := bodyOf[apitype.RetryMessage](r)
	if err != nil {
		return out, err
	}
	if body.IKnow {
		return s.actOnMessage(r, dispatch.RetryUnknown, body.By)
	}
	return s.actOnMessage(r, dispatch.Retry, body.By)
}

func (s *Server) actOnMessage(r *http.Request, action dispatch.Action, by string) (out apitype.MessageAction, err error) {
	queue, id, err := messageID(r)
	if err != nil {
		return out, err
	}
	who, err := requesterOf(r, by)
	if err != nil {
		return out, err
	}
	if err := s.queueAdmin.Act(r.Context(), queue, id, action, who); err != nil {
		return out, err
	}
	s.queues.invalidate()
	s.poller.requestState()
	return apitype.MessageAction{Queue: queue, ID: id, Action: string(action)}, nil
}

func messageID(r *http.Request) (queue, id string, err error) {
	if queue, err = queueName(r); err != nil {
		return "", "", err
	}
	id = r.PathValue("id")
	return queue, id, validateStored("message id", id, 1)
}

// ParseState reads the name of a batch's state; errors wrap lease.ErrInvalid.
func ParseState(text string) (dispatch.State, error) {
	if s := dispatch.State(text); slices.Contains(dispatch.States(), s) {
		return s, nil
	}
	return "", fmt.Errorf("%w: state %.50q: the states are %s", lease.ErrInvalid, text, namesOf(dispatch.States()))
}

// namesOf lists states, for whoever has named none of them.
func namesOf[S ~string](states []S) string {
	names := make([]string, len(states))
	for i, s := range states {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}
