package api

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/memory"
)

// enough is how long a test waits for what takes milliseconds: a busy machine is given more.
const enough = 2 * time.Minute

// start runs a server until the test ends.
func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

// stepped is a wall clock for a store and a boot clock for a server, moved by
// hand, together or apart.
type stepped struct {
	mu   sync.Mutex
	wall time.Time
	boot time.Duration
}

func newStepped() *stepped {
	return &stepped{wall: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), boot: time.Hour}
}

func (c *stepped) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.boot = c.wall.Add(d), c.boot+d
}

func (c *stepped) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = c.wall.Add(d)
}

func (c *stepped) storeNow() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall
}

// Now implements [lease.Clock].
func (c *stepped) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.boot
}

// Wall implements [lease.Clock].
func (c *stepped) Wall() time.Time { return time.Unix(0, 0) }

// Timer implements [lease.Clock]; nothing here waits for it.
func (c *stepped) Timer(time.Duration) (<-chan time.Time, func() bool) {
	return nil, func() bool { return false }
}

// bubbleClock is the boot clock of a synctest bubble.
type bubbleClock struct{ began time.Time }

func (c bubbleClock) Now() time.Duration { return time.Since(c.began) }
func (c bubbleClock) Wall() time.Time    { return time.Now() }
func (c bubbleClock) Timer(d time.Duration) (<-chan time.Time, func() bool) {
	t := time.NewTimer(d)
	return t.C, t.Stop
}

// rig is a server without a network.
type rig struct {
	t     *testing.T
	store *memory.Store
	clock *stepped
	s     *Server
}

// leasesOnly is a store without queues and sources, as Redis is.
type leasesOnly struct {
	store.Store
	store.Shards
	store.Tokens
}

func newRig(t *testing.T) *rig {
	t.Helper()
	clock := newStepped()
	st := memory.New(clock.storeNow)
	free := Rate{PerSecond: -1}
	s, err := New(Config{Store: leasesOnly{st, st, st}, Clock: clock, Limits: Limits{Read: free, Act: free}})
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, store: st, clock: clock, s: s}
}

// answer is what a request got.
type answer struct {
	t      *testing.T
	Status int
	Header http.Header
	Body   string
}

func request(ctx context.Context, method, path, body string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	r.Host = "127.0.0.1:7600"
	return r
}

// send checks an answer that is no error against openapi.json, too.
func send(t *testing.T, s interface{ Handler() http.Handler }, r *http.Request) answer {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	a := answer{t: t, Status: w.Code, Header: w.Header(), Body: w.Body.String()}
	a.checkSchema(r)
	return a
}

func (g *rig) do(method, path, body string) answer {
	g.t.Helper()
	return send(g.t, g.s, request(g.t.Context(), method, path, body))
}

// into decodes the body.
func (a answer) into(v any) {
	a.t.Helper()
	if err := json.Unmarshal([]byte(a.Body), v); err != nil {
		a.t.Fatalf("%d: %v in %s", a.Status, err, a.Body)
	}
}

func (a answer) want(status int, code string) apitype.Problem {
	a.t.Helper()
	var p apitype.Problem
	if a.Status != status {
		a.t.Fatalf("answered %d %s, want %d", a.Status, a.Body, status)
	}
	if status < 300 && code == "" {
		return p
	}
	a.into(&p)
	if p.Code != code || p.Status != status || a.Header.Get("Content-Type") != "application/problem+json" {
		a.t.Fatalf("answered %s (%s), want the problem %s", a.Body, a.Header.Get("Content-Type"), code)
	}
	return p
}

// session starts a session with T = 5 s and I = 1 s unless told otherwise.
func (g *rig) session(name string) string {
	g.t.Helper()
	a := g.do("POST", "/v1/sessions", `{"name":"`+name+`"}`)
	a.want(201, "")
	var out struct{ Session string }
	a.into(&out)
	return out.Session
}

// put asks for role/billing.
func (g *rig) put(session string) answer {
	g.t.Helper()
	return g.do("PUT", "/v1/leases/role/billing", `{"session":"`+session+`"}`)
}

func (g *rig) get() lease.Lease {
	g.t.Helper()
	l, err := g.store.Get(g.t.Context(), lease.ID{Space: "role", Key: "billing"})
	if err != nil {
		g.t.Fatal(err)
	}
	return l
}

// pipes are connections within a synctest bubble, whose deadlines are of its clock.
type pipes struct {
	url    string
	client *http.Client
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

func newPipes(t *testing.T) *pipes {
	t.Helper()
	p := &pipes{url: "http://" + thisHost{}.String(), conns: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		select {
		case p.conns <- pipe{theirs}:
			return ours, nil
		case <-p.closed:
			return nil, net.ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	transport := &http.Transport{DialContext: dial}
	p.client = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	return p
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.close(); return nil }
func (p *pipes) Addr() net.Addr { return thisHost{} }

// pipe looks to the server as if it came from this host.
type pipe struct{ net.Conn }

func (pipe) LocalAddr() net.Addr  { return thisHost{} }
func (pipe) RemoteAddr() net.Addr { return thisHost{} }

type thisHost struct{}

func (thisHost) Network() string { return "tcp" }
func (thisHost) String() string  { return "127.0.0.1:7600" }
