package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// TestStatusFits: whatever there is, status has no more than 40 lines, and shows first what
// an operator has to see to.
func TestStatusFits(t *testing.T) {
	s := status{Errors: []string{"The queues could not be read: because"}, MoreNeeds: 1000, Monitor: &apitype.Monitor{}, Cache: &apitype.CacheCluster{}}
	for range 500 {
		long := strings.Repeat("long\n", 100)
		s.Needs = append(s.Needs, apitype.Need{Part: "queue", Subject: "orders", Item: "a", Severity: "bad", What: long})
		s.Roles = append(s.Roles, apitype.Role{Role: "held", Primaries: []apitype.Primary{{Name: "a"}, {Name: "b"}}})
		s.Shards = append(s.Shards, apitype.Shard{Name: "s", Health: string(shard.Fine), Primary: &apitype.ShardPrimary{}})
		s.Queues = append(s.Queues, apitype.Queue{Queue: "q"})
		s.Instances = append(s.Instances, apitype.Session{})
		s.History = append(s.History, apitype.Event{Part: "role", Subject: "x", Reason: long})
	}
	s.Roles = append(s.Roles, apitype.Role{Role: "vacant"})
	s.Shards = append(s.Shards, apitype.Shard{Name: "over", Health: string(shard.Stuck), Alarm: 4})
	s.Queues = append(s.Queues, apitype.Queue{Queue: "stuck", Blocked: 1})
	text := s.text()
	if n := strings.Count(text, "\n"); n > 40 {
		t.Errorf("%d lines:\n%s", n, text)
	}
	for _, want := range []string{"\nvacant ", "\nover ", "\nstuck ", "needs attention: 1500\n", " is not a member; ", "… and 498 more: role list\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not shown:\n%s", want, text)
		}
	}
	s.Shards[len(s.Shards)-1].Alarm = 0 // as a server of the version before has it
	if text := s.text(); !strings.Contains(text, "\nover ") {
		t.Errorf("a shard without a primary is not shown:\n%s", text)
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
		if err := c.CreateQueue(ctx, "orders"); err != nil || len(bodies) != 3 || bodies[2] != bodies[0] {
			t.Errorf("%v after %q", err, bodies)
		}
		refuse = 1000
		started := time.Now()
		err = apiError(c.CreateQueue(ctx, "orders"))
		if err == nil || !strings.Contains(err.Error(), "429: too many") || time.Since(started) > callTimeout {
			t.Errorf("%v after %v", err, time.Since(started))
		}
		for say, most := range map[string]int{"0": 100, "99999999999": 1, "-1": 1, "soon": 1} {
			bodies, refuse, after = nil, 1_000_000, say
			ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
			if err := c.CreateQueue(ctx, "orders"); err == nil || len(bodies) > most {
				t.Errorf("told to come back after %q it asked %d times: %v", say, len(bodies), err)
			}
			cancel()
		}
	})
}

// watchers are the commands that look again and again, until they are interrupted or what they wait for has happened.
func watchers() map[string]func(context.Context, *app, *client.Client) error {
	return map[string]func(context.Context, *app, *client.Client) error{
		"role":   func(ctx context.Context, a *app, c *client.Client) error { return a.watchRole(ctx, c, "r") },
		"shard":  func(ctx context.Context, a *app, c *client.Client) error { return a.watchPrimary(ctx, c, "s") },
		"status": func(ctx context.Context, a *app, c *client.Client) error { return a.watchStatus(ctx, c) },
		"job logs": func(ctx context.Context, a *app, c *client.Client) error {
			return a.printLogs(ctx, c, "j", client.LatestRun, true)
		},
		"queue wait": func(ctx context.Context, a *app, c *client.Client) error {
			return a.waitFor(ctx, c, "q", []string{"m"})
		},
		"shard switchover": func(ctx context.Context, a *app, c *client.Client) error {
			_, err := a.waitForPlan(ctx, c, "s", "id", func(shardSeen) {})
			return err
		},
	}
}

// inBubble is a client in a bubble: answers gives the status and the body of each request, or an error in their place. The stream of
// events has the state, and is silent otherwise.
func inBubble(t *testing.T, answers func(r *http.Request) (status int, body string, err error)) *client.Client {
	c, err := client.New(client.Config{URL: "http://x", HTTP: httpClient(roundTrip(func(r *http.Request) (*http.Response, error) {
		state := r.URL.Query().Has("state")
		if r.URL.Path == "/v1/events" && !state {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		status, body, err := answers(r)
		if err != nil {
			return nil, err
		}
		if state && status == http.StatusOK {
			body = "event: state\ndata: {}\n\n"
		}
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}, "Retry-After": {"40"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
	}))})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const (
	// unfinished is an answer after which every command looks again.
	unfinished = `{"queue":"q","state":"running"}`
	tooMany    = `{"code":"too_many_requests","detail":"too many","retry_after_ms":40000}`
)

// TestWatchersOutlastRefusals: what looks again and again does not end when a server has had too many requests, and says to come
// back after longer than any one look takes.
func TestWatchersOutlastRefusals(t *testing.T) {
	all := watchers()
	all["cache"] = func(ctx context.Context, a *app, c *client.Client) error { return a.watchCache(ctx, c, "") }
	for name, watch := range all {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				started, reads, refused := time.Now(), 0, 0
				c := inBubble(t, func(r *http.Request) (int, string, error) {
					switch {
					case r.URL.Path == "/v1/cache-peers" && name == "cache":
					case time.Since(started) < 10*time.Second:
						refused++
						return http.StatusTooManyRequests, tooMany, nil
					default:
						reads++
					}
					return http.StatusOK, unfinished, nil
				})
				ctx, cancel := context.WithCancel(t.Context()) // by the operator: there is no deadline
				defer time.AfterFunc(2*time.Minute, cancel).Stop()
				a := &app{stdout: io.Discard, stderr: io.Discard, output: "table"}
				a.Log = slog.New(slog.DiscardHandler)
				if err := watch(ctx, a, c); err != nil && ctx.Err() == nil || reads == 0 || refused > 2 {
					t.Errorf("after %v it ended with %v, refused %d times and answered %d times", time.Since(started), err, refused, reads)
				}
			})
		})
	}
}

// TestWatchersSayThatTheyAreBlind: what was printed last may be out of date while nobody answers. The log says so, once, and when
// that is over.
func TestWatchersSayThatTheyAreBlind(t *testing.T) {
	for name, watch := range watchers() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				started := time.Now()
				c := inBubble(t, func(*http.Request) (int, string, error) {
					switch passed := time.Since(started); {
					case passed > 10*time.Second && passed < 20*time.Second:
						return 0, "", errors.New("connection refused")
					case passed > 30*time.Second && passed < time.Minute:
						return http.StatusServiceUnavailable, `{"code":"store_unavailable","detail":"it is down"}`, nil
					case passed >= time.Minute && passed < 2*time.Minute:
						return http.StatusInternalServerError, `{"code":"internal","detail":"see the log"}`, nil
					case passed >= 2*time.Minute && passed < 5*time.Minute:
						return http.StatusOK, "{", nil // the end came in the middle of the answer
					}
					return http.StatusOK, unfinished, nil
				})
				ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
				defer cancel()
				var log bytes.Buffer
				a := &app{stdout: io.Discard, stderr: &log, output: "table"}
				if err := a.logAs("", ""); err != nil {
					t.Fatal(err)
				}
				_ = watch(ctx, a, c)
				var levels []string
				for line := range strings.Lines(log.String()) {
					if _, after, ok := strings.Cut(line, "level="); ok { // another one says which run it is
						levels = append(levels, strings.Fields(after)[0])
					}
				}
				if !slices.Equal(levels, []string{"WARN", "INFO", "WARN", "INFO"}) || !strings.Contains(log.String(), "connection refused") || !strings.Contains(log.String(), "it is down") {
					t.Errorf("two outages were logged so:\n%s", log.String())
				}
			})
		})
	}
}

// TestPlanThatCannotBeFollowed: who asked for a switchover, and then cannot read how it goes, is told that it may be carried out.
func TestPlanThatCannotBeFollowed(t *testing.T) {
	for status, body := range map[int]string{http.StatusTooManyRequests: tooMany, http.StatusForbidden: `{"code":"missing_scope","detail":"not yours"}`} {
		synctest.Test(t, func(t *testing.T) {
			asked := false
			c := inBubble(t, func(r *http.Request) (int, string, error) {
				switch {
				case asked:
					return status, body, nil
				case r.Method == http.MethodPost:
					asked = true
					return http.StatusAccepted, `{"request":"id"}`, nil
				}
				return http.StatusOK, unfinished, nil
			})
			a := &app{stdout: io.Discard, stderr: io.Discard, output: "table"}
			a.Log = slog.New(slog.DiscardHandler)
			err := a.askForPlan(t.Context(), c, "s", shard.Request{Kind: shard.Switchover, Timeout: time.Second}, planFlags{wait: defaultWait})
			if err == nil || !strings.Contains(err.Error(), `the switchover of shard "s" may still be carried out`) {
				t.Errorf("%d: %v", status, err)
			}
		})
	}
}

// TestPatientReusesConnections: requests that were too many do not make connections.
func TestPatientReusesConnections(t *testing.T) {
	var refuse, made atomic.Int64
	refuse.Store(3)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse.Add(-1) >= 0 {
			w.Header().Set("Retry-After", "0")
			http.Error(w, strings.Repeat("too many ", 1000), http.StatusTooManyRequests)
		}
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			made.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	by := &http.Transport{}
	defer by.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := httpClient(by).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK || made.Load() > 3 { // without reuse there are 4
		t.Errorf("%s over %d connections", answer.Status, made.Load())
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestHeardCodes: an error has the exit code that it has on the store.
func TestHeardCodes(t *testing.T) {
	for code, want := range map[string]int{
		"vacant": exitAbsent, "no_message": exitAbsent, "no_batch": exitAbsent, "no_alarm": exitAbsent, "no_primary": exitAbsent, "not_found": exitAbsent,
		"invalid": exitUsage, "store_without_queues": exitUsage,
		"wrong_state": exitFailed, "not_done": exitFailed, "missing_scope": exitFailed, "never_heard_of": exitFailed,
		"store_unavailable": exitUnreachable, "unknown_outcome": exitUnreachable, "not_ready": exitUnreachable, "store_damaged": exitUnreachable,
		"alarm_open": exitFailed, "internal": exitFailed, "store_schema": exitFailed,
	} {
		if got := exitCode(apiError(&client.Error{Status: 400, Code: code, Detail: "why"})); got != want {
			t.Errorf("%s: exit code %d, not %d", code, got, want)
		}
	}
	if err := apiError(nil); err != nil {
		t.Error(err)
	}
	if err := apiError(&client.Error{Status: 502, Code: client.NotUnderstudy}); exitCode(err) != exitUnreachable {
		t.Errorf("a proxy without its server: %v", err)
	}
}

// TestStatusHere: without a server the API answers within this process, and ends with it.
func TestStatusHere(t *testing.T) {
	t.Setenv("UNDERSTUDY_STORE", "sqlite:"+t.TempDir()+"/u.db")
	var out, complaints bytes.Buffer
	mistyped := "sqlite:" + t.TempDir() + "/v.db"
	if code := run(t.Context(), []string{"status", "--store", mistyped}, &out, &complaints); code != exitUnreachable || !strings.Contains(complaints.String(), "there is no file") {
		t.Errorf("of a path that may be mistyped: exit code %d: %s", code, complaints.String())
	}
	complaints.Reset()
	if code := run(t.Context(), []string{"status"}, &out, &complaints); code != exitUnreachable || !strings.Contains(complaints.String(), "there is no file") {
		t.Errorf("of one in the environment: exit code %d: %s", code, complaints.String())
	}
	if code := run(t.Context(), []string{"store", "migrate"}, io.Discard, &complaints); code != 0 {
		t.Fatalf("exit code %d: %s", code, complaints.String())
	}
	if code := run(t.Context(), []string{"status", "-o", "json"}, &out, &complaints); code != 0 {
		t.Fatalf("exit code %d: %s", code, complaints.String())
	}
	var s status
	if err := json.Unmarshal(out.Bytes(), &s); err != nil || s.Store.Kind != "sqlite" || !s.Store.Up {
		t.Errorf("%v: %s", err, out.String())
	}
}

// TestLostAnswer: a change whose answer was lost may have been made; a read, or what was never sent, was not.
func TestLostAnswer(t *testing.T) {
	change := func(ctx context.Context, c *client.Client) error { return c.CreateQueue(ctx, "orders") }
	read := func(ctx context.Context, c *client.Client) error { _, err := c.Roles(ctx); return err }
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the end of the connection is not noticed
		<-r.Context().Done()
	}))
	breaks := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGatewayTimeout) }))
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, x := range map[string]struct {
		url     string
		call    func(context.Context, *client.Client) error
		unknown bool
		text    string
	}{
		"a change, and silence":           {hangs.URL, change, true, "the server did not answer in time; a change may have been made: look before you repeat it"},
		"a change, and the end":           {breaks.URL, change, true, "the server did not answer: EOF; a change may have been made: look before you repeat it"},
		"a change, and a proxy gives up":  {gateway.URL, change, true, "which is not how this API answers"},
		"a change, and nobody there":      {gone.URL, change, false, "the server cannot be reached: "},
		"a change, and no TLS":            {strings.Replace(breaks.URL, "http:", "https:", 1), change, false, "the server cannot be reached: http: server gave HTTP response to HTTPS client"},
		"a read, and silence":             {hangs.URL, read, false, "the server did not answer in time"},
		"a read, and the end":             {breaks.URL, read, false, "the server did not answer: EOF"},
		"a read, and nobody there at all": {gone.URL, read, false, "the server cannot be reached: "},
	} {
		by := &http.Transport{}
		c, err := client.New(client.Config{URL: x.url, HTTP: httpClient(by)})
		if err != nil {
			t.Fatal(err)
		}
		timeout := time.Minute
		if x.url == hangs.URL {
			timeout = 50 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		err = apiError(x.call(ctx, c))
		cancel()
		by.CloseIdleConnections()
		if err == nil || errors.Is(err, lease.ErrUnknown) != x.unknown || errors.Is(err, lease.ErrUnavailable) == x.unknown || exitCode(err) != exitUnreachable {
			t.Errorf("%s: exit code %d, unknown %t: %v", name, exitCode(err), errors.Is(err, lease.ErrUnknown), err)
		} else if text := err.Error(); !strings.Contains(text, x.text) || strings.Contains(text, "a change may") != strings.Contains(x.text, "a change may") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, server := range []*httptest.Server{hangs, breaks, gateway} {
		server.Close()
	}
}

// TestJobLogsFollow: the output of every attempt of a run is printed once, until the run has ended, whoever does not answer meanwhile.
func TestJobLogsFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []string{
			`{"state":"running","attempt":1,"total_bytes":3,"output":"b25l"}`,        // one
			`{"state":"queued","attempt":2,"total_bytes":7,"output":"b25lIHR3bw=="}`, // one two
			"", // a failover of the store
			`{"state":"running","attempt":2,"total_bytes":7,"output":"b25lIHR3bw=="}`, // nothing is written yet
			`{"state":"running","attempt":2,"total_bytes":8,"output":"IGFnYWluMQ=="}`, //  again1
			`{"state":"queued","attempt":3,"total_bytes":8,"output":"IGFnYWluMQ=="}`,  //
			`{"state":"succeeded","attempt":3,"total_bytes":5,"output":"IGRvbmU="}`,   //  done
		}
		names := map[string]bool{}
		c, err := client.New(client.Config{URL: "http://x", HTTP: httpClient(roundTrip(func(r *http.Request) (*http.Response, error) {
			names[r.URL.Path] = true
			out := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(answers[0]))}
			if answers[0] == "" {
				out.StatusCode, out.Body = http.StatusServiceUnavailable, io.NopCloser(strings.NewReader(`{"code":"store_unavailable","detail":"it is down"}`))
			}
			answers = answers[1:]
			return out, nil
		}))})
		if err != nil {
			t.Fatal(err)
		}
		var out, said bytes.Buffer
		a := &app{stdout: &out, stderr: &said, output: "table"}
		a.Log = slog.New(slog.DiscardHandler)
		if err := a.printLogs(t.Context(), c, "backup", client.LatestRun, true); err != nil || len(answers) > 0 {
			t.Errorf("it ended with %v before %q", err, answers)
		}
		if got := out.String(); got != "one two again1 done" {
			t.Errorf("printed %q", got)
		}
		if got := said.String(); strings.Count(got, "(run of ") != 3 || len(names) != 2 {
			t.Errorf("said %q, and read %v", got, names)
		}
	})
}
