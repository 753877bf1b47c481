package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// schemas are those of openapi.json.
type schemas struct {
	doc map[string]any
}

func schemasOf(t *testing.T, s *Server) schemas {
	t.Helper()
	var out schemas
	send(t, s, request(t.Context(), "GET", "/openapi.json", "")).into(&out.doc)
	return out
}

// answer is the schema of what a route answers.
func (s schemas) answer(t *testing.T, route string, status int) map[string]any {
	t.Helper()
	method, path, _ := strings.Cut(route, " ")
	var at any = s.doc
	for _, step := range []string{"paths", path, strings.ToLower(method), "responses", fmt.Sprint(status)} {
		at = at.(map[string]any)[step]
		if at == nil {
			t.Fatalf("%s: no %s is described", route, step)
		}
	}
	for _, step := range []string{"content", "application/json", "schema"} {
		at = s.follow(at.(map[string]any))[step]
	}
	return at.(map[string]any)
}

func (s schemas) follow(m map[string]any) map[string]any {
	for {
		ref, ok := m["$ref"].(string)
		if !ok {
			return m
		}
		var at any = s.doc
		for step := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			at = at.(map[string]any)[step]
		}
		m = at.(map[string]any)
	}
}

// flaws tells where a value is not as a schema says: every member must be described,
// and every one that is required there.
func (s schemas) flaws(at string, schema map[string]any, v any) (out []string) {
	schema = s.merged(schema)
	if choice, ok := schema["enum"].([]any); ok && !slices.Contains(choice, v) {
		out = append(out, fmt.Sprintf("%s is %v, not one of %v", at, v, choice))
	}
	wrong := false
	switch v := v.(type) {
	case map[string]any:
		wrong = schema["type"] != "object"
		properties, _ := schema["properties"].(map[string]any)
		for _, name := range asList(schema["required"]) {
			if _, there := v[name.(string)]; !there {
				out = append(out, fmt.Sprintf("%s.%s is missing", at, name))
			}
		}
		for name, member := range v {
			of, described := properties[name].(map[string]any)
			if !described {
				of, described = schema["additionalProperties"].(map[string]any)
			}
			if !described {
				if properties != nil {
					out = append(out, fmt.Sprintf("%s.%s is not described", at, name))
				}
				continue
			}
			out = append(out, s.flaws(at+"."+name, of, member)...)
		}
	case []any:
		wrong = schema["type"] != "array"
		items, _ := schema["items"].(map[string]any)
		for i, item := range v {
			out = append(out, s.flaws(fmt.Sprintf("%s[%d]", at, i), items, item)...)
		}
	case string:
		wrong = schema["type"] != "string"
		if _, err := time.Parse(time.RFC3339Nano, v); schema["format"] == "date-time" && err != nil {
			out = append(out, fmt.Sprintf("%s is no time: %s", at, v))
		}
	case float64:
		wrong = schema["type"] != "integer" && schema["type"] != "number"
	case bool:
		wrong = schema["type"] != "boolean"
	case nil:
		wrong = true
	}
	if wrong {
		out = append(out, fmt.Sprintf("%s is %v, not %v", at, v, schema["type"]))
	}
	return out
}

func asList(v any) []any { l, _ := v.([]any); return l }

// merged is a schema with all that it is made of.
func (s schemas) merged(schema map[string]any) map[string]any {
	schema = s.follow(schema)
	parts := asList(schema["allOf"])
	if parts == nil {
		return schema
	}
	properties, required := map[string]any{}, []any{}
	for _, part := range parts {
		m := s.merged(part.(map[string]any))
		p, _ := m["properties"].(map[string]any)
		maps.Copy(properties, p)
		required = append(required, asList(m["required"])...)
	}
	return map[string]any{"type": "object", "properties": properties, "required": required}
}

// TestAnswersAreAsDescribed: what the routes of the monitor answer is what
// openapi.json says.
func TestAnswersAreAsDescribed(t *testing.T) {
	g := newMonitorRig(t, every("web"), monitor.Check{
		Name: "full", Interval: time.Second, Missed: 3, Grace: time.Second, MaxRun: time.Minute, Fixed: true, RetireAfter: time.Hour, SenderClock: true, AnyDomain: true,
		Flaps: 3, GroupBy: "rack", Severity: "major", Tags: []string{"x"}, Labels: map[string]string{"a": "b"}, Paused: true, ControlLoop: monitor.ControlLoop{Name: "n"},
	}, monitor.Check{Name: "cron", Schedule: "* * * * *"})
	g.down("web", "w1", "w2")
	g.beat("web", "w2", monitor.SignalStart)
	g.beat("web", "w2", monitor.SignalSuccess)
	g.pass(time.Millisecond)
	g.beat("web", "w3", monitor.SignalSuccess)
	alarm := g.source("web", "w1").Alarm
	if err := g.table.RegisterMember(t.Context(), monitor.Member{Session: "s", Instance: lease.NewInstance("one", "x"), Process: 1, Host: "h", Service: "s", Active: true, Partitions: 3, Sinks: []string{"mail"}}); err != nil {
		t.Fatal(err)
	}
	if err := g.table.RejectConfiguration(t.Context(), "file", "bad"); err != nil {
		t.Fatal(err)
	}
	docs := schemasOf(t, g.s)
	for _, c := range []struct{ route, path, body string }{
		{"POST /v1/sources", "/v1/sources", `{"sources":[{"check":"full","source":"f1","labels":{"rack":"1"}}]}`},
		{"POST /v1/alarms/{alarm}/acknowledge", "/v1/alarms/" + alarm + "/acknowledge", `{"by":"x","note":"y"}`},
		{"POST /v1/sources/{check}/{source}/pause", "/v1/sources/web/w3/pause", `{"for_ms":1000,"note":"y"}`},
		{"GET /v1/monitor", "/v1/monitor", ""},
		{"GET /v1/checks", "/v1/checks", ""},
		{"GET /v1/checks/{check}", "/v1/checks/full", ""},
		{"GET /v1/sources", "/v1/sources?limit=2", ""},
		{"GET /v1/sources", "/v1/sources", ""},
		{"GET /v1/sources/{check}/{source}", "/v1/sources/web/w1", ""},
		{"GET /v1/sources/{check}/{source}", "/v1/sources/web/w2", ""},
		{"GET /v1/alarms", "/v1/alarms?limit=1", ""},
		{"GET /v1/alarms/{alarm}", "/v1/alarms/" + alarm, ""},
		{"GET /v1/monitor/letters", "/v1/monitor/letters", ""},
		{"PUT /v1/checks/{check}", "/v1/checks/new", `{"interval_ms":1000}`},
		{"PUT /v1/monitor/configuration", "/v1/monitor/configuration", `{"checks":[{"check":"new","interval_ms":1000}]}`},
	} {
		method, _, _ := strings.Cut(c.route, " ")
		a := g.do(method, c.path, c.body)
		status := http.StatusOK
		if c.path == "/v1/sources" && method == http.MethodPost {
			status = http.StatusCreated
		}
		a.want(status, "")
		var v any
		a.into(&v)
		for _, flaw := range docs.flaws(c.path, docs.answer(t, c.route, status), v) {
			t.Error(flaw)
		}
	}
}

// TestFlawsAreFound: the check of the answers would notice.
func TestFlawsAreFound(t *testing.T) {
	docs := schemasOf(t, newMonitorRig(t).s)
	alarm := docs.answer(t, "GET /v1/alarms/{alarm}", 200)
	const good = `{"id":"i","check":"e","reason":"silent","started":"2026-01-01T00:00:00Z","raised":"2026-01-01T00:00:00Z"}`
	for text, want := range map[string]int{
		good: 0,
		strings.Replace(good, `"id":"i",`, "", 1):           1,
		strings.Replace(good, `silent`, "asleep", 1):        1,
		strings.Replace(good, `"i"`, "5", 1):                1,
		strings.Replace(good, `2026-01-01`, "today", 1):     1,
		strings.Replace(good, `{`, `{"secret":1,`, 1):       1,
		strings.Replace(good, `{`, `{"labels":null,`, 1):    1,
		strings.Replace(good, `{`, `{"labels":{"a":1},`, 1): 1,
	} {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		if got := docs.flaws("alarm", alarm, v); len(got) != want {
			t.Errorf("%s: %q, want %d", text, got, want)
		}
	}
}
