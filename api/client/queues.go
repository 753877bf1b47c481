package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

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

func queuePath(queue string) string { return "/v1/queues/" + url.PathEscape(queue) }

func messagePath(queue, id string) string {
	return queuePath(queue) + "/messages/" + url.PathEscape(id)
}

// CreateQueue makes a queue; one that is there is left as it is.
func (c *Client) CreateQueue(ctx context.Context, queue string) error {
	return c.do(ctx, http.MethodPost, "/v1/queues", nil, apitype.QueueName{Queue: queue}, nil)
}

// Queues lists the queues by name.
func (c *Client) Queues(ctx context.Context) ([]apitype.Queue, error) {
	var out apitype.Queues
	err := c.do(ctx, http.MethodGet, "/v1/queues", nil, nil, &out)
	return out.Queues, err
}

// Keys lists keys of a queue by name.
func (c *Client) Keys(ctx context.Context, q KeyQuery) (apitype.Keys, error) {
	v := url.Values{}
	set(v, "after", q.After)
	setNumber(v, "limit", int64(q.Limit))
	for name, on := range map[string]bool{"blocked": q.Blocked, "idle": q.Idle} {
		if on {
			v.Set(name, "true")
		}
	}
	var out apitype.Keys
	err := c.do(ctx, http.MethodGet, queuePath(q.Queue)+"/keys", v, nil, &out)
	return out, err
}

// Messages lists messages of a queue.
func (c *Client) Messages(ctx context.Context, q MessageQuery) (apitype.Messages, error) {
	v := url.Values{}
	set(v, "key", q.Key)
	set(v, "state", q.State)
	set(v, "after", q.After)
	setNumber(v, "limit", int64(q.Limit))
	var out apitype.Messages
	err := c.do(ctx, http.MethodGet, queuePath(q.Queue)+"/messages", v, nil, &out)
	return out, err
}

// Message returns a message with its history.
func (c *Client) Message(ctx context.Context, queue, id string) (apitype.Message, error) {
	var out apitype.Message
	err := c.do(ctx, http.MethodGet, messagePath(queue, id), nil, nil, &out)
	return out, err
}

// Payload returns the payload of a message and its content type.
func (c *Client) Payload(ctx context.Context, queue, id string) (payload []byte, contentType string, err error) {
	ctx, cancel := withTimeout(ctx, payloadTimeout)
	defer cancel()
	answer, err := c.send(ctx, http.MethodGet, messagePath(queue, id)+"/payload", nil, nil)
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
	var out apitype.AddedMessages
	err := c.do(ctx, http.MethodPost, queuePath(queue)+"/messages", nil, apitype.NewMessages{Messages: messages}, &out)
	return out.Messages, err
}

// AddPayload enqueues one message whose payload, m.Base64, is sent as it is, so that it may be as long as a payload can
// be, 16 MiB.
func (c *Client) AddPayload(ctx context.Context, queue string, m apitype.NewMessage) (apitype.AddedMessage, error) {
	v := url.Values{"key": {m.Key}}
	set(v, "id", m.ID)
	ctx, cancel := withTimeout(ctx, payloadTimeout)
	defer cancel()
	var out apitype.AddedMessage
	err := c.do(ctx, http.MethodPost, queuePath(queue)+"/messages", v, content{kind: m.ContentType, bytes: m.Base64}, &out)
	return out, err
}

// Retry submits a message again at once if it blocks its key, is delayed or unknown, and puts a dead-lettered one at the
// end of its key. The history shows by as the caller, here and below.
func (c *Client) Retry(ctx context.Context, queue, id, by string) error {
	return c.act(ctx, queue, id, "retry", by)
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
	return c.do(ctx, http.MethodPost, messagePath(queue, id)+"/"+action, nil, apitype.Caller{By: by}, nil)
}

func set(v url.Values, name, text string) {
	if text != "" {
		v.Set(name, text)
	}
}

func setNumber(v url.Values, name string, n int64) {
	if n != 0 {
		v.Set(name, strconv.FormatInt(n, 10))
	}
}
