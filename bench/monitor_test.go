package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/intake"
)

// counted is an intake that counts what it is sent, by source; it is busy at first.
type counted struct {
	mu   sync.Mutex
	n    map[string]int
	busy int
}

func (c *counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	if c.busy > 0 {
		c.busy--
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	type heartbeat struct{ Event, Source string }
	var heartbeats []heartbeat
	if path, ok := strings.CutPrefix(r.URL.Path, "/v1/ping/"); ok {
		event, source, _ := strings.Cut(path, "/")
		heartbeats = []heartbeat{{event, source}}
	} else if body[0] == '[' {
		_ = json.Unmarshal(body, &heartbeats)
	} else {
		heartbeats = make([]heartbeat, 1)
		_ = json.Unmarshal(body, &heartbeats[0])
	}
	for _, b := range heartbeats {
		c.n[b.Event+"/"+b.Source]++
	}
	_, _ = io.WriteString(w, "OK")
}

func TestSender(t *testing.T) {
	for way, each := range map[string]int{byArray: 7, byPing: 1, byPost: 1} {
		c := &counted{n: map[string]int{}, busy: 3}
		server := httptest.NewServer(c)
		defer server.Close()
		s, err := newSender(senderOptions{Address: server.Listener.Addr().String(), Event: "e", Way: way, Each: each, Conns: 3, Sources: 100})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.obey([]string{"once", "10", "50"}); err != nil || got.Count != 40 || len(c.n) != 40 || c.n["e/source-0000010"] != 1 || c.n["e/source-0000049"] != 1 {
			t.Errorf("%s: %+v, %v, %v", way, got, err, c.n)
		}
		if got, err := s.obey([]string{"hammer", "20ms"}); err != nil || got.Count < each || got.P50 <= 0 {
			t.Errorf("%s: %+v, %v", way, got, err)
		}
		began := time.Now()
		if got, err := s.obey([]string{"pace", "50ms", "1000"}); err != nil || got.Count < 50 || got.Count >= 50+each || time.Since(began) < 40*time.Millisecond {
			t.Errorf("%s: %+v, %v", way, got, err)
		}
		for _, words := range [][]string{{}, {"hammer"}, {"hammer", "x"}, {"pace", "1s"}, {"pace", "1s", "x"}, {"once", "x", "1"}} {
			if _, err := s.obey(words); err == nil {
				t.Errorf("%q was obeyed", words)
			}
		}
	}
}

// TestHeartbeatsAreWhole has the real decoder read what is sent.
func TestHeartbeatsAreWhole(t *testing.T) {
	flow := &taken{}
	h, err := intake.NewHTTP(intake.HTTPConfig{Flow: flow})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for _, r := range h.Routes() {
		mux.HandleFunc(r.Method+" "+r.Pattern, r.Handler)
	}
	server := httptest.NewServer(mux)
	defer server.Close()
	for way, each := range map[string]int{byArray: 100, byPing: 1, byPost: 1} {
		flow.seen = map[string]int{}
		s, err := newSender(senderOptions{Address: server.Listener.Addr().String(), Event: "e", Way: way, Each: each, Conns: 2, Sources: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for range 1000 / each {
			if err := s.conns[0].send(each, func(i int) int { return (int(s.next.Add(1)) - 1) * stride % 1000 }); err != nil {
				t.Fatal(err)
			}
		}
		if len(flow.seen) != 1000 || slices.Max(slices.Collect(maps.Values(flow.seen))) != 1 || flow.seen["e "+sourceName(999)] != 1 {
			t.Errorf("%s: heartbeats of %d of 1000 sources", way, len(flow.seen))
		}
	}
}

type taken struct{ seen map[string]int }

func (f *taken) Record(_ context.Context, heartbeats []monitor.Heartbeat) ([]monitor.Outcome, error) {
	for _, b := range heartbeats {
		f.seen[b.Check+" "+b.Source]++
	}
	return make([]monitor.Outcome, len(heartbeats)), nil
}

func (f *taken) RecordProbe(context.Context) error { return nil }

func TestReadAccepted(t *testing.T) {
	for text, want := range map[string]error{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK":                 nil,
		"HTTP/1.1 200 OK\r\ncontent-length:2\r\nDate: x\r\n\r\nOK":       nil,
		"HTTP/1.1 429 Too Many\r\nContent-Length: 0\r\n\r\n":             errBusy,
		"HTTP/1.1 503 Not Now\r\nContent-Length: 0\r\n\r\n":              errBusy,
		"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nno":           errOther,
		"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno":          errOther,
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nOK":                 errOther,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": errOther,
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n":                       errOther,
		"": errOther,
	} {
		err := readAccepted(bufio.NewReader(strings.NewReader(text)))
		if (err == nil) != (want == nil) || errors.Is(err, errBusy) != (want == errBusy) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

var errOther = errors.New("another")

func TestAlarmSink(t *testing.T) {
	b := &bed{}
	defer b.clear()
	s := startAlarmSink(b)
	at := time.Now().Add(-time.Second)
	tell := func(m monitor.AlarmMessage) {
		body, _ := json.Marshal(m)
		resp, err := http.Post(s.url, "application/json", strings.NewReader(string(body)))
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", resp, err)
		}
		resp.Body.Close()
	}
	for _, id := range []string{"1", "2", "1"} {
		tell(monitor.AlarmMessage{Status: monitor.Onset, RequestID: id, Source: "s" + id, Started: at})
	}
	ended := at.Add(500 * time.Millisecond)
	tell(monitor.AlarmMessage{Status: monitor.Abated, RequestID: "1", Source: "s1", Started: at, Ended: &ended})
	if all := lates(s.await(b, monitor.Onset, 2, time.Minute)); len(all) != 2 || s.twice() != 1 || all.max() < time.Second {
		t.Errorf("%v, %d twice", all, s.twice())
	}
	if all := s.await(b, monitor.Abated, 1, time.Minute); !all[0].started.Equal(ended) {
		t.Errorf("%+v", all)
	}
}

func TestMeter(t *testing.T) {
	m := startMeter(map[string]int{"bench": os.Getpid()})
	for end := time.Now().Add(30 * time.Millisecond); time.Now().Before(end); {
	}
	if u := m.read(); u.of["bench"] <= 0 || u.share("bench") > 800 || u.took < 30*time.Millisecond {
		t.Errorf("%+v", u)
	}
}
