package intake

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// reports are what a store has of sources and their reports.
type reports struct {
	sources []monitor.SourceRecord
	fail    error
	block   chan struct{} // if set, holds up each Sources until it can be received from

	mu    sync.Mutex
	asked int
	kept  []monitor.Report
}

func (s *reports) KeepReport(_ context.Context, of monitor.SourceRef, r monitor.Report) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of.Check != "e" {
		return monitor.ErrNoSource
	}
	s.kept = append(s.kept, r)
	return nil
}

func (s *reports) Sources(ctx context.Context, q monitor.SourceQuery) (out []monitor.SourceRecord, err error) {
	if s.block != nil {
		select {
		case <-s.block:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	for _, r := range s.sources {
		if r.Labels[q.Label] == q.Value {
			out = append(out, r)
		}
	}
	return out, s.fail
}

const (
	jobID = "d1665499-e827-441f-bf13-8f15e8f4c0b9"
	runID = "0b6d1f0e-52a3-4a76-8b4c-7f3d1c2a9e55"

	macID  = "4e1f0c1b-6a5d-4d0e-9a55-0f6f4a7f2c31" // as uuidgen of macOS writes it: in capitals
	zeroID = "00000000-0000-0000-0000-000000000000"
	lowID  = "9c2e6f3a-17d4-4b8e-a1c0-5d3b7e9f2a64" // of two sources, of one in capitals
)

func newReports() *reports {
	source := func(check, name, id string) monitor.SourceRecord {
		return monitor.SourceRecord{Check: check, Source: name, Labels: map[string]string{monitor.PingLabel: id}}
	}
	return &reports{sources: []monitor.SourceRecord{
		source("e", "job", jobID), source("e", "named", "nightly"), source("e", "one", "twice"), source("f", "other", "twice"), source("f", "foreign", "foreign"),
		source("e", "mac", strings.ToUpper(macID)), source("e", "zero", zeroID), source("e", "low", lowID), source("e", "up", strings.ToUpper(lowID)),
	}}
}

// TestPingByID: what a client of healthchecks.io sends, it can send here.
func TestPingByID(t *testing.T) {
	job := monitor.Heartbeat{Check: "e", Source: "job"}
	of := func(change func(*monitor.Heartbeat)) *monitor.Heartbeat { b := job; change(&b); return &b }
	for _, c := range []struct {
		path   string
		body   string
		status int
		want   *monitor.Heartbeat // nil: none
		kept   monitor.Report
	}{
		{path: "/ping/" + jobID, status: 200, want: &job},
		{path: "/ping/" + strings.ToUpper(jobID), status: 200, want: &job},
		{path: "/ping/" + jobID + "/start", status: 200, want: of(func(b *monitor.Heartbeat) { b.Signal = monitor.SignalStart })},
		{path: "/ping/" + jobID + "/fail", body: "no space", status: 200, want: of(func(b *monitor.Heartbeat) { b.Signal = monitor.SignalFail }),
			kept: monitor.Report{Kind: monitor.ReportFail, Body: []byte("no space")}},
		{path: "/ping/" + jobID + "/log", body: "half way", status: 200, kept: monitor.Report{Kind: monitor.ReportLog, Body: []byte("half way")}},
		{path: "/ping/" + jobID + "/3?rid=" + runID, body: "x", status: 200,
			want: of(func(b *monitor.Heartbeat) {
				b.Signal, b.Code, b.Run = monitor.SignalFail, 3, monitor.RunKey(runID)
			}),
			kept: monitor.Report{Kind: monitor.ReportFail, Code: 3, Run: runID, Body: []byte("x")}},
		{path: "/ping/" + jobID, body: strings.Repeat("x", 3*monitor.MaxReport), status: 200, want: &job,
			kept: monitor.Report{Kind: monitor.ReportSuccess, Body: []byte(strings.Repeat("x", monitor.MaxReport))}},
		{path: "/v1/ping/e/job/log", body: "on", status: 200, kept: monitor.Report{Kind: monitor.ReportLog, Body: []byte("on")}},
		{path: "/v1/ping/none/job/log", body: "on", status: 404},
		{path: "/ping/" + jobID + "/256", status: 400},
		{path: "/ping/" + jobID + "/done", status: 404},
		{path: "/ping/" + jobID + "?rid=7", status: 400},
		{path: "/ping/" + macID, status: 200, want: &monitor.Heartbeat{Check: "e", Source: "mac"}},
		{path: "/ping/" + strings.ToUpper(macID), status: 200, want: &monitor.Heartbeat{Check: "e", Source: "mac"}},
		{path: "/ping/" + zeroID, status: 200, want: &monitor.Heartbeat{Check: "e", Source: "zero"}},
		{path: "/ping/" + lowID, status: 409},
		{path: "/ping/" + runID, status: 404},
		{path: "/ping/nobody", status: 404},
		{path: "/ping/twice", status: 409},
		{path: "/ping/nightly", status: 200, want: &monitor.Heartbeat{Check: "e", Source: "named"}},
	} {
		store := newReports()
		r := newRig(t, HTTPConfig{Reports: store})
		w := r.do("POST", c.path, c.body)
		if w.Code != c.status || c.status == 200 && (w.Body.String() != "OK" || w.Header().Get("Ping-Body-Limit") != "10000") {
			t.Errorf("%s: %d %v %s", c.path, w.Code, w.Header(), w.Body)
		}
		if c.want == nil {
			r.flow.want(t)
		} else {
			r.flow.want(t, *c.want)
		}
		var kept monitor.Report
		if len(store.kept) > 0 {
			kept = store.kept[0]
		}
		if kept.Kind != c.kept.Kind || kept.Code != c.kept.Code || kept.Run != c.kept.Run || string(kept.Body) != string(c.kept.Body) || len(store.kept) > 1 {
			t.Errorf("%s: kept %d, the first %+v", c.path, len(store.kept), kept)
		}
	}
}

// TestPingIDKeys: a UUID is its own key, any other ID needs one; and guessing UUIDs is slow.
func TestPingIDKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newReports()
		r := newRig(t, HTTPConfig{Reports: store, Keys: keys(), Authorize: guarded})
		for _, c := range []struct {
			method, path, header string
			status               int
			wait                 time.Duration
		}{
			{"GET", "/ping/" + jobID, "", 200, 0},
			{"HEAD", "/ping/" + jobID, "", 200, 0},
			{"GET", "/ping/nightly", "", 401, 0},
			{"GET", "/ping/nightly", "Bearer " + anyKey, 200, 0},
			{"GET", "/v2/heartbeats/nightly/ping", "GenieKey " + anyKey, 202, 0},
			{"GET", "/v2/heartbeats/nightly/ping", "GenieKey wrong-horse-battery", 401, denyAfter},
			{"GET", "/v2/heartbeats/nightly/ping", "", 401, 0},
			{"GET", "/ping/" + runID, "", 404, denyAfter},
		} {
			began := time.Now()
			w := r.do(c.method, c.path, "", "Authorization", c.header)
			if w.Code != c.status || time.Since(began) != c.wait {
				t.Errorf("%s %s as %q: %d after %v, want %d after %v; %s", c.method, c.path, c.header, w.Code, time.Since(began), c.status, c.wait, w.Body)
			}
		}
		asked := store.asked
		for range 100 {
			r.do("GET", "/ping/"+jobID, "")
		}
		if store.asked != asked {
			t.Errorf("the store was asked %d times for an ID that is known", store.asked-asked)
		}
		time.Sleep(idLasts)
		r.do("GET", "/ping/"+jobID, "")
		if store.asked != asked+2 { // for both spellings
			t.Error("the store is never asked again")
		}
	})
}

// TestGuessedIDs: guesses of UUIDs, however many, delay no ping with an ID that is right, and the store has no work with
// those of a sender that has sent too many, but whose IDs that were right before still count. What waits for a slow store is
// not a guess.
func TestGuessedIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newReports()
		over := false
		r := newRig(t, HTTPConfig{Reports: store, Keys: keys(), Authorize: guarded, HasSentTooMany: func(*http.Request) bool { return over }})
		begun := time.Now()
		statuses := make(chan int, 2*denySlots)
		ping := func(id string) { statuses <- r.do("GET", "/ping/"+id, "").Code }
		for range denySlots {
			go ping(runID)
		}
		synctest.Wait()
		if w := r.do("GET", "/ping/"+jobID, ""); w.Code != 200 || time.Since(begun) != 0 {
			t.Errorf("amid guesses the right ID is answered %d after %v: %s", w.Code, time.Since(begun), w.Body)
		}
		if w := r.do("GET", "/ping/"+runID, ""); w.Code != 429 || w.Header().Get("Retry-After") == "" {
			t.Errorf("one guess more than is bearable: %d", w.Code)
		}
		for range denySlots {
			if status := <-statuses; status != 404 {
				t.Errorf("a guess: %d", status)
			}
		}

		time.Sleep(idLasts)
		over = true
		asked := store.asked
		if w := r.do("GET", "/ping/"+runID, ""); w.Code != 429 || store.asked != asked {
			t.Errorf("a guess of a sender that has sent too many: %d, and the store was asked %d times", w.Code, store.asked-asked)
		}
		if w := r.do("GET", "/ping/nightly?key="+anyKey, ""); w.Code != 200 {
			t.Errorf("an ID with a key, from that sender: %d %s", w.Code, w.Body)
		}
		store.block = make(chan struct{})
		for range 2 * denySlots {
			go ping(jobID)
		}
		synctest.Wait()
		close(store.block)
		for range 2 * denySlots {
			if status := <-statuses; status != 200 {
				t.Errorf("a ping that waited for the store: %d", status)
			}
		}

		time.Sleep(idLasts)
		store.sources = nil
		for _, want := range []int{404, 429} {
			if w := r.do("GET", "/ping/"+jobID, ""); w.Code != want {
				t.Errorf("an ID that is right no longer: %d, want %d", w.Code, want)
			}
		}
	})
}

func TestPingIDStoreAway(t *testing.T) {
	store := newReports()
	store.fail = lease.ErrUnavailable
	r := newRig(t, HTTPConfig{Reports: store})
	if w := r.do("GET", "/ping/"+jobID, ""); w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestOpsgenie: the answers are those that its clients read.
func TestOpsgenie(t *testing.T) {
	for _, method := range []string{"GET", "POST", "PUT", "PATCH"} {
		r := newRig(t, HTTPConfig{Reports: newReports()})
		w := r.do(method, "/v2/heartbeats/nightly/ping", "")
		var said struct {
			Result, Message string
			Took            *float64
			RequestID       string `json:"requestId"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || w.Code != 202 || !strings.HasPrefix(said.Result, "PONG") || said.Took == nil || said.RequestID == "" {
			t.Errorf("%s: %d %s, %v", method, w.Code, w.Body, err)
		}
		r.flow.want(t, monitor.Heartbeat{Check: "e", Source: "named"})
		w = r.do(method, "/v2/heartbeats/nobody/ping", "")
		if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || w.Code != 404 || said.Message == "" {
			t.Errorf("%s of nobody: %d %s, %v", method, w.Code, w.Body, err)
		}
	}
}

// TestWatchdog: an alert that fires is a heartbeat, its end is none.
func TestWatchdog(t *testing.T) {
	const firing = `{"version":"4","groupKey":"{}:{alertname=\"Watchdog\"}","status":"firing","receiver":"understudy","alerts":[
		{"status":"resolved","labels":{"alertname":"Old"}},{"status":"firing","labels":{"alertname":"Watchdog","severity":"none"},
		"startsAt":"2026-11-21T10:00:00Z","endsAt":"0001-01-01T00:00:00Z","fingerprint":"f1"}],"externalURL":"http://am:9093"}`
	for _, c := range []struct {
		path, body string
		status     int
		beats      int
	}{
		{"/v1/watchdog/e/prometheus", firing, 204, 1},
		{"/v1/watchdog/e/prometheus", strings.ReplaceAll(firing, `"status":"firing"`, `"status":"resolved"`), 204, 0},
		{"/v1/watchdog/x/prometheus", firing, 404, 0},
		{"/v1/watchdog/e/prometheus", `{"alerts":[]}`, 400, 0},
		{"/v1/watchdog/e/prometheus", `alive`, 400, 0},
		{"/v1/watchdog/e/prometheus", ``, 400, 0},
		{"/v1/watchdog/e/prometheus", `[` + firing + `]`, 400, 0},
		{"/v1/watchdog/e/prometheus", firing[:len(firing)-1], 400, 0},
		{"/v1/watchdog/e/prometheus", `{"alerts":{"status":"firing"}}`, 400, 0},
		{"/v1/watchdog/e/prometheus", `{"alerts":["firing"]}`, 400, 0},
		{"/v1/watchdog/e/prometheus", `{"status":"firing","alerts":[{"status":null},{"labels":{"status":"firing"}},{}]}`, 204, 0},
		{"/v1/watchdog/e/prometheus", `{"alerts":[{"status":7}]}`, 400, 0},
		{"/v1/watchdog/e/prometheus", strings.Repeat(" ", int(MaxBody)+1), 413, 0},
		{"/v1/watchdog/e/a%00", firing, 400, 0},
	} {
		r := newRig(t, HTTPConfig{})
		w := r.do("POST", c.path, c.body)
		if w.Code != c.status || len(r.flow.taken()) != c.beats {
			t.Errorf("%s %.30s: %d, %d beats, %s", c.path, c.body, w.Code, len(r.flow.taken()), w.Body)
		}
	}
	r := newRig(t, HTTPConfig{Keys: keys(), Authorize: guarded})
	if w := r.do("POST", "/v1/watchdog/e/p", firing); w.Code != 401 {
		t.Errorf("without a key: %d", w.Code)
	}
	if w := r.do("POST", "/v1/watchdog/e/p", firing, "Authorization", "Bearer "+anyKey); w.Code != 204 {
		t.Errorf("with a key: %d %s", w.Code, w.Body)
	}
	// What is promised of every body: it takes at most about 8 times its size.
	long := `{"alerts":[` + strings.Repeat("0,", 1<<19) + "0]}"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w := r.do("POST", "/v1/watchdog/e/p", long, "Authorization", "Bearer "+anyKey)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; w.Code != 400 || took > uint64(8*len(long)) {
		t.Errorf("%d KiB were answered %d and took %d KiB", len(long)>>10, w.Code, took>>10)
	}
}

// TestReportLost: a report that cannot be kept fails its ping, which is sent again without harm.
func TestReportLost(t *testing.T) {
	r := newRig(t, HTTPConfig{Reports: failingReports{newReports()}})
	if w := r.do("POST", "/v1/ping/e/job", "body"); w.Code != 503 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

type failingReports struct{ *reports }

func (failingReports) KeepReport(context.Context, monitor.SourceRef, monitor.Report) error {
	return errors.Join(lease.ErrUnavailable)
}
