package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/memory"
)

const token = "a-token-for-the-client"

// enough is how long a test waits for what takes milliseconds: a busy machine is given more.
const enough = 2 * time.Minute

// serve starts the API on a store in memory, with what is in front of it.
func serve(t *testing.T, front func(http.Handler) http.Handler) (*memory.Store, *client.Client) {
	t.Helper()
	st := memory.New(nil)
	s, err := api.New(api.Config{Store: st, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	h := s.Handler()
	if front != nil {
		h = front(h)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(func() { cancel(); <-done; srv.Close() })
	return st, connect(t, srv.URL, token)
}

func connect(t *testing.T, url, token string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{URL: url, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func take(t *testing.T, st *memory.Store, role, name string) lease.Lease {
	t.Helper()
	n := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance(name, "10.0.0.1:80"), Timing: lease.Timing{Interval: time.Minute, Timeout: time.Hour}}
	if _, err := st.StartSession(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	l, err := st.Acquire(t.Context(), lease.Expectation{Lease: lease.ID{Space: "role", Key: role}, Session: n.ID})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	var answer *client.Error
	if !errors.As(err, &answer) || answer.Code != code || answer.Error() == "" {
		t.Errorf("got %v, want the code %s", err, code)
	}
}

func TestRolesWhoResignHistory(t *testing.T) {
	st, c := serve(t, nil)
	const role = "a/b ü?%2F"
	l := take(t, st, role, "web-1")
	roles, err := c.Roles(t.Context())
	if err != nil || len(roles) != 1 || roles[0].Role != role || roles[0].Primaries[0].Name != "web-1" || roles[0].Term != l.Term {
		t.Fatalf("roles %+v, %v", roles, err)
	}
	who, err := c.Role(t.Context(), role)
	if err != nil || who.Name != "web-1" || who.Address != "10.0.0.1:80" || who.Term != l.Term || who.ExpiresInMS == 0 || who.Since.IsZero() {
		t.Errorf("who %+v, %v", who, err)
	}
	_, err = c.Role(t.Context(), "nothing")
	wantCode(t, err, "vacant")
	_, err = c.Resign(t.Context(), role, apitype.ResignRequest{To: "nobody"})
	wantCode(t, err, "invalid")
	asked, err := c.Resign(t.Context(), role, apitype.ResignRequest{By: "alice@ops"})
	if err != nil || len(asked.Primaries) != 1 || asked.Primaries[0].Name != "web-1" {
		t.Fatalf("asked %+v, %v", asked, err)
	}
	events, err := c.History(t.Context(), client.Query{Subject: role, Limit: 1})
	if err != nil || len(events) != 1 || !strings.Contains(events[0].Reason, "alice@ops") || events[0].ID == 0 {
		t.Errorf("history %+v, %v", events, err)
	}
	if events, err = c.History(t.Context(), client.Query{Before: events[0].ID}); err != nil || len(events) != 1 || events[0].Reason != history.Vacant {
		t.Errorf("history before %+v, %v", events, err)
	}
}

func TestWrongToken(t *testing.T) {
	srv := httptest.NewServer(nil)
	srv.Close()
	if _, err := connect(t, srv.URL, "").Roles(t.Context()); err == nil {
		t.Error("a server that is not there answered")
	}
	s, err := api.New(api.Config{Store: memory.New(nil), Token: token})
	if err != nil {
		t.Fatal(err)
	}
	srv = httptest.NewServer(s.Handler())
	defer srv.Close()
	c := connect(t, srv.URL, "not-the-token-at-all")
	_, err = c.Roles(t.Context())
	wantCode(t, err, "unauthorized")
	wantCode(t, c.Events(t.Context(), client.Follow{}, nil), "unauthorized")
}

func TestNotThisAPI(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	_, err := connect(t, srv.URL, "").Roles(t.Context())
	wantCode(t, err, "not_understudy")
	for _, url := range []string{"", "localhost:7600", "ftp://x", "http://", "://"} {
		if _, err := client.New(client.Config{URL: url}); err == nil {
			t.Errorf("%q was taken for the URL of a server", url)
		}
	}
}

// TestTokenIsNotCarriedElsewhere: a server that redirects does not get the
// client to show its token to another.
func TestTokenIsNotCarriedElsewhere(t *testing.T) {
	asked := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer other.Close()
	srv := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer srv.Close()
	_, err := connect(t, srv.URL, token).Roles(t.Context())
	wantCode(t, err, "not_understudy")
	if asked {
		t.Error("the redirect was followed")
	}
}

// TestEventsComeBack: the connection is cut every few events; each event is
// passed on once, in order.
func TestEventsComeBack(t *testing.T) {
	streams := make(chan context.CancelFunc, 100)
	st, c := serve(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			if r.URL.Path == "/v1/events" {
				streams <- cancel
			}
			h.ServeHTTP(w, r.WithContext(ctx))
		})
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	got := make(chan apitype.Event, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- c.Events(ctx, client.Follow{Part: "role"}, func(e apitype.Event) error { got <- e; return nil })
	}()
	id := int64(0)
	next := func() apitype.Event {
		select {
		case e := <-got:
			return e
		case <-time.After(enough):
			t.Fatalf("no event for %v", enough)
		}
		return apitype.Event{}
	}
	cut := <-streams
	// Nothing tells when the stream is open, before an event does.
	realserver.Eventually(t, enough, "the first event", func() error {
		if err := st.Append(t.Context(), history.Event{Part: "role", Subject: "billing"}); err != nil {
			t.Fatal(err)
		}
		id++
		for {
			select {
			case e := <-got:
				if e.ID == id {
					return nil
				}
			case <-time.After(500 * time.Millisecond):
				return errors.New("nothing yet")
			}
		}
	})
	for range 3 {
		cut()
		for range 4 {
			if err := st.Append(t.Context(), history.Event{Part: "role", Subject: "billing"}); err != nil {
				t.Fatal(err)
			}
			id++
			if e := next(); e.ID != id || e.Subject != "billing" {
				t.Fatalf("got %+v, want %d", e, id)
			}
		}
		cut = <-streams
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

// TestEventsOfAQuietStream: a connection that is lost before the first event loses none. An id belongs to its event, if one follows.
func TestEventsOfAQuietStream(t *testing.T) {
	for _, c := range []struct{ first, after string }{
		{"retry: 1000\n\nid: 7\n\n", "7"},
		{"retry: 1000\n\nid: 0\n\n: still here\n\n", "0"},
		{"retry: 1000\n\nid: 7\n\nid: 8\n", "7"},
		{"retry: 1000\n\nid: 7\n\nid: 8\nevent: history\n", "7"},
		{"retry: 1000\n\n", ""}, // of a server that has not read its store yet
	} {
		n := 0
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n++; n == 1 {
				_, _ = io.WriteString(w, c.first)
				return
			}
			if got := r.URL.Query().Get("after"); got != c.after {
				t.Errorf("after %q it comes back with after=%s", c.first, got)
			}
			_, _ = io.WriteString(w, "id: 9\nevent: history\ndata: {\"id\":9}\n\n")
		}))
		enough := errors.New("enough")
		err := connect(t, srv.URL, token).Events(t.Context(), client.Follow{}, func(apitype.Event) error { return enough })
		if !errors.Is(err, enough) {
			t.Errorf("it ended with %v", err)
		}
		srv.Close()
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestEventsWaitAsTold: a reader whom the server refuses for now comes back when it says, not much later than in a minute.
func TestEventsWaitAsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []time.Time
		refusals := []struct {
			header, body string
			least, most  time.Duration
		}{
			{"3", `{"code":"too_many_requests","retry_after_ms":2500}`, 2500 * time.Millisecond, 8 * time.Second},
			{"7", "a proxy", 7 * time.Second, 12 * time.Second},
			{"86400", "", time.Minute, 65 * time.Second},
			{"soon", "", 0, 5 * time.Second},
		}
		c, err := client.New(client.Config{URL: "http://x", HTTP: &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			n := len(asked)
			asked = append(asked, time.Now())
			if n < len(refusals) {
				return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {refusals[n].header}}, Body: io.NopCloser(strings.NewReader(refusals[n].body))}, nil
			}
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("event: history\ndata: {\"id\":1}\n\n"))}, nil
		})}})
		if err != nil {
			t.Fatal(err)
		}
		enough := errors.New("enough")
		if err := c.Events(t.Context(), client.Follow{}, func(apitype.Event) error { return enough }); !errors.Is(err, enough) {
			t.Fatalf("ended with %v after %d tries", err, len(asked))
		}
		for i, told := range refusals {
			if wait := asked[i+1].Sub(asked[i]); wait < told.least || wait > told.most {
				t.Errorf("told %q, %s: it came back after %v", told.header, told.body, wait)
			}
		}
	})
}

func TestEventsEndWithTheirReader(t *testing.T) {
	st, c := serve(t, nil)
	_ = st.Append(t.Context(), history.Event{Part: "role"})
	_ = st.Append(t.Context(), history.Event{Part: "role"})
	enough := errors.New("enough")
	if err := c.Events(t.Context(), client.Follow{After: 1}, func(apitype.Event) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("ended with %v", err)
	}
}

// TestStranger: what is no server of this API is not taken for one, whatever it answers.
func TestStranger(t *testing.T) {
	for kind, body := range map[string]string{"text/html": "<p>Welcome</p>", "": "", "text/plain": "OK"} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, body)
		}))
		defer srv.Close()
		c, err := client.New(client.Config{URL: srv.URL})
		if err != nil {
			t.Fatal(err)
		}
		_, looked := c.Roles(t.Context())
		_, told := c.State(t.Context())
		_, asked := c.Resign(t.Context(), "billing", apitype.ResignRequest{})
		for what, err := range map[string]error{"roles": looked, "server": told, "resign": asked} {
			answer, ok := errors.AsType[*client.Error](err)
			if !ok || answer.Code != client.NotUnderstudy {
				t.Errorf("%s of %q: %v", what, kind, err)
			}
		}
	}
}
