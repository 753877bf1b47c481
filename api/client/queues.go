package client

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/understudy-ha/understudy/api/apitype"
)

// KeyQuery selects keys of a queue.
type KeyQuery struct {
	Queue         string
	After         string // Next of the page before: only keys after this one
	Blocked, Idle bool   // only blocked ones; also those with nothing to do
	Limit         int    // default 100, at most 1000
}

// MessageQuery selects messages of a queue, in the order of key and sequence.
type MessageQuery struct {
	Queue      string
	Key, State string // only of this key, only in this state
	After      string // Next of the page before
	Limit      int    // default 100, at most 1000
}

// CreateQueue makes a queue; one that is there is left as it is.
func (c *Client) CreateQueue(ctx context.Context, queue string) error {
	return c.post(ctx, "/v1/queues", apitype.QueueName{Queue: queue})
}

// Queues lists the queues by name.
func (c *Client) Queues(ctx context.Context) ([]apitype.Queue, error) {
	return list(ctx, c, "/v1/queues", func(p apitype.Queues) ([]apitype.Queue, string) { return p.Queues, p.Next })
}

// Keys lists keys of a queue by name.
func (c *Client) Keys(ctx context.Context, q KeyQuery) (apitype.Keys, error) {
	return get[apitype.Keys](ctx, c, pathOf("queues", q.Queue, "keys"), values("after", q.After, "limit", q.Limit, "blocked", q.Blocked, "idle", q.Idle))
}

// Messages lists messages of a queue.
func (c *Client) Messages(ctx context.Context, q MessageQuery) (apitype.Messages, error) {
	return get[apitype.Messages](ctx, c, pathOf("queues", q.Queue, "messages"), values("key", q.Key, "state", q.State, "after", q.After, "limit", q.Limit))
}

// Message returns a message with its history.
func (c *Client) Message(ctx context.Context, queue, id string) (apitype.Message, error) {
	return get[apitype.Message](ctx, c, pathOf("queues", queue, "messages", id), nil)
}

// Payload returns the payload of a message and its content type.
func (c *Client) Payload(ctx context.Context, queue, id string) (payload []byte, contentType string, err error) {
	ctx, cancel := withTimeout(ctx, payloadTimeout)
	defer cancel()
	answer, err := c.send(ctx, http.MethodGet, pathOf("queues", queue, "messages", id, "payload"), nil, nil)
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	payload, err = io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return nil, "", fmt.Errorf("client: the payload of %s did not arrive whole: %w", id, err)
	}
	return payload, answer.Header.Get("Content-Type"), nil
}

// Add enqueues messages, all or none, up to 1000 and some 12 MB together, and says of each whether it is new.
func (c *Client) Add(ctx context.Context, queue string, messages ...apitype.NewMessage) ([]apitype.AddedMessage, error) {
	ctx, cancel := withTimeout(ctx, payloadTimeout)
	defer cancel()
	out, err := call[apitype.AddedMessages](ctx, c, http.MethodPost, pathOf("queues", queue, "messages"), nil, apitype.NewMessages{Messages: messages})
	return out.Messages, err
}

// AddPayload enqueues one message whose payload, m.Base64, is sent as it is, so that it may be as long as a payload can
// be, 16 MiB. A message with a payload in another form, headers or a NotBefore goes by [Client.Add], with its bound.
func (c *Client) AddPayload(ctx context.Context, queue string, m apitype.NewMessage) (apitype.AddedMessage, error) {
	if m.Payload != nil || m.JSON != nil || len(m.Headers) > 0 || !m.NotBefore.IsZero() {
		added, err := c.Add(ctx, queue, m)
		if err != nil {
			return apitype.AddedMessage{}, err
		}
		if len(added) != 1 {
			return apitype.AddedMessage{}, fmt.Errorf("client: the answer was about %d messages, not one", len(added))
		}
		return added[0], nil
	}
	v := values("id", m.ID)
	v.Set("key", m.Key) // also when it is "", which the server refuses: without it the body would be another one
	ctx, cancel := withTimeout(ctx, payloadTimeout)
	defer cancel()
	return call[apitype.AddedMessage](ctx, c, http.MethodPost, pathOf("queues", queue, "messages"), v, content{kind: m.ContentType, bytes: m.Base64})
}

// Retry submits a message again at once if it blocks its key or is delayed, and puts a dead-lettered one at the
// end of its key. One that the target may have is refused with the code uncertain. The history shows by as the caller, here
// and below.
func (c *Client) Retry(ctx context.Context, queue, id, by string) error {
	return c.act(ctx, queue, id, "retry", by)
}

// RetryUnknown is Retry, and submits a message again that the target may have: it may act on it twice.
func (c *Client) RetryUnknown(ctx context.Context, queue, id, by string) error {
	return c.post(ctx, pathOf("queues", queue, "messages", id, "retry"), apitype.RetryMessage{By: by, IKnow: true})
}

// Skip dead-letters a message that blocks its key, is delayed or unknown.
func (c *Client) Skip(ctx context.Context, queue, id, by string) error {
	return c.act(ctx, queue, id, "skip", by)
}

// Cancel removes a message that was never sent.
func (c *Client) Cancel(ctx context.Context, queue, id, by string) error {
	return c.act(ctx, queue, id, "cancel", by)
}

func (c *Client) act(ctx context.Context, queue, id, action, by string) error {
	return c.post(ctx, pathOf("queues", queue, "messages", id, action), apitype.Caller{By: by})
}
