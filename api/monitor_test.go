package api

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store/memory"
)

// hostile are names that stand in a path, a page or a picture without harm.
var hostile = []string{
	"<script>alert(1)</script>", "a/b", "a%2Fb", "?x=1#y", `"onload="x`, "ünïcødé – 監視", "a b", "'; DROP TABLE x;--", "a&amp;b", "+", "a;b,c=d",
	strings.Repeat("x", monitor.MaxName),
}

func TestStoreWithoutSources(t *testing.T) {
	g := newRig(t)
	for _, rt := range g.s.monitor.routes() {
		method, path, _ := strings.Cut(rt.pattern, " ")
		path = strings.NewReplacer("{event}", "e", "{source}", "s", "{alarm}", "a").Replace(path)
		if p := g.do(method, path, "").want(404, "store_without_sources"); !strings.Contains(p.Detail, "SQLite and PostgreSQL") {
			t.Errorf("%s: %s", rt.pattern, p.Detail)
		}
	}
	if text := g.do("GET", "/metrics", "").Body; strings.Contains(text, "understudy_monitor_sources") {
		t.Error("a store without sources has metrics of sources")
	}
	if g.s.monitor.state(t.Context()) != nil {
		t.Error("a store without sources has a state of them")
	}
}

func TestMonitorGlance(t *testing.T) {
	g := newMonitorRig(t)
	if a := g.do("GET", "/v1/monitor", ""); strings.TrimSpace(a.Body) != `{"checks":[],"paths":[],"sinks":[],"open":0,"standing":0,"members":[]}` {
		t.Errorf("an empty monitor: %s", a.Body)
	}
	if a := g.do("GET", "/v1/checks", ""); strings.TrimSpace(a.Body) != `{"checks":[]}` {
		t.Errorf("no event names: %s", a.Body)
	}
	p := g.s.monitor
	if s := p.state(t.Context()); s == nil || p.isUsed(s) || !(&monitorPart{own: Monitor{Intake: new(monitor.Intake)}}).isUsed(s) {
		t.Errorf("an empty monitor is used: %+v", s)
	}

	g = newMonitorRig(t, every("web"), monitor.Check{Name: "backup", Schedule: "TZ=Europe/Berlin 30 2 * * *", Severity: "major", Tags: []string{"db"}})
	g.beat("web", "w1", monitor.SignalSuccess)
	g.beat("web", "w2", monitor.SignalSuccess)
	g.down("backup", "b1")
	if err := g.table.RegisterMember(t.Context(), monitor.Member{Session: "s", Instance: lease.NewInstance("one", "here:1"), Partitions: 64, Host: "h", Sinks: []string{"mail"}}); err != nil {
		t.Fatal(err)
	}
	got := g.look()
	want := []apitype.CheckCount{
		{Check: apitype.Check{Name: "backup", Schedule: "TZ=Europe/Berlin 30 2 * * *", Missed: 1, Severity: "major", Tags: []string{"db"}, ControlLoop: apitype.ControlLoop{TargetType: "VNF"}}, Down: 1},
		{Check: apitype.Check{Name: "web", IntervalMS: 1000, Missed: 3, ControlLoop: apitype.ControlLoop{TargetType: "VNF"}}, Up: 2},
	}
	if diff := cmp.Diff(want, got.Checks); diff != "" {
		t.Errorf("event names (-want +got):\n%s", diff)
	}
	if got.Open != 1 || got.Standing != 1 || len(got.Paths) != 1 || !cmp.Equal(got.Paths[0], apitype.Path{Path: "test", Working: true, QuietMS: new(int64(0))}) || got.Instance != nil ||
		got.Origin != "test" || got.Configured.IsZero() || !slices.Equal(got.Sinks, []string{"mail"}) {
		t.Errorf("at a glance: %+v", got)
	}
	if len(got.Members) != 1 || got.Members[0].Partitions != 64 || got.Members[0].Host != "h" || got.Members[0].Instance.Name != "one" {
		t.Errorf("members: %+v", got.Members)
	}
	var e apitype.CheckCount
	g.do("GET", "/v1/checks/backup", "").into(&e)
	if diff := cmp.Diff(want[0], e); diff != "" {
		t.Errorf("one event name (-want +got):\n%s", diff)
	}
	g.do("GET", "/v1/checks/nothing", "").want(404, "no_event")

	state := g.s.monitor.state(t.Context())
	if len(state.Alarms) != 1 || state.Alarms[0].Source != "b1" || state.Totals != (apitype.SourceTotals{Checks: 2, Up: 2, Down: 1}) || state.Error != "" {
		t.Errorf("the state: %+v", state)
	}
	if s := g.s.poller.state(t.Context(), nil); !slices.Contains(s.Parts, "monitor") || s.Monitor == nil {
		t.Errorf("the page has no section of the monitor: %v", s.Parts)
	}
	if s := g.s.poller.state(t.Context(), errors.New("away")); !slices.Contains(s.Parts, "monitor") || s.Monitor != nil {
		t.Errorf("a store that is away takes the section of the monitor along: %v", s.Parts)
	}
	if s := newMonitorRig(t).s.poller.state(t.Context(), nil); slices.Contains(s.Parts, "monitor") {
		t.Errorf("a section of a monitor that nobody uses: %v", s.Parts)
	}
	if _, err := g.table.RecordHeartbeats(t.Context(), monitor.HeartbeatBatch{Probes: []monitor.Probe{{Path: "later", TrustFor: time.Second, MaxGap: time.Second, NameOnly: true}}}); err != nil {
		t.Fatal(err)
	}
	if p := g.look().Paths[0]; p.Path != "later" || p.Working || p.QuietMS != nil {
		t.Errorf("a path that was never confirmed: %+v", p)
	}
	if err := g.table.RejectConfiguration(t.Context(), "file", "no events"); err != nil {
		t.Fatal(err)
	}
	if got := g.look(); !strings.Contains(got.ConfigError, "no events") {
		t.Errorf("refused and not said: %+v", got)
	}
}

// away is a table that does not answer.
type away struct {
	monitor.Store
	err error
}

func (a away) Overview(context.Context) (monitor.Overview, error) { return monitor.Overview{}, a.err }
func (a away) Sources(context.Context, monitor.SourceQuery) ([]monitor.SourceRecord, error) {
	return nil, a.err
}
func (a away) Alarms(context.Context, monitor.AlarmQuery) ([]monitor.Alarm, error) {
	return nil, a.err
}
func (a away) ApplyAction(context.Context, monitor.Action) error { return a.err }
func (a away) Configure(context.Context, monitor.Configuration) (monitor.ConfigurationChanges, error) {
	return monitor.ConfigurationChanges{}, a.err
}
func (a away) Declare(context.Context, []monitor.Declaration) ([]bool, error) { return nil, a.err }

func TestMonitorAway(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{{lease.ErrUnavailable, 503, "store_unavailable"}, {lease.ErrUnknown, 504, "unknown_outcome"}, {errors.New("secret"), 500, "internal"}} {
		st := memory.New(nil)
		s, err := New(Config{Store: &monitorStore{st, away{nil, fmt.Errorf("asking: %w", c.err)}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, ask := range [][3]string{
			{"GET", "/v1/monitor"}, {"GET", "/v1/checks"}, {"GET", "/v1/checks/web"}, {"GET", "/v1/sources"}, {"GET", "/v1/sources?contains=x"},
			{"GET", "/v1/sources/web/w1"}, {"GET", "/v1/sources/web/w1/badge.svg"}, {"GET", "/v1/alarms"}, {"GET", "/v1/alarms/x"},
			{"POST", "/v1/sources", `{"sources":[{"check":"web","source":"w1"}]}`}, {"POST", "/v1/sources/web/w1/pause"}, {"POST", "/v1/alarms/x/acknowledge"},
			{"PUT", "/v1/checks/web", `{"interval_ms":1000}`}, {"PUT", "/v1/monitor/configuration", `{"checks":[{"check":"x","interval_ms":1000}]}`},
		} {
			send(t, s, request(t.Context(), ask[0], ask[1], ask[2])).want(c.status, c.code)
		}
		if state := s.monitor.state(t.Context()); state.Error == "" || state.Alarms == nil {
			t.Errorf("the state does not say that it is old: %+v", state)
		}
		if text := send(t, s, request(t.Context(), "GET", "/metrics", "")).Body; strings.Contains(text, "understudy_monitor_sources{") {
			t.Error("metrics of what could not be read")
		}
	}
}

func TestSource(t *testing.T) {
	g := newMonitorRig(t, every("web"))
	g.do("GET", "/v1/sources/web/w1", "").want(404, "no_source")
	g.do("GET", "/v1/sources/nothing/w1", "").want(404, "no_source")
	g.do("POST", "/v1/sources", `{"sources":[{"check":"web","source":"w1","labels":{"rack":"r<1>"}}]}`).want(201, "")
	s := g.source("web", "w1")
	if s.State != string(monitor.Up) || !s.Declared || !s.Last.IsZero() || s.QuietMS != nil || s.LeftMS == nil || *s.LeftMS != 3000 || s.Labels["rack"] != "r<1>" || s.Alarms == nil {
		t.Errorf("before its first beat: %+v", s)
	}
	g.beat("web", "w1", monitor.SignalSuccess)
	g.pass(2 * time.Second)
	s = g.source("web", "w1")
	if *s.QuietMS != 2000 || *s.LeftMS != 1000 || s.Beats != 1 || s.Path != "test" || !s.Last.Equal(g.clock.storeNow().Add(-2*time.Second)) || !strings.HasPrefix(s.Recent, "001") {
		t.Errorf("after two seconds: %+v", s)
	}
	g.pass(2 * time.Second)
	s = g.source("web", "w1")
	if s.State != string(monitor.Down) || s.Reason != string(monitor.Silent) || s.Alarm == "" || *s.LeftMS >= 0 || len(s.Alarms) != 1 || !s.Alarms[0].Ended.IsZero() {
		t.Errorf("silent: %+v", s)
	}
	g.beat("web", "w1", monitor.SignalSuccess)
	g.pass(time.Millisecond)
	if s = g.source("web", "w1"); s.State != string(monitor.Up) || s.Alarm != "" || len(s.Alarms) != 1 || s.Alarms[0].Ended.IsZero() || s.Alarms[0].End != string(monitor.Abated) {
		t.Errorf("back: %+v", s)
	}
	for _, name := range []string{"%00", "%0a", "%ff", "%20x", strings.Repeat("x", monitor.MaxName+1)} {
		g.do("GET", "/v1/sources/web/"+name, "").want(400, "invalid")
		g.do("GET", "/v1/sources/"+name+"/w1", "").want(400, "invalid")
		g.do("GET", "/v1/sources/web/"+name+"/badge.svg", "").want(400, "invalid")
		g.do("POST", "/v1/sources/web/"+name+"/pause", "").want(400, "invalid")
		g.do("GET", "/v1/alarms/"+name, "").want(400, "invalid")
	}
}

// TestNothingExpected: a schedule without another time leaves no time to count down.
func TestNothingExpected(t *testing.T) {
	v := viewSource(monitor.SourceRecord{State: monitor.Up, Left: 1<<63 - 1})
	if v.LeftMS != nil {
		t.Errorf("%d ms left of what never comes", *v.LeftMS)
	}
}

func (g *monitorRig) names(query url.Values) (names []string, next url.Values) {
	g.t.Helper()
	var page apitype.Sources
	a := g.do("GET", "/v1/sources?"+query.Encode(), "")
	a.want(200, "")
	a.into(&page)
	for _, s := range page.Sources {
		names = append(names, s.Check+" "+s.Name)
	}
	if page.Next != "" {
		next = url.Values{"after": {page.Next}}
		for k, v := range query {
			if next.Get(k) == "" {
				next[k] = v
			}
		}
	}
	return names, next
}

func TestListSources(t *testing.T) {
	g := newMonitorRig(t, every("a"), every("b"))
	if a := g.do("GET", "/v1/sources", ""); strings.TrimSpace(a.Body) != `{"sources":[]}` {
		t.Errorf("no sources: %s", a.Body)
	}
	g.do("POST", "/v1/sources", `{"sources":[
		{"check":"a","source":"Web-1","labels":{"rack":"r=1"}},{"check":"a","source":"db-1"},{"check":"a","source":"web-2"},
		{"check":"b","source":"Web-1","labels":{"rack":""}},{"check":"b","source":"web-3"}]}`).want(201, "")
	g.down("b", "web-3")
	for query, want := range map[string][]string{
		"":                        {"a Web-1", "a db-1", "a web-2", "b Web-1", "b web-3"},
		"event=b":                 {"b Web-1", "b web-3"},
		"source=Web-1":            {"a Web-1", "b Web-1"},
		"state=down":              {"b web-3"},
		"state=up&event=b":        {"b Web-1"},
		"state=retired":           nil,
		"label=rack%3Dr%3D1":      {"a Web-1"},
		"label=rack%3D":           {"b Web-1"},
		"contains=WEB":            {"a Web-1", "a web-2", "b Web-1", "b web-3"},
		"contains=eb-3&state=up":  nil,
		"after_source=b&event=a":  {"a db-1", "a web-2"},
		"after_event=a":           {"a Web-1", "a db-1", "a web-2", "b Web-1", "b web-3"},
		"contains=b-1&event=nope": nil,
	} {
		values, _ := url.ParseQuery(query)
		if got, _ := g.names(values); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	for _, query := range []string{
		"state=dead", "limit=0", "limit=1001", "limit=x", "event=%00", "source=%0a", "contains=%00", "after_source=x", "label=rack", "label=%3Dx", "label=%00",
		"after_event=%ff", "event=" + strings.Repeat("x", 300),
	} {
		g.do("GET", "/v1/sources?"+query, "").want(400, "invalid")
	}
}

func TestSourcesPageByPage(t *testing.T) {
	g := newMonitorRig(t, every("a"), every("b"))
	var all []string
	for _, event := range []string{"a", "b"} {
		for n := range 7 {
			g.beat(event, fmt.Sprintf("s%d", n), monitor.SignalSuccess)
			all = append(all, fmt.Sprintf("%s s%d", event, n))
		}
	}
	for _, query := range []string{"limit=3", "limit=7", "limit=1", "limit=3&contains=S"} {
		values, _ := url.ParseQuery(query)
		var got []string
		for range 2 * len(all) {
			var names []string
			names, values = g.names(values)
			if got = append(got, names...); values == nil {
				break
			}
		}
		if !slices.Equal(got, all) {
			t.Errorf("%s: %q", query, got)
		}
	}
}

// TestSearchIsBounded: a request that finds nothing ends, and says where to continue.
func TestSearchIsBounded(t *testing.T) {
	g := newMonitorRig(t, every("a"))
	for from := 0; from < maxSearched+500; from += monitor.MaxSources {
		var refs []monitor.SourceRef
		for n := range monitor.MaxSources {
			refs = append(refs, monitor.SourceRef{Check: "a", Source: fmt.Sprintf("s%06d", from+n)})
		}
		if _, err := g.table.ResolveSources(t.Context(), refs); err != nil {
			t.Fatal(err)
		}
	}
	names, next := g.names(url.Values{"contains": {"10200"}})
	if len(names) != 0 || next.Get("after") != fmt.Sprintf("a/s%06d", maxSearched-1) {
		t.Fatalf("first %q, then %v", names, next)
	}
	if names, next = g.names(next); len(names) != 1 || next != nil {
		t.Errorf("then %q, then %v", names, next)
	}
}

func TestHostileNames(t *testing.T) {
	g := newMonitorRig(t)
	for _, name := range hostile {
		g.do("PUT", "/v1/checks/"+url.PathEscape(name), `{"interval_ms":1000}`).want(200, "")
		body := fmt.Sprintf(`{"sources":[{"check":%q,"source":%q}]}`, name, name)
		g.do("POST", "/v1/sources", body).want(201, "")
	}
	for _, name := range hostile {
		if s := g.source(name, name); s.Check != name || s.Source.Name != name {
			t.Errorf("%q is shown as %q of %q", name, s.Source.Name, s.Check)
		}
		if names, _ := g.names(url.Values{"check": {name}, "source": {name}}); len(names) != 1 {
			t.Errorf("%q is listed as %q", name, names)
		}
		g.do("POST", sourcePath(name, name)+"/pause", `{"note":"<b>"}`).want(200, "")
		if s := g.source(name, name); s.State != string(monitor.Paused) || s.Note != "<b>" {
			t.Errorf("%q paused: %+v", name, s)
		}
		g.do("GET", "/v1/checks/"+url.PathEscape(name), "").want(200, "")
	}
}

func TestAlarms(t *testing.T) {
	g := newMonitorRig(t, every("a"), every("b"))
	if a := g.do("GET", "/v1/alarms", ""); strings.TrimSpace(a.Body) != `{"alarms":[]}` {
		t.Errorf("no alarms: %s", a.Body)
	}
	g.down("a", "s1", "s2")
	g.pass(time.Second)
	g.down("b", "s1", "s2", "s3")
	g.beat("a", "s1", monitor.SignalSuccess)
	g.pass(time.Millisecond)
	list := func(query string) (ids []string, p apitype.Alarms) {
		a := g.do("GET", "/v1/alarms?"+query, "")
		a.want(200, "")
		a.into(&p)
		for _, a := range p.Alarms {
			ids = append(ids, a.Check+" "+a.Source)
		}
		return ids, p
	}
	for query, want := range map[string]int{"": 5, "open=true": 4, "standing=true": 4, "event=a": 2, "event=a&source=s1": 1, "source=s3": 1, "event=a&open=true": 1, "event=c": 0} {
		if got, _ := list(query); len(got) != want {
			t.Errorf("%s: %q, want %d", query, got, want)
		}
	}
	whole, _ := list("")
	var got []string
	query := url.Values{"limit": {"2"}}
	for range 9 {
		ids, p := list(query.Encode())
		if got = append(got, ids...); p.Next == "" {
			break
		}
		query.Set("after", p.Next)
	}
	if diff := cmp.Diff(whole, got); diff != "" {
		t.Errorf("page by page (-whole +pages):\n%s", diff)
	}
	_, p := list("open=true&limit=1")
	var one apitype.Alarm
	g.do("GET", "/v1/alarms/"+p.Alarms[0].ID, "").into(&one)
	if diff := cmp.Diff(p.Alarms[0], one); diff != "" || one.Reason != string(monitor.Failed) || !one.Ended.IsZero() {
		t.Errorf("one alarm (-listed +shown):\n%s", diff)
	}
	g.do("GET", "/v1/alarms/nothing", "").want(404, "no_alarm")
	for _, query := range []string{"before=yesterday", "before_id=x", "open=1", "standing=1", "limit=0", "event=%00", "before=2026-01-01T00:00:00Z&before_id=%00"} {
		g.do("GET", "/v1/alarms?"+query, "").want(400, "invalid")
	}
}
