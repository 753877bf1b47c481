package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/memory"
)

// flaky is a store that can be down.
type flaky struct {
	*memory.Store
	down atomic.Bool
}

func (f *flaky) Read(ctx context.Context, q history.Query) ([]history.Event, error) {
	if f.down.Load() {
		return nil, fmt.Errorf("reading: %w", lease.ErrUnavailable)
	}
	return f.Store.Read(ctx, q)
}

// wire is a server on a connection.
type wire struct {
	t      *testing.T
	store  *flaky
	s      *Server
	url    string
	client *http.Client
}

func newWire(t *testing.T, change func(*net.Listener)) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	if change != nil {
		change(&l)
	}
	return serve(t, Config{}, NewHTTPServer(nil, nil), l, &wire{url: url, client: http.DefaultClient})
}

// serve starts to serve a store of its own, and waits until it has been read.
func serve(t *testing.T, cfg Config, srv *http.Server, l net.Listener, g *wire) *wire {
	t.Helper()
	g.t, g.store = t, &flaky{Store: memory.New(nil)}
	cfg.Store = g.store
	g.s = start(t, cfg)
	srv.Handler = g.s.Handler()
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	realserver.Eventually(t, enough, "the server is ready", func() error {
		if _, ok := g.s.poller.readiness(); !ok {
			return errors.New("not ready")
		}
		return nil
	})
	return g
}

func (g *wire) append(n int) {
	g.t.Helper()
	for range n {
		if err := g.store.Append(g.t.Context(), history.Event{Part: "role", Subject: "billing", Reason: "test"}); err != nil {
			g.t.Fatal(err)
		}
	}
}

// frame is one server-sent event.
type frame struct{ id, event, data string }

// open follows a stream; the frames arrive on the channel, which is closed when
// the stream ends.
func (g *wire) open(query, lastID string) (<-chan frame, func()) {
	g.t.Helper()
	ctx, cancel := context.WithCancel(g.t.Context())
	r, _ := http.NewRequestWithContext(ctx, "GET", g.url+"/v1/events"+query, nil)
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	answer, err := g.client.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	if answer.StatusCode != 200 || answer.Header.Get("Content-Type") != "text/event-stream" {
		g.t.Fatalf("stream answered %d %v", answer.StatusCode, answer.Header)
	}
	out := make(chan frame, 10_000)
	go func() {
		defer close(out)
		defer answer.Body.Close()
		var f frame
		for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "id":
				f.id = value
			case "event":
				f.event = value
			case "data":
				f.data = value
			case "":
				if f.event != "" {
					out <- f
				}
				f = frame{}
			}
		}
	}()
	g.t.Cleanup(cancel)
	return out, cancel
}

func next(t *testing.T, c <-chan frame) frame {
	t.Helper()
	select {
	case f, ok := <-c:
		if !ok {
			t.Fatal("the stream ended")
		}
		return f
	case <-time.After(enough):
		t.Fatalf("nothing came for %v", enough)
	}
	return frame{}
}

// wantHeaderAlone asks for a stream with HEAD, which ends at once and leaves its connection to the next request.
func wantHeaderAlone(t *testing.T, url string) {
	t.Helper()
	client := &http.Client{Timeout: enough, Transport: &http.Transport{MaxConnsPerHost: 1}}
	defer client.CloseIdleConnections()
	for range 2 {
		answer, err := client.Head(url)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("HEAD was answered %d %v", answer.StatusCode, answer.Header)
		}
	}
}

// TestStreamHead: HEAD of the stream ends, and takes no reader's place.
func TestStreamHead(t *testing.T) {
	g := newWire(t, nil)
	wantHeaderAlone(t, g.url+"/v1/events?state=true")
	realserver.Eventually(t, enough, "no reader is left", func() error {
		if n := g.s.stream.len(); n > 0 {
			return fmt.Errorf("%d readers", n)
		}
		return nil
	})
}

// wantIDs reads as many history events and checks their ids.
func wantIDs(t *testing.T, c <-chan frame, from, to int) {
	t.Helper()
	for id := from; id <= to; id++ {
		if f := next(t, c); f.event != "history" || f.id != fmt.Sprint(id) {
			t.Fatalf("got %+v, want event %d", f, id)
		}
	}
	select {
	case f := <-c:
		t.Fatalf("%+v came besides", f)
	default:
	}
}

// TestStreamOpens: a stream of new events starts with the id of the newest one, another not: it would skip what is replayed.
func TestStreamOpens(t *testing.T) {
	g := newWire(t, nil)
	start := func(query string) string {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r, _ := http.NewRequestWithContext(ctx, "GET", g.url+"/v1/events"+query, nil)
		answer, err := g.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		lines := bufio.NewScanner(answer.Body)
		var got []string
		for len(got) < 3 && lines.Scan() {
			got = append(got, lines.Text())
		}
		return strings.Join(got, "|")
	}
	if got := start(""); got != "retry: 1000||id: 0" {
		t.Errorf("with an empty history: %s", got)
	}
	live, _ := g.open("", "")
	g.append(2)
	wantIDs(t, live, 1, 2)
	if got := start("?part=job"); got != "retry: 1000||id: 2" {
		t.Errorf("with a filter: %s", got)
	}
	if got := start("?after=0"); got != "retry: 1000||id: 1" {
		t.Errorf("from the beginning: %s", got)
	}
}

func TestStream(t *testing.T) {
	g := newWire(t, nil)
	live, _ := g.open("", "")
	g.append(3)
	wantIDs(t, live, 1, 3)
	other, _ := g.open("?subject=other", "")
	if err := g.store.Append(t.Context(), history.Event{Part: "role", Subject: "other"}); err != nil {
		t.Fatal(err)
	}
	f := next(t, other)
	var e history.Event
	if err := json.Unmarshal([]byte(f.data), &e); err != nil || e.ID != 4 || e.Subject != "other" {
		t.Errorf("got %+v, %v", f, err)
	}
	wantIDs(t, live, 4, 4)
}

func TestStreamResumes(t *testing.T) {
	g := newWire(t, nil)
	live, leave := g.open("", "")
	g.append(5)
	wantIDs(t, live, 1, 5)
	leave()
	g.append(3)
	back, _ := g.open("", "5") // from what the server remembers
	wantIDs(t, back, 6, 8)
	all, _ := g.open("?after=0", "") // from the store
	wantIDs(t, all, 1, 8)

	other := &wire{t: t, store: g.store, client: http.DefaultClient}
	other.s = start(t, Config{Store: g.store})
	realserver.Eventually(t, enough, "the other server follows the history", func() error {
		if _, ok := other.s.poller.readiness(); !ok {
			return errors.New("it has not read the store yet")
		}
		return nil
	})
	srv := httptest.NewServer(other.s.Handler())
	defer srv.Close()
	other.url = srv.URL
	elsewhere, leaveOther := other.open("", "5") // another server, which remembers nothing
	defer leaveOther()
	wantIDs(t, elsewhere, 6, 8)
	g.append(1)
	wantIDs(t, elsewhere, 9, 9)
}

// TestStreamMissesNothingWhileJoining: readers come from the beginning while
// events are written; each gets each event once, in order.
func TestStreamMissesNothingWhileJoining(t *testing.T) {
	g := newWire(t, nil)
	const events = 3000
	written := make(chan struct{})
	go func() {
		defer close(written)
		for n := range events {
			_ = g.store.Append(context.Background(), history.Event{Part: "role", Subject: "billing"})
			if n%20 == 0 {
				<-time.After(time.Millisecond)
			}
		}
	}()
	for range 8 {
		last := ""
		func() {
			c, leave := g.open("?after=0", "")
			defer leave()
			for want := 1; want <= events; {
				f, ok := <-c
				if !ok {
					// It fell behind, and comes back as a reader does.
					if last == "" {
						c, _ = g.open("?after=0", "")
					} else {
						c, _ = g.open("", last)
					}
					continue
				}
				if f.id != fmt.Sprint(want) {
					t.Fatalf("got event %s, want %d", f.id, want)
				}
				last = f.id
				want++
			}
		}()
	}
	<-written
}

func TestStateStream(t *testing.T) {
	g := newWire(t, nil)
	c, _ := g.open("?state=true", "")
	var s apitype.State
	see := func(what string, ok func() bool) {
		t.Helper()
		realserver.Eventually(t, enough, what, func() error {
			f := next(t, c)
			if f.event != "state" {
				return fmt.Errorf("%+v", f)
			}
			s = apitype.State{}
			if err := json.Unmarshal([]byte(f.data), &s); err != nil {
				t.Fatal(err)
			}
			if !ok() {
				return fmt.Errorf("state %s", f.data)
			}
			return nil
		})
	}
	see("an empty state", func() bool { return s.Store.Up && s.Store.Kind == "memory" && s.Roles != nil && len(s.Roles.List) == 0 })
	// Nobody renews it: it outlives the test.
	n := lease.Session{ID: "s", Instance: lease.NewInstance("web-1", ""), Timing: lease.Timing{Interval: time.Minute, Timeout: time.Hour}}
	if _, err := g.store.StartSession(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := g.store.Acquire(t.Context(), lease.Expectation{Lease: lease.ID{Space: "role", Key: "billing"}, Session: "s"}); err != nil {
		t.Fatal(err)
	}
	see("the new primary", func() bool {
		return s.Roles != nil && len(s.Roles.List) == 1 && s.Roles.List[0].Primaries[0].Name == "web-1" && s.Roles.List[0].Primaries[0].TimeoutMS == 3_600_000
	})
	t.Logf("a change of hands was shown after %v", time.Since(began))
	g.store.down.Store(true)
	see("that the store is down", func() bool { return !s.Store.Up && s.Store.Error != "" && s.Roles == nil && s.Sessions == nil })
	g.store.down.Store(false)
	see("that it is back", func() bool { return s.Store.Up && s.Roles != nil })
}

// TestSlowReaderIsLeftOut: someone who does not read is left out, and those who
// read do not notice.
func TestSlowReaderIsLeftOut(t *testing.T) {
	g := newWire(t, func(l *net.Listener) { *l = smallBuffers{*l} })
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(4096)
	fmt.Fprintf(conn, "GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	good, _ := g.open("", "")
	realserver.Eventually(t, enough, "both are there", func() error {
		if n := g.s.stream.len(); n != 2 {
			return fmt.Errorf("%d readers", n)
		}
		return nil
	})
	n := 0
	realserver.Eventually(t, enough, "the slow one is left out", func() error {
		g.append(200)
		for range 200 {
			n++
			if f := next(t, good); f.id != fmt.Sprint(n) {
				t.Fatalf("the good reader got %+v, want %d", f, n)
			}
		}
		if left := g.s.stream.len(); left != 1 {
			return fmt.Errorf("%d readers", left)
		}
		return nil
	})
}

// smallBuffers are connections that take in little before they block.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		_ = c.(*net.TCPConn).SetWriteBuffer(4096)
	}
	return c, err
}

func TestTooManyStreams(t *testing.T) {
	g := newRig(t)
	fill(t, g.s.streams)
	g.do("GET", "/v1/events", "").want(503, "busy")
}

// TestStreamOutlivesTheServersDeadlines: a stream, and a request that waits, go
// on past the deadlines that other requests have.
func TestStreamOutlivesTheServersDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const deadline = 100 * time.Millisecond
		l := newPipes(t)
		srv := &http.Server{ReadTimeout: deadline, WriteTimeout: deadline}
		g := serve(t, Config{Clock: bubbleClock{time.Now().Add(-time.Hour)}}, srv, l, &wire{url: l.url, client: l.client})
		c, _ := g.open("", "")
		until := time.Now().Add(4 * deadline)
		for id := 1; time.Now().Before(until); id++ {
			g.append(1)
			wantIDs(t, c, id, id)
			<-time.After(deadline / 2)
		}
		for _, id := range []string{"one", "two"} {
			n := lease.Session{ID: id, Instance: lease.NewInstance(id, ""), Timing: lease.Timing{}.WithDefaults()}
			if _, err := g.store.StartSession(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := g.store.Acquire(t.Context(), lease.Expectation{Lease: lease.ID{Space: "x", Key: "y"}, Session: "one"}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		r, _ := http.NewRequestWithContext(t.Context(), "PUT", g.url+"/v1/leases/x/y?wait=400ms", strings.NewReader(`{"session":"two"}`))
		answer, err := g.client.Do(r)
		if err != nil {
			t.Fatalf("the request that waits: %v", err)
		}
		answer.Body.Close()
		if took := time.Since(began); answer.StatusCode != 409 || took < 4*deadline {
			t.Errorf("answered %d after %v", answer.StatusCode, took)
		}
	})
}

func TestStreamEndsWithTheServer(t *testing.T) {
	g := newWire(t, nil)
	c, _ := g.open("", "")
	g.s.stop()
	select {
	case _, open := <-c:
		if open {
			t.Error("something came after the end")
		}
	case <-time.After(enough):
		t.Error("the stream goes on")
	}
}

func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{Store: memory.New(nil), Clock: bubbleClock{time.Now().Add(-time.Hour)}})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
		defer cancel()
		a := send(t, s, request(ctx, "GET", "/v1/events", ""))
		if n := strings.Count(a.Body, ": still here\n\n"); n != 3 {
			t.Errorf("%d comments in 50 s: %q", n, a.Body)
		}
		if s.stream.len() != 0 {
			t.Error("the reader is still there")
		}
	})
}

// TestRecentIsBounded: what is kept for readers does not grow, however far one
// of them is behind.
func TestRecentIsBounded(t *testing.T) {
	s := newStream()
	slow, quick := newReader("", "", false), newReader("", "", false)
	for _, r := range []*reader{slow, quick} {
		if !s.subscribe(r, -1) {
			t.Fatal("new events are not there")
		}
	}
	const all = 5*maxRecent + 10
	for id := range int64(all) {
		m, err := newHistoryEvent(history.Event{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		s.publish(m)
		if got, ok := s.pending(quick); !ok || len(got) != 1 || got[0].event.ID != id {
			t.Fatalf("the quick reader got %v at %d", got, id)
		}
	}
	if n := len(s.recent); n > 2*maxRecent || n < maxRecent {
		t.Errorf("%d events are kept", n)
	}
	if _, ok := s.pending(slow); ok || s.len() != 1 {
		t.Error("the slow reader is still there")
	}
	back := newReader("", "", false)
	if !s.subscribe(back, all-11) {
		t.Error("a recent event is not known")
	}
	if missed, ok := s.pending(back); !ok || len(missed) != 10 || missed[0].event.ID != all-10 {
		t.Errorf("missed %d", len(missed))
	}
	fresh := newReader("", "", false)
	if !s.subscribe(fresh, -1) {
		t.Error("from now on needs the store")
	}
	if got, ok := s.pending(fresh); !ok || len(got) != 0 {
		t.Errorf("from now on begins with %d events of before", len(got))
	}
	if s.subscribe(newReader("", "", false), 0) {
		t.Error("an event of long ago is said to be known")
	}
}

// TestWakeUpsAreQuick: an event is passed on when it is written, not when the
// next look is due.
func TestWakeUpsAreQuick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(nil)
		s := start(t, Config{Store: st, Clock: bubbleClock{time.Now().Add(-time.Hour)}})
		time.Sleep(10*pollInterval + pollInterval/3)
		r := newReader("", "", false)
		s.stream.subscribe(r, -1)
		<-r.wake
		began := time.Now()
		if err := st.Append(t.Context(), history.Event{Part: "role"}); err != nil {
			t.Fatal(err)
		}
		<-r.wake
		if took := time.Since(began); took > minPollGap {
			t.Errorf("passed on after %v", took)
		}
	})
}

// TestHostileTextStaysInItsFrame: nothing that the history says can end its
// field or begin another event.
func TestHostileTextStaysInItsFrame(t *testing.T) {
	m, err := newHistoryEvent(history.Event{ID: 1, Subject: "a\n\nevent: state\ndata: {}\r\u2028"})
	if err != nil {
		t.Fatal(err)
	}
	text := string(m.frame)
	if strings.Count(text, "\n") != 4 || !strings.HasSuffix(text, "\n\n") || strings.Contains(text, "\r") {
		t.Errorf("frame %q", text)
	}
}
