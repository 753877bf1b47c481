package front_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/dispatch/front"
	"github.com/understudy-ha/understudy/dispatch/target"
	"github.com/understudy-ha/understudy/dispatch/target/targettest"
	"github.com/understudy-ha/understudy/internal/sawtooth"
	"github.com/understudy-ha/understudy/lease"
)

const (
	service = "abcde-12345::gsAA"
	octets  = "application/octet-stream"
)

func newFront(t testing.TB, d dispatch.Admin, dialect front.Dialect, waiters int) http.Handler {
	t.Helper()
	h, err := front.New(front.Config{Admin: d, Queue: "ledger", Dialect: dialect, Waiters: waiters})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

type answer struct {
	Status int
	Type   string
	Body   string
}

func call(h http.Handler, method, path, contentType string, body []byte, header ...string) answer {
	r := httptest.NewRequest(method, "http://front:8008"+path, bytes.NewReader(body))
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return answer{w.Code, w.Header().Get("Content-Type"), w.Body.String()}
}

func expect(t *testing.T, got answer, status int, contentType, body string) {
	t.Helper()
	if diff := cmp.Diff(answer{status, contentType, body}, got); diff != "" {
		t.Error(diff)
	}
}

func signer() *targettest.Signer { return targettest.NewSigner("front") }

const pretty = "application/json; charset=utf-8"

func TestSawtoothSubmit(t *testing.T) {
	d := newAdmin()
	h := newFront(t, d, front.Sawtooth, 0)
	id1, b1 := signer().Batch("1", "a")
	id2, b2 := signer().Batch("2", "b", "c")
	list := targettest.List(b2, b1, b2)
	want := "{\n  \"link\": \"http://front:8008/batch_statuses?id=" + id2 + "," + id1 + "," + id2 + "\"\n}"
	for range 2 { // the second time nothing is stored, and the answer is the same
		expect(t, call(h, "POST", "/batches", octets, list), 202, pretty, want)
		if diff := cmp.Diff([]string{id2, id1}, d.stored()); diff != "" {
			t.Error(diff)
		}
	}
	for id, batch := range map[string][]byte{id1: b1, id2: b2} {
		got := d.get(t, id)
		if got.Key != "----" || got.Queue != "ledger" || got.ContentType != octets || !bytes.Equal(got.Payload, targettest.List(batch)) {
			t.Errorf("stored %+v", got.Message)
		}
	}
	// A service is a key of its own, and one that a batch keeps.
	id3, list3 := signer().One("3", "d")
	expect(t, call(h, "POST", "/batches?service_id=a%20b&x=1", octets, list3), 202, pretty,
		"{\n  \"link\": \"http://front:8008/batch_statuses?id="+id3+"&service_id=a%20b&x=1\"\n}")
	if got := d.get(t, id3).Key; got != "a b" {
		t.Errorf("key %q", got)
	}
	if got := call(h, "POST", "/batches", octets, list3); got.Status != 400 || !strings.Contains(got.Body, "for a b") {
		t.Errorf("under another key: %+v", got)
	}
}

func TestLinks(t *testing.T) {
	h := newFront(t, newAdmin(), front.Sawtooth, 0)
	id, list := signer().One("1", "a")
	for want, header := range map[string][]string{
		"http://front:8008":            nil,
		"https://public/p":             {"X-Forwarded-Proto", "https", "X-Forwarded-Host", "public", "X-Forwarded-Path", "/p"},
		"https://pub.lic:1":            {"Forwarded", `for=10.0.0.1;host="pub.lic:1"; Proto=https, host=second`},
		"http://\\\"quoted\\u00fc\\\\": {"X-Forwarded-Host", `"quotedü\`},
	} {
		expect(t, call(h, "POST", "/batches", octets, list, header...), 202, pretty,
			"{\n  \"link\": \""+want+"/batch_statuses?id="+id+"\"\n}")
	}
}

// states puts one batch of each state into the queue.
func states(t *testing.T, d *fakeAdmin, h http.Handler, path string) (ids []string) {
	t.Helper()
	for i, s := range []struct {
		state  dispatch.State
		detail string
		blocks bool
	}{
		{dispatch.Queued, "", false}, {dispatch.Submitting, "", false}, {dispatch.Pending, "", false}, {dispatch.Valid, "", false},
		{dispatch.Delayed, "busy", false}, {dispatch.Unknown, "?", true}, {dispatch.Committed, "", false}, {dispatch.Invalid, "", false},
		{dispatch.Failed, "no", true}, {dispatch.Failed, "no", false}, {dispatch.Cancelled, "", false},
		{dispatch.Cancelled, "stuck", false},
	} {
		id, list := signer().One(fmt.Sprint("state", i), "a", "b")
		if got := call(h, "POST", path, octets, list); got.Status >= 300 {
			t.Fatalf("got %+v", got)
		}
		if s.state == dispatch.Invalid {
			s.detail = sawtooth.ReasonText([]sawtooth.Reason{{Transaction: txns(t, d, id)[1], Message: `verb is "dec" ≠ <inc>`}})
		}
		d.set(id, s.state, s.detail, s.blocks)
		if s.detail == "stuck" { // the ledger has it
			d.begin(id)
		}
		ids = append(ids, id)
	}
	return append(ids, strings.Repeat("0", 128))
}

func txns(t *testing.T, d *fakeAdmin, id string) (ids []string) {
	t.Helper()
	list, err := sawtooth.ParseList(d.get(t, id).Payload)
	if err != nil {
		t.Fatal(err)
	}
	_ = list[0].Transactions(func(t sawtooth.Transaction) error { ids = append(ids, t.ID); return nil })
	return ids
}

func TestSawtoothStatuses(t *testing.T) {
	d := newAdmin()
	h := newFront(t, d, front.Sawtooth, 0)
	ids := states(t, d, h, "/batches")
	var want strings.Builder
	want.WriteString("{\n  \"data\": [\n")
	for i, word := range strings.Fields("PENDING PENDING PENDING PENDING PENDING PENDING COMMITTED INVALID PENDING UNKNOWN INVALID UNKNOWN UNKNOWN") {
		inner := "[]"
		switch i {
		case 7:
			inner = "[\n        {\n          \"id\": \"" + txns(t, d, ids[i])[1] + "\",\n          \"message\": \"verb is \\\"dec\\\" \\u2260 <inc>\"\n        }\n      ]"
		case 10:
			inner = "[\n        {\n          \"id\": \"" + txns(t, d, ids[i])[0] + "\",\n          \"message\": \"it was cancelled before it was sent\"\n        }\n      ]"
		}
		fmt.Fprintf(&want, "    {\n      \"id\": %q,\n      \"invalid_transactions\": %s,\n      \"status\": %q\n    }", ids[i], inner, word)
		if i < len(ids)-1 {
			want.WriteString(",")
		}
		want.WriteString("\n")
	}
	want.WriteString("  ]")
	all := strings.Join(ids, ",")
	expect(t, call(h, "GET", "/batch_statuses?wait=false&id="+all, "", nil), 200, pretty,
		want.String()+",\n  \"link\": \"http://front:8008/batch_statuses?id="+all+"&wait=false\"\n}")
	body, _ := json.Marshal(ids)
	expect(t, call(h, "POST", "/batch_statuses", "application/json", body), 200, pretty, want.String()+"\n}")
}

func TestGridStatuses(t *testing.T) {
	for dialect, words := range map[front.Dialect]string{
		front.Grid:         "PENDING PENDING PENDING PENDING PENDING PENDING COMMITTED INVALID PENDING UNKNOWN INVALID UNKNOWN UNKNOWN",
		front.GridSplinter: "Pending Pending Pending Valid Pending Pending Committed Invalid Pending Unknown Invalid Unknown Unknown",
	} {
		d := newAdmin()
		h := newFront(t, d, dialect, 0)
		query := ""
		if dialect == front.GridSplinter {
			query = "service_id=" + service
		}
		ids := states(t, d, h, "/batches?"+query)
		path := "/batch_statuses?id=" + strings.Join(ids, ",") + "&wait=false&" + query
		var want []string
		for i, word := range strings.Fields(words) {
			inner := ""
			switch i {
			case 7:
				inner = `{"id":"` + txns(t, d, ids[i])[1] + `","message":"verb is \"dec\" ≠ <inc>","extended_data":""}`
			case 10:
				inner = `{"id":"` + txns(t, d, ids[i])[0] + `","message":"it was cancelled before it was sent","extended_data":""}`
			}
			want = append(want, fmt.Sprintf(`{"id":"%s","invalid_transactions":[%s],"status":"%s"}`, ids[i], inner, word))
		}
		expect(t, call(h, "GET", path, "", nil), 200, "application/json",
			`{"data":[`+strings.Join(want, ",")+`],"link":"http://front:8008`+path+`"}`)
		if dialect == front.GridSplinter {
			other := call(h, "GET", "/batch_statuses?wait=false&service_id=abcde-12345::gsBB&id="+ids[6], "", nil)
			if !strings.Contains(other.Body, `"status":"Unknown"`) {
				t.Errorf("another service knows it: %s", other.Body)
			}
		}
	}
}

func TestGridSubmit(t *testing.T) {
	id, list := signer().One("1", "a")
	d := newAdmin()
	h := newFront(t, d, front.GridSplinter, 0)
	link := `{"link":"http://front:8008/batch_statuses?id=` + id + `"}`
	expect(t, call(h, "POST", "/batches?service_id="+service, "octet-stream", list), 200, "application/json", link)
	if got := d.get(t, id).Key; got != service {
		t.Errorf("key %q", got)
	}
	h = newFront(t, newAdmin(), front.Grid, 0)
	expect(t, call(h, "POST", "/batches", "", list), 200, "application/json", link)
}

type bad struct {
	name, method, path, kind string
	body                     []byte
	status, code             int
}

func wrongRequests() []bad {
	s := signer()
	id, list := s.One("1", "payload")
	_, forged := s.Make(targettest.Spec{Nonce: "2", Payloads: []string{"payload"}, Forged: true})
	_, none := s.Batch("3")
	return []bad{
		{"no type", "POST", "/batches", "", list, 400, 42},
		{"json", "POST", "/batches", "application/json", list, 400, 42},
		{"a parameter", "POST", "/batches", octets + "; charset=utf-8", list, 400, 42},
		{"empty", "POST", "/batches", octets, nil, 400, 34},
		{"no batch", "POST", "/batches", octets, []byte{0x12, 0}, 400, 34},
		{"no protobuf", "POST", "/batches", octets, []byte("hello"), 400, 35},
		{"cut", "POST", "/batches", octets, list[:len(list)-1], 400, 35},
		{"an empty batch", "POST", "/batches", octets, targettest.List(nil), 400, 30},
		{"another payload", "POST", "/batches", octets, bytes.ReplaceAll(list, []byte("payload"), []byte("PAYLOAD")), 400, 30},
		{"the second is wrong", "POST", "/batches", octets, append(bytes.Clone(list), targettest.List(nil)...), 400, 30},
		{"the second is forged", "POST", "/batches", octets, append(bytes.Clone(list), targettest.List(forged)...), 400, 30},
		{"the second has no transactions", "POST", "/batches", octets, append(bytes.Clone(list), targettest.List(none)...), 400, 30},
		{"ids with something behind", "POST", "/batch_statuses", "application/json", []byte(`["` + id + `"] x`), 400, 46},
		{"no id among others", "POST", "/batch_statuses", "application/json", []byte(`["` + id + `", null]`), 400, 46},
		{"a hostile service", "POST", "/batches?service_id=%00%1b[2J", octets, list, 400, 30},
		{"a long service", "POST", "/batches?service_id=" + strings.Repeat("x", 300), octets, list, 400, 30},
		{"huge", "POST", "/batches", octets, make([]byte, 10_485_761), 413, 0},
		{"no id", "GET", "/batch_statuses", "", nil, 400, 66},
		{"an empty id", "GET", "/batch_statuses?id=", "", nil, 400, 60},
		{"an empty id among others", "GET", "/batch_statuses?id=" + id + ",", "", nil, 400, 60},
		{"a short id", "GET", "/batch_statuses?id=abc", "", nil, 400, 60},
		{"upper case", "GET", "/batch_statuses?id=" + strings.ToUpper(id), "", nil, 400, 60},
		{"ids as text", "POST", "/batch_statuses", "text/plain", []byte(`["` + id + `"]`), 400, 43},
		{"ids as an object", "POST", "/batch_statuses", "application/json", []byte(`{"id": "` + id + `"}`), 400, 46},
		{"ids as numbers", "POST", "/batch_statuses", "application/json", []byte(`[1]`), 400, 46},
		{"no ids", "POST", "/batch_statuses", "application/json", []byte(`[]`), 400, 46},
		{"bad ids", "POST", "/batch_statuses", "application/json", []byte(`["` + id + `x"]`), 400, 60},
		{"too many ids", "POST", "/batch_statuses", "application/json", []byte(`["` + strings.Repeat("x", 1<<20) + `"]`), 413, 0},
		{"another path", "GET", "/blocks", "", nil, 404, 0},
		{"another method", "DELETE", "/batches", "", nil, 405, 0},
	}
}

func TestSawtoothErrors(t *testing.T) {
	for _, c := range wrongRequests() {
		t.Run(c.name, func(t *testing.T) {
			d := newAdmin()
			got := call(newFront(t, d, front.Sawtooth, 0), c.method, c.path, c.kind, c.body)
			if got.Status != c.status {
				t.Errorf("got %+v", got)
			}
			if c.code != 0 {
				expectFault(t, got, c.code)
			}
			if n := len(d.stored()); n != 0 {
				t.Errorf("%d batches were stored", n)
			}
		})
	}
}

func expectFault(t *testing.T, got answer, code int) {
	t.Helper()
	var f struct {
		Error struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
			Title   string `json:"title"`
		} `json:"error"`
	}
	if err := json.Unmarshal([]byte(got.Body), &f); err != nil || f.Error.Code != code || f.Error.Message == "" || f.Error.Title == "" {
		t.Errorf("got %+v, want code %d (%v)", got, code, err)
	}
	again, _ := json.MarshalIndent(f, "", "  ")
	if got.Type != pretty || !strings.HasPrefix(got.Body, "{\n  \"error\": {\n    \"code\": ") || len(again) < len(got.Body)-60 {
		t.Errorf("form of %+v", got)
	}
}

func TestGridErrors(t *testing.T) {
	id, list := signer().One("1", "a")
	q := "service_id=" + service
	for _, c := range []struct {
		dialect      front.Dialect
		method, path string
		body         []byte
		status       int
	}{
		{front.Grid, "POST", "/batches?" + q, list, 400},
		{front.Grid, "POST", "/batches", []byte("hello"), 400},
		{front.Grid, "POST", "/batches", nil, 400},
		{front.Grid, "POST", "/batches", make([]byte, 10_485_761), 413},
		{front.Grid, "GET", "/batch_statuses", nil, 400},
		{front.Grid, "GET", "/batch_statuses?id=" + id + "&wait=soon", nil, 400},
		{front.Grid, "GET", "/batch_statuses?id=" + id + "&wait=", nil, 400},
		{front.Grid, "GET", "/batch_statuses?id=" + id + "&wait=-1", nil, 400},
		{front.Grid, "GET", "/batch_statuses?id=x&wait=false", nil, 400},
		{front.GridSplinter, "POST", "/batches", list, 400},
		{front.GridSplinter, "POST", "/batches?service_id=x", list, 400},
		{front.GridSplinter, "GET", "/batch_statuses?wait=false&id=" + id, nil, 400},
	} {
		d := newAdmin()
		got := call(newFront(t, d, c.dialect, 0), c.method, c.path, octets, c.body)
		var f struct {
			Status  int    `json:"status_code"`
			Message string `json:"message"`
		}
		err := json.Unmarshal([]byte(got.Body), &f)
		if got.Status != c.status || err != nil || f.Status != c.status || f.Message == "" || len(d.stored()) != 0 {
			t.Errorf("%s %s %s: %+v", c.dialect, c.method, c.path, got)
		}
	}
	if got := call(newFront(t, newAdmin(), front.Grid, 0), "POST", "/batch_statuses", "application/json", []byte(`["`+id+`"]`)); got.Status != 405 {
		t.Errorf("Grid has no such method: %+v", got)
	}
}

func TestStoreFails(t *testing.T) {
	id, list := signer().One("1", "a")
	for _, c := range []struct {
		err          error
		status, code int
		grid         int
	}{
		{fmt.Errorf("x: %w", lease.ErrUnavailable), 503, 18, 503},
		{fmt.Errorf("x: %w", lease.ErrUnknown), 503, 17, 503},
		{context.DeadlineExceeded, 503, 17, 503},
		{dispatch.ErrNoQueue, 503, 15, 503},
		{errors.New("hidden words"), 500, 10, 500},
	} {
		d := newAdmin()
		d.failWith(c.err)
		h := newFront(t, d, front.Sawtooth, 0)
		for _, got := range []answer{
			call(h, "POST", "/batches", octets, list),
			call(h, "GET", "/batch_statuses?id="+id, "", nil),
		} {
			if got.Status != c.status || strings.Contains(got.Body, "hidden") {
				t.Errorf("%v: %+v", c.err, got)
			}
			expectFault(t, got, c.code)
		}
		if got := call(newFront(t, d, front.Grid, 0), "POST", "/batches", octets, list); got.Status != c.grid {
			t.Errorf("%v: %+v", c.err, got)
		}
	}
}

// TestRefusedListIsNotStored: a batch of the list is in the queue, for another service.
func TestRefusedListIsNotStored(t *testing.T) {
	d := newAdmin()
	h := newFront(t, d, front.Sawtooth, 0)
	known, b := signer().Batch("1", "a")
	_, other := signer().Batch("2", "b")
	if got := call(h, "POST", "/batches?service_id=s2", octets, targettest.List(b)); got.Status != 202 {
		t.Fatalf("got %+v", got)
	}
	if got := call(h, "POST", "/batches?service_id=s1", octets, targettest.List(other, b)); got.Status != 400 || !strings.Contains(got.Body, "for s2") {
		t.Errorf("got %+v", got)
	}
	if diff := cmp.Diff([]string{known}, d.stored()); diff != "" {
		t.Error(diff)
	}
}

// lostAdmin loses its store once, at the second call of Add.
type lostAdmin struct {
	*fakeAdmin
	adds int
}

func (d *lostAdmin) Add(ctx context.Context, m []dispatch.Message) ([]bool, error) {
	if d.adds++; d.adds == 2 {
		return nil, lease.ErrUnavailable
	}
	return d.fakeAdmin.Add(ctx, m)
}

func TestManyBatches(t *testing.T) {
	d := &lostAdmin{fakeAdmin: newAdmin()}
	h := newFront(t, d, front.Sawtooth, 0)
	var ids []string
	var batches [][]byte
	for i := range 1001 { // more than fit into one call of the store
		id, b := signer().Batch(fmt.Sprint(i), "a")
		ids, batches = append(ids, id), append(batches, b)
	}
	list := targettest.List(batches...)
	got := call(h, "POST", "/batches", octets, list)
	if expectFault(t, got, 17); got.Status != 503 || strings.Contains(got.Body, "nothing was done") || len(d.stored()) == 0 {
		t.Errorf("%d batches were stored when the store was lost: %s", len(d.stored()), got.Body)
	}
	if got := call(h, "POST", "/batches", octets, list); got.Status != 202 {
		t.Fatalf("got %.200s", got.Body)
	}
	if diff := cmp.Diff(ids, d.stored()); diff != "" {
		t.Error(diff)
	}
	body, _ := json.Marshal(ids)
	if got := call(h, "POST", "/batch_statuses", "application/json", body); strings.Count(got.Body, "PENDING") != len(ids) {
		t.Errorf("got %.200s", got.Body)
	}
}

func TestWait(t *testing.T) {
	for _, c := range []struct {
		dialect front.Dialect
		wait    string
		want    time.Duration // that nobody decides it
	}{
		{front.Sawtooth, "", 0},
		{front.Sawtooth, "&wait=False", 0},
		{front.Sawtooth, "&wait=0", 0},
		{front.Sawtooth, "&wait=7", 7 * time.Second},
		{front.Sawtooth, "&wait", 285 * time.Second},
		{front.Sawtooth, "&wait=soon", 285 * time.Second},
		{front.Sawtooth, "&wait=-5", 285 * time.Second},
		{front.Sawtooth, "&wait=99999999999", 285 * time.Second},
		{front.Grid, "", 285 * time.Second},
		{front.Grid, "&wait=false", 0},
		{front.Grid, "&wait=7", 7 * time.Second},
		{front.Grid, "&wait=4000", 285 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newAdmin()
			h := newFront(t, d, c.dialect, 0)
			id, list := signer().One("1", "a")
			call(h, "POST", "/batches", octets, list)
			began := time.Now()
			got := call(h, "GET", "/batch_statuses?id="+id+c.wait, "", nil)
			if took := time.Since(began); took != c.want || !strings.Contains(got.Body, "PENDING") {
				t.Errorf("%s %s: %+v after %v", c.dialect, c.wait, got, took)
			}
			if most := int(c.want/time.Second) + 10; d.looks > most {
				t.Errorf("%s %s: %d looks at the store", c.dialect, c.wait, d.looks)
			}
			// It ends early when it is decided.
			began = time.Now()
			time.AfterFunc(3*time.Second, func() { d.set(id, dispatch.Committed, "", false) })
			got = call(h, "GET", "/batch_statuses?id="+id+c.wait, "", nil)
			if took := time.Since(began); c.want > 0 && (took < 3*time.Second || took > 4100*time.Millisecond || !strings.Contains(got.Body, "COMMITTED")) {
				t.Errorf("%s %s: %+v after %v", c.dialect, c.wait, got, took)
			}
			time.Sleep(5 * time.Second)
		})
	}
}

// TestWaitUnknown: Sawtooth does not wait for what it does not know; Splinter does.
func TestWaitUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := strings.Repeat("0", 128)
		for dialect, want := range map[front.Dialect]time.Duration{
			front.Sawtooth: 0, front.GridSplinter: 10 * time.Second,
		} {
			began := time.Now()
			call(newFront(t, newAdmin(), dialect, 0), "GET", "/batch_statuses?wait=10&id="+id+"&service_id="+service, "", nil)
			if took := time.Since(began); took != want {
				t.Errorf("%s: %v", dialect, took)
			}
		}
	})
}

func TestWaitersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFront(t, newAdmin(), front.Sawtooth, 2)
		id, list := signer().One("1", "a")
		call(h, "POST", "/batches", octets, list)
		took := make(chan time.Duration, 3)
		for range cap(took) {
			go func() {
				began := time.Now()
				call(h, "GET", "/batch_statuses?wait=10&id="+id, "", nil)
				took <- time.Since(began)
			}()
		}
		var got []time.Duration
		for range cap(took) {
			got = append(got, <-took)
		}
		if diff := cmp.Diff([]time.Duration{0, 10 * time.Second, 10 * time.Second}, got); diff != "" {
			t.Error(diff)
		}
		began := time.Now() // their places are free again
		call(h, "GET", "/batch_statuses?wait=10&id="+id, "", nil)
		if took := time.Since(began); took != 10*time.Second {
			t.Error(took)
		}
	})
}

// slowBody has so many bytes, and then nothing until it breaks off.
type slowBody struct {
	left  int
	broke chan struct{}
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		<-b.broke
		return 0, io.ErrUnexpectedEOF
	}
	n := min(len(p), b.left)
	b.left -= n
	return n, nil
}

// TestBodiesAreBounded: long bodies that arrive slowly take only so much memory, all together, and short ones pass beside them.
func TestBodiesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFront(t, newAdmin(), front.Sawtooth, 0)
		broke, got := make(chan struct{}), make(chan answer, 5)
		for _, size := range []int{10_400_000, 10_400_000, 10_400_000, 10_400_000, 2_300_000} {
			go func() {
				r := httptest.NewRequest("POST", "/batches", &slowBody{left: size, broke: broke})
				r.Header.Set("Content-Type", octets)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				got <- answer{w.Code, w.Header().Get("Content-Type"), w.Body.String()}
			}()
			synctest.Wait()
		}
		if len(got) != 1 {
			t.Fatalf("%d of five long bodies are refused, want the fourth", len(got))
		}
		a := <-got
		if expectFault(t, a, 31); a.Status != 429 {
			t.Errorf("a long body too many: %+v", a)
		}
		ids := []byte(`["` + strings.Repeat("0", 100_000) + `"]`)
		if a := call(h, "POST", "/batch_statuses", "application/json", ids); a.Status != 429 {
			t.Errorf("a long list of IDs too many: %+v", a)
		}
		_, list := signer().One("1", "a")
		if a := call(h, "POST", "/batches", octets, list); a.Status != 202 {
			t.Errorf("a short body beside long ones: %+v", a)
		}
		close(broke)
		for range 4 {
			if a := <-got; a.Status != 400 {
				t.Errorf("a body that broke off: %+v", a)
			}
		}
		if a := call(h, "POST", "/batch_statuses", "application/json", ids); a.Status != 400 {
			t.Errorf("a long list of IDs when there is room: %+v", a)
		}
	})
}

func TestWaiterLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFront(t, newAdmin(), front.Sawtooth, 0)
		id, list := signer().One("1", "a")
		call(h, "POST", "/batches", octets, list)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/batch_statuses?wait&id="+id, nil))
		if took := time.Since(began); took != time.Second || w.Body.Len() != 0 {
			t.Errorf("%v: %s", took, w.Body)
		}
	})
}

// TestOwnClient: the target for Sawtooth is a client of Sawtooth, and finds
// nothing missing here.
func TestOwnClient(t *testing.T) {
	d := newAdmin()
	s := httptest.NewServer(newFront(t, d, front.Sawtooth, 0))
	defer s.Close()
	to, err := target.NewSawtooth(target.SawtoothConfig{HTTPConfig: target.HTTPConfig{URL: s.URL}})
	if err != nil {
		t.Fatal(err)
	}
	var as []dispatch.Assignment
	for i := range 20 {
		id, list := signer().One(fmt.Sprint(i), "a")
		as = append(as, dispatch.Assignment{Message: dispatch.Message{ID: id, Payload: list}})
	}
	for _, a := range as {
		if got := to.Submit(t.Context(), a); got.Outcome != dispatch.Accepted {
			t.Fatalf("got %+v", got)
		}
	}
	d.set(as[0].ID, dispatch.Committed, "", false)
	d.set(as[1].ID, dispatch.Invalid, "because", false)
	for _, some := range [][]dispatch.Assignment{as, as[:15]} { // by POST, by GET
		got := to.Status(t.Context(), some)
		if got[0].Outcome != dispatch.Done || got[1].Outcome != dispatch.InvalidMessage || !strings.HasSuffix(got[1].Detail, ": because") || got[2].Outcome != dispatch.Accepted {
			t.Errorf("got %+v", got[:3])
		}
	}
	resp, err := http.Get(s.URL + "/batch_statuses?id=" + url.QueryEscape(as[0].ID))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || !bytes.Contains(body, []byte("COMMITTED")) {
		t.Errorf("%s, %v", body, err)
	}
}

func TestConfig(t *testing.T) {
	for name, c := range map[string]front.Config{
		"no admin": {Queue: "q"},
		"no queue": {Admin: newAdmin()},
		"dialect":  {Admin: newAdmin(), Queue: "q", Dialect: "klingon"},
		"waiters":  {Admin: newAdmin(), Queue: "q", Waiters: -1},
	} {
		if _, err := front.New(c); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzSubmit: whatever is posted, what is stored is a list of one batch with the
// id under which it is stored, and only if the answer says so.
func FuzzSubmit(f *testing.F) {
	_, one := signer().One("1", "a", "b")
	_, b2 := signer().Batch("2", "c")
	f.Add(one, "----")
	f.Add(append(bytes.Clone(one), targettest.List(b2)...), service)
	f.Add(one[:40], "\x00")
	f.Fuzz(func(t *testing.T, body []byte, serviceID string) {
		d := newAdmin()
		h := newFront(t, d, front.Sawtooth, 0)
		got := call(h, "POST", "/batches?service_id="+url.QueryEscape(serviceID), octets, body)
		stored := d.stored()
		switch {
		case got.Status == 202 && len(stored) > 0:
		case got.Status == 400 && len(stored) == 0:
		default:
			t.Fatalf("%d batches were stored, and the answer is %+v", len(stored), got)
		}
		if !json.Valid([]byte(got.Body)) {
			t.Fatalf("no JSON: %s", got.Body)
		}
		for _, id := range stored {
			r := d.get(t, id)
			if only, err := sawtooth.OnlyBatch(r.Payload); err != nil || only.ID != id || r.Key != serviceID {
				t.Fatalf("stored %+v: %s, %v", r.Message, only, err)
			}
		}
	})
}
