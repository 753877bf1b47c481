package api

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/memory"
)

// queueStore is a store of everything in memory.
type queueStore struct {
	*memory.Store
	admin dispatch.Admin // in place of its own, if not nil
	// acquired, if not nil, is called when a lease was acquired.
	acquired func()
}

func (s *queueStore) Acquire(ctx context.Context, e lease.Expectation) (lease.Lease, error) {
	l, err := s.Store.Acquire(ctx, e)
	if err == nil && s.acquired != nil {
		s.acquired()
	}
	return l, err
}

// Release does nothing once ctx has ended, as on a network.
func (s *queueStore) Release(ctx context.Context, r lease.ReleaseRequest) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", lease.ErrUnavailable, context.Cause(ctx))
	}
	return s.Store.Release(ctx, r)
}

func (s *queueStore) QueueAdmin() dispatch.Admin {
	if s.admin != nil {
		return s.admin
	}
	return s.Store.QueueAdmin()
}

func newQueueStore(now func() time.Time) *queueStore {
	return &queueStore{Store: memory.New(now)}
}

// queueRig is a server with queues, without a network.
type queueRig struct {
	rig
	queues *queueStore
}

func newQueueRig(t *testing.T) *queueRig {
	t.Helper()
	clock := newStepped()
	st := newQueueStore(clock.storeNow)
	s, err := New(Config{Store: st, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	g := &queueRig{rig: rig{t: t, store: st.Store, clock: clock, s: s}, queues: st}
	g.do("POST", "/v1/queues", `{"queue":"orders"}`).want(201, "")
	return g
}

// add stores a batch of text.
func (g *queueRig) add(key, id, text string) {
	g.t.Helper()
	q := url.Values{"key": {key}, "id": {id}}
	g.do("POST", "/v1/queues/orders/messages?"+q.Encode(), text).want(201, "")
}

// settle takes a key, starts its head and records what became of it.
func (g *queueRig) settle(key string, r dispatch.Result) {
	g.t.Helper()
	session := g.session("worker")
	ctx, space := g.t.Context(), dispatch.Space("orders")
	claims, err := g.queues.Claims().ClaimKeys(ctx, claim.ClaimRequest{Space: space, Session: session, Limit: claim.MaxKeys, Fresh: claim.MaxKeys})
	if err != nil {
		g.t.Fatal(err)
	}
	for _, c := range claims {
		if c.Key != key {
			continue
		}
		result, err := g.queues.Queue().Exchange(ctx, dispatch.Exchange{Queue: "orders", Session: session, Begin: []claim.Claim{c}, Window: time.Minute})
		if err != nil || len(result.Begun) != 1 {
			g.t.Fatalf("%+v, %v", result, err)
		}
		a := result.Begun[0]
		r.Key, r.Term, r.Seq, r.Attempt = key, a.Term, a.Seq, a.Attempt
		result, err = g.queues.Queue().Exchange(ctx, dispatch.Exchange{Queue: "orders", Session: session, Results: []dispatch.Result{r}})
		if err != nil || !result.Receipts[0].Accepted {
			g.t.Fatalf("%+v, %v", result, err)
		}
		if err := g.queues.Claims().Release(ctx, space, session, claims); err != nil {
			g.t.Fatal(err)
		}
		return
	}
	g.t.Fatalf("%s is not among %v", key, claims)
}

// block leaves the head of a key waiting for an operator.
func (g *queueRig) block(key string) {
	g.t.Helper()
	g.settle(key, dispatch.Result{State: dispatch.Failed, After: dispatch.Block, Code: 422, Detail: "no such account"})
}

func (g *queueRig) state(id string) dispatch.State {
	g.t.Helper()
	var b apitype.Message
	g.do("GET", "/v1/queues/orders/messages/"+url.PathEscape(id), "").into(&b)
	return dispatch.State(b.State)
}

func TestStoreWithoutQueues(t *testing.T) {
	g := newRig(t)
	for _, rt := range g.s.queueRoutes() {
		method, path, _ := strings.Cut(rt.pattern, " ")
		path = strings.NewReplacer("{queue}", "orders", "{id}", "x").Replace(path)
		if p := g.do(method, path, "").want(404, "store_without_queues"); !strings.Contains(p.Detail, "SQLite and PostgreSQL") {
			t.Errorf("%s: %s", rt.pattern, p.Detail)
		}
	}
	if text := g.do("GET", "/metrics", "").Body; strings.Contains(text, "understudy_queue_") {
		t.Error("a store without queues has metrics of queues")
	}
}

func TestQueueGlance(t *testing.T) {
	g := newQueueRig(t)
	var none struct{ Queues []apitype.Queue }
	g.do("GET", "/v1/queues", "").into(&none)
	if len(none.Queues) != 1 || none.Queues[0].Queue != "orders" || none.Queues[0].Holders == nil {
		t.Fatalf("a new queue: %+v", none)
	}
	for n := range 3 {
		g.add("a", fmt.Sprint("a", n), "x")
	}
	g.add("b/ö", "b0", "x")
	g.clock.pass(90 * time.Second)
	g.block("a")
	g.s.queues.invalidate()

	var q apitype.Queue
	g.do("GET", "/v1/queues/orders", "").into(&q)
	want := apitype.Queue{Queue: "orders", Depth: 4, OldestMS: 90_000, Keys: 2, Blocked: 1}
	q.Holders = nil
	if diff := cmp.Diff(want, q); diff != "" {
		t.Errorf("a queue at a glance (-want +got):\n%s", diff)
	}
	g.do("GET", "/v1/queues/parcels", "").want(404, "no_queue")
	g.do("GET", "/v1/queues/Orders", "").want(400, "invalid")

	var keys struct {
		Keys []apitype.Key
		Next string
	}
	g.do("GET", "/v1/queues/orders/keys?limit=1", "").into(&keys)
	if len(keys.Keys) != 1 || keys.Next != "a" || !keys.Keys[0].Blocked || keys.Keys[0].Reason != "no such account" || keys.Keys[0].Head != "a0" {
		t.Errorf("first key: %+v", keys)
	}
	keys.Next = ""
	g.do("GET", "/v1/queues/orders/keys?after=a", "").into(&keys)
	if len(keys.Keys) != 1 || keys.Next != "" || keys.Keys[0].Key != "b/ö" || keys.Keys[0].WaitingMS != 90_000 {
		t.Errorf("second key: %+v", keys)
	}
	g.do("GET", "/v1/queues/orders/keys?blocked=true", "").into(&keys)
	if len(keys.Keys) != 1 || keys.Keys[0].Key != "a" {
		t.Errorf("blocked keys: %+v", keys)
	}
	g.do("GET", "/v1/queues/parcels/keys", "").want(404, "no_queue")
	for _, query := range []string{"blocked=yes", "idle=1", "limit=0", "limit=1001", "after=%00"} {
		g.do("GET", "/v1/queues/orders/keys?"+query, "").want(400, "invalid")
	}
}

func TestAddOne(t *testing.T) {
	g := newQueueRig(t)
	payload := "\x00\xff<script>"
	r := request(t.Context(), "POST", "/v1/queues/orders/messages?key=acct%2F7&id=one%2F1", payload)
	r.Header.Set("Content-Type", "text/html")
	a := send(t, g.s, r)
	a.want(201, "")
	if strings.TrimSpace(a.Body) != `{"id":"one/1","added":true}` || a.Header.Get("Location") != "/v1/queues/orders/messages/one%2F1" {
		t.Errorf("added: %s at %s", a.Body, a.Header.Get("Location"))
	}
	a = send(t, g.s, request(t.Context(), "POST", "/v1/queues/orders/messages?key=acct%2F7&id=one%2F1", "other"))
	if a.want(200, ""); !strings.Contains(a.Body, `"added":false`) {
		t.Errorf("a second time: %s", a.Body)
	}

	a = g.do("GET", "/v1/queues/orders/messages/one%2F1/payload", "")
	if a.Body != payload || a.Header.Get("Content-Type") != "text/html" {
		t.Errorf("payload %q of type %s", a.Body, a.Header.Get("Content-Type"))
	}
	if h := a.Header; h.Get("Content-Disposition") != "attachment" || h.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(h.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("a browser might run it: %v", h)
	}
	var b apitype.Message
	g.do("GET", "/v1/queues/orders/messages/one%2F1", "").into(&b)
	if b.Key != "acct/7" || b.Size != len(payload) || b.State != string(dispatch.Queued) || !b.Ended.IsZero() || len(b.Trail) == 0 {
		t.Errorf("batch %+v", b)
	}

	var added apitype.AddedMessage
	g.do("POST", "/v1/queues/orders/messages?key=k", "").into(&added)
	if added.ID == "" || !added.Added {
		t.Errorf("without an id: %+v", added)
	}
	for _, query := range []string{"key=", "key=+k", "key=%00", "key=k&id=%07", "key=" + strings.Repeat("k", 201), "key=k&id=" + strings.Repeat("i", 201), "key=%zz"} {
		g.do("POST", "/v1/queues/orders/messages?"+query, "x").want(400, "invalid")
	}
	g.do("POST", "/v1/queues/parcels/messages?key=k", "x").want(404, "no_queue")
	r = request(t.Context(), "POST", "/v1/queues/orders/messages?key=k&id=big", strings.Repeat("x", dispatch.MaxPayload))
	send(t, g.s, r).want(201, "")
	r = request(t.Context(), "POST", "/v1/queues/orders/messages?key=k", strings.Repeat("x", dispatch.MaxPayload+1))
	if p := send(t, g.s, r).want(413, "too_large"); !strings.Contains(p.Detail, "16777216") {
		t.Errorf("too large: %s", p.Detail)
	}
}

func TestAddMany(t *testing.T) {
	g := newQueueRig(t)
	a := g.do("POST", "/v1/queues/orders/messages", `{"messages":[
		{"key":"a","id":"1","payload":"text"},
		{"key":"b","id":"2","payload_json":{"n": 1}},
		{"key":"b","id":"3","payload_base64":"AP8=","content_type":"image/x"},
		{"key":"a","id":"1"}]}`)
	a.want(201, "")
	if want := `{"messages":[{"id":"1","added":true},{"id":"2","added":true},{"id":"3","added":true},{"id":"1","added":false}]}`; strings.TrimSpace(a.Body) != want {
		t.Errorf("added %s", a.Body)
	}
	for id, want := range map[string][2]string{
		"1": {"text", "text/plain; charset=utf-8"}, "2": {`{"n": 1}`, "application/json"}, "3": {"\x00\xff", "image/x"},
	} {
		a := g.do("GET", "/v1/queues/orders/messages/"+id+"/payload", "")
		if a.Body != want[0] || a.Header.Get("Content-Type") != want[1] {
			t.Errorf("%s is %q of %s", id, a.Body, a.Header.Get("Content-Type"))
		}
	}
	for body, says := range map[string]string{
		``:                           "0 messages",
		`{"messages":[]}`:            "0 messages",
		`{"batch":[]}`:               "unknown field",
		`[{"key":"a"}]`:              "not the JSON",
		`{"messages":[{"kye":"a"}]}`: "unknown field",
		`{"messages":[{"key":"a"},{"id":"x","payload":"y"}]}`:             "message 2",
		`{"messages":[{"key":"a","payload":"x","payload_json":1}]}`:       "give one of",
		`{"messages":[{"key":"new","id":"n"}`:                             "not the JSON",
		`{"messages":[{"key":"new"}],"messages":[{"key":"new"}]}`:         "twice",
		`{"messages":[{"key":"a","payload_base64":"§"}]}`:                 "not the JSON",
		`{"messages":[` + strings.Repeat(`{"key":"a"},`, 1000) + `{}]}`:   "more than 1000 messages",
		`{"messages":[{"key":"new","id":"n"},{"key":"a","id":" spaced"}]`: "message 2",
	} {
		if p := g.do("POST", "/v1/queues/orders/messages", body).want(400, "invalid"); !strings.Contains(p.Detail, says) {
			t.Errorf("%.60s: %s", body, p.Detail)
		}
	}
	g.do("POST", "/v1/queues/orders/messages", `{"messages":[{"key":"new"},{"key":" bad"}]}`).want(400, "invalid")
	g.do("POST", "/v1/queues/parcels/messages", `{"messages":[{"key":"a"}]}`).want(404, "no_queue")
	var list struct{ Messages []apitype.Message }
	g.do("GET", "/v1/queues/orders/messages", "").into(&list)
	if len(list.Messages) != 3 {
		t.Errorf("%d messages came of it, want 3", len(list.Messages))
	}
}

func TestListMessages(t *testing.T) {
	g := newQueueRig(t)
	for n := range 5 {
		g.add("a", fmt.Sprint("a", n), "x")
	}
	g.add("b", "b0", "x")
	g.block("a")
	var page struct {
		Messages []apitype.Message
		Next     string
	}
	var ids []string
	query := url.Values{"limit": {"2"}}
	for range 10 {
		page.Next = ""
		g.do("GET", "/v1/queues/orders/messages?"+query.Encode(), "").into(&page)
		for _, b := range page.Messages {
			ids = append(ids, b.ID)
		}
		if page.Next == "" {
			break
		}
		if query.Has("after") { // the next page is found by its key and number too
			key, seq, _ := strings.Cut(page.Next, "/")
			query = url.Values{"limit": {"2"}, "after_key": {key}, "after_seq": {seq}}
		} else {
			query = url.Values{"limit": {"2"}, "after": {page.Next}}
		}
	}
	if diff := cmp.Diff([]string{"a0", "a1", "a2", "a3", "a4", "b0"}, ids); diff != "" {
		t.Errorf("page by page (-want +got):\n%s", diff)
	}
	g.do("GET", "/v1/queues/orders/messages?state=failed", "").into(&page)
	if len(page.Messages) != 1 || page.Messages[0].ID != "a0" || !page.Messages[0].Blocks || page.Messages[0].Code != 422 {
		t.Errorf("failed: %+v", page.Messages)
	}
	g.do("GET", "/v1/queues/orders/messages?key=b", "").into(&page)
	if len(page.Messages) != 1 || page.Messages[0].ID != "b0" {
		t.Errorf("of b: %+v", page.Messages)
	}
	for _, query := range []string{"state=done", "limit=0", "after_seq=-1", "key=%00"} {
		g.do("GET", "/v1/queues/orders/messages?"+query, "").want(400, "invalid")
	}
	g.do("GET", "/v1/queues/parcels/messages", "").want(404, "no_queue")
	g.do("GET", "/v1/queues/orders/messages/nothing", "").want(404, "no_message")
	g.do("GET", "/v1/queues/orders/messages/nothing/payload", "").want(404, "no_message")
	g.do("GET", "/v1/queues/orders/messages/"+strings.Repeat("x", 201), "").want(400, "invalid")
}

func TestActions(t *testing.T) {
	g := newQueueRig(t)
	for _, key := range []string{"a", "b", "c"} {
		g.add(key, key+"0", "x")
		g.add(key, key+"1", "x")
	}
	g.block("a")
	g.block("b")
	do := func(id, action, body string) answer {
		return g.do("POST", "/v1/queues/orders/messages/"+id+"/"+action, body)
	}
	do("a0", "retry", `{"by":"alice"}`).want(200, "")
	do("b0", "skip", "").want(200, "")
	do("c1", "cancel", `{"by":"alice"}`).want(200, "")
	for id, want := range map[string]dispatch.State{"a0": dispatch.Queued, "b0": dispatch.Failed, "b1": dispatch.Queued, "c1": dispatch.Cancelled} {
		if got := g.state(id); got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	for _, refused := range [][2]string{{"a0", "retry"}, {"c1", "cancel"}, {"b1", "skip"}} {
		do(refused[0], refused[1], "").want(409, "wrong_state")
	}
	g.settle("b", dispatch.Result{State: dispatch.Unknown, After: dispatch.Block, Detail: "no answer"})
	if p := do("b1", "retry", `{"by":"alice"}`).want(409, "uncertain"); !strings.Contains(p.Detail, "i_know") {
		t.Errorf("a retry of one that the target may have does not say what is asked for: %s", p.Detail)
	}
	do("b1", "retry", `{"i_know":false}`).want(409, "uncertain")
	do("b1", "retry", `{"by":"alice","i_know":true}`).want(200, "")
	if got := g.state("b1"); got != dispatch.Queued {
		t.Errorf("b1 is %s", got)
	}
	do("b1", "skip", `{"i_know":true}`).want(400, "invalid")
	do("nothing", "retry", "").want(404, "no_message")
	do("a0", "explode", "").want(404, "no_route")
	do("a0", "cancel", `{"by":" x"}`).want(400, "invalid")
	do("a0", "cancel", `{"who":"x"}`).want(400, "invalid")
	g.do("POST", "/v1/queues/parcels/messages/a0/retry", "").want(404, "no_queue")

	var b apitype.Message
	g.do("GET", "/v1/queues/orders/messages/a0", "").into(&b)
	if last := b.Trail[len(b.Trail)-1]; !strings.Contains(last.Detail, "alice (192.0.2.1)") || last.Action == "" {
		t.Errorf("the trail does not tell who, or what was done: %+v", b.Trail)
	}
}

// oddAdmin is that of a store in which SQL has put names that Validate refuses: the no-break spaces in them are stored as "~".
type oddAdmin struct{ dispatch.Admin }

func odd(name string) string  { return strings.ReplaceAll(name, "~", "\u00a0") }
func even(name string) string { return strings.ReplaceAll(name, "\u00a0", "~") }

func (d oddAdmin) Keys(ctx context.Context, q dispatch.KeyQuery) ([]dispatch.KeyRecord, error) {
	q.After = even(q.After)
	keys, err := d.Admin.Keys(ctx, q)
	for i := range keys {
		keys[i].Key, keys[i].Head = odd(keys[i].Key), odd(keys[i].Head)
	}
	return keys, err
}

func (d oddAdmin) Messages(ctx context.Context, q dispatch.MessageQuery) ([]dispatch.Record, error) {
	q.Key, q.AfterKey = even(q.Key), even(q.AfterKey)
	messages, err := d.Admin.Messages(ctx, q)
	for i := range messages {
		messages[i].Key, messages[i].ID = odd(messages[i].Key), odd(messages[i].ID)
	}
	return messages, err
}

func (d oddAdmin) Act(ctx context.Context, queue, id string, a dispatch.Action, who string) error {
	return d.Admin.Act(ctx, queue, even(id), a, who)
}

// TestOddNames: operators reach what SQL has enqueued, whatever Go calls printable.
func TestOddNames(t *testing.T) {
	g := newQueueRig(t)
	g.s.queueAdmin = oddAdmin{g.s.queueAdmin}
	for _, key := range []string{"a~", "b~c"} {
		g.add(key, key+"0", "x")
		g.block(key)
	}
	var page struct {
		Keys     []apitype.Key
		Messages []apitype.Message
		Next     string
	}
	for _, list := range []string{"keys?blocked=true&", "messages?state=failed&"} {
		page.Next = ""
		for _, want := range []string{"a\u00a0", "b\u00a0c"} {
			page.Keys, page.Messages = nil, nil
			g.do("GET", "/v1/queues/orders/"+list+url.Values{"limit": {"1"}, "after": {page.Next}}.Encode(), "").into(&page)
			if len(page.Keys) == 1 && page.Keys[0].Key != want || len(page.Messages) == 1 && page.Messages[0].Key != want || len(page.Keys)+len(page.Messages) != 1 {
				t.Errorf("%s%q: %+v", list, want, page)
			}
		}
	}
	if g.do("GET", "/v1/queues/orders/messages?key=b%C2%A0c", "").into(&page); len(page.Messages) != 1 {
		t.Errorf("of a key: %+v", page.Messages)
	}
	g.do("POST", "/v1/queues/orders/messages/b%C2%A0c0/skip", "").want(200, "")
	g.do("GET", "/v1/queues/orders/messages/none%C2%A0", "").want(404, "no_message")
}

// brokenAdmin fails as its err says, and counts who asks.
type brokenAdmin struct {
	dispatch.Admin
	err    error
	looked int
}

func (d *brokenAdmin) Queues(ctx context.Context) ([]dispatch.Overview, error) {
	d.looked++
	if d.err != nil {
		return nil, d.err
	}
	return d.Admin.Queues(ctx)
}

func TestStoreOfQueuesAway(t *testing.T) {
	g := newQueueRig(t)
	broken := &brokenAdmin{Admin: g.queues.Store.QueueAdmin(), err: fmt.Errorf("looking: %w", lease.ErrUnavailable)}
	g.s.queues = newQueueReader(t.Context(), broken)
	g.do("GET", "/v1/queues", "").want(503, "store_unavailable")
	// A store that is down is not asked by everyone.
	before := broken.looked
	for range 20 {
		g.do("GET", "/v1/queues", "")
	}
	if broken.looked != before {
		t.Errorf("asked %d times more within a moment", broken.looked-before)
	}
}

// fakeQueues has one queue, or as many as it is told.
type fakeQueues struct {
	dispatch.Admin
	done int64
	many int
}

func (f *fakeQueues) Queues(context.Context) ([]dispatch.Overview, error) {
	out := []dispatch.Overview{{Queue: "orders", Done: f.done}}
	for n := range f.many {
		out = append(out, dispatch.Overview{Queue: fmt.Sprintf("q%03d", n)})
	}
	return out, nil
}

// slowAdmin takes its time to say how the queues are doing.
type slowAdmin struct {
	fakeQueues
	takes atomic.Int64 // a duration
	asked atomic.Int64
}

func (d *slowAdmin) Queues(ctx context.Context) ([]dispatch.Overview, error) {
	d.asked.Add(1)
	select {
	case <-ctx.Done():
		return nil, lease.ErrUnavailable
	case <-time.After(time.Duration(d.takes.Load())):
		return d.fakeQueues.Queues(ctx)
	}
}

func TestSlowLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 4 * time.Second
		admin := &slowAdmin{}
		admin.takes.Store(int64(takes))
		st := newQueueStore(nil)
		st.admin = admin
		s, err := New(Config{Store: st, Clock: bubbleClock{time.Now().Add(-time.Hour)}})
		if err != nil {
			t.Fatal(err)
		}
		look := func() apitype.State {
			asked := time.Now()
			state := s.poller.state(t.Context(), nil)
			if took := time.Since(asked); took > maxLatestWait {
				t.Errorf("the state waited %v for the queues", took)
			}
			if !state.Store.Up {
				t.Errorf("the store is called down: %s", state.Store.Error)
			}
			return state
		}
		began := time.Now()
		for range 10 {
			look()
		}
		got := look()
		if got.Queues.Total != 1 || admin.asked.Load() != 1 || !got.Queues.At.Equal(began) {
			t.Errorf("%d queues after %d looks, read at %v, not %v", got.Queues.Total, admin.asked.Load(), got.Queues.At, began)
		}
		time.Sleep(restFactor*takes - 2*time.Second)
		if got = look(); admin.asked.Load() != 1 || !got.Queues.At.Equal(began) {
			t.Error("a store that takes long is looked at again before it has rested")
		}
		time.Sleep(2 * time.Second)
		admin.takes.Store(int64(time.Hour))
		if look(); admin.asked.Load() != 2 {
			t.Errorf("looked %d times, want 2", admin.asked.Load())
		}
		time.Sleep(maxReadTime)
		if got := look(); got.Queues.Error == "" || got.Queues.Total != 1 {
			t.Errorf("after a look without an answer the state has %+v", got.Queues)
		}
		admin.takes.Store(0) // the store answers again
		time.Sleep(maxFailedRest)
		if got := look(); got.Queues.Error != "" || admin.asked.Load() != 3 {
			t.Errorf("%v after a read that failed: %d reads, %q", maxFailedRest, admin.asked.Load(), got.Queues.Error)
		}
		var listed apitype.Queues
		if listed, err = s.listQueues(httptest.NewRequest(http.MethodGet, "/v1/queues", http.NoBody)); err != nil || !listed.At.After(began) {
			t.Errorf("the list was read at %v: %v", listed.At, err)
		}
		s.stop() // ends a look that is under way
	})
}

func TestQueueMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newQueueStore(nil)
		fake := &fakeQueues{done: 12, many: 2 * maxQueueLabels}
		st.admin = fake
		s := start(t, Config{
			Store: st, Clock: bubbleClock{time.Now().Add(-time.Hour)},
			Dispatchers: []func() dispatch.Stats{func() dispatch.Stats {
				return dispatch.Stats{
					Queue: "q199", Claimed: 3, Submissions: 5, Latency: 1500 * time.Millisecond,
					Recorded: map[dispatch.State]int64{dispatch.Committed: 4},
				}
			}},
		})
		time.Sleep(2 * time.Second)
		text := send(t, s, request(t.Context(), "GET", "/metrics", "")).Body
		for _, want := range []string{
			`understudy_queue_done_total{queue="orders"} 12`, `understudy_queue_depth{queue="orders"} 0`, `understudy_queue_depth{queue="q199"} 0`,
			`understudy_dispatch_claimed_keys{queue="q199"} 3`, `understudy_dispatch_submission_seconds_total{queue="q199"} 1.5`,
			`understudy_dispatch_recorded_total{queue="q199",state="committed"} 4`, `understudy_dispatch_recorded_total{queue="q199",state="invalid"} 0`,
		} {
			if !strings.Contains(text, want+"\n") {
				t.Errorf("metrics lack %s", want)
			}
		}
		if n := strings.Count(text, "understudy_queue_depth{"); n != maxQueueLabels {
			t.Errorf("%d queues have metrics, want %d", n, maxQueueLabels)
		}
	})
}

func TestStateShowsQueues(t *testing.T) {
	g := newQueueRig(t)
	parts := func() apitype.State { return g.s.poller.state(t.Context(), nil) }
	parts() // the first look reports whether there are any
	if got := parts(); !strings.Contains(strings.Join(got.Parts, " "), "queues") || got.Queues.Total != 1 {
		t.Errorf("parts %v, queues %+v", got.Parts, got.Queues)
	}
	for n := range maxBlockedKeys + 2 {
		key := fmt.Sprintf("k%02d", n)
		g.add(key, key, "x")
		g.block(key)
	}
	g.s.queues.invalidate()
	got := parts().Queues.List[0]
	if got.Blocked != maxBlockedKeys+2 || len(got.BlockedKeys) != maxBlockedKeys || got.BlockedKeys[0].Reason != "no such account" {
		t.Errorf("blocked: %+v", got)
	}
	without := newRig(t)
	if got := without.s.poller.state(t.Context(), nil); len(got.Parts) != 1 || got.Queues != nil {
		t.Errorf("a store without queues shows %v", got.Parts)
	}
}

// TestLongBodies: only so many are read at once, over a real connection.
func TestLongBodies(t *testing.T) {
	g := newQueueRig(t)
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = NewHTTPServer(g.s.Handler(), nil)
	srv.Start()
	defer srv.Close()
	leave := fill(t, g.s.largeBodies)
	post := func(n int) int {
		answer, err := srv.Client().Post(srv.URL+"/v1/queues/orders/messages?key=k", "text/plain", bytes.NewReader(make([]byte, n)))
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	if got := post(maxBody); got != http.StatusCreated {
		t.Errorf("a short body was answered %d while long ones are read", got)
	}
	if got := post(maxBody + 1); got != http.StatusServiceUnavailable {
		t.Errorf("one long body too many was answered %d", got)
	}
	leave()
	if got := post(maxBody + 1); got != http.StatusCreated {
		t.Errorf("a long body was answered %d when there was room", got)
	}
	if n := g.s.largeBodies.len(); n != maxLargeBodies-1 {
		t.Errorf("%d places are taken, want %d", n, maxLargeBodies-1)
	}
}

// TestScheduled: a message that is not to be sent yet is shown as that, apart from what waits.
func TestScheduled(t *testing.T) {
	g := newQueueRig(t)
	due := g.clock.storeNow().Add(time.Hour).UTC().Truncate(time.Second)
	text := due.Format(time.RFC3339)
	g.do("POST", "/v1/queues/orders/messages", `{"messages":[{"key":"k","id":"later","payload":"x","not_before":"`+text+`"},{"key":"k","id":"now"}]}`).want(201, "")
	g.s.queues.invalidate()
	var q apitype.Queue
	if g.do("GET", "/v1/queues/orders", "").into(&q); q.Scheduled != 1 || q.Depth != 1 {
		t.Errorf("the queue is %+v", q)
	}
	var one apitype.Message
	if g.do("GET", "/v1/queues/orders/messages/later", "").into(&one); one.State != "scheduled" || !one.NotBefore.Equal(due) {
		t.Errorf("it is %+v", one)
	}
	var page struct{ Messages []apitype.Message }
	g.do("GET", "/v1/queues/orders/messages?state=scheduled", "").into(&page)
	if len(page.Messages) != 1 || page.Messages[0].ID != "later" || !page.Messages[0].NotBefore.Equal(due) {
		t.Errorf("listed are %+v", page.Messages)
	}
	if a := g.do("GET", "/v1/queues/orders/messages", ""); strings.Contains(a.Body, "not_before") {
		t.Errorf("one that was never scheduled has a time: %s", a.Body)
	}
	for _, wrong := range []string{`"tomorrow"`, `10`, `"12026-01-01T00:00:00Z"`} {
		g.do("POST", "/v1/queues/orders/messages", `{"messages":[{"key":"k","not_before":`+wrong+`}]}`).want(400, "invalid")
	}
	g.do("POST", "/v1/queues/orders/messages/later/retry", "").want(409, "wrong_state")
	g.do("POST", "/v1/queues/orders/messages/later/cancel", "").want(200, "")
	if got := g.state("later"); got != dispatch.Cancelled {
		t.Errorf("then it is %s", got)
	}
}
