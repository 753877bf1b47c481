package target_test

import (
	"bufio"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/dispatch/target"
	"github.com/understudy-ha/understudy/dispatch/target/targettest"
	"github.com/understudy-ha/understudy/lease"
)

func assignment(key, id, payload string) dispatch.Assignment {
	return dispatch.Assignment{
		Message: dispatch.Message{Queue: "orders", Key: key, ID: id, ContentType: "text/plain", Payload: []byte(payload)},
		Work:    dispatch.Send, Seq: 7, Term: 1234, Attempt: 1,
	}
}

func webhook(t *testing.T, c target.WebhookConfig) *target.Webhook {
	t.Helper()
	w, err := target.NewWebhook(c)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func deadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// TestWebhookBytes pins the request to the byte, as receivers see it.
func TestWebhookBytes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan string, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		var text strings.Builder
		r := bufio.NewReader(conn)
		for !strings.HasSuffix(text.String(), "\r\n\r\nhello") {
			c, err := r.ReadByte()
			if err != nil {
				break
			}
			text.WriteByte(c)
		}
		got <- text.String()
		_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
	}()
	w := webhook(t, target.WebhookConfig{
		HTTPConfig: target.HTTPConfig{URL: "http://" + l.Addr().String() + "/hook?a=b"},
		Header:     http.Header{"x-extra": {"1"}},
	})
	a := assignment("Grüße 100%", "id-1", "hello")
	a.Headers = map[string]string{"traceparent": "00-1-2-01", "ce-type": "größer", "x-extra": "overridden"}
	if got := w.Submit(deadline(t, time.Minute), a); got.Outcome != dispatch.Done || got.Code != 204 {
		t.Errorf("answer %+v", got)
	}
	want := strings.ReplaceAll(`POST /hook?a=b HTTP/1.1
Host: `+l.Addr().String()+`
User-Agent: understudy
Content-Length: 5
Ce-Type: gr%C3%B6%C3%9Fer
Content-Type: text/plain
Idempotency-Key: id-1
Traceparent: 00-1-2-01
Understudy-Attempt: 1
Understudy-Key: Gr%C3%BC%C3%9Fe 100%25
Understudy-Queue: orders
Understudy-Sequence: 7
Understudy-Term: 1234
X-Extra: 1

hello`, "\n", "\r\n")
	if diff := cmp.Diff(want, <-got); diff != "" {
		t.Error(diff)
	}
}

// TestWebhookConflictAfterRetry: what an operator has sent again may be what a receiver's 409 is about.
func TestWebhookConflictAfterRetry(t *testing.T) {
	at := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusConflict) })
	a := assignment("k", "i", "p")
	a.Attempt, a.Retried = 1, true
	if got := webhook(t, target.WebhookConfig{HTTPConfig: target.HTTPConfig{URL: at}}).Submit(deadline(t, time.Minute), a); got.Outcome != dispatch.Uncertain {
		t.Errorf("got %+v", got)
	}
}

func TestWebhookTable(t *testing.T) {
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	type row struct {
		status  int
		header  http.Header
		attempt int
		want    dispatch.Outcome
	}
	rows := []row{
		{409, http.Header{"Understudy-Term": {"9999"}}, 1, dispatch.Busy},
		{412, http.Header{"Understudy-Term": {"9999"}}, 1, dispatch.Busy},
		{412, nil, 1, dispatch.InvalidMessage},
		{409, nil, 1, dispatch.InvalidMessage},
		{409, nil, 2, dispatch.Uncertain},
		{409, http.Header{"Retry-After": {"1"}}, 1, dispatch.Uncertain},
		{409, http.Header{"Understudy-Term": {"soon"}}, 1, dispatch.InvalidMessage},
		{503, http.Header{"Retry-After": {"3"}}, 1, dispatch.Busy},
		{503, http.Header{"Retry-After": {in(time.Hour)}}, 1, dispatch.Busy},
		{503, http.Header{"Retry-After": {"soon"}}, 1, dispatch.Uncertain},
		{303, http.Header{"Location": {"/x"}}, 1, dispatch.Uncertain},
		{202, nil, 1, dispatch.Done},
		{202, http.Header{"Location": {"/status/1"}}, 1, dispatch.Accepted},
		{202, http.Header{"Location": {"http://127.0.0.2:1/status"}}, 1, dispatch.Uncertain},
		{202, http.Header{"Location": {"/" + strings.Repeat("x", 5000)}}, 1, dispatch.Uncertain},
		{299, nil, 1, dispatch.Done},
	}
	for want, statuses := range map[dispatch.Outcome][]int{
		dispatch.Done:           {200, 201, 204, 205},
		dispatch.Misconfigured:  {301, 302, 304, 307, 308, 401, 402, 403, 404, 405, 406, 407, 410, 421, 426, 501, 505, 508, 510, 511},
		dispatch.Busy:           {425, 429},
		dispatch.InvalidMessage: {400, 411, 413, 414, 415, 422, 423, 428, 431, 451, 499},
		dispatch.Uncertain:      {408, 500, 502, 503, 504, 507, 520, 599, 700},
	} {
		for _, s := range statuses {
			rows = append(rows, row{s, nil, 1, want})
		}
	}
	var now atomic.Pointer[row]
	var posts atomic.Int32
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		posts.Add(1)
		row := now.Load()
		maps.Copy(w.Header(), row.header)
		w.WriteHeader(row.status)
		if row.status >= 400 {
			_, _ = io.WriteString(w, "because\n of   reasons\x07")
		}
	})
	hook := webhook(t, target.WebhookConfig{HTTPConfig: target.HTTPConfig{URL: at}})
	for _, r := range rows {
		t.Run(fmt.Sprintf("%d_%v_attempt_%d", r.status, r.header, r.attempt), func(t *testing.T) {
			now.Store(&r)
			posts.Store(0)
			a := assignment("k", "i", "p")
			a.Attempt = r.attempt
			got := hook.Submit(deadline(t, time.Minute), a)
			if got.Outcome != r.want || got.Code != r.status {
				t.Errorf("got %+v, want %s", got, r.want)
			}
			if r.status >= 400 && got.Detail != fmt.Sprintf("HTTP %d: because of reasons", r.status) {
				t.Errorf("detail %q", got.Detail)
			}
			if n := posts.Load(); n != 1 {
				t.Errorf("%d requests for one submission", n)
			}
			switch after := r.header.Get("Retry-After"); {
			case len(after) > 5:
				if got.RetryAfter < 50*time.Minute || got.RetryAfter > time.Hour {
					t.Errorf("retry after %v", got.RetryAfter)
				}
			case after == "3" && got.RetryAfter != 3*time.Second:
				t.Errorf("retry after %v", got.RetryAfter)
			}
		})
	}
}

func TestWebhookFaults(t *testing.T) {
	for name, c := range map[string]struct {
		fault   targettest.Fault
		want    dispatch.Outcome
		effects int
	}{
		"good":                       {targettest.Fault{}, dispatch.Done, 1},
		"slow":                       {targettest.Fault{Delay: time.Millisecond}, dispatch.Done, 1},
		"cut before it was done":     {targettest.Fault{Cut: true}, dispatch.Uncertain, 0},
		"cut after it was done":      {targettest.Fault{Cut: true, After: true}, dispatch.Uncertain, 1},
		"half a body":                {targettest.Fault{Half: true, After: true}, dispatch.Uncertain, 1},
		"500 after it was done":      {targettest.Fault{Status: 500, After: true}, dispatch.Uncertain, 1},
		"an answer without end":      {targettest.Fault{Status: 422, Body: strings.Repeat("x", 1<<20)}, dispatch.InvalidMessage, 0},
		"garbage where none is read": {targettest.Fault{Garbage: true, After: true}, dispatch.Done, 1},
	} {
		t.Run(name, func(t *testing.T) {
			sink := &targettest.Sink{Fault: func(targettest.Request) targettest.Fault { return c.fault }}
			hook := webhook(t, target.WebhookConfig{HTTPConfig: target.HTTPConfig{URL: serve(t, sink.ServeHTTP)}})
			for i := range 3 { // the second and third find open connections
				got := hook.Submit(deadline(t, time.Minute), assignment("k", strconv.Itoa(i), ""))
				if got.Outcome != c.want {
					t.Errorf("got %+v, want %s", got, c.want)
				}
			}
			effects := 0
			for _, r := range sink.Requests() {
				if r.Effect {
					effects++
				}
			}
			if effects != 3*c.effects || len(sink.Requests()) != 3 {
				t.Errorf("%d effects of %d requests", effects, len(sink.Requests()))
			}
		})
	}
}

func TestWebhookNever(t *testing.T) {
	arrived := make(chan struct{})
	sink := &targettest.Sink{Fault: func(targettest.Request) targettest.Fault { close(arrived); return targettest.Fault{Never: true} }}
	hook := webhook(t, target.WebhookConfig{HTTPConfig: target.HTTPConfig{URL: serve(t, sink.ServeHTTP)}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	if got := hook.Submit(ctx, assignment("k", "i", "p")); got.Outcome != dispatch.Uncertain {
		t.Errorf("got %+v", got)
	}
}

// TestWebhookUpgrade: an unasked "101 Switching Protocols", after which nothing comes, ends a submission.
func TestWebhookUpgrade(t *testing.T) {
	hook := webhook(t, target.WebhookConfig{HTTPConfig: target.HTTPConfig{URL: serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "x")
		w.WriteHeader(http.StatusSwitchingProtocols)
	})}})
	result := make(chan dispatch.Answer, 1)
	go func() { result <- hook.Submit(deadline(t, 10*time.Second), assignment("k", "i", "p")) }()
	select {
	case got := <-result:
		if got.Outcome != dispatch.Uncertain || got.Code != http.StatusSwitchingProtocols {
			t.Errorf("got %+v", got)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the submission does not end with its deadline")
	}
}

// TestWebhookClosing: a connection that the receiver closes while a request is on
// it tells nothing about the request, so that it must not be sent again unasked.
func TestWebhookClosing(t *testing.T) {
	for _, payload := range []string{"", "payload"} {
		var requests atomic.Int32
		sink := serve(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if requests.Add(1) > 1 {
				panic(http.ErrAbortHandler)
			}
		})
		hook := webhook(t, target.WebhookConfig{HTTPConfig: target.HTTPConfig{URL: sink, IdleTimeout: time.Minute}})
		if got := hook.Submit(deadline(t, time.Minute), assignment("k", "1", payload)); got.Outcome != dispatch.Done {
			t.Fatalf("got %+v", got)
		}
		if got := hook.Submit(deadline(t, time.Minute), assignment("k", "2", payload)); got.Outcome != dispatch.Uncertain {
			t.Errorf("got %+v", got)
		}
		if n := requests.Load(); n != 2 {
			t.Errorf("payload %q: the receiver saw %d requests for two submissions", payload, n)
		}
	}
}

func TestWebhookNotSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := "http://" + l.Addr().String()
	l.Close()
	hook := webhook(t, target.WebhookConfig{HTTPConfig: target.HTTPConfig{URL: refused}})
	if got := hook.Submit(deadline(t, time.Minute), assignment("k", "i", "p")); got.Outcome != dispatch.Busy || got.Code != 0 {
		t.Errorf("refused: %+v", got)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if got := hook.Submit(over, assignment("k", "i", "p")); got.Outcome != dispatch.Busy {
		t.Errorf("stopped before it began: %+v", got)
	}
}

func TestWebhookTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // it complains of the first client
	s.StartTLS()
	defer s.Close()
	strange := webhook(t, target.WebhookConfig{HTTPConfig: target.HTTPConfig{URL: s.URL}})
	if got := strange.Submit(deadline(t, time.Minute), assignment("k", "i", "p")); got.Outcome != dispatch.Misconfigured {
		t.Errorf("a certificate that nobody vouches for: %+v", got)
	}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	known := webhook(t, target.WebhookConfig{HTTPConfig: target.HTTPConfig{URL: s.URL, CAFile: ca}})
	if got := known.Submit(deadline(t, time.Minute), assignment("k", "i", "p")); got.Outcome != dispatch.Done {
		t.Errorf("got %+v", got)
	}
}

func TestWebhookToken(t *testing.T) {
	var seen atomic.Value
	at := serve(t, func(_ http.ResponseWriter, r *http.Request) { seen.Store(r.Header.Get("Authorization")) })
	file := filepath.Join(t.TempDir(), "token")
	config := target.WebhookConfig{HTTPConfig: target.HTTPConfig{URL: at, TokenFile: file}}
	for _, bad := range []string{"", "two words", "a\nb"} {
		if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := target.NewWebhook(config); !errors.Is(err, lease.ErrInvalid) || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("token %q: %v", bad, err)
		}
	}
	if err := os.WriteFile(file, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	hook := webhook(t, config)
	if got := hook.Submit(deadline(t, time.Minute), assignment("k", "i", "p")); got.Outcome != dispatch.Done || seen.Load() != "Bearer s3cret" {
		t.Errorf("got %+v with %v", got, seen.Load())
	}
	if strings.Contains(hook.Name(), "s3cret") {
		t.Error(hook.Name())
	}
}

func TestWebhookSignature(t *testing.T) {
	secret := []byte("a secret of some length")
	var checked atomic.Int32
	sink := &targettest.Sink{Check: func(r *http.Request, body []byte) error {
		now, age := time.Now(), time.Hour
		if err := target.Verify(secret, r.Header, body, now, age); err != nil {
			return err
		}
		for name, spoil := range map[string]func(h http.Header) ([]byte, []byte, time.Time){
			"term": func(h http.Header) ([]byte, []byte, time.Time) {
				h.Set(target.HeaderTerm, "999999")
				return secret, body, now
			},
			"id": func(h http.Header) ([]byte, []byte, time.Time) {
				h.Set(target.HeaderID, "other")
				return secret, body, now
			},
			"body":   func(http.Header) ([]byte, []byte, time.Time) { return secret, []byte("other"), now },
			"secret": func(http.Header) ([]byte, []byte, time.Time) { return []byte("other"), body, now },
			"age":    func(http.Header) ([]byte, []byte, time.Time) { return secret, body, now.Add(2 * age) },
			"future": func(http.Header) ([]byte, []byte, time.Time) { return secret, body, now.Add(-2 * age) },
			"no header": func(h http.Header) ([]byte, []byte, time.Time) {
				h.Del(target.HeaderSignature)
				return secret, body, now
			},
			"half of it": func(h http.Header) ([]byte, []byte, time.Time) {
				h.Set(target.HeaderSignature, "t=1,v1=")
				return secret, body, time.Unix(1, 0)
			},
		} {
			h := r.Header.Clone()
			s, b, at := spoil(h)
			if err := target.Verify(s, h, b, at, age); !errors.Is(err, target.ErrSignature) {
				t.Errorf("%s: %v", name, err)
			}
		}
		checked.Add(1)
		return nil
	}}
	hook := webhook(t, target.WebhookConfig{HTTPConfig: target.HTTPConfig{URL: serve(t, sink.ServeHTTP)}, Secret: secret, Signature: target.UnderstudySignature})
	for _, key := range []string{"plain", "Ключ", "a, b; c=\"d\""} {
		if got := hook.Submit(deadline(t, time.Minute), assignment(key, "id of "+key, "payload")); got.Outcome != dispatch.Done {
			t.Errorf("%s: %+v", key, got)
		}
		if last := sink.Requests()[len(sink.Requests())-1]; last.Key != key || last.ID != "id of "+key {
			t.Errorf("the receiver read key %q, id %q", last.Key, last.ID)
		}
	}
	if checked.Load() != 3 {
		t.Errorf("%d signatures were checked", checked.Load())
	}
}

func TestWebhookLater(t *testing.T) {
	sink := &targettest.Sink{Later: 2}
	hook := webhook(t, target.WebhookConfig{HTTPConfig: target.HTTPConfig{URL: serve(t, sink.ServeHTTP)}})
	a := assignment("k", "an id/with?all&sorts", "p")
	answer := hook.Submit(deadline(t, time.Minute), a)
	if answer.Outcome != dispatch.Accepted || answer.Link == "" {
		t.Fatalf("got %+v", answer)
	}
	a.Link, a.Work = answer.Link, dispatch.Poll
	lost := assignment("k2", "lost", "p")
	lost.Link = strings.ReplaceAll(answer.Link, "an", "no")
	none := assignment("k3", "none", "p")
	foreign := assignment("k4", "foreign", "p")
	foreign.Link = "http://127.0.0.2:9/x"
	for _, want := range []dispatch.Outcome{dispatch.Accepted, dispatch.Done} {
		got := outcomes(hook.Status(deadline(t, time.Minute), []dispatch.Assignment{a, lost, none, foreign}))
		if diff := cmp.Diff([]dispatch.Outcome{want, dispatch.NotFound, dispatch.NotFound, dispatch.Uncertain}, got); diff != "" {
			t.Error(diff)
		}
	}
}

// TestWebhookLinkForgotten: that a location is gone says nothing where the receiver has a status URL: it is asked.
func TestWebhookLinkForgotten(t *testing.T) {
	answers := map[string]int{"/jobs/gone": 404, "/status/known": 204, "/jobs/invalid": 410, "/status/": 404}
	at := serve(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(answers[r.URL.Path]) })
	hook := webhook(t, target.WebhookConfig{HTTPConfig: target.HTTPConfig{URL: at}, StatusURL: at + "/status/{id}", NotFoundIsFinal: true})
	for _, c := range []struct {
		id, link string
		want     dispatch.Outcome
	}{
		{"known", "/jobs/gone", dispatch.Done},
		{"", "/jobs/gone", dispatch.NotFound},
		{"known", "/jobs/invalid", dispatch.InvalidMessage},
	} {
		a := assignment("k", c.id, "p")
		a.Link = c.link
		if got := hook.Status(deadline(t, time.Minute), []dispatch.Assignment{a})[0]; got.Outcome != c.want {
			t.Errorf("%+v: got %+v", c, got)
		}
	}
}

func outcomes(as []dispatch.Answer) []dispatch.Outcome {
	out := make([]dispatch.Outcome, len(as))
	for i, a := range as {
		out[i] = a.Outcome
	}
	return out
}

func TestWebhookAskTable(t *testing.T) {
	json := "application/json; charset=utf-8"
	for _, c := range []struct {
		status     int
		kind, body string
		want       dispatch.Outcome
	}{
		{200, json, `{"status": "committed"}`, dispatch.Done},
		{200, json, `{"status": "PENDING", "message": "soon"}`, dispatch.Accepted},
		{200, json, `{"status": "valid"}`, dispatch.Executed},
		{200, "application/problem+json", `{"status": "invalid", "message": "no"}`, dispatch.InvalidMessage},
		{200, json, `{"status": "unknown"}`, dispatch.NotFound},
		{200, json, `{"status": "running"}`, dispatch.Uncertain},
		{200, json, `{"state": "committed"}`, dispatch.Uncertain},
		{200, json, `{"status": 1}`, dispatch.Uncertain},
		{200, json, `{"status": "comm`, dispatch.Uncertain},
		{200, json, ``, dispatch.Uncertain},
		{200, "text/plain", "whatever", dispatch.Done},
		{204, "", "", dispatch.Done},
		{303, "", "", dispatch.Done},
		{202, json, `{"status": "committed"}`, dispatch.Accepted},
		{404, "", "", dispatch.NotFound},
		{410, "", "gone", dispatch.InvalidMessage},
		{400, "", "", dispatch.Uncertain},
		{401, "", "", dispatch.Uncertain},
		{429, "", "", dispatch.Uncertain},
		{500, json, `{"status": "committed"}`, dispatch.Uncertain},
		{503, "", "", dispatch.Uncertain},
	} {
		at := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.RawQuery != "of=a%2Fb%26c%20%C3%BC" {
				t.Errorf("asked with %s", r.URL.RawQuery)
			}
			w.Header().Set("Content-Type", c.kind)
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		})
		hook := webhook(t, target.WebhookConfig{HTTPConfig: target.HTTPConfig{URL: "http://127.0.0.1:9"}, StatusURL: at + "/?of={id}", NotFoundIsFinal: true})
		got := hook.Status(deadline(t, time.Minute), []dispatch.Assignment{assignment("k", "a/b&c ü", "")})
		if got[0].Outcome != c.want {
			t.Errorf("%d %s %s: got %+v, want %s", c.status, c.kind, c.body, got[0], c.want)
		}
	}
}

func TestWebhookConfig(t *testing.T) {
	good := target.WebhookConfig{HTTPConfig: target.HTTPConfig{URL: "http://127.0.0.1:9/"}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*target.WebhookConfig){
		"no url":                 func(c *target.WebhookConfig) { c.URL = "" },
		"another scheme":         func(c *target.WebhookConfig) { c.URL = "ftp://host/" },
		"no host":                func(c *target.WebhookConfig) { c.URL = "http:///x" },
		"a password":             func(c *target.WebhookConfig) { c.URL = "http://u:hidden@host/" },
		"a password, broken":     func(c *target.WebhookConfig) { c.URL = "http://u:hidden@ho st/%" },
		"no id in the status":    func(c *target.WebhookConfig) { c.StatusURL = "http://host/" },
		"remembers what":         func(c *target.WebhookConfig) { c.NotFoundIsFinal = true },
		"a header of ours":       func(c *target.WebhookConfig) { c.Header = http.Header{"understudy-term": {"1"}} },
		"the id":                 func(c *target.WebhookConfig) { c.Header = http.Header{"idempotency-key": {"1"}} },
		"no certificates":        func(c *target.WebhookConfig) { c.CAFile = "/dev/null" },
		"certificates not found": func(c *target.WebhookConfig) { c.CAFile = "/nowhere" },
		"a broken secret":        func(c *target.WebhookConfig) { c.Secret = []byte("whsec_hidden!") },
		"an unknown signature":   func(c *target.WebhookConfig) { c.Signature = "rot13" },
		"another signature":      func(c *target.WebhookConfig) { c.Header = http.Header{"webhook-signature": {"v1,x"}} },
		"twice, and not twice":   func(c *target.WebhookConfig) { c.AtMostOnce, c.Deduplicates = true, true },
		"token not found":        func(c *target.WebhookConfig) { c.TokenFile = "/nowhere" },
	} {
		c := good
		spoil(&c)
		if _, err := target.NewWebhook(c); !errors.Is(err, lease.ErrInvalid) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", name, err)
		}
	}
	hook := webhook(t, target.WebhookConfig{HTTPConfig: target.HTTPConfig{URL: "http://127.0.0.1:9/a/?key=hidden"}})
	if got := hook.Name(); got != "webhook http://127.0.0.1:9/a" {
		t.Error(got)
	}
	want := dispatch.Semantics{Resend: true, HasStatus: true, StatusLimit: 1, Forgets: true}
	if diff := cmp.Diff(want, hook.Semantics()); diff != "" {
		t.Error(diff)
	}
	best := webhook(t, target.WebhookConfig{
		HTTPConfig: target.HTTPConfig{URL: "http://h/"}, StatusURL: "http://h/{id}", Deduplicates: true, NotFoundIsFinal: true,
	})
	want = dispatch.Semantics{Resend: true, Deduplicates: true, HasStatus: true, StatusLimit: 1}
	if diff := cmp.Diff(want, best.Semantics()); diff != "" {
		t.Error(diff)
	}
}

// TestWebhookSecretsAreNotRepeated: what was sent to a receiver so that it lets the request in, nobody is shown, even if the
// receiver repeats it.
func TestWebhookSecretsAreNotRepeated(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("s3cret-token"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Path[1:])
		said := "you sent " + r.Header.Get("Authorization") + " and " + r.Header.Get("X-Key")
		w.Header().Set("Location", "/login?as="+r.Header.Get("X-Key"))
		if status == http.StatusOK {
			w.Header().Set("Content-Type", "application/json")
			said = fmt.Sprintf(`{"status":"invalid","message":%q}`, said)
		} else {
			said = strings.Repeat("x", 477) + " " + said // a part of a secret is one, too
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, said)
	})
	header := http.Header{"X-Key": {"ApiKey s3cret-key"}, "X-Word": {"you"}, "Accept": {"text/plain"}}
	for _, status := range []string{"/301", "/403", "/500"} {
		hook := webhook(t, target.WebhookConfig{HTTPConfig: target.HTTPConfig{URL: at + status, TokenFile: file}, Header: header})
		if got := hook.Submit(deadline(t, time.Minute), assignment("k", "i", "p")); strings.Contains(got.Detail, "s3cre") || !strings.Contains(got.Detail, "[s") {
			t.Errorf("%s: detail %q", status, got.Detail)
		}
	}
	hook := webhook(t, target.WebhookConfig{HTTPConfig: target.HTTPConfig{URL: at, TokenFile: file}, Header: header, StatusURL: at + "/200?id={id}"})
	got := hook.Status(deadline(t, time.Minute), []dispatch.Assignment{assignment("k", "i", "p")})[0]
	if got.Outcome != dispatch.InvalidMessage || got.Detail != "you sent Bearer [secret] and [secret]" {
		t.Errorf("status: %+v", got)
	}
	moved := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "https://127.0.0.2:1"+r.URL.RequestURI())
		w.WriteHeader(http.StatusMovedPermanently)
		_, _ = io.WriteString(w, "send text/plain, "+r.URL.Query().Get("key"))
	})
	hook = webhook(t, target.WebhookConfig{HTTPConfig: target.HTTPConfig{URL: moved + "/hook?key=s3cret%2Fkey"}, Header: header})
	if got := hook.Submit(deadline(t, time.Minute), assignment("k", "i", "p")); strings.Contains(got.Detail, "s3cre") || !strings.Contains(got.Detail, "[secret]") {
		t.Errorf("a query: detail %q", got.Detail)
	}
}

// TestWebhookFinal: where every 2xx is final, a location is not asked.
func TestWebhookFinal(t *testing.T) {
	methods := make(chan string, 10)
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		methods <- r.Method
		w.Header().Set("Location", "http://127.0.0.2:1/later")
		w.WriteHeader(http.StatusAccepted)
	})
	hook := webhook(t, target.WebhookConfig{HTTPConfig: target.HTTPConfig{URL: at}, Method: http.MethodPatch, Final: true})
	if hook.Semantics().HasStatus {
		t.Error("it can be asked")
	}
	if got := hook.Submit(deadline(t, time.Minute), assignment("k", "i", "p")); got.Outcome != dispatch.Done || got.Code != 202 {
		t.Errorf("got %+v", got)
	}
	if m := <-methods; m != http.MethodPatch {
		t.Errorf("method %s", m)
	}
}

func TestWebhookConfigRefused(t *testing.T) {
	for name, change := range map[string]func(*target.WebhookConfig){
		"method":                   func(c *target.WebhookConfig) { c.Method = http.MethodGet },
		"final, and asked":         func(c *target.WebhookConfig) { c.Final, c.StatusURL = true, "http://h/{id}" },
		"a header's name":          func(c *target.WebhookConfig) { c.Header = http.Header{"X Y": {"1"}} },
		"no name":                  func(c *target.WebhookConfig) { c.Header = http.Header{"": {"1"}} },
		"a header's value":         func(c *target.WebhookConfig) { c.Header = http.Header{"X": {"1\r\nY: 2"}} },
		"no URL, and not shown":    func(c *target.WebhookConfig) { c.URL = "hooks.example.com/s3cret" },
		"a file of no certificate": func(c *target.WebhookConfig) { c.CAFile = "webhook_test.go" },
	} {
		t.Run(name, func(t *testing.T) {
			c := target.WebhookConfig{HTTPConfig: target.HTTPConfig{URL: "http://127.0.0.1:1"}}
			change(&c)
			if _, err := target.NewWebhook(c); !errors.Is(err, lease.ErrInvalid) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("got %v", err)
			}
		})
	}
}
