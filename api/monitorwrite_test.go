package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/monitor"
)

// told is the reason of the newest event of the history about a subject.
func (g *monitorRig) told(subject string) string {
	g.t.Helper()
	events, err := g.store.Read(g.t.Context(), history.Query{Part: "monitor", Subject: subject, Newest: true, Limit: 1})
	if err != nil || len(events) != 1 {
		g.t.Fatalf("history of %s: %+v, %v", subject, events, err)
	}
	return events[0].Reason
}

func TestPauseAndResume(t *testing.T) {
	g := newMonitorRig(t, every("web"))
	g.beat("web", "w1", monitor.SignalSuccess)
	if a := g.do("POST", "/v1/sources/web/w1/pause", `{"for_ms":60000,"by":"alice","note":"new disks"}`); strings.TrimSpace(a.Body) != `{"done":"pause"}` {
		t.Errorf("paused: %s", a.Body)
	}
	s := g.source("web", "w1")
	if s.State != string(monitor.Paused) || s.Note != "new disks" || s.LeftMS != nil || s.Until.IsZero() || !s.Until.Equal(g.clock.storeNow().Add(time.Minute)) {
		t.Errorf("paused: %+v", s)
	}
	if told := g.told("web/w1"); !strings.Contains(told, "alice (192.0.2.1)") || !strings.Contains(told, "new disks") {
		t.Errorf("history: %s", told)
	}
	g.pass(30 * time.Second)
	if s = g.source("web", "w1"); s.State != string(monitor.Paused) || s.Alarm != "" {
		t.Errorf("a paused source was judged: %+v", s)
	}
	g.pass(31 * time.Second)
	if s = g.source("web", "w1"); s.State != string(monitor.Up) || !s.Until.IsZero() {
		t.Errorf("after its pause: %+v", s)
	}
	g.do("POST", "/v1/sources/web/w1/pause", ``).want(200, "")
	if s = g.source("web", "w1"); s.State != string(monitor.Paused) || !s.Until.IsZero() {
		t.Errorf("paused for any time: %+v", s)
	}
	if told := g.told("web/w1"); !strings.Contains(told, "somebody (192.0.2.1)") {
		t.Errorf("history: %s", told)
	}
	g.do("POST", "/v1/sources/web/w1/resume", `{}`).want(200, "")
	if s = g.source("web", "w1"); s.State != string(monitor.Up) || *s.LeftMS != 3000 {
		t.Errorf("resumed: %+v", s)
	}

	g.do("POST", "/v1/checks/web/pause", `{"by":"bob"}`).want(200, "")
	if e := g.look().Checks[0]; !e.Paused || e.Up != 1 || e.PausedSources != 0 {
		t.Errorf("an event that is paused: %+v", e)
	}
	if told := g.told("web"); !strings.Contains(told, "bob") {
		t.Errorf("history: %s", told)
	}
	g.pass(time.Minute)
	if s = g.source("web", "w1"); s.State != string(monitor.Up) || s.Alarm != "" {
		t.Errorf("a source of a paused check was judged: %+v", s)
	}
	g.do("POST", "/v1/checks/web/resume", "").want(200, "")
	if e := g.look().Checks[0]; e.Paused {
		t.Errorf("an event that was resumed: %+v", e)
	}
}

func TestRetire(t *testing.T) {
	g := newMonitorRig(t, every("web"))
	g.down("web", "w1")
	g.do("POST", "/v1/sources/web/w1/retire", `{"note":"sold"}`).want(200, "")
	g.pass(time.Millisecond)
	s := g.source("web", "w1")
	if s.State != string(monitor.Retired) || s.LeftMS != nil || s.Alarms[0].End != string(monitor.Retire) || s.Note != "sold" {
		t.Errorf("retired: %+v", s)
	}
	g.pass(time.Second)
	g.beat("web", "w1", monitor.SignalSuccess)
	g.pass(time.Millisecond)
	if s = g.source("web", "w1"); s.State != string(monitor.Up) {
		t.Errorf("a beat does not bring it back: %+v", s)
	}
}

func TestAcknowledge(t *testing.T) {
	g := newMonitorRig(t, every("web"))
	g.down("web", "w1")
	id := g.source("web", "w1").Alarm
	if g.s.monitor.state(t.Context()).Alarms[0].Acknowledged != "" {
		t.Error("acknowledged by nobody, and yet")
	}
	g.do("POST", "/v1/alarms/"+id+"/acknowledge", `{"by":"alice","note":"on it"}`).want(200, "")
	var a apitype.Alarm
	g.do("GET", "/v1/alarms/"+id, "").into(&a)
	if a.Acknowledged != "alice (192.0.2.1)" || !a.Ended.IsZero() {
		t.Errorf("acknowledged: %+v", a)
	}
	if told := g.told(id); !strings.Contains(told, "on it") {
		t.Errorf("history: %s", told)
	}
	if got := g.s.monitor.state(t.Context()).Alarms[0].Acknowledged; got != a.Acknowledged {
		t.Errorf("the page does not see it at once: %q", got)
	}
	g.do("POST", "/v1/alarms/nothing/acknowledge", "").want(404, "no_alarm")
}

func TestActsAreChecked(t *testing.T) {
	g := newMonitorRig(t, every("web"))
	g.beat("web", "w1", monitor.SignalSuccess)
	for _, verb := range []string{"pause", "resume", "retire"} {
		g.do("POST", "/v1/sources/web/nobody/"+verb, "").want(404, "no_source")
		g.do("POST", "/v1/sources/nothing/w1/"+verb, "").want(404, "no_event")
	}
	for _, verb := range []string{"pause", "resume"} {
		g.do("POST", "/v1/checks/nothing/"+verb, "").want(404, "no_event")
		g.do("POST", "/v1/checks/web/"+verb, `{"for_ms":1000}`).want(400, "invalid")
	}
	g.do("POST", "/v1/sources/web/w1/retire", `{"for_ms":1000}`).want(400, "invalid")
	for _, body := range []string{
		`{"for_ms":-1}`, `{"for_ms":9223372036854775807}`, `{"for_ms":"1h"}`, `{"for":1}`, `{"note":"\u0000"}`, `{"by":"\n"}`, `[]`, `{`,
		fmt.Sprintf(`{"note":%q}`, strings.Repeat("x", monitor.MaxName+1)), fmt.Sprintf(`{"for_ms":%d}`, monitor.MaxInterval.Milliseconds()+1),
	} {
		g.do("POST", "/v1/sources/web/w1/pause", body).want(400, "invalid")
	}
	if s := g.source("web", "w1"); s.State != string(monitor.Up) || s.Note != "" {
		t.Errorf("what was refused was done: %+v", s)
	}
	a := g.do("PATCH", "/v1/sources/web/w1", "")
	a.want(405, "method_not_allowed")
}

func TestDeclare(t *testing.T) {
	g := newMonitorRig(t, every("web"))
	a := g.do("POST", "/v1/sources", `{"sources":[{"check":"web","source":"w1"},{"check":"web","source":"w2"}]}`)
	if a.want(201, ""); strings.TrimSpace(a.Body) != `{"declared":2,"new":2}` {
		t.Errorf("declared: %s", a.Body)
	}
	if a = g.do("POST", "/v1/sources", `{"sources":[{"check":"web","source":"w1","labels":{"x":"y"}},{"check":"web","source":"w3"}]}`); strings.TrimSpace(a.Body) != `{"declared":2,"new":1}` {
		t.Errorf("one of them anew: %s", a.Body)
	}
	if s := g.source("web", "w1"); s.Labels["x"] != "y" {
		t.Errorf("labels of a source that was known: %+v", s)
	}
	many := strings.Repeat(`{"check":"web","source":"x"},`, monitor.MaxSources)
	for body, says := range map[string]string{
		``:                              "0 sources",
		`{"sources":[]}`:                "0 sources",
		`{"sources":[` + many + `{}]}`:  "more than 1000 sources",
		`{"sources":[{"check":"web"}]}`: "source",
		`{"sources":[{"check":"web","source":"x"},{"check":"web","source":"\u0000"}]}`:           "source",
		`{"sources":[{"check":"web","source":"x","labels":{"a=b":"c"}}]}`:                        "label",
		`{"sources":[{"check":"web","source":"x","lables":{}}]}`:                                 "unknown field",
		fmt.Sprintf(`{"sources":[{"check":"web","source":%q}]}`, strings.Repeat("x", 201)):       "source",
		`{"sources":[{"check":"web","source":"x"}]}{"sources":[{"check":"web","source":"y"}]}`:   "first value",
		`{"sources":[{"check":"web","source":"x"},{"check":" web","source":"y"}],"sources":[1]}`: "white space",
		`{"sources":[{"check":"web","source":"x"}],"sources":[1]}`:                               "twice",
		`{"sources":[1]}`: "JSON",
	} {
		if p := g.do("POST", "/v1/sources", body).want(400, "invalid"); !strings.Contains(p.Detail, says) {
			t.Errorf("%.80s: %s", body, p.Detail)
		}
	}
	g.do("POST", "/v1/sources", `{"sources":[{"check":"web","source":"x"},{"check":"nothing","source":"y"}]}`).want(404, "no_event")
	if names, _ := g.names(nil); len(names) != 3 {
		t.Errorf("what was refused was done: %q", names)
	}
}

func TestConfigure(t *testing.T) {
	g := newMonitorRig(t, every("old"), every("same"))
	g.down("old", "o1")
	a := g.do("PUT", "/v1/monitor/configuration", `{"checks":[
		{"check":"same","interval_ms":1000},{"check":"new","schedule":"*/5 * * * *","grace_ms":60000,"labels":{"team":"ops"}}],
		"declared":[{"check":"new","source":"n1"}]}`)
	if a.want(200, ""); !strings.HasPrefix(a.Body, `{"added":["new"],"changed":[],"removed":["old"],"declared":1,"generation":`) {
		t.Errorf("configured: %s", a.Body)
	}
	got := g.look()
	if len(got.Checks) != 3 || !got.Checks[1].Removed || got.Checks[0].GraceMS != 60_000 || got.Origin != "API (192.0.2.1)" {
		t.Errorf("configured: %+v", got)
	}

	for _, body := range []string{
		``, `{}`, `{"checks":[]}`, `{"checks":[{}]}`, `{"checks":[{"check":"x"}]}`,
		`{"checks":[{"check":"x","interval_ms":1000},{"check":"x","interval_ms":1000}]}`,
		`{"checks":[{"check":"ok","interval_ms":1000},{"check":"x","interval_ms":1}]}`,
		`{"checks":[{"check":"ok","interval_ms":1000},{"check":"x","interval_ms":9223372036854775807}]}`,
		`{"checks":[{"check":"ok","interval_ms":1000},{"check":"x","interval_ms":-9223372036854775808}]}`,
		`{"checks":[{"check":"x","interval_ms":1000,"schedule":"* * * * *"}]}`,
		`{"checks":[{"check":"x","schedule":"61 * * * *"}]}`,
		`{"checks":[{"check":"x","interval_ms":1000,"missed":-1}]}`,
		`{"checks":[{"check":"x","interval_ms":1000,"control_loop":{"target_type":"PNF"}}]}`,
		`{"checks":[{"check":"ok","interval_ms":1000}],"declared":[{"check":"no","source":"s"}]}`,
		`{"checks":[{"check":"ok","intervall_ms":1000}]}`, `{"events":[]}`, `{"checks":[{"check":"ok","interval_ms":1000}]`,
	} {
		g.do("PUT", "/v1/monitor/configuration", body).want(400, "invalid")
	}
	g.do("PUT", "/v1/monitor/configuration", `{"keep":true,"declared":[{"check":"no","source":"s"}]}`).want(404, "no_event")
	g.do("PUT", "/v1/monitor/configuration", `{"checks":[`+strings.Repeat(" ", maxConfiguration)+`]}`).want(413, "too_large")
	if diff := cmp.Diff(got.Checks, g.look().Checks); diff != "" {
		t.Errorf("what was refused changed something:\n%s", diff)
	}
	if a = g.do("PUT", "/v1/monitor/configuration", `{"keep":true,"checks":[{"check":"third","interval_ms":500}],"origin":"third.yaml","by":"alice"}`); !strings.Contains(a.Body, `"removed":[]`) {
		t.Errorf("kept: %s", a.Body)
	}
	if origin := g.look().Origin; origin != "third.yaml by alice (192.0.2.1)" {
		t.Errorf("it is from %q", origin)
	}
}

func TestPutOneEvent(t *testing.T) {
	g := newMonitorRig(t, every("web"))
	a := g.do("PUT", "/v1/checks/db", `{"interval_ms":5000,"missed":2,"grace_ms":500,"severity":"major","tags":["x"],"group_by":"rack","fixed":true}`)
	if a.want(200, ""); !strings.Contains(a.Body, `"added":["db"]`) || !strings.Contains(a.Body, `"removed":[]`) {
		t.Errorf("added: %s", a.Body)
	}
	var e apitype.CheckCount
	g.do("GET", "/v1/checks/db", "").into(&e)
	want := apitype.Check{
		Name: "db", IntervalMS: 5000, Missed: 2, GraceMS: 500, Severity: "major", Tags: []string{"x"}, GroupBy: "rack", GroupWaitMS: 10_000, GroupMin: 2,
		Fixed: true, ControlLoop: apitype.ControlLoop{TargetType: "VNF"},
	}
	if diff := cmp.Diff(want, e.Check); diff != "" {
		t.Errorf("the event (-want +got):\n%s", diff)
	}
	if a = g.do("PUT", "/v1/checks/db", `{"check":"db","interval_ms":1000}`); !strings.Contains(a.Body, `"changed":["db"]`) {
		t.Errorf("changed: %s", a.Body)
	}
	shown := g.do("GET", "/v1/checks/db", "").Body
	if a = g.do("PUT", "/v1/checks/db", strings.Replace(shown, `"interval_ms":1000`, `"interval_ms":7000`, 1)); !strings.Contains(a.Body, `"changed":["db"]`) {
		t.Errorf("what was shown, sent back: %s", a.Body)
	}
	if n := len(g.look().Checks); n != 2 {
		t.Errorf("%d event names, want 2", n)
	}
	for _, body := range []string{``, `{"check":"other","interval_ms":1000}`, `{"interval_ms":1}`, `{"interval_ms":"5s"}`, `{"intreval_ms":5000}`} {
		g.do("PUT", "/v1/checks/db", body).want(400, "invalid")
	}
	g.do("PUT", "/v1/checks/%00", `{"interval_ms":1000}`).want(400, "invalid")
}

// TestEventsComeBack: what one shows of an event is what configures it.
func TestEventsComeBack(t *testing.T) {
	e := monitor.Check{
		Name: "x", Interval: time.Second, Missed: 4, Grace: 2 * time.Second, MaxRun: 3 * time.Second, Fixed: true, RetireAfter: time.Hour, SenderClock: true, AnyDomain: true,
		Flaps: 3, FlapWindow: time.Minute, Steady: time.Minute, GroupBy: "rack", GroupWait: time.Second, GroupMin: 5, Severity: "s", Tags: []string{"t"},
		Labels: map[string]string{"l": "v"}, Paused: true,
		ControlLoop: monitor.ControlLoop{Name: "n", PolicyName: "p", PolicyScope: "s", PolicyVersion: "v", TargetType: "VM", Target: "t", Version: "1"},
	}
	if diff := cmp.Diff(e, CheckOf(ViewCheck(e))); diff != "" {
		t.Errorf("shown and read (-was +is):\n%s", diff)
	}
}
