package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

const (
	// maxMessagesBody is the most that one request may add: one payload as it is, or
	// many in JSON.
	maxMessagesBody = dispatch.MaxPayload
	// maxLargeBodies is how many requests with a body above maxBody are read at once.
	maxLargeBodies = 8
	// bodyTimeout is how long such a body may take to arrive.
	bodyTimeout = time.Minute
)

// MessageOf returns the message that is meant, checked; errors wrap lease.ErrInvalid.
func MessageOf(in apitype.NewMessage, queue string) (dispatch.Message, error) {
	b := dispatch.Message{Queue: queue, Key: in.Key, ID: in.ID, ContentType: in.ContentType, Headers: in.Headers, NotBefore: in.NotBefore}
	given := 0
	kind := ""
	if in.Payload != nil {
		given++
		b.Payload, kind = []byte(*in.Payload), "text/plain; charset=utf-8"
	}
	if in.Base64 != nil {
		given++
		b.Payload = in.Base64
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

// addMessages stores one payload as it is, when a key is in the query, and
// otherwise those that stand in JSON: all or none.
func (s *Server) addMessages(w http.ResponseWriter, r *http.Request) error {
	queue, err := queueName(r)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	done, err := s.admitLargeBody(w, r)
	if err != nil {
		return err
	}
	defer done()
	if query.Has("key") {
		return s.addOne(w, r, dispatch.Message{
			Queue: queue, Key: query.Get("key"), ID: query.Get("id"), ContentType: r.Header.Get("Content-Type"),
		})
	}
	return s.addMany(w, r, queue)
}

// admitLargeBody gives long bodies more time to arrive, and bounds how many are read at once: each is held in memory whole.
// A body of unknown length counts as long.
func (s *Server) admitLargeBody(w http.ResponseWriter, r *http.Request) (done func(), err error) {
	if r.ContentLength >= 0 && r.ContentLength <= maxBody {
		return func() {}, nil
	}
	leave, err := s.largeBodies.take(r, 0)
	if err != nil {
		return nil, err
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	extendWriteDeadline(w, bodyTimeout+2*s.cfg.Timeout)
	return leave, nil
}

func (s *Server) addOne(w http.ResponseWriter, r *http.Request, b dispatch.Message) error {
	var err error
	if b.Payload, err = io.ReadAll(r.Body); err != nil {
		return incompleteBody(err)
	}
	b = b.WithDefaults()
	if err := b.Validate(); err != nil {
		return err
	}
	added, err := s.add(r.Context(), []dispatch.Message{b})
	if err != nil {
		return err
	}
	status := http.StatusOK
	if added[0] {
		status = http.StatusCreated
	}
	w.Header().Set("Location", "/v1/queues/"+b.Queue+"/messages/"+url.PathEscape(b.ID))
	return writeJSON(w, status, apitype.AddedMessage{ID: b.ID, Added: added[0]})
}

func (s *Server) addMany(w http.ResponseWriter, r *http.Request, queue string) error {
	var messages []dispatch.Message
	list := listOf("messages", &messages, claim.MaxKeys, func(n int, in apitype.NewMessage) (dispatch.Message, error) {
		b, err := MessageOf(in, queue)
		if err != nil {
			err = fmt.Errorf("message %d: %w; none was stored", n, err)
		}
		return b, err
	})
	if err := readObject(r, map[string]field{"messages": list, "batches": list}); err != nil { // batches: as they were called before
		return err
	}
	if len(messages) == 0 {
		return fmt.Errorf("%w: 0 messages; give 1 to %d as {\"messages\":[{\"key\":…,\"payload\":…}]}, or one payload as the body with ?key=…",
			lease.ErrInvalid, claim.MaxKeys)
	}
	added, err := s.add(r.Context(), messages)
	if err != nil {
		return err
	}
	out := make([]apitype.AddedMessage, len(messages))
	for i, b := range messages {
		out[i] = apitype.AddedMessage{ID: b.ID, Added: added[i]}
	}
	status := http.StatusOK
	if slices.Contains(added, true) {
		status = http.StatusCreated
	}
	return writeJSON(w, status, apitype.AddedMessages{Messages: out})
}

func (s *Server) add(ctx context.Context, messages []dispatch.Message) ([]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	return s.queueAdmin.Add(ctx, messages)
}

// incompleteBody is a body that did not arrive whole.
func incompleteBody(err error) error {
	if errors.Is(err, errBusy) {
		return err
	}
	return fmt.Errorf("%w: the body did not arrive whole: %w", lease.ErrInvalid, err)
}
