package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/memory"
)

// failing is a store that answers nothing but an error.
type failing struct {
	*memory.Store
	err error
}

func (f failing) Get(context.Context, lease.ID) (lease.Lease, error) { return lease.Lease{}, f.err }
func (f failing) Sessions(context.Context) ([]lease.Session, error)  { return nil, f.err }
func (f failing) Read(context.Context, history.Query) ([]history.Event, error) {
	return nil, f.err
}

func TestErrorsBecomeProblems(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{lease.ErrHeld, 409, "held"},
		{lease.ErrNotHeld, 409, "not_held"},
		{lease.ErrNotFound, 404, "not_found"},
		{lease.ErrLapsed, 410, "lapsed"},
		{lease.ErrUnknown, 504, "unknown_outcome"},
		{lease.ErrUnavailable, 503, "store_unavailable"},
		{lease.ErrUnsafeTiming, 400, "unsafe_timing"},
		{lease.ErrInvalid, 400, "invalid"},
		{lease.ErrTwoHosts, 503, "two_hosts"},
		{elect.ErrVacant, 404, "vacant"},
		{store.ErrSchema, 503, "store_schema"},
		{shard.ErrNoPrimary, 503, "no_primary"},
		{shard.ErrNotFound, 404, "not_found"},
		{shard.ErrLocked, 409, "under_way"},
		{shard.ErrChanged, 409, "changed"},
		{shard.ErrTaken, 409, "taken"},
		{shard.ErrFailed, 409, "not_done"},
		{context.DeadlineExceeded, 504, "unknown_outcome"},
		{errors.New("secret of the inside"), 500, "internal"},
	} {
		s, err := New(Config{Store: failing{memory.New(nil), fmt.Errorf("reading: %w", c.err)}})
		if err != nil {
			t.Fatal(err)
		}
		a := send(t, s, request(t.Context(), "GET", "/v1/leases/role/billing", ""))
		a.want(c.status, c.code)
		if c.code == "internal" && strings.Contains(a.Body, "secret") {
			t.Errorf("an unforeseen error was shown: %s", a.Body)
		}
		if c.code == "unknown_outcome" && !strings.Contains(a.Body, "look before you believe") {
			t.Errorf("unknown without advice: %s", a.Body)
		}
	}
	// An outcome that is unknown is never taken for one that is known.
	if p := problemOf(errors.Join(lease.ErrNotHeld, lease.ErrUnknown)); p.Code != "unknown_outcome" {
		t.Errorf("unknown and not held is %s", p.Code)
	}
}

func TestOnlyStrictJSON(t *testing.T) {
	g := newRig(t)
	for body, code := range map[string]string{
		`{"name":"x","nmae":"y"}`: "invalid",
		`{"name":"x"}{}`:          "invalid",
		`{"name":"x"} x`:          "invalid",
		`{"name":5}`:              "invalid",
		`["x"]`:                   "invalid",
		`{"name":"x"`:             "invalid",
		``:                        "invalid", // no name
		`{"name":" x"}`:           "invalid",
		`{"name":"x\u0000"}`:      "invalid",
		`{"name":"x","interval_ms":1000,"timeout_ms":1500}`:                "unsafe_timing",
		`{"name":"x","interval_ms":-5}`:                                    "unsafe_timing",
		`{"name":"x","interval_ms":9223372036854775807}`:                   "unsafe_timing",
		`{"name":"x","timeout_ms":9223372036854775807,"interval_ms":1000}`: "unsafe_timing",
	} {
		if a := g.do("POST", "/v1/sessions", body); a.Status != 400 {
			t.Errorf("%s: %d %s", body, a.Status, a.Body)
		} else {
			a.want(400, code)
		}
	}
	g.do("POST", "/v1/sessions", `{"name":"`+strings.Repeat("x", maxBody)+`"}`).want(413, "too_large")
	if n, _ := g.store.Sessions(t.Context()); len(n) != 0 {
		t.Errorf("%d sessions came of it", len(n))
	}
}

func TestQueriesAreChecked(t *testing.T) {
	g := newRig(t)
	for _, path := range []string{
		"/v1/history?limit=0", "/v1/history?limit=1001", "/v1/history?after=-1", "/v1/history?after=x", "/v1/history?before=0",
		"/v1/history?after=1&before=5", "/v1/history?part=%00", "/v1/leases/role?limit=5000", "/v1/leases/role?after=%0a", "/v1/leases/9",
		"/v1/events?after=-2", "/v1/events?subject=%00", "/v1/events?state=1",
	} {
		g.do("GET", path, "").want(400, "invalid")
	}
	for _, wait := range []string{"61s", "-1s", "5", "x"} {
		g.do("PUT", "/v1/leases/role/x?wait="+wait, `{"session":"s"}`).want(400, "invalid")
	}
	r := request(t.Context(), "GET", "/v1/events", "")
	r.Header.Set("Last-Event-ID", "abc")
	send(t, g.s, r).want(400, "invalid")
}

// TestMalformedQueries: a parameter that cannot be read is not the same as none, which selects everything.
func TestMalformedQueries(t *testing.T) {
	g := newMonitorRig(t, every("web"))
	for _, to := range g.s.routes() {
		method, pattern, _ := strings.Cut(to.pattern, " ")
		path := regexp.MustCompile(`{[^}]*}`).ReplaceAllString(pattern, "x")
		if to.direct || to.manages {
			continue
		}
		for _, query := range []string{"?key=50%", "?limit=1;after=2"} {
			r := request(t.Context(), method, path+query, "")
			r.RemoteAddr = "127.0.0.1:1" // not limited
			a := send(t, g.s, r)
			reads := !to.open || to.keyed // probes of health, for instance, read none
			if refused := a.Status == 400 && strings.Contains(a.Body, "query"); refused != reads {
				t.Errorf("%s %s%s: answered %d %s", method, path, query, a.Status, a.Body)
			}
		}
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	g := newRig(t)
	g.do("GET", "/v2/roles", "").want(404, "no_route")
	g.do("GET", "/index.html", "").want(404, "no_route")
	a := g.do("DELETE", "/v1/roles", "")
	a.want(405, "method_not_allowed")
	if a.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("Allow %q", a.Header.Get("Allow"))
	}
}

func TestToken(t *testing.T) {
	const token = "correct-horse-battery"
	s, err := New(Config{Store: memory.New(nil), Token: token, Listen: "10.0.0.1:7600", Limits: Limits{Act: Rate{PerSecond: -1}}})
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]bool{"GET /healthz": true, "GET /readyz": true, "GET /v1/roles/{role}/self": true}
	for _, rt := range s.routes() {
		method, path, _ := strings.Cut(rt.pattern, " ")
		path = strings.NewReplacer("{role}", "x", "{session}", "x", "{space}", "x", "{key}", "x", "{queue}", "x", "{id}", "x").Replace(path)
		for _, given := range []string{"", "Bearer", "Bearer ", "Bearer wrong-horse-battery", "Basic " + token, token, "Bearer " + token + "x"} {
			r := request(t.Context(), method, path, "")
			r.Header.Set("Authorization", given)
			a := send(t, s, r)
			switch {
			case open[rt.pattern] && a.Status == 401:
				t.Errorf("%s asks for a token", rt.pattern)
			case strings.Contains(rt.pattern, "{signature}"): // which is what opens it
				a.want(404, "no_route")
			case !open[rt.pattern]:
				a.want(401, "unauthorized")
				if a.Header.Get("WWW-Authenticate") == "" {
					t.Errorf("%s: 401 without WWW-Authenticate", rt.pattern)
				}
			}
		}
	}
	r := request(t.Context(), "GET", "/v1/roles", "")
	r.Host = "understudy.example" // with a token any name will do
	r.Header.Set("Authorization", "bearer "+token)
	send(t, s, r).want(200, "")
	send(t, s, request(t.Context(), "GET", "/", "")).want(200, "")
}

func TestHostsWithoutToken(t *testing.T) {
	g := newRig(t)
	for host, ok := range map[string]bool{
		"localhost": true, "LOCALHOST:7600": true, "127.0.0.1:7600": true, "127.1.2.3": true, "[::1]:7600": true, "localhost.:1": true,
		"evil.example": false, "evil.example:7600": false, "localhost.evil.example": false, "10.0.0.1:7600": false, "": true,
		"127.0.0.1.evil.example": false, "[::2]:80": false,
	} {
		for _, path := range []string{"/v1/roles", "/", "/healthz"} {
			r := request(t.Context(), "GET", path, "")
			r.Host = host
			if a := send(t, g.s, r); ok != (a.Status == 200) || !ok && a.Status != 421 {
				t.Errorf("Host %q %s: %d", host, path, a.Status)
			}
		}
	}
}

// Without a token, what came through a proxy is refused: the proxy may serve anyone, and sends a loopback Host.
func TestProxiedRequestsWithoutToken(t *testing.T) {
	g := newRig(t)
	const token = "0123456789abcdef"
	guarded, err := New(Config{Store: g.store, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	for header, refused := range map[string]bool{
		"Forwarded": true, "Via": true, "X-Forwarded-For": true, "x-forwarded-proto": true, "X-Forwarded-Tls-Client-Cert": true,
		"X-Forward": false, "Viable": false,
	} {
		for _, path := range []string{"/v1/roles", "/", "/healthz"} {
			r := request(t.Context(), "GET", path, "")
			r.Header.Set(header, "")
			a := send(t, g.s, r)
			if !refused {
				a.want(200, "")
			} else if a.want(403, "token_needed"); !strings.Contains(a.Body, "carries "+http.CanonicalHeaderKey(header)) || !strings.Contains(a.Body, "set token_file") {
				t.Errorf("%s %s: %s", header, path, a.Body)
			}
			r.Header.Set("Authorization", "Bearer "+token)
			send(t, guarded, r).want(200, "")
		}
	}
}

func TestCrossOriginChangesAreRefused(t *testing.T) {
	g := newRig(t)
	for _, c := range []struct {
		header, value string
		refused       bool
	}{
		{"Sec-Fetch-Site", "cross-site", true},
		{"Sec-Fetch-Site", "same-site", true},
		{"Origin", "https://evil.example", true},
		{"Origin", "null", true},
		{"Sec-Fetch-Site", "same-origin", false},
		{"Origin", "http://127.0.0.1:7600", false},
		{"X-Nothing", "", false},
	} {
		r := request(t.Context(), "POST", "/v1/sessions", `{"name":"x"}`)
		r.Header.Set(c.header, c.value)
		a := send(t, g.s, r)
		if c.refused {
			a.want(403, "cross_origin")
		} else {
			a.want(201, "")
		}
	}
}

func TestHeaders(t *testing.T) {
	g := newRig(t)
	for _, path := range []string{"/", "/app.js", "/v1/roles", "/nothing"} {
		h := g.do("GET", path, "").Header
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" ||
			!strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'none'") || h.Get("Cache-Control") == "" {
			t.Errorf("%s: headers %v", path, h)
		}
	}
	srv := NewHTTPServer(g.s.Handler(), nil)
	if srv.ReadHeaderTimeout == 0 || srv.ReadTimeout == 0 || srv.WriteTimeout == 0 || srv.IdleTimeout == 0 || srv.MaxHeaderBytes == 0 {
		t.Errorf("a limit is missing: %+v", srv)
	}
}

func TestCheckListen(t *testing.T) {
	const token = "0123456789abcdef"
	for _, c := range []struct {
		addr, token string
		secured, ok bool
	}{
		{"127.0.0.1:7600", "", false, true},
		{"localhost:7600", "", false, true},
		{"[::1]:7600", "", false, true},
		{"127.0.0.1:7600", token, false, true},
		{"127.0.0.1:7600", "short", false, false},
		{"127.0.0.1:7600", "with a space in it", false, false},
		{":7600", "", true, false},
		{"0.0.0.0:7600", "", true, false},
		{"[::]:7600", "", true, false},
		{"10.0.0.1:7600", "", true, false},
		{"localhost.example:7600", "", true, false},
		{"10.0.0.1:7600", token, false, false},
		{"10.0.0.1:7600", token, true, true},
		{"7600", token, true, false},
	} {
		err := CheckListen(c.addr, c.token, c.secured)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%q token %q secured %t: %v", c.addr, c.token, c.secured, err)
		}
	}
	for _, cfg := range []Config{{}, {Store: memory.New(nil), Listen: ":80"}, {Store: memory.New(nil), Roles: []string{"a#b"}}, {Store: memory.New(nil), Timeout: -1}} {
		if _, err := New(cfg); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

func TestRoles(t *testing.T) {
	g := newRig(t)
	if a := g.do("GET", "/v1/roles", ""); strings.TrimSpace(a.Body) != `{"roles":[]}` {
		t.Errorf("no roles: %s", a.Body)
	}
	g.do("GET", "/v1/roles/billing", "").want(404, "vacant")
	g.do("GET", "/v1/roles/a%23b", "").want(400, "invalid")
	g.do("POST", "/v1/roles/billing/resign", "").want(404, "vacant")
	one, two := g.session("one"), g.session("two")
	g.put(one).want(200, "")
	if _, err := g.store.Join(t.Context(), lease.ID{Space: "role", Key: "billing"}, two); err != nil {
		t.Fatal(err)
	}
	a := g.do("GET", "/v1/roles/billing", "")
	a.want(200, "")
	var who map[string]any
	a.into(&who)
	keys := slices.Sorted(maps.Keys(who))
	if diff := cmp.Diff([]string{"address", "expires_in_ms", "id", "name", "primaries", "role", "since", "standbys", "term"}, keys); diff != "" {
		t.Errorf("fields of a role (-want +got):\n%s", diff)
	}
	if who["name"] != "one" || who["expires_in_ms"] != 5000.0 {
		t.Errorf("who: %s", a.Body)
	}
	var roles struct{ Roles []apitype.Role }
	g.do("GET", "/v1/roles", "").into(&roles)
	if len(roles.Roles) != 1 || roles.Roles[0].Primaries[0].Name != "one" || roles.Roles[0].Standbys[0].Name != "two" {
		t.Errorf("roles: %+v", roles)
	}

	g.do("POST", "/v1/roles/billing/resign", `{"to":"nobody"}`).want(400, "invalid")
	g.do("POST", "/v1/roles/billing/resign", `{"by":" x"}`).want(400, "invalid")
	g.do("POST", "/v1/roles/billing/resign", `{"to":"two","by":"alice"}`).want(202, "")
	var l apitype.Lease
	g.do("GET", "/v1/leases/role/billing", "").into(&l)
	if !l.Asked || l.AskedFor != "two" {
		t.Errorf("the holder is not told: %+v", l)
	}
	var h struct{ Events []history.Event }
	g.do("GET", "/v1/history?subject=billing&part=role&limit=1", "").into(&h)
	if len(h.Events) != 1 || h.Events[0].Reason != "asked to resign for two by alice (192.0.2.1)" {
		t.Errorf("history: %+v", h)
	}

	g.do("DELETE", "/v1/roles/billing", "").want(409, "held")
	if err := g.store.EndSession(t.Context(), two, "stopped"); err != nil {
		t.Fatal(err)
	}
	if err := g.store.EndSession(t.Context(), one, "stopped"); err != nil {
		t.Fatal(err)
	}
	g.do("DELETE", "/v1/roles/billing?by=alice", "").want(204, "")
	g.do("DELETE", "/v1/roles/billing", "").want(404, "not_found")
	g.do("GET", "/v1/history?subject=billing&part=role&limit=1", "").into(&h)
	if h.Events[0].Reason != "forgotten by alice (192.0.2.1)" {
		t.Errorf("history: %+v", h)
	}
}

// TestListsHavePages: each list that may grow long is read page by page, and whole at the end.
func TestListsHavePages(t *testing.T) {
	st := memory.New(nil)
	holder := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance("h", ""), Timing: lease.Timing{Interval: time.Minute, Timeout: time.Hour}}
	if _, err := st.StartSession(t.Context(), holder); err != nil {
		t.Fatal(err)
	}
	var checks []monitor.Check
	const all = 7
	for i := range all {
		name := fmt.Sprint("n", i)
		if _, err := st.Acquire(t.Context(), lease.Expectation{Lease: elect.Leases(name, 1)[0], Session: holder.ID}); err != nil {
			t.Fatal(err)
		}
		if err := st.QueueAdmin().CreateQueue(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		checks = append(checks, monitor.Check{Name: name, Interval: time.Second})
		if i > 0 { // with holder, as many as of the others
			n := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance(name, ""), Timing: holder.Timing}
			if _, err := st.StartSession(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := st.Monitor().Configure(t.Context(), monitor.Configuration{Checks: checks}); err != nil {
		t.Fatal(err)
	}
	// Only now: what it has read is served for a moment.
	s := start(t, Config{Store: st, Limits: Limits{Read: Rate{PerSecond: -1}, Act: Rate{PerSecond: -1}}})
	for _, path := range []string{"roles", "sessions", "queues", "checks"} {
		seen := map[string]bool{}
		for after, pages := "", 1; ; pages++ {
			a := send(t, s, request(t.Context(), "GET", "/v1/"+path+"?limit=3&after="+url.QueryEscape(after), ""))
			a.want(200, "")
			var page map[string]json.RawMessage
			a.into(&page)
			var rows []json.RawMessage
			if err := json.Unmarshal(page[path], &rows); err != nil {
				t.Fatalf("%s: %v in %s", path, err, a.Body)
			}
			for _, r := range rows {
				seen[string(r[:min(len(r), 90)])] = true
			}
			after = ""
			_ = json.Unmarshal(page["next"], &after)
			if after == "" {
				if pages != 3 {
					t.Errorf("%s came in %d pages of 3, want 3", path, pages)
				}
				break
			}
			if len(rows) != 3 || pages > 3 {
				t.Fatalf("page %d of %s has %d rows and goes on after %q", pages, path, len(rows), after)
			}
		}
		if len(seen) != all {
			t.Errorf("%s: %d rows, want %d", path, len(seen), all)
		}
		send(t, s, request(t.Context(), "GET", "/v1/"+path+"?limit=1001", "")).want(400, "invalid")
		if a := send(t, s, request(t.Context(), "GET", "/v1/"+path+"?contains=N3", "")); !strings.Contains(a.Body, `"n3"`) || strings.Contains(a.Body, `"n4"`) {
			t.Errorf("%s that contain N3: %s", path, a.Body)
		}
	}
}

func TestSelf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(nil)
		clock := bubbleClock{time.Now().Add(-time.Hour)}
		k, err := lease.NewKeeper(lease.KeeperConfig{Store: st, Instance: lease.NewInstance("one", ""), Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = k.Run(ctx) }()
		live, err := k.Session(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(Config{
			Store: failing{st, errors.New("self must not ask the store")}, Clock: clock, Keepers: []*lease.Keeper{k}, Roles: []string{"billing", "other"},
			Self: func(role string) (elect.Term, bool) {
				return elect.Term{Role: role, Number: 42, Session: live}, role == "billing"
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		do := func(method, path string) answer { return send(t, s, request(t.Context(), method, path, "")) }
		if a := do("GET", "/v1/roles/billing/self"); a.Status != 200 || !strings.Contains(a.Body, `"term":42`) {
			t.Errorf("primary: %d %s", a.Status, a.Body)
		}
		do("HEAD", "/v1/roles/billing/self").want(200, "")
		do("GET", "/v1/roles/other/self").want(503, "not_primary")
		do("GET", "/v1/roles/a%23b/self").want(400, "invalid")
		text := do("GET", "/metrics").Body
		for _, line := range []string{`understudy_role_held{role="billing"} 1`, `understudy_role_term{role="billing"} 42`, `understudy_role_held{role="other"} 0`, "understudy_sessions_started_total 1"} {
			if !strings.Contains(text, line+"\n") {
				t.Errorf("metrics lack %s", line)
			}
		}
		stop()
		<-done
		// The term is still claimed, but trust has ended.
		do("GET", "/v1/roles/billing/self").want(503, "not_primary")
		if text := do("GET", "/metrics").Body; !strings.Contains(text, `understudy_role_held{role="billing"} 0`+"\n") {
			t.Error("metrics believe a term without trust")
		}
	})
}

func TestHealthAndMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &flaky{Store: memory.New(nil)}
		s := start(t, Config{Store: st, Clock: bubbleClock{time.Now().Add(-time.Hour)}, Version: "v1.2.3"})
		do := func(path string) answer { return send(t, s, request(t.Context(), "GET", path, "")) }
		time.Sleep(time.Second)
		do("/healthz").want(200, "")
		do("/readyz").want(200, "")
		st.down.Store(true)
		time.Sleep(readyFor + 2*pollInterval)
		do("/healthz").want(200, "")
		do("/readyz").want(503, "not_ready")
		text := do("/metrics").Body
		for _, want := range []string{
			"understudy_store_up 0\n", `understudy_build_info{goversion="`, `version="v1.2.3"} 1`, "understudy_http_streams 0\n",
			`understudy_http_requests_total{code="200",route="GET /healthz"} 2`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("metrics lack %s", want)
			}
		}
		st.down.Store(false)
		time.Sleep(2 * pollInterval)
		do("/readyz").want(200, "")
	})
}

func TestMetricsStaySmall(t *testing.T) {
	g := newRig(t)
	lines := func() int { return strings.Count(g.do("GET", "/metrics", "").Body, "\nunderstudy_") }
	g.do("GET", "/v1/roles/x", "")
	g.do("GET", "/x", "")
	g.do("GET", "/metrics", "")
	before := lines()
	for n := range 200 {
		g.do("GET", fmt.Sprintf("/v1/roles/role-%d", n), "")
		g.do("GET", fmt.Sprintf("/x%d", n), "")
	}
	if after := lines(); after != before {
		t.Errorf("%d series before, %d after two hundred names", before, after)
	}
}

// nowhere takes beats, and keeps none.
type nowhere struct{}

func (nowhere) Record(_ context.Context, beats []monitor.Heartbeat) ([]monitor.Outcome, error) {
	return make([]monitor.Outcome, len(beats)), nil
}
func (nowhere) RecordProbe(context.Context) error { return nil }

func TestLongHeaderIsRefused(t *testing.T) {
	g := newRig(t)
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = NewHTTPServer(g.s.Handler(), nil)
	srv.Start()
	defer srv.Close()
	r, _ := http.NewRequest("GET", srv.URL+"/v1/roles", nil)
	r.Header.Set("X-Long", strings.Repeat("x", 4*maxHeader))
	answer, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a long header was answered %d", answer.StatusCode)
	}
}
