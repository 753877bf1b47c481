package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/shard"
)

// TestRecast: what is recast loses nothing, because the client has every field of the view.
func TestRecast(t *testing.T) {
	for _, pair := range [][2]reflect.Type{
		{reflect.TypeFor[api.ShardView](), reflect.TypeFor[client.Shard]()},
		{reflect.TypeFor[api.TokenView](), reflect.TypeFor[client.Token]()},
	} {
		sameFields(t, pair[0], pair[1])
	}
}

// sameFields fails for each field that JSON has of the view, and not of the client's type.
func sameFields(t *testing.T, view, ours reflect.Type) {
	t.Helper()
	has := jsonFields(ours)
	for name, field := range jsonFields(view) {
		its, ok := has[name]
		if !ok {
			t.Errorf("%v has %q, and %v has not", view, name, ours)
			continue
		}
		if from, to := element(field), element(its); from.Kind() == reflect.Struct && from != reflect.TypeFor[time.Time]() {
			sameFields(t, from, to)
		}
	}
}

func element(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t
}

func jsonFields(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			out[name] = f.Type
		}
	}
	return out
}

// TestStatusFits: whatever there is, status has no more than 40 lines, and shows first what
// a person has to see to.
func TestStatusFits(t *testing.T) {
	s := situation{Errors: []string{"The queues could not be read: because"}, MoreNeeds: 1000, Monitor: &client.Monitor{}, Cache: &client.CacheCluster{}}
	for range 500 {
		long := strings.Repeat("long\n", 100)
		s.Needs = append(s.Needs, client.Need{Part: "queue", Subject: "orders", Item: "a", Severity: "bad", What: long})
		s.Roles = append(s.Roles, client.Role{Role: "held", Primaries: []client.Primary{{Name: "a"}, {Name: "b"}}})
		s.Shards = append(s.Shards, client.Shard{Shard: "s", Health: string(shard.Fine), Primary: &client.ShardPrimary{}})
		s.Queues = append(s.Queues, client.Queue{Queue: "q"})
		s.Instances = append(s.Instances, client.Session{})
		s.History = append(s.History, client.Event{Part: "role", Subject: "x", Reason: long})
	}
	s.Roles = append(s.Roles, client.Role{Role: "vacant"})
	s.Shards = append(s.Shards, client.Shard{Shard: "over", Health: string(shard.Stuck), Why: "silent"})
	s.Queues = append(s.Queues, client.Queue{Queue: "stuck", Blocked: 1})
	text := s.text()
	if n := strings.Count(text, "\n"); n > 40 {
		t.Errorf("%d lines:\n%s", n, text)
	}
	for _, want := range []string{"\nvacant ", "\nover ", "\nstuck ", "needs  a person: 1500\n", "… and 498 more: role list\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not shown:\n%s", want, text)
		}
	}
	if !strings.HasPrefix(text, "!      not known: ") {
		t.Errorf("it does not begin with what nobody knows:\n%s", text)
	}
}

// TestPatient: a server that has had too many requests is asked again when it says, with the
// same body, as long as there is time.
func TestPatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bodies []string
		refuse, after := 2, "1"
		c, err := client.New(client.Config{URL: "http://x", HTTP: httpClient(roundTrip(func(r *http.Request) (*http.Response, error) {
			body, _ := io.ReadAll(r.Body)
			bodies = append(bodies, string(body))
			out := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader("{}"))}
			if refuse > 0 {
				refuse--
				out.StatusCode, out.Header = http.StatusTooManyRequests, http.Header{"Retry-After": {after}}
				out.Body = io.NopCloser(strings.NewReader(`{"code":"too_many_requests","detail":"too many"}`))
			}
			return out, nil
		}))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
		defer cancel()
		if err := c.MakeQueue(ctx, "orders"); err != nil || len(bodies) != 3 || bodies[2] != bodies[0] {
			t.Errorf("%v after %q", err, bodies)
		}
		refuse = 1000
		started := time.Now()
		err = heard(c.MakeQueue(ctx, "orders"))
		if err == nil || !strings.Contains(err.Error(), "429: too many") || time.Since(started) > callTimeout {
			t.Errorf("%v after %v", err, time.Since(started))
		}
		for say, most := range map[string]int{"0": 100, "99999999999": 1, "-1": 1, "soon": 1} {
			bodies, refuse, after = nil, 1_000_000, say
			ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
			if err := c.MakeQueue(ctx, "orders"); err == nil || len(bodies) > most {
				t.Errorf("told to come back after %q it asked %d times: %v", say, len(bodies), err)
			}
			cancel()
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestHeardCodes: an error has the exit code that it has on the store.
func TestHeardCodes(t *testing.T) {
	for code, want := range map[string]int{
		"vacant": exitAbsent, "no_batch": exitAbsent, "no_alarm": exitAbsent, "no_primary": exitAbsent, "not_found": exitAbsent,
		"invalid": exitUsage, "store_without_queues": exitUsage,
		"wrong_state": exitFailed, "not_done": exitFailed, "missing_scope": exitFailed, "never_heard_of": exitFailed,
		"store_unavailable": exitUnreachable, "unknown_outcome": exitUnreachable, "not_ready": exitUnreachable,
	} {
		if got := exitCode(heard(&client.Error{Status: 400, Code: code, Detail: "why"})); got != want {
			t.Errorf("%s: exit code %d, not %d", code, got, want)
		}
	}
	if err := heard(nil); err != nil {
		t.Error(err)
	}
	if err := heard(&client.Error{Status: 502, Code: client.NotUnderstudy}); exitCode(err) != exitUnreachable {
		t.Errorf("a proxy without its server: %v", err)
	}
}

// TestStatusHere: without a server the API answers within this process, and ends with it.
func TestStatusHere(t *testing.T) {
	t.Setenv("UNDERSTUDY_STORE", "sqlite:"+t.TempDir()+"/u.db")
	var out, complaints bytes.Buffer
	if code := run(t.Context(), []string{"status", "-o", "json"}, &out, &complaints); code != 0 {
		t.Fatalf("exit code %d: %s", code, complaints.String())
	}
	var s situation
	if err := json.Unmarshal(out.Bytes(), &s); err != nil || s.Store.Kind != "sqlite" || !s.Store.Up {
		t.Errorf("%v: %s", err, out.String())
	}
}
