package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/monitor"
)

// receiver takes what is POSTed and writes it to a file, a line for each: receiver
// VARIABLE FILE. The variable has its URL.
func receiver(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: receiver VARIABLE FILE")
	}
	f, err := os.Create(ts.MkAbs(args[1]))
	ts.Check(err)
	var mu sync.Mutex
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if _, err := f.WriteString(strings.ReplaceAll(string(body), "\n", " ") + "\n"); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	ts.Setenv(args[0], srv.URL)
	ts.Defer(func() { srv.Close(); f.Close() })
}

func TestEventFlag(t *testing.T) {
	for text, want := range map[string]monitor.Event{
		"job,interval=5s,missed=3":              {Name: "job", Interval: 5 * time.Second, Missed: 3},
		"job,interval=5s,fixed,severity=1":      {Name: "job", Interval: 5 * time.Second, Fixed: true, Severity: "1"},
		"job,schedule=0,30 2 * * 1,5,grace=1m":  {Name: "job", Schedule: "0,30 2 * * 1,5", Grace: time.Minute},
		"a b/ü,interval=1m,tag=x,tag=y":         {Name: "a b/ü", Interval: time.Minute, Tags: []string{"x", "y"}},
		"job,interval=1m,label.x=1,label.y=a=b": {Name: "job", Interval: time.Minute, Labels: map[string]string{"x": "1", "y": "a=b"}},
		"job,interval=1m,control_loop.name=CL,control_loop.target_type=VM": {
			Name: "job", Interval: time.Minute, ControlLoop: monitor.ControlLoop{Name: "CL", TargetType: "VM"},
		},
	} {
		got, err := parseEventFlag(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, got.event()); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", text, diff)
		}
	}
	for text, says := range map[string]string{
		"":                                   "event name is empty",
		"job":                                "an interval or a schedule",
		"job,5s":                             `write "5s" as KEY=VALUE`,
		"job,interval=":                      "KEY=VALUE",
		"job,interval=5":                     `"5" is no duration`,
		"job,intervall=5s":                   `did you mean "interval"?`,
		"job,interval=5s,interval=6s":        "interval stands twice",
		"job,interval=5s,missed=many":        `"many" is not a whole number`,
		"job,interval=5s,missed=-1":          "-1 missed beats",
		"job,interval=1ms":                   "too short",
		"job,schedule=61 * * * *":            "schedule",
		"job,interval=5s,schedule=@daily":    "exclude each other",
		"job,interval=5s,control_loop.nam=x": `did you mean "name"?`,
	} {
		_, err := parseEventFlag(text)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "main.") || strings.Contains(err.Error(), "line ") {
			t.Errorf("%s: says %q, should say %q", text, err, says)
		}
		if exitCode(err) != exitUsage {
			t.Errorf("%s: exit code %d", text, exitCode(err))
		}
	}
}

// TestEventsRoundTrip: what "config show" prints can be applied, and changes nothing.
func TestEventsRoundTrip(t *testing.T) {
	e := monitor.Event{
		Name: "a: [b", Interval: 90 * time.Second, Missed: 2, Grace: 1500 * time.Millisecond, MaxRun: time.Hour, Fixed: true,
		RetireAfter: 24 * time.Hour, SenderClock: true, Flaps: 4, FlapWindow: time.Hour, Steady: time.Minute,
		GroupBy: "site", GroupWait: 10 * time.Second, GroupMin: 2, Severity: "yes", Tags: []string{"1", "null"},
		Labels: map[string]string{"x": "0x10", "y": ""}, Paused: true, ControlLoop: monitor.ControlLoop{Name: "CL", TargetType: "VM", Version: "1.0"},
	}
	text, err := yaml.Marshal(eventsConfig{Events: []eventConfig{writeEvent(e)}})
	if err != nil {
		t.Fatal(err)
	}
	doc, err := parseDocument(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if diff := cmp.Diff([]monitor.Event{e}, doc.Events); diff != "" {
		t.Errorf("(-want +got)\n%s%s", diff, text)
	}
}

func TestMonitorConfigRefuses(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const event = "events:\n- {event: a, interval: 5s}\n"
	for name, c := range map[string]struct{ text, says string }{
		"nothing":                  {"", "it is empty"},
		"no mapping":               {"- a", "the file wants keys with values"},
		"broken YAML":              {"events: [ {", "line 1"},
		"no event":                 {"declared: []", "has no event names"},
		"unknown key":              {"event: []", `line 1: "event" is not known here; did you mean "events"?`},
		"unknown key of an event":  {"events:\n- event: a\n  intervall: 5s", `line 3: "intervall" is not known in an event; did you mean "interval"?`},
		"unknown key of a loop":    {"events:\n- event: a\n  control_loop: {polcyName: x}", `line 3: "polcyName" is not known in control_loop; did you mean "policy_name"?`},
		"nothing near":             {"events:\n- event: a\n  xyzzy: 5s", `"xyzzy" is not known in an event`},
		"a number without a unit":  {"events:\n- event: a\n  interval: 5", `line 3: interval: "5" is no duration`},
		"a word for a number":      {"events:\n- event: a\n  missed: many", `line 3: missed: "many" is not a whole number`},
		"a list for a text":        {"events:\n- event: [a]", "line 2: event wants one text"},
		"no name":                  {"events:\n- interval: 5s", "line 2: lease: invalid input: event name is empty"},
		"nothing expected":         {event + "- event: b", `line 3: lease: invalid input: event "b": say what is expected`},
		"negative":                 {event + "- {event: b, interval: 5s, missed: -1}", "line 3"},
		"too short":                {"events:\n- {event: b, interval: 5ms}", "line 2"},
		"wrong schedule":           {"events:\n- {event: b, schedule: '61 * * * *'}", "line 2"},
		"wrong type":               {"events:\n- {event: b, interval: 5s, control_loop: {target_type: PNF}}", "use VNF or VM"},
		"event twice":              {event + "- {event: a, interval: 6s}", `line 3: event "a" stands twice`},
		"key twice":                {"events:\n- {event: a, event: b}", `line 2: "event" stands twice in an event`},
		"declared for nothing":     {event + "declared:\n- {event: A, source: x}", `line 4: source "x" is declared for event "A", which does not stand here; did you mean "a"?`},
		"declared without name":    {event + "declared:\n- {event: a}", "line 4"},
		"server's file elsewhere":  {"monitor: {config: {file: x.yaml}}", "come from elsewhere (x.yaml)"},
		"server's file":            {"monitor:\n  events:\n  - {event: a}", "line 3"},
		"ONAP's, broken":           {`{"heartbeat_config": "{"}`, "heartbeat_config"},
		"ONAP's, empty":            {`{"heartbeat_config": "{\"vnfs\":[]}"}`, ""},
		"no sink's name":           {"monitor: {sinks: [{log: {}}]}", "space must have"},
		"a sink of no kind":        {"monitor: {sinks: [{sink: a}]}", "say what it is"},
		"a sink of two kinds":      {"monitor: {sinks: [{sink: a, log: {}, webhook: {url: 'http://x'}}]}", "at once"},
		"a sink twice":             {"monitor: {sinks: [{sink: a, log: {}}, {sink: a, log: {}}]}", `sink "a" stands twice`},
		"a sink's unknown key":     {"monitor: {sinks: [{sink: a, webhook: {ulr: x}}]}", `did you mean "url"?`},
		"a log with settings":      {"monitor: {sinks: [{sink: a, log: {level: x}}]}", `"level" is not known in log`},
		"a sink's long name":       {"monitor: {sinks: [{sink: aaaaaaaaaabbbbbbbbbbcccccccccc, log: {}}]}", "at most 25"},
		"a sink's wrong template":  {"monitor: {sinks: [{sink: a, webhook: {url: 'http://x', body: '{{.Nothing}}'}}]}", "sink a"},
		"a sink's secret":          {"monitor: {sinks: [{sink: a, webhook: {url: 'http://x', secret_file: " + empty + "}}]}", "is empty"},
		"a sink's unsafe windows":  {"monitor: {keep: true, sinks: [{sink: a, log: {}, submit_timeout: 1m}]}", "unsafe timing"},
		"a sink of other compat":   {"monitor: {sinks: [{sink: a, message_router: {url: 'http://x/events/T', compat: foo}}]}", "use onap"},
		"a router's name":          {"monitor: {routers: [{url: 'http://x/events/T'}]}", "router"},
		"a router twice":           {"monitor: {routers: [{router: a, url: 'http://x/events/T', group: g}, {router: a, url: 'http://x/events/T', group: g}]}", "stands twice"},
		"a ping key that is empty": {"monitor: {ping_keys: [{file: " + empty + "}]}", "ping key"},
		"two sources of events":    {"monitor: {events: [{event: a, interval: 5s}], config: {file: x}}", "cannot stand beside it"},
		"config of nothing":        {"monitor: {config: {}}", "say where it comes from"},
		"config of two":            {"monitor: {config: {file: x, cbs: true}}", "say where it comes from"},
		"config too often":         {"monitor: {config: {file: x, poll: 1ms}}", "at least 1s"},
		"a window too short":       {"monitor: {events: [{event: a, interval: 5s}], first_window: 1ms}", "first window"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "c.yaml")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			code, out := ask(t, "monitor", "config", "check", path)
			if code != exitUsage || !strings.Contains(out, c.says) || strings.Contains(out, "main.") {
				t.Errorf("exit code %d, should say %q:\n%s", code, c.says, out)
			}
			if strings.HasPrefix(c.text, "monitor:") && !strings.Contains(c.says, "elsewhere") {
				_, err := readConfig(path)
				if err == nil || exitCode(err) != exitUsage || !strings.Contains(err.Error(), c.says) {
					t.Errorf("the server says %q", err)
				}
			}
		})
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", time.Minute: "1m", time.Hour: "1h", 90 * time.Minute: "1h30m", 24 * time.Hour: "24h",
		61 * time.Second: "1m1s", 3605 * time.Second: "1h0m5s", 1500 * time.Millisecond: "1.5s", 10 * time.Minute: "10m",
	} {
		if got := short(d); got != want {
			t.Errorf("%v became %s, want %s", d, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"interval", "intervall", 1}, {"missed", "mised", 1}, {"ab", "ba", 1}, {"ulr", "url", 1}, {"grace", "schedule", 7}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
