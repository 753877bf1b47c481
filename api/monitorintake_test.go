package api

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/internal/memstore/checks"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/intake"
	"github.com/understudy-ha/understudy/store/memory"
)

const (
	apiToken = "correct-horse-battery"
	pingKey  = "0123456789abcdef"
)

// newIntakeRig is a monitor that takes beats in, behind a token and a ping key.
func newIntakeRig(t *testing.T) *monitorRig {
	t.Helper()
	st := memory.New(nil)
	table := checks.NewMemory(checks.Options{History: st})
	inlet, err := monitor.NewIntake(monitor.IntakeConfig{Store: table, ProbeInterval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	keeper, err := lease.NewKeeper(lease.KeeperConfig{Store: st, Instance: lease.NewInstance("one", ""), Timing: claim.Windows{First: monitor.DefaultWindow, Second: monitor.DefaultWindow}.Timing()})
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := monitor.NewWatcher(monitor.WatcherConfig{Keeper: keeper, Claims: struct{ claim.KeyTable }{}, Store: table})
	if err != nil {
		t.Fatal(err)
	}
	rejected := intake.NewRejectedInputs(10)
	flow := inlet.OpenPath(monitor.PathConfig{Name: "http", TrustFor: time.Second, MaxGap: 2 * time.Second, Synchronous: true})
	in, err := intake.NewHTTP(intake.HTTPConfig{
		Flow: flow, Rejected: rejected, Keys: []intake.PingKey{{Name: "cron", Key: pingKey, Checks: []string{"w*"}}},
		Authorize: MayIngest, Reports: table,
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Store: &monitorStore{st, table}, Token: apiToken, Monitor: &Monitor{HTTP: in, Intake: inlet, Watcher: watcher, Rejected: rejected}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = inlet.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	if _, err := table.Configure(t.Context(), monitor.Configuration{Checks: []monitor.Check{every("web"), every("db")}}); err != nil {
		t.Fatal(err)
	}
	return &monitorRig{rig: rig{t: t, store: st, s: s}, table: table}
}

// ask sends a request with a header Authorization.
func (g *monitorRig) ask(auth, method, path, body string) answer {
	g.t.Helper()
	r := request(g.t.Context(), method, path, body)
	if auth != "" {
		r.Header.Set("Authorization", auth)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return send(g.t, g.s, r)
}

func TestBeatsByPingKey(t *testing.T) {
	g := newIntakeRig(t)
	const key, token = "Bearer " + pingKey, "Bearer " + apiToken
	for _, c := range []struct {
		auth, method, path, body string
		status                   int
	}{
		{"", "GET", "/v1/ping/web/w1", "", 401},
		{"", "POST", "/v1/beats", `{"event":"web","source":"w1"}`, 401},
		{"", "POST", "/eventListener/v7", `{}`, 401},
		{"Bearer wrong-horse-battery", "GET", "/v1/ping/web/w1", "", 401},
		{key, "GET", "/v1/ping/web/w1", "", 200},
		{key, "HEAD", "/v1/ping/web/w1", "", 200},
		{key, "GET", "/v1/ping/web/w1?host=50%", "", 200}, // a heartbeat counts all the same
		{key, "POST", "/v1/ping/web/w1/start", "", 200},
		{key, "POST", "/v1/ping/web/w1/0", "", 200},
		{key, "GET", "/v1/ping/db/d1", "", 403},
		{key, "GET", "/v1/ping/wrong/w1", "", 404},
		{"", "GET", "/v1/ping/key/" + pingKey + "/web/w2", "", 200},
		{"", "GET", "/v1/ping/web/w3?key=" + pingKey, "", 200},
		{token, "GET", "/v1/ping/db/d1/fail", "", 200},
		{token, "POST", "/v1/beats", `[{"event":"web","source":"w1"},{"event":"db","source":"d2"}]`, 200},
		{key, "POST", "/v1/beats", `[{"event":"web","source":"w1"},{"event":"db","source":"d3"}]`, 202},
		{token, "POST", "/v1/beats", `{"event":"wrong","source":"w1"}`, 404},
		{token, "POST", "/v1/beats", `{"event":"web"`, 400},
		// A key for beats is no key for anything else, and the other way round it is.
		{key, "GET", "/v1/sources", "", 401},
		{key, "GET", "/v1/sources/web/w1/badge.svg", "", 401},
		{key, "POST", "/v1/sources/web/w1/retire", "", 401},
		{"", "GET", "/v1/sources?key=" + pingKey, "", 401},
		{token, "GET", "/v1/sources", "", 200},
	} {
		if a := g.ask(c.auth, c.method, c.path, c.body); a.Status != c.status {
			t.Errorf("%s %s with %q: %d %s, want %d", c.method, c.path, c.auth, a.Status, a.Body, c.status)
		}
	}
	var page apitype.Sources
	g.ask(token, "GET", "/v1/sources", "").into(&page)
	var got []string
	for _, s := range page.Sources {
		got = append(got, fmt.Sprint(s.Check, " ", s.Name, " ", s.Path))
	}
	if want := "[db d1 http db d2 http web w1 http web w2 http web w3 http]"; fmt.Sprint(got) != want {
		t.Errorf("sources %v, want %s", got, want)
	}
}

// TestPingByID goes the way of a healthchecks.io client, behind a token: the ID is all that it has.
func TestPingByID(t *testing.T) {
	g := newIntakeRig(t)
	const token, id = "Bearer " + apiToken, "d1665499-e827-441f-bf13-8f15e8f4c0b9"
	g.ask(token, "POST", "/v1/sources", `{"sources":[{"check":"web","source":"w1","labels":{"ping":"`+id+`"}},{"check":"web","source":"w2","labels":{"ping":"named"}}]}`).want(201, "")
	g.ask("", "POST", "/ping/"+id+"/1?rid="+id, "no space left\x1b[31m\n"+strings.Repeat("x", 2*monitor.MaxReport)).want(200, "")
	var shown apitype.SourceAlarms
	g.ask(token, "GET", "/v1/sources/web/w1", "").into(&shown)
	if r := shown.Report; r == nil || r.Kind != "fail" || r.Code != 1 || r.Run != id || len(r.Body) > monitor.MaxReport+8 || !strings.HasPrefix(r.Body, "no space left\uFFFD[31m\n") {
		t.Errorf("%+v", shown.Report)
	}
	if shown.Path != "http" || shown.Code != 1 {
		t.Errorf("%+v", shown.Source)
	}
	g.ask("GenieKey "+pingKey, "POST", "/v2/heartbeats/named/ping", "{}").want(202, "")
	if a := g.ask("", "POST", "/v2/heartbeats/named/ping", "{}"); a.Status != 401 || !strings.Contains(a.Body, `"message"`) {
		t.Errorf("without a key: %d %s", a.Status, a.Body)
	}
	g.ask(token, "POST", "/v2/heartbeats/named/ping", "{}").want(202, "")
	g.ask("Bearer "+pingKey, "POST", "/v1/watchdog/web/w3", `{"alerts":[{"status":"firing"}]}`).want(204, "")
	g.ask("", "POST", "/v1/watchdog/web/w3", `{"alerts":[{"status":"firing"}]}`).want(401, "unauthorized")
}

// TestLargeBodies: beats may come in bodies that are larger than those of other
// routes, up to a limit of their own.
func TestLargeBodies(t *testing.T) {
	g := newIntakeRig(t)
	const token = "Bearer " + apiToken
	var beats []string
	for n := range 2000 {
		beats = append(beats, fmt.Sprintf(`{"event":"web","source":"a source with a rather long name, %06d"}`, n))
	}
	body := "[" + strings.Join(beats, ",") + "]"
	if len(body) <= maxBody {
		t.Fatalf("%d bytes prove nothing", len(body))
	}
	if a := g.ask(token, "POST", "/v1/beats", body); a.Status != 200 || !strings.Contains(a.Body, `"accepted":2000`) {
		t.Errorf("a large body: %d %s", a.Status, a.Body)
	}
	g.ask(token, "POST", "/v1/beats", body+strings.Repeat(" ", int(intake.MaxBody))).want(413, "too_large")
	g.ask(token, "POST", "/v1/sources/web/x/pause", `{"note":"`+strings.Repeat("x", maxBody)+`"}`).want(413, "too_large")
}

func TestRejectedInputs(t *testing.T) {
	g := newMonitorRig(t)
	if a := g.do("GET", "/v1/monitor/rejected", ""); strings.TrimSpace(a.Body) != `{"rejected":[],"counts":{}}` {
		t.Errorf("without intake: %s", a.Body)
	}
	g = newIntakeRig(t)
	const token = "Bearer " + apiToken
	for _, body := range []string{"\x00\x01<script>", `{"event":"nothing","source":"x"}`, `{"event":"web","source":"\u202egnp.exe"}`, `{"hello":"<img src=x onerror=alert(1)>"}`} {
		if a := g.ask(token, "POST", "/v1/beats", body); a.Status < 400 {
			t.Errorf("%q: %d", body, a.Status)
		}
	}
	var out struct {
		Rejected []apitype.RejectedInput
		Counts   map[string]int64
	}
	a := g.ask(token, "GET", "/v1/monitor/rejected", "")
	a.into(&out)
	if len(out.Rejected) != 4 || len(out.Counts) != 4 || out.Rejected[3].Cause != string(intake.Syntax) || out.Rejected[3].Path != "http" {
		t.Errorf("rejected: %s", a.Body)
	}
	if body := out.Rejected[3].Body; !strings.HasSuffix(body, "<script>") || strings.ContainsAny(body, "\x00\x01") {
		t.Errorf("what nobody can print: %q", body)
	}
	for _, l := range out.Rejected {
		if strings.ContainsRune(l.Body+l.Detail, '\u202e') {
			t.Errorf("an input turns text around: %q", l)
		}
	}
	g.ask("", "GET", "/v1/monitor/rejected", "").want(401, "unauthorized")
}

func TestMonitorMetrics(t *testing.T) {
	g := newIntakeRig(t)
	const token = "Bearer " + apiToken
	g.ask(token, "POST", "/v1/beats", `[{"event":"web","source":"w1"},{"event":"web","source":"w2"},{"event":"x","source":"x"}]`)
	g.ask(token, "POST", "/v1/beats", `{"event":"web"}`)
	text := g.ask(token, "GET", "/metrics", "").Body
	for _, want := range []string{
		`understudy_monitor_beats_total{outcome="accepted"} 2`, `understudy_monitor_beats_total{outcome="unknown"} 1`,
		`understudy_monitor_rejected_total{cause="unknown_event"} 1`, `understudy_monitor_rejected_total{cause="no_source"} 1`,
		`understudy_monitor_intake_queued 0`, `understudy_monitor_partitions 0`, `understudy_monitor_transitions_total{transition="ONSET"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}
	lines := strings.Count(text, "\nunderstudy_monitor_")
	for n := range 50 {
		g.ask(token, "POST", "/v1/beats", fmt.Sprintf(`[{"event":"web","source":"w%d"},{"event":"x%d","source":"x"}]`, n, n))
	}
	if after := strings.Count(g.ask(token, "GET", "/metrics", "").Body, "\nunderstudy_monitor_"); after != lines {
		t.Errorf("%d series before, %d after fifty names", lines, after)
	}

	var own struct {
		Instance *apitype.MonitorInstance
	}
	g.ask(token, "GET", "/v1/monitor", "").into(&own)
	if own.Instance == nil || own.Instance.Accepted != 52 || own.Instance.Unknown != 51 || own.Instance.Rejected != 52 {
		t.Errorf("what this instance did: %+v", own.Instance)
	}
}

func TestMonitorMetricsOfStore(t *testing.T) {
	g := newMonitorRig(t, every("web"))
	g.down("web", "w1", "w2")
	g.beat("web", "w3", monitor.SignalSuccess)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan struct{})
	go func() { defer close(done); _ = g.s.Run(ctx) }()
	for wait := time.Now(); ; {
		if _, up := g.s.poller.readiness(); up {
			break
		}
		if time.Since(wait) > enough {
			t.Fatal("the board never looked")
		}
		<-time.After(5 * time.Millisecond)
	}
	text := g.do("GET", "/metrics", "").Body
	for _, want := range []string{
		`understudy_monitor_sources{check="web",state="down"} 2`, `understudy_monitor_sources{check="web",state="up"} 1`,
		`understudy_monitor_alarms_open 2`, `understudy_monitor_path_up{path="test"} 1`, `understudy_monitor_path_blind_seconds_total{path="test"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}
	// However many sources, names and paths there are: they are bounded.
	var events []monitor.Check
	for n := range 3 * maxCheckLabels {
		events = append(events, every(fmt.Sprintf("event-%03d", n)))
	}
	if _, err := g.table.Configure(t.Context(), monitor.Configuration{Checks: events}); err != nil {
		t.Fatal(err)
	}
	for n := range 3 * maxPathLabels {
		if _, err := g.table.RecordHeartbeats(t.Context(), monitor.HeartbeatBatch{Probes: []monitor.Probe{{Path: fmt.Sprint("path-", n), TrustFor: time.Second, MaxGap: time.Second}}}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 100 {
		g.beat("event-000", fmt.Sprint("s", n), monitor.SignalSuccess)
	}
	g.s.monitor.snapshot.invalidate()
	text = g.do("GET", "/metrics", "").Body
	if n := strings.Count(text, "\nunderstudy_monitor_sources{"); n != 4*maxCheckLabels {
		t.Errorf("%d series of sources, want %d", n, 4*maxCheckLabels)
	}
	if n := strings.Count(text, "\nunderstudy_monitor_path_up{"); n != maxPathLabels {
		t.Errorf("%d series of paths, want %d", n, maxPathLabels)
	}
	stop()
	<-done
}
