package intake

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// rig is an HTTP intake before a flow that remembers.
type rig struct {
	t        *testing.T
	flow     *flow
	rejected *RejectedInputs
	http     *HTTP
	mux      *http.ServeMux
}

func newRig(t *testing.T, c HTTPConfig) *rig {
	t.Helper()
	r := &rig{t: t, flow: &flow{}, rejected: NewRejectedInputs(0), mux: http.NewServeMux()}
	c.Rejected = r.rejected
	if c.Flow == nil {
		c.Flow = r.flow
	}
	var err error
	if r.http, err = NewHTTP(c); err != nil {
		t.Fatal(err)
	}
	for _, route := range r.http.Routes() {
		r.mux.HandleFunc(route.Method+" "+route.Pattern, route.Handler)
	}
	return r
}

func (r *rig) do(method, path, body string, header ...string) *httptest.ResponseRecorder {
	r.t.Helper()
	req := httptest.NewRequestWithContext(r.t.Context(), method, path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	r.mux.ServeHTTP(w, req)
	return w
}

func TestBeats(t *testing.T) {
	one, two := monitor.Heartbeat{Check: "e", Source: "a"}, monitor.Heartbeat{Check: "e", Source: "b"}
	for _, c := range []struct {
		name, body string
		status     int
		answer     string
		beats      []monitor.Heartbeat
	}{
		{"one", `{"event":"e","source":"a"}`, 200, `{"accepted":1,"unknown":0,"bad":0}`, []monitor.Heartbeat{one}},
		{"VES", ves, 200, `{"accepted":1,"unknown":0,"bad":0}`, []monitor.Heartbeat{edge}},
		{"an array", `[{"event":"e","source":"a"},{"event":"e","source":"b"}]`, 200, `{"accepted":2,"unknown":0,"bad":0}`, []monitor.Heartbeat{one, two}},
		{"lines", "{\"event\":\"e\",\"source\":\"a\"}\n{\"event\":\"e\",\"source\":\"b\"}\n", 200, `{"accepted":2,"unknown":0,"bad":0}`, []monitor.Heartbeat{one, two}},
		{"nothing", `[]`, 200, `{"accepted":0,"unknown":0,"bad":0}`, nil},
		{"some", `[{"event":"e","source":"a"},{"event":"e"},{"event":"x","source":"a"},7,{"event":"e","source":"b"}]`, 202,
			`{"accepted":2,"unknown":1,"bad":2,"errors":[{"index":1,"cause":"no_source","detail":"source is missing"},{"index":3,"cause":"kind","detail":"it is not a valid JSON object"},{"index":2,"cause":"unknown_event","detail":"event \"x\", source \"a\""}]}`, []monitor.Heartbeat{one, two}},
		{"one that is unknown", `{"event":"x","source":"a"}`, 404, `{"accepted":0,"unknown":1,"bad":0,"errors":[{"index":0,"cause":"unknown_event","detail":"event \"x\", source \"a\""}]}`, nil},
		{"one of a full check", `{"event":"xfull","source":"a"}`, 404, `{"accepted":0,"unknown":1,"bad":0,"errors":[{"index":0,"cause":"check_full","detail":"event \"xfull\", source \"a\": ` + monitor.WhyFull + `"}]}`, nil},
		{"an array of one that is unknown", `[{"event":"x","source":"a"}]`, 202, `{"accepted":0,"unknown":1,"bad":0,"errors":[{"index":0,"cause":"unknown_event","detail":"event \"x\", source \"a\""}]}`, nil},
		{"one that is bad", `{"event":"e","source":"a","code":900}`, 400, `{"accepted":0,"unknown":0,"bad":1,"errors":[{"index":0,"cause":"number","detail":"code is not 0 to 255"}]}`, nil},
		{"no JSON", `event=e&source=a`, 400, `{"title":"Bad Request","status":400,"code":"syntax","detail":"not valid JSON: no value begins like this, at byte 0"}`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, HTTPConfig{})
			w := r.do("POST", "/v1/beats", c.body)
			if w.Code != c.status || strings.TrimSpace(w.Body.String()) != c.answer {
				t.Errorf("%d %s\nwant %d %s", w.Code, w.Body, c.status, c.answer)
			}
			r.flow.want(t, c.beats...)
		})
	}
}

// TestD03PoisonByHTTP: every kind of poison of the original's table comes amid good beats: it
// costs itself, is kept as rejected input, and nothing else happens.
func TestD03PoisonByHTTP(t *testing.T) {
	r := newRig(t, HTTPConfig{})
	poison := poisons()
	var body strings.Builder
	want := map[string]int64{}
	for _, p := range poison {
		fmt.Fprintf(&body, "{\"event\":\"e\",\"source\":\"a\"}\n%s\n", p.message)
		want[string(p.cause)]++
	}
	body.WriteString(`{"event":"e","source":"last"}`)
	w := r.do("POST", "/v1/beats", body.String(), "Content-Type", "application/x-ndjson")
	var got tally
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 202 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	n := len(poison)
	if got.Accepted != n+1 || got.Unknown != 1 || got.Bad != n-1 || len(got.Errors) != maxErrors {
		t.Errorf("%+v, with %d poisons", got, n)
	}
	if len(r.flow.taken()) != n+1 {
		t.Errorf("%d beats were taken, want %d", len(r.flow.taken()), n+1)
	}
	if diff := cmp.Diff(want, r.rejected.Counts()); diff != "" {
		t.Error(diff)
	}
}

func TestRefusals(t *testing.T) {
	packed := func(s string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = io.WriteString(z, s)
		_ = z.Close()
		return b.String()
	}
	good := `{"event":"e","source":"a"}`
	bomb := packed(strings.Repeat(" ", int(MaxBody)+1))
	for _, c := range []struct {
		name   string
		body   string
		header []string
		status int
		code   string
	}{
		{"JSON", good, []string{"Content-Type", "application/json; charset=utf-8"}, 200, ""},
		{"a kind of JSON", good, []string{"Content-Type", "application/cloudevents+json"}, 200, ""},
		{"packed", packed(good), []string{"Content-Encoding", "gzip"}, 200, ""},
		{"a form", good, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "media_type"},
		{"a text", good, []string{"Content-Type", "text/plain"}, 415, "media_type"},
		{"nonsense", good, []string{"Content-Type", "a/b/c"}, 415, "media_type"},
		{"packed otherwise", good, []string{"Content-Encoding", "br"}, 415, "media_type"},
		{"not packed", good, []string{"Content-Encoding", "gzip"}, 400, "invalid"},
		{"packed and cut", packed(good)[:20], []string{"Content-Encoding", "gzip"}, 400, "invalid"},
		{"a bomb", bomb, []string{"Content-Encoding", "gzip"}, 413, "too_large"},
		{"too large", strings.Repeat(" ", int(MaxBody)+1), nil, 413, "too_large"},
		{"too many", "[" + strings.Repeat("0,", maxItems) + "0]", nil, 413, "too_large"},
		{"empty", "", nil, 400, "syntax"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, HTTPConfig{})
			for range 2 { // buffers are used again
				w := r.do("POST", "/v1/beats", c.body, c.header...)
				if w.Code != c.status || !strings.Contains(w.Body.String(), `"`+c.code) {
					t.Errorf("%d %s, want %d %s", w.Code, w.Body, c.status, c.code)
				}
			}
			if held := r.http.bufferPool.held.Load(); held != 0 {
				t.Errorf("%d bytes are still held", held)
			}
		})
	}
}

// TestBackPressure: what cannot be stored is not acknowledged, and its sender is
// told when to come again.
func TestBackPressure(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		status int
		code   string
	}{
		{"busy", monitor.ErrBusy, 429, "busy"},
		{"away", fmt.Errorf("%w: refused", lease.ErrUnavailable), 503, "store_unavailable"},
		{"away, and waited", fmt.Errorf("%w: waited: %w", lease.ErrUnavailable, context.DeadlineExceeded), 503, "store_unavailable"},
		{"unknown", fmt.Errorf("%w: cut", lease.ErrUnknown), 503, "unknown_outcome"},
		{"slow", context.DeadlineExceeded, 503, "unknown_outcome"},
		{"too many", fmt.Errorf("%w: too many", lease.ErrInvalid), 400, "invalid"},
		{"odd", io.ErrClosedPipe, 500, "internal"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var j journal
			r := newRig(t, HTTPConfig{Logger: j.logger()})
			r.flow.fail = func(int, []monitor.Heartbeat) error { return c.err }
			for _, ask := range []func() *httptest.ResponseRecorder{
				func() *httptest.ResponseRecorder {
					return r.do("POST", "/v1/beats", `[{"event":"secret","source":"a"}]`)
				},
				func() *httptest.ResponseRecorder { return r.do("GET", "/v1/ping/secret/a", "") },
				func() *httptest.ResponseRecorder { return r.do("POST", "/eventListener/v7", ves) },
			} {
				w := ask()
				if w.Code != c.status || strings.Contains(w.Header().Get("Content-Type"), "problem") && !strings.Contains(w.Body.String(), c.code) {
					t.Errorf("%d %s, want %d %s", w.Code, w.Body, c.status, c.code)
				}
				if again := c.status == 429 || c.status == 503; again != (w.Header().Get("Retry-After") == "1") {
					t.Errorf("Retry-After: %q", w.Header().Get("Retry-After"))
				}
			}
			if strings.Contains(j.String(), "secret") {
				t.Errorf("the log shows what was sent: %s", &j)
			}
		})
	}
}

// TestAcknowledgedWhenStored: no answer comes before the beats are stored, and none
// later than the time-out.
func TestAcknowledgedWhenStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, HTTPConfig{Timeout: time.Second})
		r.flow.block = make(chan struct{})
		answers := make(chan int, 1)
		go func() { answers <- r.do("POST", "/v1/beats", `{"event":"e","source":"a"}`).Code }()
		synctest.Wait()
		if len(answers) != 0 {
			t.Fatal("it was acknowledged before it was stored")
		}
		r.flow.block <- struct{}{}
		if status := <-answers; status != 200 {
			t.Errorf("status %d", status)
		}
		begun := time.Now()
		if w := r.do("POST", "/v1/beats", `{"event":"e","source":"a"}`); w.Code != 503 || time.Since(begun) != time.Second {
			t.Errorf("%d after %v", w.Code, time.Since(begun))
		}
	})
}

// TestBeforeAConfiguration: nothing is thrown away, and senders are told to try again.
func TestBeforeAConfiguration(t *testing.T) {
	waiting := fmt.Errorf("%w: apply one", monitor.ErrNotConfigured)
	r := newRig(t, HTTPConfig{Ready: func() error { return waiting }})
	ask := func(status int) {
		t.Helper()
		for path, body := range map[string]string{"/v1/beats": `{"event":"e","source":"a"}`, "/v1/ping/e/a": "", "/eventListener/v7": ves} {
			w := r.do("POST", path, body)
			if w.Code/100 != status/100 || status == 503 && (w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "apply one")) {
				t.Errorf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
			}
		}
	}
	ask(503)
	r.flow.want(t)
	if counts := r.rejected.Counts(); len(counts) > 0 {
		t.Errorf("rejected: %v", counts)
	}
	waiting = nil
	ask(200)
}

func TestTooMuchInHand(t *testing.T) {
	r := newRig(t, HTTPConfig{})
	r.http.bufferPool.held.Store(maxHeld)
	beat := `{"event":"e","source":"a"}`
	if w := r.do("POST", "/v1/beats", "["+strings.Repeat(" ", smallBody)+beat+"]"); w.Code != 429 || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := r.do("POST", "/v1/beats", beat); w.Code != 200 {
		t.Errorf("a light body is refused for what others have in hand: %d %s", w.Code, w.Body)
	}
	const firing = `{"alerts":[{"status":"firing"}]}`
	if w := r.do("POST", "/v1/watchdog/e/a", strings.Repeat(" ", smallBody)+firing); w.Code != 429 || w.Header().Get("Retry-After") == "" {
		t.Errorf("a notification: %d %s", w.Code, w.Body)
	}
	if w := r.do("POST", "/v1/watchdog/e/a", firing); w.Code != 204 {
		t.Errorf("a light notification is refused for what others have in hand: %d %s", w.Code, w.Body)
	}
	if held := r.http.bufferPool.held.Load(); held != maxHeld {
		t.Errorf("%d bytes are held, want %d", held, maxHeld)
	}
}

func TestEventListener(t *testing.T) {
	fault := strings.Replace(strings.Replace(ves, "heartbeat", "fault", 1), "Heartbeat_edgeRouter", "Fault_edgeRouter", 1)
	unknown := strings.Replace(ves, "Heartbeat", "xHeartbeat", 1)
	nameless := strings.Replace(ves, `"domain":"heartbeat",`, "", 1)
	bare := strings.TrimSuffix(strings.TrimPrefix(ves, `{"event":`), "}")
	for _, c := range []struct {
		name, path, body string
		status           int
		id, text         string
		beats            int
	}{
		{"an event", "", ves, 202, "", "", 1},
		{"another domain", "", fault, 202, "", "", 0},
		{"no domain", "", nameless, 400, "SVC0002", "no_domain", 0},
		{"unknown", "", unknown, 202, "", "", 0},
		{"no header", "", `{"event":{}}`, 400, "SVC0002", "no_event: eventName is missing", 0},
		{"no JSON", "", `<xml>`, 400, "SVC0002", "not valid JSON", 0},
		{"a batch", "/eventBatch", `{"eventList":[` + bare + `,` + bare + `]}`, 202, "", "", 2},
		{"a batch of which some are bad", "/eventBatch", `{"eventList":[{},` + unknown + `,` + bare + `]}`, 202, "", "", 1},
		{"a batch of which all are bad", "/eventBatch", `{"eventList":[{},7]}`, 400, "SVC0002", "no_event", 0},
		{"an empty batch", "/eventBatch", `{"eventList":[]}`, 202, "", "", 0},
		{"too large", "", strings.Repeat(" ", int(MaxBody)+1), 413, "POL9003", "bytes", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, HTTPConfig{})
			w := r.do("POST", "/eventListener/v7"+c.path, c.body, "Content-Type", "application/json")
			if w.Code != c.status || len(r.flow.taken()) != c.beats {
				t.Fatalf("%d, %d beats, %s", w.Code, len(r.flow.taken()), w.Body)
			}
			if c.id == "" {
				if w.Body.Len() > 0 {
					t.Errorf("a body: %s", w.Body)
				}
				return
			}
			var said map[string]map[string]exception
			if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil {
				t.Fatal(err)
			}
			for _, e := range said["requestError"] {
				if e.ID != c.id || !strings.Contains(e.Text, c.text) {
					t.Errorf("%+v", said)
				}
			}
		})
	}
}

func TestPing(t *testing.T) {
	for _, c := range []struct {
		path   string
		status int
		want   monitor.Heartbeat
	}{
		{"/v1/ping/e/a", 200, monitor.Heartbeat{Check: "e", Source: "a"}},
		{"/v1/ping/e/a/start", 200, monitor.Heartbeat{Check: "e", Source: "a", Signal: monitor.SignalStart}},
		{"/v1/ping/e/a/fail", 200, monitor.Heartbeat{Check: "e", Source: "a", Signal: monitor.SignalFail}},
		{"/v1/ping/e/a/0", 200, monitor.Heartbeat{Check: "e", Source: "a"}},
		{"/v1/ping/e/a/255", 200, monitor.Heartbeat{Check: "e", Source: "a", Signal: monitor.SignalFail, Code: 255}},
		{"/v1/ping/my%2Fevent/b%20c%3F", 200, monitor.Heartbeat{Check: "my/event", Source: "b c?"}},
		{"/v1/ping/e/a/256", 400, monitor.Heartbeat{}},
		{"/v1/ping/e/a/99999999999999999999", 400, monitor.Heartbeat{}},
		{"/v1/ping/e/a/-1", 404, monitor.Heartbeat{}},
		{"/v1/ping/e/a/done", 404, monitor.Heartbeat{}},
		{"/v1/ping/x/a", 404, monitor.Heartbeat{}},
		{"/v1/ping/e/a%00", 400, monitor.Heartbeat{}},
		{"/v1/ping/e/" + strings.Repeat("a", 201), 400, monitor.Heartbeat{}},
		{"/v1/ping/key/0123456789abcdef", 404, monitor.Heartbeat{}},
		{"/v1/ping/key/0123456789abcdef/fail", 404, monitor.Heartbeat{}},
	} {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			r := newRig(t, HTTPConfig{})
			w := r.do(method, c.path, strings.Repeat("log ", 100_000))
			if w.Code != c.status {
				t.Errorf("%s %s: %d %s", method, c.path, w.Code, w.Body)
			}
			if c.status != 200 {
				r.flow.want(t)
				continue
			}
			if got := w.Body.String(); got != "OK" {
				t.Errorf("%s %s: %q", method, c.path, got)
			}
			r.flow.want(t, c.want)
		}
	}
	r := newRig(t, HTTPConfig{})
	if w := r.do("DELETE", "/v1/ping/e/a", ""); w.Code != 405 {
		t.Errorf("DELETE: %d", w.Code)
	}
}

// TestServer goes through a real server: keep-alive, bodies without a length, bodies
// that break off.
func TestServer(t *testing.T) {
	r := newRig(t, HTTPConfig{})
	server := httptest.NewServer(r.mux)
	t.Cleanup(server.Close)
	for range 3 {
		resp, err := server.Client().Post(server.URL+"/v1/beats", "application/json", io.MultiReader(strings.NewReader(`[{"event":"e",`), strings.NewReader(`"source":"a"}]`)))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	}
	if got := len(r.flow.taken()); got != 3 {
		t.Errorf("%d beats", got)
	}
	broken := io.MultiReader(strings.NewReader(`[{"event":"e",`), failing{})
	if resp, err := server.Client().Post(server.URL+"/v1/beats", "application/json", broken); err == nil {
		_ = resp.Body.Close()
		t.Errorf("a body that broke off was answered with %d", resp.StatusCode)
	}
	server.Close()
	if got := len(r.flow.taken()); got != 3 {
		t.Errorf("%d beats after half a body", got)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
