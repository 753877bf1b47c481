package checks_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	shardagent "github.com/understudy-ha/understudy/shard/agent"
	"github.com/understudy-ha/understudy/shard/checks"
)

var (
	_ checks.Agent    = (*shardagent.Agent)(nil)
	_ shard.Promisers = (*checks.Client)(nil)
)

const secret = "nobody may see this"

func id(n int) string { return fmt.Sprintf("%040x", n) }

// agent says what a test wants.
type agent struct {
	mu     sync.Mutex
	status shard.Status
	give   func(shard.Promise, string) (string, error)
}

func (a *agent) Status() shard.Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

func (a *agent) set(s shard.Status) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status = s
}

func (a *agent) GrantPromise(p shard.Promise, mac string) (string, error) { return a.give(p, mac) }

// primary is the status of a primary that is open, with a replica that lacks 100.
func primary() shard.Status {
	return shard.Status{
		NodeID: id(1), Shard: "s", Condition: shard.Up, Holding: true, Open: true, Timeout: 5 * time.Second,
		State: shard.State{Role: shard.Primary, Txn: 10_000, Fence: shard.Armed, Version: "redis 7.0.15", Synced: true,
			Followers: []shard.Follower{{Address: "10.0.0.2:6379", ID: id(2), Online: true, Txn: 9_900}}},
		View: view(),
	}
}

func replica() shard.Status {
	s := primary()
	s.NodeID, s.Holding, s.Open = id(2), false, false
	s.State = shard.State{Role: shard.Replica, Txn: 9_900, Synced: true, Version: "redis 7.0.15", Link: &shard.Upstream{Up: true}}
	return s
}

func view() shard.View {
	record := func(n int, txn int64) shard.Record {
		return shard.Record{Shard: "s", ID: id(n), Address: fmt.Sprintf("10.0.0.%d:6379", n), Agent: fmt.Sprintf("10.0.0.%d:8008", n), Txn: txn,
			Role: shard.Replica, Condition: shard.Up, Synced: true, Timeout: time.Second, Link: &shard.Upstream{Up: true}}
	}
	v := shard.View{
		Row:   shard.Row{Name: "s", Primary: id(1), PrimaryEpoch: 7, Secret: secret},
		Nodes: []shard.Record{record(1, 10_000), record(2, 9_900), record(3, 0)},
	}
	v.Nodes[0].Role, v.Nodes[0].Link, v.Nodes[0].PrimaryID = shard.Primary, nil, ""
	v.Nodes[2].Age = time.Hour
	return v
}

func with(s shard.Status, edit func(*shard.Status)) shard.Status {
	edit(&s)
	return s
}

func handler(t *testing.T, cfg checks.Config) http.Handler {
	t.Helper()
	h, err := checks.Handler(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestPrimaryAt: an agent is asked about another's node, while that agent is dead.
func TestPrimaryAt(t *testing.T) {
	mine, gone := replica(), replica()
	gone.View.Row.Plan = &shard.Plan{Phase: shard.Promoting}
	for _, c := range []struct {
		status shard.Status
		node   string
		want   int
	}{
		{mine, "10.0.0.1:6379", http.StatusOK},
		{mine, "10.0.0.2:6379", http.StatusServiceUnavailable}, // this agent's own, which is a replica
		{mine, "10.0.0.9:6379", http.StatusServiceUnavailable},
		{mine, "", http.StatusServiceUnavailable},
		{gone, "10.0.0.1:6379", http.StatusServiceUnavailable},
		{primary(), "10.0.0.1:6379", http.StatusOK},
		{with(primary(), func(s *shard.Status) { s.Open = false }), "10.0.0.1:6379", http.StatusServiceUnavailable}, // it knows better than the row
	} {
		w := httptest.NewRecorder()
		handler(t, checks.Config{Agent: &agent{status: c.status}}).ServeHTTP(w, httptest.NewRequest(http.MethodOptions, "/primary?node="+c.node, nil))
		if w.Code != c.want {
			t.Errorf("agent of %.8s, /primary?node=%s: %d, want %d", c.status.NodeID, c.node, w.Code, c.want)
		}
	}
}

func TestChecks(t *testing.T) {
	type row struct {
		name   string
		status shard.Status
		yes    string // paths that say yes, of those below
	}
	paths := "/ /primary /read-write /master /leader /replica /async /asynchronous /replica?lag=100 /replica?lag=99 /replica?lag=1kB /replica?tag_zone=A " +
		"/read-only /read-only?lag=1 /read-only-sync /sync /synchronous /standby-leader /health /liveness /readiness"
	const writes, reads = "/ /primary /read-write /master", "/replica /async /asynchronous /replica?lag=100 /replica?lag=1kB"
	for _, c := range []row{
		{"primary", primary(), writes + " /leader /read-only /read-only?lag=1 /read-only-sync /health /liveness /readiness"},
		{"primary that has not opened", with(primary(), func(s *shard.Status) { s.Open = false }), "/leader /health /liveness /readiness"},
		{"primary without trust", with(primary(), func(s *shard.Status) { s.Holding = false }), "/health /liveness /readiness"},
		{"primary of which the row knows nothing", with(primary(), func(s *shard.Status) { s.View.Row.Primary = id(2) }), "/leader /health /liveness /readiness"},
		{"primary that is silent", with(primary(), func(s *shard.Status) { s.Condition = shard.Silent }), "/leader /liveness"},
		{"primary that loads", with(primary(), func(s *shard.Status) { s.State.Loading = true }), "/leader /liveness"},
		{"primary under promises", with(primary(), func(s *shard.Status) { s.StoreDown = time.Hour }), writes + " /leader /read-only /read-only?lag=1 /read-only-sync /health /liveness /readiness"},
		{"primary whose agent is slow", with(primary(), func(s *shard.Status) { s.LoopAge = 6 * time.Second }), writes + " /leader /read-only /read-only?lag=1 /read-only-sync /health /readiness"},
		{"replica that holds the lease", with(primary(), func(s *shard.Status) { s.State.Role = shard.Replica }), "/leader " + reads + " /replica?lag=99 /read-only /read-only?lag=1 /health /liveness /readiness"},
		{"replica", replica(), reads + " /read-only /health /liveness /readiness"},
		{"replica without a whole copy", with(replica(), func(s *shard.Status) { s.State.Synced = false }), "/health /liveness /readiness"},
		{"replica without its primary", with(replica(), func(s *shard.Status) { s.State.Link.Up = false }), reads + " /read-only /health /liveness /readiness"},
		{"replica of which no primary is known", with(replica(), func(s *shard.Status) { s.View.Nodes = s.View.Nodes[1:] }), "/replica /async /asynchronous /read-only /health /liveness /readiness"},
		{"replica whose store is down", with(replica(), func(s *shard.Status) { s.StoreDown = time.Second }), reads + " /read-only /health /liveness"},
		{"replica whose store is down for long, and its link too", with(replica(), func(s *shard.Status) { s.StoreDown, s.State.Link.Up = time.Minute, false }),
			"/replica /async /asynchronous /read-only /health /liveness"},
		{"replica whose store is down for long, and that hears its primary", with(replica(), func(s *shard.Status) { s.StoreDown = time.Minute }), reads + " /read-only /health /liveness"},
		{"replica whose agent is slow", with(replica(), func(s *shard.Status) { s.LoopAge = 6 * time.Second }), reads + " /read-only /health /liveness /readiness"},
		{"replica whose agent hangs", with(replica(), func(s *shard.Status) { s.LoopAge = 11 * time.Second }), reads + " /read-only /health /readiness"},
		{"dead node", with(replica(), func(s *shard.Status) { s.Condition = shard.Down }), "/liveness"},
		{"an agent that has just begun", shard.Status{}, "/liveness"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := handler(t, checks.Config{Agent: &agent{status: c.status}})
			for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
				var yes []string
				for path := range strings.FieldsSeq(paths) {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
					switch w.Code {
					case 200:
						yes = append(yes, path)
					case 503:
					default:
						t.Errorf("%s %s: %d", method, path, w.Code)
					}
					if method == "OPTIONS" && w.Body.Len() > 0 {
						t.Errorf("%s %s has a body", method, path)
					}
				}
				if d := cmp.Diff(strings.Fields(inOrder(paths, c.yes)), yes); d != "" && (c.yes != "" || len(yes) > 0) {
					t.Errorf("%s (-want +got):\n%s", method, d)
				}
			}
		})
	}
}

// inOrder is the wanted paths in the order of all.
func inOrder(all, wanted string) string {
	var out []string
	for p := range strings.FieldsSeq(all) {
		if strings.Contains(" "+wanted+" ", " "+p+" ") {
			out = append(out, p)
		}
	}
	return strings.Join(out, " ")
}

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w.Code, w.Body.String()
}

func TestSizes(t *testing.T) {
	s := replica()
	s.State.Txn = s.View.Nodes[0].Txn - 5<<20
	h := handler(t, checks.Config{Agent: &agent{status: s}})
	for lag, want := range map[string]int{
		"5MB": 200, "5mb": 200, "5.0MB": 200, "5242880": 200, "5242879": 503, "5120kB": 200, "5119kB": 503, "1GB": 200, "0": 503, "1TB": 200,
		"-1": 400, "x": 400, "1PB": 400, "NaN": 400, "Inf": 400, "1e99": 400, "MB": 400,
	} {
		if got, _ := get(t, h, "/replica?lag="+lag); got != want {
			t.Errorf("lag=%s: %d, want %d", lag, got, want)
		}
	}
}

func TestInformation(t *testing.T) {
	s := primary()
	s.View.Row.Paused = &shard.Pause{By: "me"}
	s.View.Row.Lineages = []shard.Lineage{{ID: "a", End: 500}, {ID: "b"}}
	s.View.Row.Last = &shard.Plan{Epoch: 7, Kind: shard.Failover, Reason: "it died", To: id(1), Ended: time.Unix(1e9, 0)}
	h := handler(t, checks.Config{Agent: &agent{status: s}, Version: "1.2", Metrics: http.NotFoundHandler()})
	for path, want := range map[string][]string{
		"/patroni": {`"state":"running"`, `"role":"primary"`, `"xlog":{"location":10000}`, `"timeline":7`, `"pause":true`, `"scope":"s"`, `"version":"1.2"`, `"state":"streaming"`},
		"/primary": {`"role":"primary"`},
		"/cluster": {`"scope":"s"`, `"role":"leader"`, `"lag":100`, `"host":"10.0.0.2"`, `"port":6379`, `"state":"streaming"`, `"state":"unknown"`, `"api_url":"http://10.0.0.2:8008/patroni"`},
		"/history": {`[[7,500,"failover: it died","2001-09-09T01:46:40Z","` + id(1)},
		"/status":  {`"holding":true`, `"node_id":"` + id(1), `"loop_age_ms":`, `"timeout_ms":`, `"wait_ms":`},
	} {
		code, body := get(t, h, path)
		if code != 200 || !json.Valid([]byte(body)) {
			t.Errorf("%s: %d %s", path, code, body)
		}
		for _, part := range want {
			if !strings.Contains(body, part) {
				t.Errorf("%s lacks %s: %s", path, part, body)
			}
		}
		if strings.Contains(body, secret) {
			t.Errorf("%s shows the secret", path)
		}
	}
	for path, want := range map[string]int{"/metrics": 404, "/nothing": 404, "/failsafe": 405} {
		if code, _ := get(t, h, path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
}

func TestPromises(t *testing.T) {
	asked := shard.Promise{Shard: "s", From: id(1), To: id(2), Epoch: 7, For: time.Second, Seq: 7}
	a := &agent{give: func(p shard.Promise, mac string) (string, error) {
		if d := cmp.Diff(asked, p); d != "" || !p.Verify(secret, "ask", mac) {
			return "", errors.New("this was not asked")
		}
		return p.Sign(secret, "give"), nil
	}}
	server := httptest.NewServer(handler(t, checks.Config{Agent: a}))
	defer server.Close()
	address := server.Listener.Addr().String()
	c, err := checks.NewClient(checks.ClientConfig{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	mac, err := c.RequestPromise(t.Context(), address, asked, asked.Sign(secret, "ask"))
	if err != nil || !asked.Verify(secret, "give", mac) {
		t.Errorf("answer %q, %v", mac, err)
	}
	if mac, err := c.RequestPromise(t.Context(), address, asked, "forged"); err == nil || mac != "" || !strings.Contains(err.Error(), "this was not asked") {
		t.Errorf("a forged question: %q, %v", mac, err)
	}
	if _, err := c.RequestPromise(t.Context(), "host/evil?:80", asked, ""); !errors.Is(err, lease.ErrInvalid) {
		t.Errorf("a wrong address: %v", err)
	}
	for body, want := range map[string]int{
		"": 400, "{": 400, "[]": 400, `{"promise":{"epoch":"x"}}`: 400, `{}`: 409, `{"mac":"` + strings.Repeat("x", 5000) + `"}`: 413,
	} {
		res, err := http.Post(server.URL+"/failsafe", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%.20s: %s, want %d", body, res.Status, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestAskEnds shows that an agent that hangs, or says too much, is given up.
func TestAskEnds(t *testing.T) {
	hang := make(chan struct{})
	for name, serve := range map[string]http.HandlerFunc{
		"hangs":     func(http.ResponseWriter, *http.Request) { <-hang },
		"no answer": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") },
		"elsewhere": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
		},
		"too much": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"mac":"`+strings.Repeat("x", 1<<16)+`"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(serve)
			timeout := time.Minute
			if name == "hangs" {
				timeout = 50 * time.Millisecond
			}
			c, err := checks.NewClient(checks.ClientConfig{Timeout: timeout})
			if err != nil {
				t.Fatal(err)
			}
			if mac, err := c.RequestPromise(t.Context(), server.Listener.Addr().String(), shard.Promise{}, ""); err == nil || mac != "" {
				t.Errorf("answer %.20q, %v", mac, err)
			}
			c.Close()
			if name == "hangs" {
				close(hang)
			}
			server.Close()
		})
	}
}

func TestConfig(t *testing.T) {
	if _, err := checks.Handler(checks.Config{}); !errors.Is(err, lease.ErrInvalid) {
		t.Errorf("no agent: %v", err)
	}
	if _, err := checks.NewClient(checks.ClientConfig{Timeout: -1}); !errors.Is(err, lease.ErrInvalid) {
		t.Errorf("a negative time-out: %v", err)
	}
}
