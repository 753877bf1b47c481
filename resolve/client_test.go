package resolve_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/resolve"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/shardtest"
	"github.com/understudy-ha/understudy/store/memory"
)

// stepped is a clock that stands still, however long a busy machine takes, until a test moves it on.
type stepped struct {
	lease.Clock
	ahead atomic.Int64
}

func (s *stepped) Now() time.Duration { return time.Hour + time.Duration(s.ahead.Load()) }

// world is a server of a real API on a store in memory.
type world struct {
	t     *testing.T
	store *memory.Store
	srv   *httptest.Server
	asked atomic.Int64
}

func newWorld(t *testing.T, cfg api.Config) *world {
	t.Helper()
	w := &world{t: t, store: memory.New(nil)}
	cfg.Store = w.store
	s, err := api.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h := s.Handler()
	w.srv = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.asked.Add(1)
		h.ServeHTTP(rw, r)
	}))
	t.Cleanup(w.srv.Close)
	return w
}

// hold makes a new instance the holder of a role; the former gives it up.
func (w *world) hold(role, name, address string) {
	w.t.Helper()
	ctx, id := w.t.Context(), elect.Leases(role, 1)[0]
	s := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance(name, address), Timing: lease.Timing{Interval: time.Second, Timeout: time.Minute}}
	_, err := w.store.StartSession(ctx, s)
	if err != nil {
		w.t.Fatal(err)
	}
	old, err := w.store.Get(ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	if old.Held() {
		if err := w.store.EndSession(ctx, old.Session, "over"); err != nil {
			w.t.Fatal(err)
		}
		old, _ = w.store.Get(ctx, id)
	}
	if _, err := w.store.Acquire(ctx, lease.Expectation{Lease: id, Session: s.ID, Seen: old.Seen()}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) client(change func(*resolve.ClientConfig)) *resolve.Client {
	w.t.Helper()
	cfg := resolve.ClientConfig{
		Servers: []string{w.srv.URL}, Interval: 20 * time.Millisecond, Timeout: 10 * time.Second,
		HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	}
	if change != nil {
		change(&cfg)
	}
	c, err := resolve.NewClient(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func TestLookup(t *testing.T) {
	views := shardtest.NewViews(view())
	w := newWorld(t, api.Config{Shards: views})
	w.hold("billing", "web-1", "10.0.0.1:80")
	clock := &stepped{Clock: lease.BootClock()}
	c := w.client(func(cfg *resolve.ClientConfig) { cfg.Clock = clock })
	for range 3 {
		a, err := c.Lookup(t.Context(), "billing")
		if err != nil || len(a.Holders) != 1 || a.Holders[0].Name != "web-1" || a.Holders[0].Term == 0 || a.TTL <= 0 || a.TTL > resolve.DefaultMaxAge {
			t.Fatalf("%v for %v, %v", a, a.TTL, err)
		}
	}
	if n := w.asked.Load(); n != 1 {
		t.Errorf("asked %d times for what may be remembered", n)
	}
	for name, want := range map[string]error{
		"nobody": resolve.ErrVacant, "primary/none": resolve.ErrUnknown, "primary/or ders": lease.ErrInvalid,
	} {
		if _, err := c.Lookup(t.Context(), name); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	if a, err := c.Lookup(t.Context(), "primary/orders"); err != nil || a.Holders[0].Address != "a:1" || a.Holders[0].Term != 9 || a.TTL > 4*time.Second {
		t.Errorf("primary: %v for %v, %v", a, a.TTL, err)
	}
	if a, err := c.Lookup(t.Context(), "replica/orders"); err != nil || len(a.Holders) != 2 {
		t.Errorf("replicas: %v, %v", a, err)
	}

	// The server dies: what is known is believed to its end, and no longer.
	w.srv.Close()
	if _, err := c.Lookup(t.Context(), "billing"); err != nil {
		t.Errorf("remembered: %v", err)
	}
	clock.ahead.Add(int64(resolve.DefaultMaxAge))
	if a, err := c.Lookup(t.Context(), "billing"); !errors.Is(err, resolve.ErrStale) || len(a.Holders) > 0 {
		t.Errorf("after its end: %v, %v", a, err)
	}
}

func TestOtherServer(t *testing.T) {
	w := newWorld(t, api.Config{Shards: shardtest.NewViews(view())})
	w.hold("billing", "web-1", "10.0.0.1:80")
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	broken := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, "<html>not what was asked for")
	}))
	defer broken.Close()
	other := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, `{"status":"ok"}`)
	}))
	defer other.Close()
	for _, name := range []string{"billing", "primary/orders"} {
		c := w.client(func(cfg *resolve.ClientConfig) {
			cfg.Servers = []string{"http://" + gone.Addr().String(), broken.URL, other.URL, w.srv.URL}
		})
		if a, err := c.Lookup(t.Context(), name); err != nil || len(a.Holders) != 1 {
			t.Errorf("%s: %v, %v", name, a, err)
		}
	}
}

// TestLeaseHasEnded: a server whose reading is older than the lease in it cannot say, whatever was about to happen then, and the
// next one is asked.
func TestLeaseHasEnded(t *testing.T) {
	moving := view()
	moving.Row.Name, moving.Row.Plan = "moving", &shard.Plan{Phase: shard.Pausing}
	old := shardtest.NewViews(view(), moving)
	w, next := newWorld(t, api.Config{Shards: old}), newWorld(t, api.Config{Shards: shardtest.NewViews(view(), moving)})
	longest := time.Minute
	client := func(servers ...string) *resolve.Client {
		return w.client(func(cfg *resolve.ClientConfig) {
			cfg.Servers, cfg.MaxAge, cfg.Clock = servers, longest, &stepped{Clock: lease.BootClock()}
		})
	}
	for _, name := range []string{"primary/orders", "primary/moving"} {
		old.Age = 3500 * time.Millisecond // of the 4 s that are left; the server says 3 s
		if a, err := client(w.srv.URL).Lookup(t.Context(), name); err != nil || a.TTL != 0 || len(a.Holders) != 1 {
			t.Errorf("%s, which may have ended: %v for %v, %v", name, a, a.TTL, err)
		}
		old.Age = 4 * time.Second
		if a, err := client(w.srv.URL).Lookup(t.Context(), name); !errors.Is(err, resolve.ErrStale) {
			t.Errorf("%s, which has ended: %v for %v, %v", name, a, a.TTL, err)
		}
		if a, err := client(w.srv.URL, next.srv.URL).Lookup(t.Context(), name); err != nil || len(a.Holders) != 1 {
			t.Errorf("%s, from the next server: %v, %v", name, a, err)
		}
	}

	// The same of the age that the client allows.
	longest = time.Second
	for _, name := range []string{"primary/orders", "replica/orders"} {
		old.Age = 500 * time.Millisecond
		if a, err := client(w.srv.URL).Lookup(t.Context(), name); err != nil || a.TTL != 0 || len(a.Holders) == 0 {
			t.Errorf("%s, which may be too old: %v for %v, %v", name, a, a.TTL, err)
		}
		old.Age = time.Second
		if a, err := client(w.srv.URL).Lookup(t.Context(), name); !errors.Is(err, resolve.ErrStale) {
			t.Errorf("%s, which is too old: %v for %v, %v", name, a, a.TTL, err)
		}
	}
}

func TestTokenIsRefused(t *testing.T) {
	w := newWorld(t, api.Config{Token: "0123456789abcdef"})
	w.hold("billing", "web-1", "10.0.0.1:80")
	if _, err := w.client(nil).Lookup(t.Context(), "billing"); err == nil || errors.Is(err, resolve.ErrStale) || !strings.Contains(err.Error(), "401") {
		t.Errorf("without a token: %v", err)
	}
	c := w.client(func(cfg *resolve.ClientConfig) { cfg.Token = "0123456789abcdef" })
	if _, err := c.Lookup(t.Context(), "billing"); err != nil {
		t.Errorf("with it: %v", err)
	}
}

func TestWatch(t *testing.T) {
	w := newWorld(t, api.Config{})
	c := w.client(nil)
	stop := errors.New("enough")
	var got []string
	err := c.Watch(t.Context(), "billing", func(a resolve.Answer) error {
		name := ""
		if len(a.Holders) > 0 {
			name = a.Holders[0].Name
		}
		got = append(got, name)
		switch name {
		case "":
			w.hold("billing", "web-1", "10.0.0.1:80")
		case "web-1":
			w.hold("billing", "web-2", "10.0.0.2:80")
		default:
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || len(got) < 3 || got[0] != "" || got[len(got)-1] != "web-2" {
		t.Errorf("%q, %v", got, err)
	}
}

// echo greets with its name and keeps connections open.
func echo(t *testing.T, name string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				_, _ = io.WriteString(c, name)
				_, _ = io.Copy(io.Discard, c)
			})
		}
	})
	t.Cleanup(func() { l.Close(); conns.Wait() })
	return l.Addr().String()
}

func TestDial(t *testing.T) {
	w := newWorld(t, api.Config{})
	one, two := echo(t, "1"), echo(t, "2")
	w.hold("billing", "web-1", one)
	d, err := w.client(nil).Dialer("billing")
	if err != nil {
		t.Fatal(err)
	}
	greeted := func() (net.Conn, string) {
		t.Helper()
		conn, err := d.DialContext(t.Context(), "tcp", "whatever:80")
		// It may have asked between the end of one holder and the beginning of the next, and remembers that.
		for deadline := time.Now().Add(time.Minute); errors.Is(err, resolve.ErrVacant) && time.Now().Before(deadline); {
			<-time.After(10 * time.Millisecond)
			conn, err = d.DialContext(t.Context(), "tcp", "whatever:80")
		}
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1)
		if _, err := io.ReadFull(conn, b); err != nil {
			t.Fatal(err)
		}
		return conn, string(b)
	}
	conn, got := greeted()
	if got != "1" {
		t.Errorf("reached %q", got)
	}
	w.hold("billing", "web-2", two)
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the connection to the former primary: %v", err)
	}
	for range 2 { // a dialer that was closed can be used again
		if _, got = greeted(); got != "2" {
			t.Errorf("reached %q", got)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	w.hold("billing", "web-3", "no address")
	if d, err = w.client(nil).Dialer("billing"); err != nil { // which remembers nothing
		t.Fatal(err)
	}
	if _, err := d.DialContext(t.Context(), "tcp", "whatever:80"); !errors.Is(err, lease.ErrInvalid) {
		t.Errorf("an address that is none: %v", err)
	}
}

func TestClientConfig(t *testing.T) {
	for name, c := range map[string]resolve.ClientConfig{
		"no server": {}, "no URL": {Servers: []string{"127.0.0.1:7600"}}, "negative": {Servers: []string{"http://x"}, Timeout: -1},
		"too short": {Servers: []string{"http://x"}, MaxAge: 999 * time.Millisecond},
	} {
		if _, err := resolve.NewClient(c); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
