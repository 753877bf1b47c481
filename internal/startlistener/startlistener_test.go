package startlistener_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/startlistener"
	"github.com/understudy-ha/understudy/internal/usererr"
)

func open(t *testing.T) *startlistener.Door {
	t.Helper()
	l, err := startlistener.Listen("--listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startlistener.Open(l, slog.New(slog.DiscardHandler), "waiting for the store")
}

func get(t *testing.T, d *startlistener.Door, path string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.Addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// Before anything stands behind it, whoever asks hears that the process is up, and what it waits for; then all is led inside.
func TestDoor(t *testing.T) {
	d := open(t)
	for _, path := range []string{"/healthz", "/liveness"} {
		if status, body := get(t, d, path); status != http.StatusOK || !strings.Contains(body, `"up"`) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	status, body := get(t, d, "/v1/roles")
	var problem struct{ Code, Detail string }
	if err := json.Unmarshal([]byte(body), &problem); err != nil || status != http.StatusServiceUnavailable ||
		problem.Code != "not_ready" || problem.Detail != "waiting for the store" {
		t.Errorf("%d %s: %v", status, body, err)
	}
	d.Lead(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "inside "+r.URL.Path) }))
	if status, body := get(t, d, "/healthz"); status != http.StatusOK || body != "inside /healthz" {
		t.Errorf("led inside: %d %s", status, body)
	}
	d.Close(t.Context())
	if _, err := net.DialTimeout("tcp", d.Addr, time.Minute); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after it was closed: %v", err)
	}
}

// What is being answered when the door closes is answered, also when its caller has given up.
func TestCloseWaits(t *testing.T) {
	d := open(t)
	came, answer := make(chan struct{}), make(chan struct{})
	d.Lead(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(came)
		<-answer
		_, _ = io.WriteString(w, "done")
	}))
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		<-came
		over, cancel := context.WithCancel(context.Background())
		cancel()
		go close(answer)
		d.Close(over)
	}()
	if status, body := get(t, d, "/"); status != http.StatusOK || body != "done" {
		t.Errorf("%d %s", status, body)
	}
	<-closed
	if err := d.Wait(t.Context()); !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("it waited, and says %v", err)
	}
}

// Whoever waits hears why the door closed by itself, and nothing when it was told to go.
func TestWait(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := startlistener.Open(l, slog.New(slog.DiscardHandler), "")
	told, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Wait(told); err != nil {
		t.Errorf("told to go: %v", err)
	}
	_ = l.Close()
	if err := d.Wait(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is gone: %v", err)
	}
}

func TestListen(t *testing.T) {
	for addr, want := range map[string]string{
		"":                "--listen is missing",
		"7600":            `--listen "7600": use HOST:PORT`,
		"127.0.0.1:many":  "use HOST:PORT",
		"127.0.0.1:99999": "use HOST:PORT",
	} {
		_, err := startlistener.Listen("--listen", addr)
		if !errors.Is(err, usererr.Err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", addr, err, want)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := startlistener.Listen("--listen", l.Addr().String()); !errors.Is(err, syscall.EADDRINUSE) || !strings.HasPrefix(err.Error(), "--listen: ") {
		t.Errorf("a port that is taken: %v", err)
	}
}

// What net/http refuses by itself is a problem, as every other refusal is.
func TestRefusalsAreProblems(t *testing.T) {
	d := open(t)
	defer d.Close(context.Background())
	for request, want := range map[string]int{
		"GET\r\n\r\n":            http.StatusBadRequest,
		"GET / HTTP/1.1\r\n\r\n": http.StatusBadRequest, // no Host
		"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n":                http.StatusNotImplemented,
		"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n": http.StatusRequestHeaderFieldsTooLarge,
	} {
		c, err := net.Dial("tcp", d.Addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.WriteString(c, request) }()
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%.40q: %v", request, err)
		}
		var problem struct {
			Status              int
			Code, Title, Detail string
		}
		err = json.NewDecoder(answer.Body).Decode(&problem)
		if kind := answer.Header.Get("Content-Type"); err != nil || answer.StatusCode != want || problem.Status != want || problem.Code == "" || problem.Detail == "" || kind != "application/problem+json" {
			t.Errorf("%.40q: %d %s %+v, %v", request, answer.StatusCode, kind, problem, err)
		}
		_ = answer.Body.Close()
		_ = c.Close()
	}
}
