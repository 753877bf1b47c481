package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Instance is a running process.
type Instance struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Address string `json:"address"`
}

// Queue is a queue at a glance.
type Queue struct {
	Queue string `json:"queue"`
	// Depth is how many batches are not over, Done how many are, ever.
	Depth int64 `json:"depth"`
	Done  int64 `json:"done"`
	// Rate of Done by the second; nil when the server has not looked twice yet.
	Rate     *float64 `json:"rate_per_s"`
	OldestMS int64    `json:"oldest_ms"`
	// Keys that have batches waiting, and how many of them are which.
	Keys     int64    `json:"keys"`
	InFlight int64    `json:"in_flight"`
	Pending  int64    `json:"pending"`
	Delayed  int64    `json:"delayed"`
	Blocked  int64    `json:"blocked"`
	Holders  []Holder `json:"holders"`
}

// Holder is how many keys of a queue an instance holds.
type Holder struct {
	Instance Instance `json:"instance"`
	Keys     int      `json:"keys"`
	Asleep   bool     `json:"asleep"`
}

// Key is a key of a queue.
type Key struct {
	Key       string    `json:"key"`
	Depth     int64     `json:"depth"`
	Head      string    `json:"head"`
	State     string    `json:"state"`
	Holder    *Instance `json:"holder"`
	Term      int64     `json:"term"`
	InFlight  bool      `json:"in_flight"`
	Blocked   bool      `json:"blocked"`
	Reason    string    `json:"reason"`
	WaitingMS int64     `json:"waiting_ms"`
	NextMS    int64     `json:"next_ms"`
}

// Batch is a batch without its payload.
type Batch struct {
	Queue       string    `json:"queue"`
	Key         string    `json:"key"`
	ID          string    `json:"id"`
	Seq         int64     `json:"seq"`
	State       string    `json:"state"`
	ContentType string    `json:"content_type"`
	Size        int       `json:"size"`
	Attempts    int       `json:"attempts"`
	Term        int64     `json:"term"`
	Code        int       `json:"code"`
	Detail      string    `json:"detail"`
	Link        string    `json:"link"`
	Blocks      bool      `json:"blocks"`
	Enqueued    time.Time `json:"enqueued"`
	Begun       time.Time `json:"begun"`
	Ended       time.Time `json:"ended"`
	Trail       []Step    `json:"trail"` // only of [Client.Batch]
}

// Step is one entry of a batch's history.
type Step struct {
	At      time.Time `json:"at"`
	State   string    `json:"state"`
	Term    int64     `json:"term"`
	Attempt int       `json:"attempt"`
	Code    int       `json:"code"`
	Detail  string    `json:"detail"`
}

// NewBatch is a batch to be enqueued.
type NewBatch struct {
	Key string `json:"key"`
	// ID is unique in the queue. Without one the server gives a random one, and a
	// call without an answer cannot be repeated safely.
	ID          string `json:"id,omitempty"`
	ContentType string `json:"content_type,omitempty"`
	Payload     []byte `json:"payload_base64"`
}

// Added tells what became of a batch; Added is false when the queue had its id.
type Added struct {
	ID    string `json:"id"`
	Added bool   `json:"added"`
}

// KeyQuery selects keys of a queue.
type KeyQuery struct {
	Queue         string
	After         string // only keys after this one
	Blocked, Idle bool   // only blocked ones; also those with nothing to do
	Limit         int    // default 100, at most 1000
}

// BatchQuery selects batches of a queue, in the order of key and sequence.
type BatchQuery struct {
	Queue      string
	Key, State string // only of this key, only in this state
	AfterKey   string // with AfterSeq: go on after that batch
	AfterSeq   int64
	Limit      int // default 100, at most 1000
}

func queuePath(queue string) string { return "/v1/queues/" + url.PathEscape(queue) }

func batchPath(queue, id string) string { return queuePath(queue) + "/batches/" + url.PathEscape(id) }

// MakeQueue makes a queue; one that is there is left as it is.
func (c *Client) MakeQueue(ctx context.Context, queue string) error {
	return c.do(ctx, http.MethodPost, "/v1/queues", nil, map[string]string{"queue": queue}, nil)
}

// Queues lists the queues by name.
func (c *Client) Queues(ctx context.Context) ([]Queue, error) {
	var out struct{ Queues []Queue }
	err := c.do(ctx, http.MethodGet, "/v1/queues", nil, nil, &out)
	return out.Queues, err
}

// Keys lists keys of a queue by name; there may be more if there are as many as
// the limit.
func (c *Client) Keys(ctx context.Context, q KeyQuery) ([]Key, error) {
	v := url.Values{}
	set(v, "after", q.After)
	setNumber(v, "limit", int64(q.Limit))
	for name, on := range map[string]bool{"blocked": q.Blocked, "idle": q.Idle} {
		if on {
			v.Set(name, "true")
		}
	}
	var out struct{ Keys []Key }
	err := c.do(ctx, http.MethodGet, queuePath(q.Queue)+"/keys", v, nil, &out)
	return out.Keys, err
}

// Batches lists batches of a queue; there may be more if there are as many as
// the limit.
func (c *Client) Batches(ctx context.Context, q BatchQuery) ([]Batch, error) {
	v := url.Values{}
	set(v, "key", q.Key)
	set(v, "state", q.State)
	set(v, "after_key", q.AfterKey)
	setNumber(v, "after_seq", q.AfterSeq)
	setNumber(v, "limit", int64(q.Limit))
	var out struct{ Batches []Batch }
	err := c.do(ctx, http.MethodGet, queuePath(q.Queue)+"/batches", v, nil, &out)
	return out.Batches, err
}

// Batch returns a batch with its history.
func (c *Client) Batch(ctx context.Context, queue, id string) (Batch, error) {
	var out Batch
	err := c.do(ctx, http.MethodGet, batchPath(queue, id), nil, nil, &out)
	return out, err
}

// Payload returns the payload of a batch and its content type.
func (c *Client) Payload(ctx context.Context, queue, id string) (payload []byte, contentType string, err error) {
	ctx, cancel := within(ctx, payloadTimeout)
	defer cancel()
	answer, err := c.send(ctx, http.MethodGet, batchPath(queue, id)+"/payload", nil, nil)
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

// Add enqueues batches, all or none, up to 1000 and some 12 MB together, and
// tells of each whether it is new.
func (c *Client) Add(ctx context.Context, queue string, batches ...NewBatch) ([]Added, error) {
	ctx, cancel := within(ctx, payloadTimeout)
	defer cancel()
	var out struct{ Batches []Added }
	err := c.do(ctx, http.MethodPost, queuePath(queue)+"/batches", nil, map[string]any{"batches": batches}, &out)
	return out.Batches, err
}

// AddPayload enqueues one batch whose payload is sent as it is, so that it may be as long as a
// payload can be, 16 MiB. An id is unique in the queue.
func (c *Client) AddPayload(ctx context.Context, queue string, b NewBatch) (Added, error) {
	v := url.Values{"key": {b.Key}}
	set(v, "id", b.ID)
	ctx, cancel := within(ctx, payloadTimeout)
	defer cancel()
	var out Added
	err := c.do(ctx, http.MethodPost, queuePath(queue)+"/batches", v, content{kind: b.ContentType, bytes: b.Payload}, &out)
	return out, err
}

// Retry tries a batch again at once that blocks its key, is delayed or unknown,
// and puts one that had stepped aside at the end of its key. The history shows by
// as who asked, here and below.
func (c *Client) Retry(ctx context.Context, queue, id, by string) error {
	return c.act(ctx, queue, id, "retry", by)
}

// Skip lets a batch step aside that blocks its key, is delayed or unknown.
func (c *Client) Skip(ctx context.Context, queue, id, by string) error {
	return c.act(ctx, queue, id, "skip", by)
}

// Cancel takes out a batch that was never sent.
func (c *Client) Cancel(ctx context.Context, queue, id, by string) error {
	return c.act(ctx, queue, id, "cancel", by)
}

func (c *Client) act(ctx context.Context, queue, id, action, by string) error {
	return c.do(ctx, http.MethodPost, batchPath(queue, id)+"/"+action, nil, map[string]string{"by": by}, nil)
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
