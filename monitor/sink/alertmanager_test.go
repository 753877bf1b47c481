package sink_test

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/sink"
)

// alertmanager is a stand-in for the part that keeps alerts: what overlaps with what is
// there is merged with it, by the clock that it has; what has no end gets one soon.
type alertmanager struct {
	t   *testing.T
	url string

	mu    sync.Mutex
	clock time.Time
	kept  map[string]amAlert
	posts int
	fault func(w http.ResponseWriter, r *http.Request) bool // true: done with
}

type amAlert struct {
	Labels, Annotations map[string]string
	StartsAt, EndsAt    time.Time
	timeout             bool
}

const resolveTimeout = 5 * time.Minute

func newAlertmanager(t *testing.T) *alertmanager {
	am := &alertmanager{t: t, clock: beganAt.Add(time.Second), kept: map[string]amAlert{}}
	am.url = serve(t, am.ServeHTTP)
	return am
}

func (am *alertmanager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	am.mu.Lock()
	am.posts++
	fault := am.fault
	am.mu.Unlock()
	if fault != nil && fault(w, r) {
		return
	}
	if r.Method != http.MethodPost || r.URL.Path != "/prefix/api/v2/alerts" || r.Header.Get("Content-Type") != "application/json" {
		am.t.Errorf("%s %s %s", r.Method, r.URL, r.Header.Get("Content-Type"))
	}
	var alerts []amAlert
	if err := json.Unmarshal(body, &alerts); err != nil {
		am.t.Errorf("%v: %s", err, body)
	}
	am.mu.Lock()
	defer am.mu.Unlock()
	for _, a := range alerts {
		am.put(a)
	}
}

var labelNames = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// put is called with mu held.
func (am *alertmanager) put(a amAlert) {
	if a.EndsAt.IsZero() {
		a.timeout, a.EndsAt = true, am.clock.Add(resolveTimeout)
	}
	if a.StartsAt.IsZero() || a.EndsAt.Before(a.StartsAt) || a.Labels["alertname"] == "" {
		am.t.Errorf("refused: %+v", a)
		return
	}
	for name := range a.Labels {
		if !labelNames.MatchString(name) || strings.HasPrefix(name, "__") {
			am.t.Errorf("label %q", name)
		}
	}
	key := fingerprint(a.Labels)
	old, there := am.kept[key]
	within := func(at time.Time) bool { return at.After(old.StartsAt) && at.Before(old.EndsAt) }
	if there && (within(a.EndsAt) || within(a.StartsAt)) {
		if old.StartsAt.Before(a.StartsAt) {
			a.StartsAt = old.StartsAt
		}
		over, oldOver := !a.EndsAt.After(am.clock), !old.EndsAt.After(am.clock)
		if old.EndsAt.After(a.EndsAt) && (over && oldOver || !over && !old.timeout) {
			a.EndsAt = old.EndsAt
		}
	}
	am.kept[key] = a
}

func fingerprint(labels map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, name+"\x00"+labels[name])
	}
	return strings.Join(parts, "\x00")
}

// firing are the sources of alerts that stand, at the given time of its clock.
func (am *alertmanager) firing(at time.Time) []string {
	am.mu.Lock()
	defer am.mu.Unlock()
	am.clock = at
	var out []string
	for _, a := range am.kept {
		if a.EndsAt.After(at) {
			out = append(out, a.Labels["source"]+a.Labels["group"])
		}
	}
	slices.Sort(out)
	return out
}

func (am *alertmanager) set(clock time.Time, fault func(http.ResponseWriter, *http.Request) bool) {
	am.mu.Lock()
	defer am.mu.Unlock()
	am.clock, am.fault = clock, fault
}

func (am *alertmanager) count() int {
	am.mu.Lock()
	defer am.mu.Unlock()
	return am.posts
}

func toAlertmanagers(t *testing.T, urls ...string) dispatch.Target {
	t.Helper()
	c := sink.AlertmanagerConfig{}
	for _, u := range urls {
		c.URLs = append(c.URLs, sink.Secret(u+"/prefix/"))
	}
	return open(t, sink.Config{Alertmanager: &c})
}

func TestAlertmanager(t *testing.T) {
	am := newAlertmanager(t)
	s := toAlertmanagers(t, am.url)
	fires := func(at time.Time, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, am.firing(at)); diff != "" {
			t.Errorf("at %v: %s", at, diff)
		}
	}
	wants(t, tell(t, s, onset()), dispatch.Done)
	fires(beganAt.Add(time.Second), "edge-17")
	fires(time.Now().AddDate(9, 0, 0), "edge-17") // no time-out ends it
	var kept amAlert
	for _, kept = range am.kept {
	}
	if diff := cmp.Diff(map[string]string{"alertname": "Heartbeat_edge", "source": "edge-17", "severity": "major", "site": "berlin", "rack_no": "7"}, kept.Labels); diff != "" {
		t.Error(diff)
	}
	if a := kept.Annotations; a["request_id"] != requestID || a["summary"] != "ONSET: edge-17 is silent (Heartbeat_edge)" || a["reason"] != "silent" {
		t.Errorf("annotations %q", a)
	}
	am.set(endedAt.Add(time.Second), nil)
	wants(t, tell(t, s, abated()), dispatch.Done)
	fires(endedAt.Add(time.Second))
	for _, a := range am.kept {
		if want := endedAt.Truncate(time.Millisecond); !a.EndsAt.Equal(want) || !a.StartsAt.Equal(beganAt) {
			t.Errorf("kept from %v to %v, want an end at %v", a.StartsAt, a.EndsAt, want)
		}
	}
	// The next outage of the same source is another one.
	again := onset()
	again.Started = endedAt.Add(time.Hour)
	am.set(again.Started, nil)
	wants(t, tell(t, s, again), dispatch.Done)
	wants(t, tell(t, s, group()), dispatch.Done)
	fires(again.Started.Add(time.Hour), "berlin", "edge-17")
}

// TestAlertmanagerJob: labels of a job's alarm are those of its run and of its definition, which may differ when it ends.
func TestAlertmanagerJob(t *testing.T) {
	am := newAlertmanager(t)
	s := toAlertmanagers(t, am.url)
	begins, ends := onset(), abated()
	begins.What, begins.Labels = "has failed", map[string]string{"schedule": "@daily", "exit_code": "3"}
	ends.What, ends.Labels = "runs again", map[string]string{"schedule": "@hourly"}
	wants(t, tell(t, s, begins), dispatch.Done)
	for _, a := range am.kept {
		if a.Annotations["schedule"] != "@daily" || a.Annotations["exit_code"] != "3" {
			t.Errorf("annotations %q", a.Annotations)
		}
	}
	am.set(endedAt.Add(time.Second), nil)
	wants(t, tell(t, s, ends), dispatch.Done)
	if left := am.firing(endedAt.Add(time.Second)); len(left) > 0 {
		t.Errorf("%q fires after its end", left)
	}
}

// TestAlertmanagerClock: the end of an alert counts whatever the clock there says. Told
// plainly, one that is behind by a moment would keep the far end instead.
func TestAlertmanagerClock(t *testing.T) {
	for name, behind := range map[string]time.Duration{"behind by a little": 10 * time.Millisecond, "behind by an hour": time.Hour, "ahead by an hour": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			am := newAlertmanager(t)
			s := toAlertmanagers(t, am.url)
			wants(t, tell(t, s, onset()), dispatch.Done)
			am.set(endedAt.Add(-behind), nil)
			wants(t, tell(t, s, abated()), dispatch.Done)
			if got := am.firing(endedAt.Add(time.Millisecond)); len(got) != 0 {
				t.Errorf("%v stands after its end", got)
			}
			for key, a := range am.kept { // the broken twin: the true end alone
				a.EndsAt = beganAt.AddDate(10, 0, 0)
				am.kept[key] = a
				am.set(endedAt.Add(-behind), nil)
				a.EndsAt = endedAt
				am.put(a)
			}
			if got := am.firing(endedAt.Add(time.Millisecond)); (len(got) != 0) != (behind > 0) {
				t.Errorf("the broken twin leaves %v", got)
			}
		})
	}
}

func TestAlertmanagerOddTimes(t *testing.T) {
	am := newAlertmanager(t)
	s := toAlertmanagers(t, am.url)
	early := beganAt.Add(-time.Hour)
	for name, change := range map[string]func(*monitor.AlarmMessage){
		"ended before it began": func(m *monitor.AlarmMessage) { m.Ended = &early },
		"no end":                func(m *monitor.AlarmMessage) { m.Ended = nil },
	} {
		for _, m := range []monitor.AlarmMessage{onset(), abated()} {
			m.Source = name
			change(&m)
			wants(t, tell(t, s, m), dispatch.Done)
		}
	}
	if got := am.firing(time.Now().Add(time.Hour)); len(got) != 0 {
		t.Errorf("%q stand after their ends", got)
	}
}

// TestAlertmanagerHostileNames: labels are valid, none is lost, and none takes the place
// of another.
func TestAlertmanagerHostileNames(t *testing.T) {
	am := newAlertmanager(t)
	s := toAlertmanagers(t, am.url)
	m := onset()
	m.Labels = map[string]string{
		"a.b": "1", "a-b": "2", "a_b": "3", "source": "4", "alertname": "5", "severity": "6", "9lives": "7", "__name__": "8", "größe": "9", "label_source": "10", "empty": "",
	}
	wants(t, tell(t, s, m), dispatch.Done)
	var values []string
	for _, a := range am.kept {
		if a.Labels["source"] != "edge-17" || a.Labels["alertname"] != "Heartbeat_edge" || a.Labels["severity"] != "major" {
			t.Errorf("labels %q", a.Labels)
		}
		values = slices.Sorted(maps.Values(a.Labels))
	}
	want := []string{"1", "10", "2", "3", "4", "5", "6", "7", "8", "9", "Heartbeat_edge", "edge-17", "major"}
	if diff := cmp.Diff(want, values); diff != "" {
		t.Error(diff)
	}
	for _, name := range hostile() {
		wants(t, tell(t, s, named(onset(), name)), dispatch.Done)
		wants(t, tell(t, s, named(abated(), name)), dispatch.Done)
	}
	if got := am.firing(endedAt.Add(time.Second)); len(got) != 1 {
		t.Errorf("%q stand", got)
	}
}

func TestAlertmanagerCluster(t *testing.T) {
	refuse := func(status int) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(status); return true }
	}
	sink.SetGrace(t, time.Hour) // a member that answers is not given up, however busy the machine is
	a, b := newAlertmanager(t), newAlertmanager(t)
	s := toAlertmanagers(t, a.url, b.url)
	if want := "alertmanager " + a.url + ", " + b.url; s.Name() != want {
		t.Errorf("name %q, want %q", s.Name(), want)
	}
	attempt := func(m monitor.AlarmMessage, n int) dispatch.Answer {
		t.Helper()
		as := batch(t, m)
		as.Attempt = n
		return s.Submit(t.Context(), as)
	}
	wants(t, attempt(onset(), 1), dispatch.Done)
	if a.count() != 1 || b.count() != 1 {
		t.Errorf("%d and %d posts", a.count(), b.count())
	}
	// One is enough for an ONSET. An end is for all of them, for a while.
	b.set(endedAt, refuse(500))
	got := attempt(onset(), 1)
	wants(t, got, dispatch.Done)
	if !strings.Contains(got.Detail, b.url) {
		t.Errorf("detail %q", got.Detail)
	}
	got = attempt(abated(), 1)
	wants(t, got, dispatch.Uncertain)
	if !got.RequestEnded {
		t.Error("it would not be tried again soon")
	}
	wants(t, attempt(abated(), 6), dispatch.Done)
	b.set(endedAt, nil)
	wants(t, attempt(abated(), 2), dispatch.Done)
	for _, am := range []*alertmanager{a, b} {
		if got := am.firing(endedAt.Add(time.Second)); len(got) != 0 {
			t.Errorf("%v stand", got)
		}
	}
	// None takes it: the answer that has the most hope.
	for want, statuses := range map[dispatch.Outcome][2]int{
		dispatch.Uncertain: {500, 429}, dispatch.Busy: {429, 400}, dispatch.Misconfigured: {404, 400}, dispatch.InvalidMessage: {400, 400},
	} {
		a.set(endedAt, refuse(statuses[0]))
		b.set(endedAt, refuse(statuses[1]))
		wants(t, attempt(onset(), 1), want)
	}
}

// TestD06AlertmanagerMemberHangs: a member that hangs delays few alerts by a moment,
// and is asked when no other takes one. It is given the end of an alert as soon as it answers.
func TestD06AlertmanagerMemberHangs(t *testing.T) {
	sink.SetGrace(t, 50*time.Millisecond)
	well, stuck := newAlertmanager(t), newAlertmanager(t)
	hang := func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true }
	stuck.set(beganAt, hang)
	s := toAlertmanagers(t, well.url, stuck.url)
	for range 100 {
		wants(t, tell(t, s, onset()), dispatch.Done)
	}
	// It is tried once in ten seconds, and waited for for a moment.
	if n := stuck.count(); n == 0 || n > 50 {
		t.Errorf("the member that hangs was asked %d times for 100 alerts", n)
	}
	stuck.set(beganAt, nil)
	well.set(beganAt, func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(500); return true })
	wants(t, tell(t, s, onset()), dispatch.Done)
	if got := stuck.firing(beganAt.Add(time.Second)); len(got) != 1 {
		t.Errorf("firing %v", got)
	}
	well.set(endedAt, nil)
	stuck.set(endedAt, hang)
	end := batch(t, abated())
	before := stuck.count()
	for range 100 {
		wants(t, s.Submit(t.Context(), end), dispatch.Uncertain)
	}
	if n := stuck.count() - before; n == 0 || n > 50 {
		t.Errorf("the member that hangs was asked %d times for 100 ends", n)
	}
	stuck.set(endedAt, nil)
	end.Attempt = 2
	for tries := 0; tries < 10_000 && s.Submit(t.Context(), end).Outcome == dispatch.Uncertain; tries++ {
	}
	if got := stuck.firing(endedAt.Add(time.Second)); len(got) != 0 {
		t.Errorf("firing still: %v", got)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	got := tell(t, toAlertmanagers(t, gone.URL), onset())
	wants(t, got, dispatch.Busy)
}
