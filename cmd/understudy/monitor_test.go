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

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/understudy-ha/understudy/internal/settings"
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

func TestMonitorConfigRefuses(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const event = "checks:\n- {check: a, interval: 5s}\n"
	for name, c := range map[string]struct{ text, says string }{
		"nothing":                  {"", "it is empty"},
		"no mapping":               {"- a", "the file wants keys with values"},
		"broken YAML":              {"checks: [ {", "line 1"},
		"no event":                 {"declared: []", "has no checks"},
		"unknown key":              {"check: []", `line 1: "check" is not known here; did you mean "checks"?`},
		"unknown key of an event":  {"checks:\n- check: a\n  intervall: 5s", `line 3: "intervall" is not known in a check; did you mean "interval"?`},
		"unknown key of a loop":    {"checks:\n- check: a\n  control_loop: {polcyName: x}", `line 3: "polcyName" is not known in control_loop; did you mean "policy_name"?`},
		"nothing near":             {"checks:\n- check: a\n  xyzzy: 5s", `"xyzzy" is not known in a check`},
		"a number without a unit":  {"checks:\n- check: a\n  interval: 5", `line 3: interval: "5" is not a valid duration`},
		"a word for a number":      {"checks:\n- check: a\n  missed: many", `line 3: missed: "many" is not a whole number`},
		"a list for a text":        {"checks:\n- check: [a]", "line 2: check wants one text"},
		"no name":                  {"checks:\n- interval: 5s", "line 2: lease: invalid input: check name is empty"},
		"nothing expected":         {event + "- check: b", `line 3: lease: invalid input: check "b": say what is expected`},
		"negative":                 {event + "- {check: b, interval: 5s, missed: -1}", "line 3"},
		"too short":                {"checks:\n- {check: b, interval: 5ms}", "line 2"},
		"wrong schedule":           {"checks:\n- {check: b, schedule: '61 * * * *'}", "line 2"},
		"wrong type":               {"checks:\n- {check: b, interval: 5s, control_loop: {target_type: PNF}}", "use VNF or VM"},
		"event twice":              {event + "- {check: a, interval: 6s}", `line 3: check "a" appears twice`},
		"key twice":                {"checks:\n- {check: a, check: b}", `line 2: "check" appears twice in a check`},
		"declared for nothing":     {event + "declared:\n- {check: A, source: x}", `line 4: source "x" is declared for check "A", which is not in this file; did you mean "a"?`},
		"declared without name":    {event + "declared:\n- {check: a}", "line 4"},
		"server's file elsewhere":  {"monitor: {config: {file: x.yaml}}", "come from elsewhere (x.yaml)"},
		"server's file":            {"monitor:\n  checks:\n  - {check: a}", "line 3"},
		"ONAP's, broken":           {`{"heartbeat_config": "{"}`, "heartbeat_config"},
		"ONAP's, empty":            {`{"heartbeat_config": "{\"vnfs\":[]}"}`, ""},
		"no sink's name":           {"monitor: {sinks: [{log: {}}]}", "space must have"},
		"a sink of no kind":        {"monitor: {sinks: [{sink: a}]}", "say what it is"},
		"a sink of two kinds":      {"monitor: {sinks: [{sink: a, log: {}, webhook: {url: 'http://x'}}]}", "at once"},
		"a sink twice":             {"monitor: {sinks: [{sink: a, log: {}}, {sink: a, log: {}}]}", `sink "a" appears twice`},
		"a sink's unknown key":     {"monitor: {sinks: [{sink: a, webhook: {ulr: x}}]}", `did you mean "url"?`},
		"a log with settings":      {"monitor: {sinks: [{sink: a, log: {level: x}}]}", `"level" is not known in log`},
		"a sink's long name":       {"monitor: {sinks: [{sink: aaaaaaaaaabbbbbbbbbbcccccccccc, log: {}}]}", "at most 25"},
		"a sink's wrong template":  {"monitor: {sinks: [{sink: a, webhook: {url: 'http://x', body: '{{.Nothing}}'}}]}", "sink a"},
		"a sink's secret":          {"monitor: {sinks: [{sink: a, webhook: {url: 'http://x', secret_file: " + empty + "}}]}", "is empty"},
		"a sink's unsafe windows":  {"monitor: {keep_others: true, sinks: [{sink: a, log: {}, submit_timeout: 1m}]}", "unsafe timing"},
		"a sink of other compat":   {"monitor: {sinks: [{sink: a, message_router: {url: 'http://x/events/T', compat: foo}}]}", "use onap"},
		"a router's name":          {"monitor: {routers: [{url: 'http://x/events/T'}]}", "router"},
		"a router twice":           {"monitor: {routers: [{router: a, url: 'http://x/events/T', group: g}, {router: a, url: 'http://x/events/T', group: g}]}", "appears twice"},
		"a ping key that is empty": {"monitor: {ping_keys: [{file: " + empty + "}]}", "ping key"},
		"two sources of events":    {"monitor: {checks: [{check: a, interval: 5s}], config: {file: x}}", "checks and declared exclude it"},
		"config of nothing":        {"monitor: {config: {}}", "say where it comes from"},
		"config of two":            {"monitor: {config: {file: x, cbs: true}}", "say where it comes from"},
		"config too often":         {"monitor: {config: {file: x, poll: 1ms}}", "at least 1s"},
		"a window too short":       {"monitor: {checks: [{check: a, interval: 5s}], first_window: 1ms}", "first window"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "c.yaml")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			code, out := ask(t, "monitor", "config", "check", path)
			if code != exitUsage || !strings.Contains(out, c.says) || strings.Contains(out, "settings.") {
				t.Errorf("exit code %d, should say %q:\n%s", code, c.says, out)
			}
			if strings.HasPrefix(c.text, "monitor:") && !strings.Contains(c.says, "elsewhere") {
				_, err := settings.Read(path)
				if err == nil || exitCode(err) != exitUsage || !strings.Contains(err.Error(), c.says) {
					t.Errorf("the server says %q", err)
				}
			}
		})
	}
}
