package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/startlistener"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/intake"
	"github.com/understudy-ha/understudy/shard/catalog"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// TestRoutesSeeds sends requests that are made from the description of the API, valid ones and broken ones, to every route
// of a server with every part, and bytes that are no requests. Each answer is one that is described, each refusal is a
// problem that is not the server's own fault, and afterwards the server holds no more than before.
// UNDERSTUDY_SEED repeats a run; UNDERSTUDY_PROVE=1 makes it a hundred times longer.
func TestRoutesSeeds(t *testing.T) {
	requests := 2000
	if os.Getenv("UNDERSTUDY_PROVE") == "1" {
		requests = 200_000
	}
	seed := rand.Uint64()
	if text := os.Getenv("UNDERSTUDY_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("UNDERSTUDY_SEED=%d", seed)
	s := startFuzzed(t)
	s.run(seed, requests/10)
	before := s.measure()
	s.run(seed+1, requests-requests/10)
	t.Attr("tried", fmt.Sprintf("%d requests of every route", requests))
	var after footprint
	realserver.Eventually(t, time.Minute, "the server gives back what the requests took", func() error {
		after = s.measure()
		if after.goroutines > before.goroutines+20 || after.files > before.files+20 || after.heap > 2*before.heap+(64<<20) {
			return fmt.Errorf("before: %+v, after: %+v", before, after)
		}
		return nil
	})
	if len(s.routes) != len(s.answered) {
		t.Errorf("of %d routes %d were answered: %v", len(s.routes), len(s.answered), slices.Sorted(maps.Keys(s.answered)))
	}
	t.Logf("before: %+v, after: %+v", before, after)
}

// footprint is what a server takes.
type footprint struct {
	goroutines, files int
	heap              uint64
}

// fuzzed is a server with every part, its description, and what is known of its answers.
type fuzzed struct {
	t      *testing.T
	addr   string
	client *http.Client
	doc    map[string]any
	routes []fuzzedRoute

	mu       sync.Mutex
	answered map[string]int // by route
	sessions []string       // that were started
	failures int
}

type fuzzedRoute struct {
	method, path string
	operation    map[string]any
}

func startFuzzed(t *testing.T) *fuzzed {
	t.Helper()
	st, err := sqlite.Open(t.Context(), sqlite.Config{Path: t.TempDir() + "/fuzz.db"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	free := fmt.Sprintf("tcp://127.0.0.1:%d", realserver.FreePort(t))
	peer, err := cache.New(cache.Config{
		Self: free, Members: []protocol.Member{{URL: free, API: fmt.Sprintf("tcp://127.0.0.1:%d", realserver.FreePort(t))}},
		MaxKeys: 100, MaxBytes: 32 << 20,
		Origin: func(_ context.Context, f cache.Fetch) (cache.Value, error) {
			if len(f.Key)%3 == 0 {
				return cache.Value{}, errors.New("no")
			}
			return cache.Value{Data: []byte(f.Key)}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	in, err := monitor.NewIntake(monitor.IntakeConfig{Store: st.Monitor()})
	if err != nil {
		t.Fatal(err)
	}
	beats, err := intake.NewHTTP(intake.HTTPConfig{Flow: in.OpenPath(monitor.PathConfig{Name: "http", Synchronous: true}), Rejected: intake.NewRejectedInputs(10)})
	if err != nil {
		t.Fatal(err)
	}
	views, err := catalog.New(catalog.Config{Registry: st.Registry()})
	if err != nil {
		t.Fatal(err)
	}
	unlimited := api.Rate{PerSecond: -1}
	server, err := api.New(api.Config{
		Store: st, Cache: peer, Shards: views, Monitor: &api.Monitor{HTTP: beats, Intake: in},
		Limits: api.Limits{Read: unlimited, Act: unlimited, Ingest: unlimited},
	})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, st)
	for _, run := range []func(context.Context) error{peer.Run, in.Run, views.Run, server.Run} {
		running.Go(func() { _ = run(ctx) })
	}
	<-peer.Ready()
	l, err := startlistener.Listen("listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	door := startlistener.Open(l, slog.New(slog.DiscardHandler), "")
	door.Lead(server.Handler())
	t.Cleanup(func() { door.Close(context.Background()) })
	s := &fuzzed{t: t, addr: door.Addr, answered: map[string]int{}, client: &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 8},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	s.describe()
	return s
}

// fill makes something for the requests to find.
func fill(t *testing.T, st *sqlite.Store) {
	t.Helper()
	err := st.QueueAdmin().CreateQueue(t.Context(), "orders")
	if err == nil {
		_, err = st.QueueAdmin().Add(t.Context(), []dispatch.Message{dispatch.Message{Queue: "orders", Key: "k", ID: "m1"}.WithDefaults()})
	}
	if err == nil {
		_, err = st.StartSession(t.Context(), lease.Session{ID: "s1", Instance: lease.NewInstance("web-1", ""), Timing: lease.Timing{Interval: time.Minute, Timeout: time.Hour}})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// describe reads the description that the server gives.
func (s *fuzzed) describe() {
	s.t.Helper()
	answer, err := s.client.Get("http://" + s.addr + "/openapi.json")
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&s.doc); err != nil {
		s.t.Fatal(err)
	}
	paths := s.doc["paths"].(map[string]any)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		for method, operation := range paths[path].(map[string]any) {
			s.routes = append(s.routes, fuzzedRoute{strings.ToUpper(method), path, operation.(map[string]any)})
		}
	}
	slices.SortFunc(s.routes, func(a, b fuzzedRoute) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	if len(s.routes) < 60 {
		s.t.Fatalf("only %d routes", len(s.routes))
	}
}

// run sends n requests from a few callers at once.
func (s *fuzzed) run(seed uint64, n int) {
	const callers = 8
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			z := &fuzzer{s: s, rng: rand.New(rand.NewPCG(seed, uint64(caller)))}
			for i := caller; i < n; i += callers {
				if z.rng.IntN(20) == 0 {
					z.sendBytes()
				} else {
					z.sendRequest(s.routes[(i/callers*callers+caller)%len(s.routes)])
				}
			}
		})
	}
	all.Wait()
}

func (s *fuzzed) measure() footprint {
	s.client.CloseIdleConnections()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	open, _ := os.ReadDir("/proc/self/fd") // empty where there is none
	return footprint{runtime.NumGoroutine(), len(open), m.HeapAlloc}
}

// fail reports an answer that is wrong, the first ones in full.
func (s *fuzzed) fail(what string, about ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures++; s.failures <= 20 {
		s.t.Errorf("VIOLATION %s: %.600s", what, fmt.Sprint(about...))
	}
}

// note remembers what later requests may name.
func (s *fuzzed) note(route fuzzedRoute, status int, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered[route.method+" "+route.path]++
	var started struct{ Session string }
	if route.path == "/v1/sessions" && status == http.StatusCreated && json.Unmarshal(body, &started) == nil && len(s.sessions) < 100 {
		s.sessions = append(s.sessions, started.Session)
	}
}

// fuzzer is one caller.
type fuzzer struct {
	s   *fuzzed
	rng *rand.Rand
}

func pick[T any](z *fuzzer, from ...T) T { return from[z.rng.IntN(len(from))] }

// hostile are texts that parsers, stores and terminals take badly.
func (z *fuzzer) hostile() string {
	return pick(z, "", ".", "..", "/", "a/b", "%2e%2e", "%zz", "\x00", "a\x00b", "\xff\xfe", "é", "\u202etxt", "日本", "a\r\nX-Injected: 1", "'; DROP TABLE session;--",
		`{"a":1}`, "-1", "0", "9223372036854775808", "-9223372036854775808", "1e400", "NaN", "true", "null", "*", "\t", " ", strings.Repeat("a", 300), strings.Repeat("é", 2000), "1h", "-5s", "2562048h")
}

// value is one for a parameter or a field of this name.
func (z *fuzzer) value(name string) string {
	if z.rng.IntN(4) == 0 {
		return z.hostile()
	}
	known := map[string][]string{
		"space": {"role", "lock", "jobs"}, "role": {"billing", "reports"}, "key": {"k", "billing", "lock-1", "customer-7"}, "queue": {"orders", "other"}, "id": {"m1", "m2", "1"},
		"check": {"hb", "disk"}, "source": {"db-1", "db-2"}, "shard": {"main", "s1"}, "node": {"127.0.0.1:6379"}, "alarm": {"1", "2"}, "wait": {"0s", "1ms", "20ms"},
		"limit": {"1", "100", "1000", "1001"}, "what": {"acknowledge", "pause"}, "interval": {"1s"}, "timeout": {"5s", "1h"}, "to": {"web-2"}, "by": {"carol"}, "name": {"web-1", "roles"},
	}
	if name == "session" {
		z.s.mu.Lock()
		defer z.s.mu.Unlock()
		return pick(z, append(slices.Clone(z.s.sessions), "s1", "none")...)
	}
	if some := known[name]; some != nil {
		return pick(z, some...)
	}
	return pick(z, "a", "1", "x-1", "5s", "true")
}

// sendRequest sends one request of a route.
func (z *fuzzer) sendRequest(route fuzzedRoute) {
	path, whole := "", true
	for part := range strings.SplitSeq(strings.TrimPrefix(route.path, "/"), "/") {
		if name, is := strings.CutPrefix(part, "{"); is {
			part = z.value(strings.TrimSuffix(name, "}"))
			whole = whole && part != "" && part != "." && part != ".." && !strings.Contains(part, "/")
			part = url.PathEscape(part)
		}
		path += "/" + part
	}
	query := url.Values{}
	params, _ := route.operation["parameters"].([]any)
	for _, p := range params {
		p := p.(map[string]any)
		if name, _ := p["name"].(string); p["in"] == "query" && z.rng.IntN(2) == 0 {
			query.Add(name, z.value(name))
		}
	}
	if z.rng.IntN(20) == 0 {
		query.Add(z.hostile(), z.hostile())
	}
	body, kind := z.body(route.operation)
	ctx, cancel := context.WithTimeout(z.s.t.Context(), 5*time.Second)
	defer cancel()
	target := "http://" + z.s.addr + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, route.method, target, bytes.NewReader(body))
	if err != nil {
		return // not even a request
	}
	r.Header.Set("Content-Type", kind)
	for name, values := range map[string][]string{
		"Range": {"bytes=0-0", "bytes=999999-", "bytes=5-1", "lines=1"}, "If-None-Match": {`"x"`, "*", "x"}, "Last-Event-ID": {"0", "-1", "x", "9223372036854775807"},
		"Cache-Control": {"no-cache", "max-age=-1", "only-if-cached", "max-age=1e9"}, "Accept": {"text/html", "*/*;q=x"}, "Authorization": {"Bearer x", "Basic eDp4"},
	} {
		if z.rng.IntN(12) == 0 {
			r.Header.Set(name, pick(z, values...))
		}
	}
	answer, err := z.s.client.Do(r)
	if err != nil {
		if ctx.Err() == nil {
			z.s.fail("no answer", route.method, " ", target, ": ", err)
		}
		return
	}
	defer answer.Body.Close()
	if strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") {
		z.s.note(route, answer.StatusCode, nil)
		return // it has no end
	}
	text, err := io.ReadAll(answer.Body)
	if err != nil && ctx.Err() == nil {
		z.s.fail("an answer that ends", route.method, " ", target, ": ", err)
	}
	z.s.note(route, answer.StatusCode, text)
	z.check(route, answer, text, whole, fmt.Sprintf("%s %s %.300q", route.method, target, body))
}

// check judges an answer.
func (z *fuzzer) check(route fuzzedRoute, answer *http.Response, body []byte, whole bool, about string) {
	status := answer.StatusCode
	described := route.operation["responses"].(map[string]any)
	switch {
	case described[strconv.Itoa(status)] != nil:
	case !whole && (status >= 300 && status < 310 || status == http.StatusNotFound || status == http.StatusMethodNotAllowed):
		return // a path that is another one
	case status == http.StatusRequestHeaderFieldsTooLarge && len(about) > 16<<10:
		return // by the HTTP server, before any route
	default:
		z.s.fail("a status that is not described", status, " to ", about, ": ", string(body))
	}
	// A sender of VES events or heartbeats reads what became of them, in its own form.
	own, _ := described[strconv.Itoa(status)].(map[string]any)
	if form, _ := own["content"].(map[string]any); status < 400 || form["application/json"] != nil {
		return
	}
	var p struct {
		Status       int
		Code, Detail string
	}
	if kind := answer.Header.Get("Content-Type"); kind != "application/problem+json" {
		z.s.fail("a refusal that is no problem", status, " ", kind, " to ", about, ": ", string(body))
	} else if err := json.Unmarshal(body, &p); err != nil || p.Status != status || p.Code == "" || p.Code == "internal" {
		z.s.fail("a problem", status, " to ", about, ": ", string(body), err)
	}
}

// body is one for an operation: as it is described, broken, or nothing of the kind.
func (z *fuzzer) body(operation map[string]any) (body []byte, kind string) {
	described, _ := operation["requestBody"].(map[string]any)
	content, _ := described["content"].(map[string]any)
	if content == nil && z.rng.IntN(10) > 0 {
		return nil, ""
	}
	kind = "application/json"
	var v any
	if of, ok := content[kind].(map[string]any); ok {
		v = z.instance(of["schema"], 6)
	} else {
		v = z.value("key")
	}
	text, err := json.Marshal(v)
	if err != nil {
		text = []byte("{}")
	}
	switch z.rng.IntN(12) {
	case 0:
		text = text[:z.rng.IntN(len(text)+1)]
	case 1:
		text = append(text, text...)
	case 2:
		if len(text) > 0 {
			text[z.rng.IntN(len(text))] = byte(z.rng.Uint32())
		}
	case 3:
		text = []byte(strings.Repeat(`{"a":[`, 5000))
	case 4:
		text = []byte(pick(z, "", "null", "[]", "0", `"x"`, "{", `{"":1}`, "\xff", strings.Repeat("[0,", 1000)))
	case 5:
		kind = pick(z, "", "text/plain", "application/x-www-form-urlencoded", "application/octet-stream", "x")
	}
	return text, kind
}

// instance is a value of a schema, or sometimes of none.
func (z *fuzzer) instance(schema any, depth int) any {
	of, _ := schema.(map[string]any)
	if ref, ok := of["$ref"].(string); ok {
		name := ref[strings.LastIndexByte(ref, '/')+1:]
		of, _ = z.s.doc["components"].(map[string]any)["schemas"].(map[string]any)[name].(map[string]any)
	}
	if depth == 0 || z.rng.IntN(25) == 0 {
		return pick[any](z, nil, true, -1, 1e300, z.hostile(), []any{}, map[string]any{"a": 1})
	}
	if some, ok := of["enum"].([]any); ok {
		return pick(z, some...)
	}
	properties, _ := of["properties"].(map[string]any)
	if properties != nil {
		out := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			if z.rng.IntN(3) > 0 {
				out[name] = z.field(name, properties[name], depth-1)
			}
		}
		if z.rng.IntN(20) == 0 {
			out[z.hostile()] = 1
		}
		return out
	}
	return z.field("", of, depth)
}

func (z *fuzzer) field(name string, schema any, depth int) any {
	of, _ := schema.(map[string]any)
	kind := of["type"]
	if several, ok := kind.([]any); ok {
		kind = pick(z, several...)
	}
	switch kind {
	case "string":
		return z.value(name)
	case "integer", "number":
		return pick[any](z, 0, 1, 5000, 60_000, -1, int64(1)<<62, 1.5)
	case "boolean":
		return z.rng.IntN(2) == 0
	case "array":
		out := []any{}
		for range z.rng.IntN(3) {
			out = append(out, z.instance(of["items"], depth))
		}
		return out
	case "object":
		if of["properties"] == nil {
			return map[string]any{z.value("key"): z.value("value")}
		}
	case nil:
		if of["$ref"] == nil {
			return z.value(name)
		}
	case "null":
		return nil
	}
	if depth <= 0 {
		return nil
	}
	return z.instance(of, depth)
}

// sendBytes sends what is no request, or no whole one.
func (z *fuzzer) sendBytes() {
	c, err := (&net.Dialer{Timeout: 5 * time.Second}).Dial("tcp", z.s.addr)
	if err != nil {
		z.s.fail("no connection", err)
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	host := "Host: " + z.s.addr + "\r\n"
	text := pick(z,
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "GET\r\n\r\n", "GET / HTTP/9.9\r\n"+host+"\r\n", "GET /v1/roles HTTP/1.1\r\n\r\n", "G\x00T / HTTP/1.1\r\n"+host+"\r\n",
		"GET /v1/roles HTTP/1.1\r\n"+host+"X: "+strings.Repeat("x", 60_000)+"\r\n\r\n", "POST /v1/queues HTTP/1.1\r\n"+host+"Content-Length: x\r\n\r\n",
		"POST /v1/queues HTTP/1.1\r\n"+host+"Transfer-Encoding: gzip\r\n\r\n", "POST /v1/queues HTTP/1.1\r\n"+host+"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
		"GET http://[::1/ HTTP/1.1\r\n"+host+"\r\n", "GET /%zz HTTP/1.1\r\n"+host+"\r\n", "OPTIONS * HTTP/1.1\r\n"+host+"\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", z.hostile()+"\r\n\r\n",
		"GET /"+strings.Repeat("a", 20_000)+" HTTP/1.1\r\n"+host+"\r\n", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
	if _, err := io.WriteString(c, text); err == nil {
		_ = c.(*net.TCPConn).CloseWrite()
	}
	in := bufio.NewReader(c)
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		return // closed without a word, as for a request that never ended
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	if kind := answer.Header.Get("Content-Type"); answer.StatusCode >= 400 && kind != "application/problem+json" {
		z.s.fail("a refusal that is no problem", answer.StatusCode, " ", kind, " to ", fmt.Sprintf("%.200q", text), ": ", string(body))
	}
	if answer.StatusCode >= 500 && answer.StatusCode != http.StatusNotImplemented && answer.StatusCode != http.StatusHTTPVersionNotSupported {
		z.s.fail("a fault of the server", answer.StatusCode, " to ", fmt.Sprintf("%.200q", text), ": ", string(body))
	}
}
