package messagerouter_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/internal/messagerouter"
	"github.com/understudy-ha/understudy/internal/secret"
	"github.com/understudy-ha/understudy/internal/testkit/fakerouter"
	"github.com/understudy-ha/understudy/internal/untrusted"
	"github.com/understudy-ha/understudy/lease"
)

func client(t *testing.T, c messagerouter.Config) *messagerouter.Client {
	t.Helper()
	out, err := messagerouter.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(out.Close)
	return out
}

func texts(items []json.RawMessage) []string {
	var out []string
	for _, i := range items {
		var s string
		if json.Unmarshal(i, &s) != nil {
			s = string(i)
		}
		out = append(out, s)
	}
	return out
}

func same(t *testing.T, got, want []string) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("messages (-want +got):\n%s", d)
	}
}

func TestConsume(t *testing.T) {
	want := []string{`{"a":1}`, `say "mrstatus" \ ]`, "", "ümläut \u2028 <b>", `[1,2]`}
	for _, kind := range []string{"texts", "objects", "pretty"} {
		t.Run(kind, func(t *testing.T) {
			router := fakerouter.New(t)
			want := want
			switch kind {
			case "objects":
				router.Objects()
				want = []string{`{"a": [1, "]"]}`, `7`, `[{"mrstatus":3001}]`, `text "x"`}[:3]
			case "pretty":
				router.Pretty()
			}
			c := client(t, messagerouter.Config{Topic: router.URL("t") + "/"})
			router.Publish("t", want...)
			first, err := c.Consume(t.Context(), "g", "c", time.Second, 2)
			if err != nil {
				t.Fatal(err)
			}
			rest, err := c.Consume(t.Context(), "g", "c", time.Second, 0)
			if err != nil {
				t.Fatal(err)
			}
			same(t, texts(append(first, rest...)), want)
			none, err := c.Consume(t.Context(), "g", "c", 100*time.Millisecond, 0)
			if err != nil || len(none) != 0 {
				t.Fatalf("got %v, %v from an empty topic", none, err)
			}
			all, err := c.Consume(t.Context(), "another group", "c", time.Second, 0)
			if err != nil {
				t.Fatal(err)
			}
			same(t, texts(all), want)
			got := router.Requests()[0]
			if diff := cmp.Diff(fakerouter.Request{Method: "GET", Topic: "t", Group: "g", Consumer: "c", Wait: time.Second, Limit: 2}, got); diff != "" {
				t.Errorf("the router was asked something else:\n%s", diff)
			}
		})
	}
}

// TestRefusals: what is no message, and how it is told.
func TestRefusals(t *testing.T) {
	page := "<html>\n\x00Bad\tgateway" + strings.Repeat("x", 1000)
	for _, c := range []struct {
		name  string
		fault fakerouter.Fault
		want  messagerouter.Error
	}{
		{"twice", fakerouter.Fault{Status: 409, Code: 5012, Header: http.Header{"Retry-After": {"7"}}}, messagerouter.Error{Status: 409, Code: messagerouter.CodeTwice, Message: "Conflict", RetryAfter: 7 * time.Second}},
		{"no topic", fakerouter.Fault{Status: 404, Code: 3001}, messagerouter.Error{Status: 404, Code: messagerouter.CodeNotFound, Message: "Not Found"}},
		{"called good", fakerouter.Fault{Body: `{"status":"503","mrstatus":3002,"message":"away"}`}, messagerouter.Error{Status: 503, Code: 3002, Message: "away"}},
		{"odd", fakerouter.Fault{Body: ` {"mrstatus":"1004","message":{"x":1}}`}, messagerouter.Error{Status: 500, Code: 1004}},
		{"page", fakerouter.Fault{Status: 502, Body: page}, messagerouter.Error{Status: 502, Message: "<html> Bad gateway" + strings.Repeat("x", untrusted.MaxWords-len("<html>\n\x00Bad\tgateway"))}},
		{"redirect", fakerouter.Fault{Status: 302, Header: http.Header{"Location": {"http://elsewhere.invalid/"}}}, messagerouter.Error{Status: 302, Message: "it redirects to http://elsewhere.invalid/; configure that URL if you trust it"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			router := fakerouter.New(t)
			router.Fail(c.fault, c.fault)
			cl := client(t, messagerouter.Config{Topic: router.URL("t")})
			items, err := cl.Consume(t.Context(), "g", "c", 0, 0)
			got, ok := errors.AsType[*messagerouter.Error](err)
			if !ok || len(items) != 0 {
				t.Fatalf("got %v, %v", items, err)
			}
			if c.name == "redirect" {
				got.Code = 0
			}
			if diff := cmp.Diff(c.want, *got); diff != "" {
				t.Error(diff)
			}
			if err := cl.Publish(t.Context(), []byte("x")); !errors.As(err, &got) {
				t.Errorf("published: %v", err)
			}
		})
	}
}

func TestBrokenAnswers(t *testing.T) {
	router := fakerouter.New(t)
	cl := client(t, messagerouter.Config{Topic: router.URL("t"), MaxAnswer: 4000})
	ask := func(name string, f fakerouter.Fault, wait time.Duration, want error, items ...string) {
		t.Helper()
		router.Fail(f)
		got, err := cl.Consume(t.Context(), "g", "c", wait, 0)
		if err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: error %v, want %v", name, err, want)
		}
		if diff := cmp.Diff(items, texts(got)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	ask("no JSON", fakerouter.Fault{Body: `<html>`}, 0, messagerouter.ErrAnswer)
	ask("blank", fakerouter.Fault{Body: ` `}, 0, messagerouter.ErrAnswer)
	ask("broken in the middle", fakerouter.Fault{Body: `["a",{"b":1},"c" "d"]`}, 0, messagerouter.ErrAnswer, "a", `{"b":1}`)
	ask("no end", fakerouter.Fault{Body: `["a",{"b":1}`}, 0, messagerouter.ErrAnswer, "a", `{"b":1}`)
	ask("half a number", fakerouter.Fault{Body: `["a",1`}, 0, messagerouter.ErrAnswer, "a")
	ask("half a text", fakerouter.Fault{Body: `["a","\"`}, 0, messagerouter.ErrAnswer, "a")
	ask("more", fakerouter.Fault{Body: `["a"]{}`}, 0, messagerouter.ErrAnswer, "a")
	ask("too large", fakerouter.Fault{Body: `["a","` + strings.Repeat("b", 5000) + `"]`}, 0, messagerouter.ErrTooLarge, "a")
	ask("cut", fakerouter.Fault{Cut: true}, 0, nil)
	router.Publish("t", "one", "two", strings.Repeat("3", 40))
	ask("half", fakerouter.Fault{Half: true}, time.Second, nil, "one", "two")
	if got := router.Offset("t", "g"); got != 3 {
		t.Errorf("the router has %d messages read; the half answer took 3", got)
	}
}

// TestD06 The original has no time-outs: one answer that never comes ends its intake.
func TestD06HangingRouter(t *testing.T) {
	router := fakerouter.New(t)
	cl := client(t, messagerouter.Config{Topic: router.URL("t"), Timeout: time.Second})
	router.Fail(fakerouter.Fault{Hang: true}, fakerouter.Fault{Hang: true})
	if _, err := cl.Consume(t.Context(), "g", "c", 20*time.Millisecond, 0); err == nil || !strings.Contains(err.Error(), "in time") {
		t.Errorf("consume: %v", err)
	}
	if err := cl.Publish(t.Context(), []byte("x")); err == nil || !strings.Contains(err.Error(), "in time") {
		t.Errorf("publish: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := cl.Consume(ctx, "g", "c", time.Minute, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestUpgrade: an unasked "101 Switching Protocols", after which nothing comes, ends a request.
func TestUpgrade(t *testing.T) {
	router := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "x")
		w.WriteHeader(http.StatusSwitchingProtocols)
	}))
	defer router.Close()
	cl := client(t, messagerouter.Config{Topic: router.URL + "/events/t"})
	result := make(chan error, 1)
	go func() { result <- cl.Publish(t.Context(), []byte("x")) }()
	select {
	case err := <-result:
		if answered, ok := errors.AsType[*messagerouter.Error](err); !ok || answered.Status != http.StatusSwitchingProtocols {
			t.Errorf("got %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the request does not end with its time-out")
	}
}

func TestDown(t *testing.T) {
	router := fakerouter.New(t)
	cl := client(t, messagerouter.Config{Topic: router.URL("t")})
	router.Down()
	if _, err := cl.Consume(t.Context(), "g", "c", 0, 0); !errors.Is(err, messagerouter.ErrNotSent) {
		t.Errorf("down: %v", err)
	}
	router.Up()
	if _, err := cl.Consume(t.Context(), "g", "c", 0, 0); err != nil {
		t.Errorf("up again: %v", err)
	}
}

// TestD13 One consumer that polls twice is refused by the router, and told so clearly.
func TestD13Twice(t *testing.T) {
	router := fakerouter.New(t)
	cl := client(t, messagerouter.Config{Topic: router.URL("t")})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// Whichever of the two comes first is served, for as long as it waits.
	refusals := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := cl.Consume(ctx, "g", "c", time.Minute, 0)
			refusals <- err
		}()
	}
	err := <-refusals
	if refused, ok := errors.AsType[*messagerouter.Error](err); !ok || refused.Status != 409 || refused.Code != messagerouter.CodeTwice {
		t.Errorf("one was told %v", err)
	}
	cancel()
	if err := <-refusals; !errors.Is(err, context.Canceled) {
		t.Errorf("the other ended with %v", err)
	}
}

// TestD05 A publication counts when the router says that it took it, all of it.
func TestD05Publish(t *testing.T) {
	router := fakerouter.New(t)
	cl := client(t, messagerouter.Config{Topic: router.URL("t")})
	for _, c := range []struct {
		name, line string
		fault      *fakerouter.Fault
		code       int
		err        error
		kept       []string
	}{
		{name: "raw", line: "{broken", kept: []string{"{broken"}},
		{name: "nothing", line: " ", err: lease.ErrInvalid},
		{name: "two lines", line: "a\nb", err: lease.ErrInvalid},
		{name: "none", line: "a", fault: &fakerouter.Fault{Count: -1}, code: messagerouter.CodePartial},
		{name: "no count", line: "a", fault: &fakerouter.Fault{Body: `{"serverTimeMs":1}`}, err: messagerouter.ErrAnswer},
		{name: "a page", line: "a", fault: &fakerouter.Fault{Body: `<p>Welcome`}, err: messagerouter.ErrAnswer},
		{name: "said to be good", line: "a", fault: &fakerouter.Fault{Body: `{"status":429,"mrstatus":301}`}, code: 301},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := len(router.Messages("t"))
			if c.fault != nil {
				router.Fail(*c.fault)
			}
			err := cl.Publish(t.Context(), []byte(c.line))
			refused, _ := errors.AsType[*messagerouter.Error](err)
			switch {
			case c.code != 0 && (refused == nil || refused.Code != c.code):
				t.Errorf("error %v, want code %d", err, c.code)
			case c.err != nil && !errors.Is(err, c.err):
				t.Errorf("error %v, want %v", err, c.err)
			case c.err == nil && c.code == 0 && err != nil:
				t.Error(err)
			}
			if diff := cmp.Diff(c.kept, append([]string(nil), router.Messages("t")[before:]...)); diff != "" {
				t.Errorf("the topic has (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAuthentication(t *testing.T) {
	router := fakerouter.New(t)
	router.Guard("ann", "s3cret")
	for password, want := range map[string]int{"s3cret": 0, "other": 4001} {
		cl := client(t, messagerouter.Config{Topic: router.URL("t"), User: "ann", Password: secret.Text(password)})
		err := cl.Publish(t.Context(), []byte("x"))
		refused, _ := errors.AsType[*messagerouter.Error](err)
		if got := refused; want == 0 && err != nil || want != 0 && (got == nil || got.Code != want) {
			t.Errorf("password %q: %v", password, err)
		}
	}
}

func TestTLS(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 {
			t.Errorf("it speaks %s", r.Proto)
		}
		_, _ = w.Write([]byte(`["a"]`))
	}))
	t.Cleanup(server.Close)
	server.Config.ErrorLog = nil
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	trusting := client(t, messagerouter.Config{Topic: server.URL + "/events/t", TLS: &tls.Config{RootCAs: pool}})
	items, err := trusting.Consume(t.Context(), "g", "c", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	same(t, texts(items), []string{"a"})
}

// TestD19 No text form shows a secret.
func TestD19Secrets(t *testing.T) {
	c := messagerouter.Config{Topic: "http://router.invalid/events/t", User: "ann", Password: "s3cret"}
	cl := client(t, c)
	for _, shown := range []string{fmt.Sprintf("%v %+v %#v", c, c, c), fmt.Sprintf("%v %+v %#v", cl, cl, cl)} {
		if strings.Contains(shown, "s3cret") {
			t.Errorf("it shows the password: %s", shown)
		}
	}
	for _, topic := range []string{"http://ann:s3cret@host/events/t", "http://ann:s3cret@ho st/%zz"} {
		if err := (messagerouter.Config{Topic: topic}).Validate(); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", topic, err)
		}
	}
}

func TestValidate(t *testing.T) {
	good := messagerouter.Config{Topic: "https://router:3905/events/site7.HB_IN"}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for _, c := range []messagerouter.Config{
		{}, {Topic: "router/events/t"}, {Topic: "http://router"}, {Topic: "http://router/t?x=1"}, {Topic: "ftp://router/t"},
		{Topic: good.Topic, Password: "x"}, {Topic: good.Topic, User: "a:b"}, {Topic: good.Topic, Timeout: -1}, {Topic: good.Topic, MaxAnswer: -1},
	} {
		if err := c.Validate(); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%v: %v", c, err)
		}
		if _, err := messagerouter.New(c); err == nil {
			t.Errorf("%v was taken", c)
		}
	}
	for _, name := range []string{"", ".", "..", "a/b", "a\nb", strings.Repeat("x", 201)} {
		if err := messagerouter.ValidateConsumer("g", name); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("consumer %q: %v", name, err)
		}
	}
	cl := client(t, good)
	if _, err := cl.Consume(t.Context(), "g", "c", time.Hour, 0); !errors.Is(err, lease.ErrInvalid) {
		t.Error(err)
	}
}
