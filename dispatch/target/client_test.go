package target

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

// deafConn refuses writes once it is told to, without writing anything.
type deafConn struct {
	net.Conn
	deaf *atomic.Bool
}

func (c deafConn) Write(p []byte) (int, error) {
	if c.deaf.Load() {
		return 0, errors.New("deaf")
	}
	return c.Conn.Write(p)
}

// TestStaleConnection: a kept connection to which nothing could be written is
// replaced by a new one.
func TestStaleConnection(t *testing.T) {
	var requests atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer s.Close()
	hook, err := NewWebhook(WebhookConfig{HTTPConfig: HTTPConfig{URL: s.URL, IdleTimeout: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	var dials atomic.Int32
	var deaf atomic.Bool
	hook.client.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if dials.Add(1) == 1 {
			conn = deafConn{conn, &deaf}
		}
		return &countingConn{Conn: conn, clock: hook.client.clock}, nil
	}
	a := dispatch.Assignment{Message: dispatch.Message{ID: "i", Key: "k", Queue: "q", Payload: []byte("x")}, Attempt: 1}
	for i := range 2 {
		if got := hook.Submit(t.Context(), a); got.Outcome != dispatch.Done {
			t.Errorf("submission %d: %+v", i+1, got)
		}
		deaf.Store(true)
	}
	if dials.Load() != 2 || requests.Load() != 2 {
		t.Errorf("%d connections, %d requests", dials.Load(), requests.Load())
	}
	// One that never worked is not replaced, and nothing was sent on it.
	dials.Store(0)
	hook.client.transport.CloseIdleConnections()
	if got := hook.Submit(t.Context(), a); got.Outcome != dispatch.Busy || dials.Load() != 1 {
		t.Errorf("got %+v after %d connections", got, dials.Load())
	}
}

// heldUp is the clock of a process that was held up for a minute after the first reading of a request.
type heldUp struct {
	lease.Clock
	readings atomic.Int32
}

func (c *heldUp) Now() time.Duration {
	if c.readings.Add(1) == 1 {
		return c.Clock.Now()
	}
	return c.Clock.Now() + time.Minute
}

// TestHeldUp: a process that continues after the deadline of its request, before it has sent it, does not send it,
// although its timers have not fired yet.
func TestHeldUp(t *testing.T) {
	var requests atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer s.Close()
	hook, err := NewWebhook(WebhookConfig{HTTPConfig: HTTPConfig{URL: s.URL}})
	if err != nil {
		t.Fatal(err)
	}
	hook.client.clock = &heldUp{Clock: lease.BootClock()}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	a := dispatch.Assignment{Message: dispatch.Message{ID: "i", Key: "k", Queue: "q", Payload: []byte("x")}, Attempt: 1}
	if got := hook.Submit(ctx, a); got.Outcome != dispatch.Busy || requests.Load() != 0 {
		t.Errorf("got %+v after %d requests", got, requests.Load())
	}
	if got := hook.Submit(t.Context(), a); got.Outcome != dispatch.Done || requests.Load() != 1 {
		t.Errorf("without a deadline: %+v after %d requests", got, requests.Load())
	}
}

func TestTokenFileChanges(t *testing.T) {
	// A token that is younger than a second is not read again; an older one is.
	path := t.TempDir() + "/token"
	put := func(s string, at time.Time) {
		t.Helper()
		writeFile(t, path, s, at)
	}
	put("one", time.Now().Add(-time.Hour))
	f := &tokenFile{path: path}
	if got, err := f.get(); got != "one" || err != nil {
		t.Fatal(got, err)
	}
	put("Bearer two", time.Now())
	f.looked = time.Now()
	if got, _ := f.get(); got != "one" {
		t.Errorf("looked again at once: %s", got)
	}
	f.looked = f.looked.Add(-2 * tokenEvery)
	if got, err := f.get(); got != "two" || err != nil {
		t.Error(got, err)
	}
}

// cpuTime is what this process has used, sink and all: on a busy machine a better
// measure than the time that passed.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkSubmit(b *testing.B) {
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer s.Close()
	payload := []byte(strings.Repeat("x", 256))
	run := func(b *testing.B, send func() bool) {
		b.ReportAllocs()
		b.SetParallelism(50)
		cpu := cpuTime(b)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if !send() {
					b.Fail()
				}
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "posts/s")
		b.ReportMetric(float64((cpuTime(b)-cpu).Nanoseconds())/float64(b.N), "cpu-ns/op")
	}
	for name, secret := range map[string][]byte{"webhook": nil, "webhook-signed": []byte("secret")} {
		b.Run(name, func(b *testing.B) {
			hook, err := NewWebhook(WebhookConfig{HTTPConfig: HTTPConfig{URL: s.URL, Concurrency: 100}, Secret: secret})
			if err != nil {
				b.Fatal(err)
			}
			a := dispatch.Assignment{Message: dispatch.Message{
				ID: "0123456789", Key: "key-17", Queue: "orders", ContentType: "application/json", Payload: payload,
			}, Attempt: 1, Seq: 17, Term: 1234567890123}
			run(b, func() bool {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				return hook.Submit(ctx, a).Outcome == dispatch.Done
			})
		})
	}
	b.Run("net-http", func(b *testing.B) {
		client := &http.Client{Transport: &http.Transport{MaxIdleConns: 100, MaxIdleConnsPerHost: 100}}
		run(b, func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, strings.NewReader(string(payload)))
			if err != nil {
				return false
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := client.Do(req)
			if err != nil {
				return false
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			return resp.Body.Close() == nil
		})
	})
}

// TestLocation: a location on the same host is asked however it is written, and no other.
func TestLocation(t *testing.T) {
	for _, c := range []struct{ base, link, want string }{
		{"https://a.example/hook", "/status/1", ""},
		{"https://a.example/hook", "https://A.Example:443/status/1", ""},
		{"https://a.example:443/hook", "https://a.example/status/1", ""},
		{"http://a.example/hook", "http://a.example:80/status/1", ""},
		{"http://[::1]:8080/hook", "http://[::1]:8080/status", ""},
		{"https://a.example/hook", "https://a.example:8443/status/1", "another host (a.example:8443)"},
		{"https://a.example/hook", "https://b.example/status/1", "another host (b.example)"},
		{"https://a.example/hook", "https://user@a.example/status/1", "has a user"},
		{"https://a.example/hook", "http://a.example/status/1", "begins with http://, not https://"},
		{"https://a.example/hook", "http://a.example:443/status/1", "begins with http://, not https://"},
	} {
		base, err := url.Parse(c.base)
		if err != nil {
			t.Fatal(err)
		}
		_, err = location(base, c.link)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s from %s: %v, want %q", c.link, c.base, err, c.want)
		}
	}
}
