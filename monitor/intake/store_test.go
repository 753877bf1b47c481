package intake_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/memstore/checks"
	"github.com/understudy-ha/understudy/internal/testkit/fakerouter"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/intake"
)

// stand is an inlet before a table in memory that knows the event "e".
func stand(t testing.TB) (*monitor.Intake, *checks.Memory) {
	t.Helper()
	table := checks.NewMemory(checks.Options{})
	_, err := table.Configure(context.Background(), monitor.Configuration{Checks: []monitor.Check{{Name: "e", Interval: time.Minute}}})
	if err != nil {
		t.Fatal(err)
	}
	inlet, err := monitor.NewIntake(monitor.IntakeConfig{Store: table})
	if err != nil {
		t.Fatal(err)
	}
	run(t, inlet.Run)
	return inlet, table
}

// run runs something until the test ends.
func run(t testing.TB, f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
}

func serve(t testing.TB, c intake.HTTPConfig) *http.ServeMux {
	t.Helper()
	h, err := intake.NewHTTP(c)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for _, r := range h.Routes() {
		mux.HandleFunc(r.Method+" "+r.Pattern, r.Handler)
	}
	return mux
}

// TestTogether: all ways in, through an inlet, into a table; what was acknowledged
// is there.
func TestTogether(t *testing.T) {
	inlet, table := stand(t)
	mux := serve(t, intake.HTTPConfig{Flow: inlet.OpenPath(monitor.PathConfig{Name: "http", Synchronous: true})})
	server := fakerouter.New(t)
	config := intake.RouterConfig{Name: "mr", URL: server.URL("t"), Group: "g", Consumer: "c", LongPoll: 200 * time.Millisecond}
	config.Flow = inlet.OpenPath(monitor.PathConfig{Name: config.Name, MaxGap: config.LongPoll + 5*time.Second})
	router, err := intake.NewRouter(config)
	if err != nil {
		t.Fatal(err)
	}
	run(t, router.Run)
	server.Publish("t", `{"event":"e","source":"by router"}`, `{"event":"unheard","source":"by router"}`)
	for path, body := range map[string]string{
		"/v1/beats":            `[{"event":"e","source":"by array"},{"event":"unheard","source":"by array"}]`,
		"/eventListener/v7":    `{"event":{"commonEventHeader":{"domain":"heartbeat","eventName":"e","sourceName":"by VES","lastEpochMicrosec":1795223000000000,"sequence":1}}}`,
		"/v1/ping/e/by%20ping": "",
	} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", path, strings.NewReader(body)))
		if w.Code/100 != 2 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/v1/ping/unheard/of", http.NoBody))
	if w.Code != 404 {
		t.Errorf("an unknown event: %d", w.Code)
	}
	want := map[string]string{"by array": "http", "by VES": "http", "by ping": "http", "by router": "mr"}
	deadline := time.Now().Add(time.Minute)
	for {
		sources, err := table.Sources(t.Context(), monitor.SourceQuery{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, s := range sources {
			got[s.Source] = s.Path
		}
		over, err := table.Overview(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(got) == fmt.Sprint(want) && len(over.Paths) == 2 && !router.Stats().Proven.IsZero() {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("sources %v, want %v; paths %+v", got, want, over.Paths)
		}
		select {
		case <-t.Context().Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
	if s := router.Stats(); s.Unknown != 1 || s.Accepted != 1 {
		t.Errorf("%+v", s)
	}
}

// null takes everything at once.
type null struct{}

func (null) Record(_ context.Context, beats []monitor.Heartbeat) ([]monitor.Outcome, error) {
	return make([]monitor.Outcome, len(beats)), nil
}

func (null) RecordProbe(context.Context) error { return nil }

// discard is a response that nobody reads.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }

// BenchmarkHTTP is the cost of a request without the network and the store.
func BenchmarkHTTP(b *testing.B) {
	mux := serve(b, intake.HTTPConfig{Flow: null{}})
	var beats, events []json.RawMessage
	for i := range 500 {
		beats = append(beats, fmt.Appendf(nil, `{"event":"Heartbeat_edgeRouter","source":"edge-%06d","seq":%d}`, i, i))
		events = append(events, fmt.Appendf(nil, `{"event":{"commonEventHeader":{"version":"4.1","vesEventListenerVersion":"7.2.1","domain":"heartbeat","eventId":"hb-%d","eventName":"Heartbeat_edgeRouter","eventType":"platform","sourceName":"edge-%06d","sourceId":"edge-17-uuid","reportingEntityName":"edge-17-oam","priority":"Normal","sequence":%d,"startEpochMicrosec":1795223000000000,"lastEpochMicrosec":1795223000000000,"timeZoneOffset":"UTC+00:00"},"heartbeatFields":{"heartbeatInterval":30}}}`, i, i, i))
	}
	array, _ := json.Marshal(beats)
	ves, _ := json.Marshal(events)
	for _, c := range []struct {
		name, method, path string
		body               []byte
		beats              float64
	}{
		{"500 beats", "POST", "/v1/beats", array, 500}, {"500 VES events", "POST", "/v1/beats", ves, 500},
		{"one beat", "POST", "/v1/beats", beats[0], 1}, {"ping", "GET", "/v1/ping/e/a", nil, 1},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r, _ := http.NewRequestWithContext(b.Context(), c.method, c.path, bytes.NewReader(c.body))
				w := &discard{header: http.Header{}}
				mux.ServeHTTP(w, r)
				if w.status != 0 && w.status != 200 {
					b.Fatal(w.status)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/c.beats, "ns/beat")
		})
	}
}

// BenchmarkServer is arrays of 500 over loopback, through an inlet into a table in
// memory; the client is in it too.
func BenchmarkServer(b *testing.B) {
	inlet, _ := stand(b)
	server := httptest.NewServer(serve(b, intake.HTTPConfig{Flow: inlet.OpenPath(monitor.PathConfig{Name: "http", Synchronous: true})}))
	b.Cleanup(server.Close)
	var body bytes.Buffer
	for i := range 500 {
		fmt.Fprintf(&body, `%c{"event":"e","source":"edge-%06d","seq":%d}`, "[,"[min(i, 1)], i, i)
	}
	body.WriteByte(']')
	b.SetParallelism(4)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			resp, err := server.Client().Post(server.URL+"/v1/beats", "application/json", bytes.NewReader(body.Bytes()))
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != 200 {
				b.Error(resp.StatusCode)
			}
		}
	})
	b.ReportMetric(500*float64(b.N)/b.Elapsed().Seconds(), "beats/s")
}
