package client_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/store/memory"
)

func serveQueues(t *testing.T) *client.Client {
	t.Helper()
	s, err := api.New(api.Config{Store: memory.New(nil), Token: token})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(srv.Close)
	return connect(t, srv.URL, token)
}

func TestQueues(t *testing.T) {
	c := serveQueues(t)
	ctx := t.Context()
	_, err := c.Add(ctx, "orders", apitype.NewMessage{Key: "a"})
	wantCode(t, err, "no_queue")
	if err := c.CreateQueue(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	const id = "one/1 ü?%2F"
	added, err := c.Add(ctx, "orders",
		apitype.NewMessage{Key: "a b", ID: id, ContentType: "image/x", Base64: []byte("\x00\xff")}, apitype.NewMessage{Key: "a b", Base64: []byte("y")})
	if err != nil || len(added) != 2 || !added[0].Added || added[0].ID != id || added[1].ID == "" {
		t.Fatalf("added %+v, %v", added, err)
	}
	if again, err := c.Add(ctx, "orders", apitype.NewMessage{Key: "a b", ID: id}); err != nil || again[0].Added {
		t.Errorf("a second time: %+v, %v", again, err)
	}
	queues, err := c.Queues(ctx)
	if err != nil || len(queues) != 1 || queues[0].Depth != 2 || queues[0].Keys != 1 {
		t.Errorf("queues %+v, %v", queues, err)
	}
	keys, err := c.Keys(ctx, client.KeyQuery{Queue: "orders", Limit: 5})
	if err != nil || len(keys.Keys) != 1 || keys.Keys[0].Key != "a b" || keys.Keys[0].Head != id {
		t.Errorf("keys %+v, %v", keys, err)
	}
	if keys, err := c.Keys(ctx, client.KeyQuery{Queue: "orders", Blocked: true}); err != nil || len(keys.Keys) != 0 {
		t.Errorf("blocked keys %+v, %v", keys, err)
	}
	payload, kind, err := c.Payload(ctx, "orders", id)
	if err != nil || string(payload) != "\x00\xff" || kind != "image/x" {
		t.Errorf("payload %q of %s, %v", payload, kind, err)
	}
	if err := c.Cancel(ctx, "orders", id, "alice"); err != nil {
		t.Fatal(err)
	}
	b, err := c.Message(ctx, "orders", id)
	if err != nil || b.State != "cancelled" || b.Ended.IsZero() || !strings.Contains(b.Trail[len(b.Trail)-1].Detail, "alice") {
		t.Errorf("cancelled: %+v, %v", b, err)
	}
	wantCode(t, c.Skip(ctx, "orders", id, ""), "wrong_state")
	if err := c.Retry(ctx, "orders", id, ""); err != nil {
		t.Fatal(err)
	}
	list, err := c.Messages(ctx, client.MessageQuery{Queue: "orders", Key: "a b", State: "queued"})
	if err != nil || len(list.Messages) != 2 || list.Messages[1].ID != id {
		t.Errorf("after the retry: %+v, %v", list, err)
	}
	first, err := c.Messages(ctx, client.MessageQuery{Queue: "orders", State: "queued", Limit: 1})
	if err != nil || len(first.Messages) != 1 || first.Next == "" {
		t.Errorf("the first page: %+v, %v", first, err)
	}
	if list, err = c.Messages(ctx, client.MessageQuery{Queue: "orders", State: "queued", After: first.Next, Limit: 9}); err != nil || len(list.Messages) != 1 {
		t.Errorf("the next page: %+v, %v", list, err)
	}
	_, err = c.Message(ctx, "orders", "nothing")
	wantCode(t, err, "no_message")
	if _, err := c.Add(ctx, "orders", apitype.NewMessage{Key: "dots", ID: ".."}); err != nil {
		t.Fatal(err)
	}
	if err := c.Cancel(ctx, "orders", "..", ""); err != nil {
		t.Errorf("cancelling one whose ID is two dots: %v", err)
	}
}

// TestAddPayload: what a payload that is sent as it is cannot carry beside it is not lost.
func TestAddPayload(t *testing.T) {
	c := serveQueues(t)
	ctx := t.Context()
	if err := c.CreateQueue(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	text := "text"
	later := time.Now().Add(time.Hour).Truncate(time.Second)
	for id, m := range map[string]apitype.NewMessage{
		"plain": {Base64: []byte("text")}, "text": {Payload: &text}, "json": {JSON: []byte(`"text"`)},
		"headers": {Base64: []byte("text"), Headers: apitype.Headers{"traceparent": "1"}}, "later": {Base64: []byte("text"), NotBefore: later},
	} {
		m.Key, m.ID = "k", id
		if added, err := c.AddPayload(ctx, "orders", m); err != nil || !added.Added || added.ID != id {
			t.Errorf("%s: %+v, %v", id, added, err)
		}
		got, err := c.Message(ctx, "orders", id)
		payload, _, err2 := c.Payload(ctx, "orders", id)
		if err != nil || err2 != nil || strings.Trim(string(payload), `"`) != "text" || got.Headers["traceparent"] != m.Headers["traceparent"] || !got.NotBefore.Equal(m.NotBefore) {
			t.Errorf("%s: %+v with payload %q, %v, %v", id, got, payload, err, err2)
		}
	}
	_, err := c.AddPayload(ctx, "orders", apitype.NewMessage{Key: "k", Base64: []byte("a"), Payload: &text})
	wantCode(t, err, "invalid")
}
