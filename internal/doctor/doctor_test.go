package doctor

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/memstore/checks"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/memory"
)

// worst is the worst verdict of some findings, and what was said with it.
func worst(found []Finding) (verdict, says string) {
	verdict = "ok"
	for _, f := range found {
		if f.Verdict == "bad" || f.Verdict == "warn" && verdict == "ok" {
			verdict, says = f.Verdict, f.Says
		}
	}
	return verdict, says
}

// wantAdvice wants what to do, and where that is explained, with everything that is not well.
func wantAdvice(t *testing.T, found []Finding) {
	t.Helper()
	for _, f := range found {
		if f.Verdict != "ok" && (f.Do == "" || f.See == "") {
			t.Errorf("no advice with %+v", f)
		}
	}
}

// Servers and agents are asked each in their way, and their versions compared.
func TestDoctorAsksServers(t *testing.T) {
	serve := func(ready, metrics string, status int) string {
		mux := http.NewServeMux()
		mux.HandleFunc("GET "+ready, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer secret" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			fmt.Fprintln(w, metrics)
		})
		s := httptest.NewServer(mux)
		t.Cleanup(s.Close)
		return s.URL
	}
	const one, two = `understudy_build_info{goversion="go1.26",version="v1"} 1`, `understudy_agent_build_info{goversion="go1.26",shard="orders",version="v2"} 1`
	for name, c := range map[string]struct {
		servers []string
		token   string
		want    string
		says    string
	}{
		"a server and an agent of one version": {[]string{serve("/readyz", one, 200), serve("/readiness", one, 200)}, "secret", "ok", ""},
		"of two versions":                      {[]string{serve("/readyz", one, 200), serve("/readiness", two, 200)}, "secret", "warn", "different versions: v1 on"},
		"without the token":                    {[]string{serve("/readyz", one, 200)}, "", "warn", "its /metrics answers 401"},
		"not ready":                            {[]string{serve("/readyz", one, 503)}, "secret", "bad", "is not ready"},
		"something else":                       {[]string{serve("/other", one, 200)}, "secret", "bad", "answers 404"},
		"nobody":                               {[]string{"http://127.0.0.1:1"}, "secret", "bad", "does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			q, err := NewServers(c.servers, c.token)
			if err != nil {
				t.Fatal(err)
			}
			found := q.check(t.Context())
			if verdict, says := worst(found); verdict != c.want || !strings.Contains(says, c.says) {
				t.Errorf("%s: %q; want %s and %q", verdict, says, c.want, c.says)
			}
			wantAdvice(t, found)
		})
	}
}

// queues is an Admin with one queue.
type queues struct {
	dispatch.Admin
	state dispatch.Overview
	keys  []dispatch.KeyRecord
}

func (q queues) Queues(context.Context) ([]dispatch.Overview, error) {
	return []dispatch.Overview{q.state}, nil
}

func (q queues) Keys(context.Context, dispatch.KeyQuery) ([]dispatch.KeyRecord, error) {
	return q.keys, nil
}

// listed is a job.Store of which only the jobs are asked.
type listed struct {
	job.Store
	jobs []job.Job
	now  time.Time
}

func (l listed) List(_ context.Context, q job.Query) (out []job.Job, now time.Time, err error) {
	for _, j := range l.jobs {
		if j.Name > q.After && len(out) < q.Limit {
			out = append(out, j)
		}
	}
	return out, l.now, nil
}

// The doctor reports what is well of a part, and each of its needs with the subject. What those are, package attention tests.
func TestDoctorReportsParts(t *testing.T) {
	now := time.Now()
	jobs := listed{now: now, jobs: []job.Job{{Name: "backup", Next: now.Add(-time.Hour), Alarm: job.Alarm{ID: "a", Reason: job.Failed, Raised: now}}}}
	for i := range jobPage {
		jobs.jobs = append([]job.Job{{Name: fmt.Sprintf("a%d", 20000-i)}}, jobs.jobs...) // it is on the second page
	}
	checks := checks.NewMemory(checks.Options{})
	if _, err := checks.Configure(t.Context(), monitor.Configuration{Checks: []monitor.Check{{Name: "web", Interval: time.Second}}, Origin: "test"}); err != nil {
		t.Fatal(err)
	}
	refused := dispatch.KeyRecord{Key: "a", Head: "a0", State: dispatch.Delayed, Reason: "refused: no such account"}
	for name, c := range map[string]struct {
		check func(context.Context) ([]Finding, error)
		want  []string // how verdict, check and text of each finding begin
	}{
		"queues": {
			func(ctx context.Context) ([]Finding, error) {
				return checkQueues(ctx, queues{state: dispatch.Overview{Queue: "orders", Depth: 3, Keys: 2, Blocked: 1, Delayed: 1}, keys: []dispatch.KeyRecord{{Key: "b"}, refused, refused}})
			},
			[]string{"ok queues 1 queue, with a depth of 3 in all", "bad queue orders: 3 waiting, no instance", "bad queue orders: 1 key blocked", "bad queue orders a: Its target refuses it"},
		},
		"jobs": {
			func(ctx context.Context) ([]Finding, error) { return checkJobs(ctx, jobs, false) },
			[]string{"ok jobs 1001 jobs, of which 0 run now", "bad job backup: overdue for 1 h", "warn job backup: its alarm is sent to no one"},
		},
		"monitor": {
			func(ctx context.Context) ([]Finding, error) { return checkMonitor(ctx, checks) },
			[]string{"ok monitor 0 sources of 1 check, 0 alarms open", "bad monitor no instance watches 64 of", "warn monitor there is no sink"},
		},
		"a shard": {
			func(context.Context) ([]Finding, error) {
				return judgeShard(apitype.Shard{Name: "orders", Health: string(shard.Stuck), Nodes: []apitype.ShardNode{
					{Address: "b:1", Condition: string(shard.Up), Member: true, AgentLives: true, InStep: true}, {Address: "c:1", Condition: string(shard.Up), Member: true, AgentLives: true, InStep: true, Priority: 100},
				}}), nil
			},
			[]string{"bad shard orders: Its primary is silent", "ok shard orders: b:1 is never promoted by itself"},
		},
		"a peer": {
			func(context.Context) ([]Finding, error) {
				return judgePeer(apitype.CacheCluster{Self: "a", Member: true, Trouble: "clocks differ"}), nil
			},
			[]string{"ok cache a is a member", "warn cache a: clocks differ"},
		},
		"a peer that is alone": {
			func(context.Context) ([]Finding, error) {
				return judgePeer(apitype.CacheCluster{Self: "a", Member: true, Partitioned: true}), nil
			},
			[]string{"bad cache a: alone"},
		},
	} {
		found, err := c.check(t.Context())
		wantAdvice(t, found)
		right := err == nil && len(found) == len(c.want)
		for i, f := range found {
			right = right && strings.HasPrefix(f.Verdict+" "+f.Check+" "+f.Says, c.want[i])
		}
		if !right {
			t.Errorf("%s: %+v, %v; want %q", name, found, err, c.want)
		}
	}
	st := memory.New(nil)
	if _, err := st.Jobs().Change(t.Context(), "backup", job.Define("backup", job.Definition{Schedule: "@daily"})); err != nil {
		t.Fatal(err)
	}
	if found := checkParts(t.Context(), st); !slices.ContainsFunc(found, func(f Finding) bool { return f.Check == "jobs" && f.Verdict == "ok" }) {
		t.Errorf("a store with a job: %+v", found)
	}
}

// How long a role may be vacant although a standby waits, the timing of the standby says.
func TestDoctorFindsVacantRoles(t *testing.T) {
	now := time.Now()
	st := memory.New(func() time.Time { return now })
	ctx := t.Context()
	start := func(name string) string {
		s := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance(name, ""), Timing: lease.Timing{Interval: time.Minute, Timeout: time.Hour}}
		if _, err := st.StartSession(ctx, s); err != nil {
			t.Fatal(err)
		}
		return s.ID
	}
	holder, id := start("ann"), elect.Leases("billing", 1)[0]
	l, err := st.Acquire(ctx, lease.Expectation{Lease: id, Session: holder})
	if err != nil {
		t.Fatal(err)
	}
	check := func(name, want string, says string) {
		found, err := checkRoles(ctx, st)
		verdict, said := worst(found)
		if err != nil || verdict != want || !strings.Contains(said, says) {
			t.Errorf("%s: %s: %q, %v; want %s and %q", name, verdict, said, err, want, says)
		}
		wantAdvice(t, found)
	}
	check("held", "ok", "")
	if err := st.Release(ctx, lease.ReleaseRequest{Lease: id, Session: holder, Term: l.Term}); err != nil {
		t.Fatal(err)
	}
	check("vacant", "warn", "no standby")
	standby := start("ben")
	if _, err := st.Join(ctx, id, standby); err != nil {
		t.Fatal(err)
	}
	check("changes hands", "warn", "changes hands")
	for range 2 {
		now = now.Add(31 * time.Minute)
		if _, err := st.RenewSession(ctx, standby); err != nil {
			t.Fatal(err)
		}
	}
	check("vacant for too long", "bad", "though 1 wait")
}

func TestDoctorJudgesTheStore(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		info store.Info
		want string
	}{
		"all is well":      {store.Info{Schema: 3, Wanted: 3, Now: now, Notifies: true}, "ok"},
		"no schema yet":    {store.Info{Wanted: 3, Now: now, Notifies: true}, "ok"},
		"an old schema":    {store.Info{Schema: 2, Wanted: 3, Now: now, Notifies: true}, "bad"},
		"a wider schema":   {store.Info{Schema: 4, Readers: 3, Wanted: 3, Now: now, Notifies: true}, "ok"},
		"a newer schema":   {store.Info{Schema: 4, Wanted: 3, Now: now, Notifies: true}, "bad"},
		"a clock far off":  {store.Info{Schema: 3, Wanted: 3, Now: now.Add(time.Hour), Notifies: true}, "warn"},
		"no notifications": {store.Info{Schema: 3, Wanted: 3, Now: now}, "warn"},
		"a setting":        {store.Info{Schema: 3, Wanted: 3, Now: now, Notifies: true, Warnings: []string{"fsync is off"}}, "warn"},
	} {
		t.Run(name, func(t *testing.T) {
			if verdict, says := worst(checkStore(c.info, now)); verdict != c.want {
				t.Errorf("%s: %q; want %s", verdict, says, c.want)
			}
		})
	}
	timing := lease.Timing{Interval: time.Second, Timeout: 5 * time.Second}
	for took, want := range map[time.Duration]string{time.Millisecond: "ok", 700 * time.Millisecond: "warn", 5 * time.Second: "bad"} {
		if f := judgeLatency([]time.Duration{time.Millisecond, took}, timing); f.Verdict != want {
			t.Errorf("%v: %+v, want %s", took, f, want)
		}
	}
}

// Wherever the doctor sends an operator, there is something to read.
func TestDoctorsReferences(t *testing.T) {
	var all []string
	for _, folder := range []string{".", filepath.Join("..", "attention")} {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`"(docs/[a-z-]+\.md(?:#[a-z0-9-]+)?)"`).FindAllStringSubmatch(string(text), -1) {
				all = append(all, m[1])
			}
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) < 30 {
		t.Errorf("only %d found: %v", len(all), all)
	}
	for _, ref := range all {
		path, anchor, _ := strings.Cut(ref, "#")
		if !hasHeading(t, filepath.Join("..", "..", path), anchor) {
			t.Errorf("%s is not there", ref)
		}
	}
}

// hasHeading tells whether a page has the heading of an anchor; "" is the page itself.
func hasHeading(t *testing.T, path, anchor string) bool {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	drop := regexp.MustCompile(`[^a-z0-9 _-]`)
	for line := range strings.Lines(string(text)) {
		title, is := strings.CutPrefix(strings.TrimLeft(strings.TrimSpace(line), "#"), " ")
		if strings.HasPrefix(line, "#") && is && strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(title), ""), " ", "-") == anchor {
			return true
		}
	}
	return anchor == ""
}
