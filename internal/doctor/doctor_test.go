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
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
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

func TestDoctorJudgesShards(t *testing.T) {
	replica := func() apitype.ShardNode {
		return apitype.ShardNode{Address: "b:1", Role: string(shard.Replica), Condition: string(shard.Up), Member: true, AgentLives: true, InStep: true, LinkUp: new(true), Priority: 100, Version: "7.2"}
	}
	whole := func() apitype.Shard {
		return apitype.Shard{Name: "orders", Health: string(shard.Fine), Nodes: []apitype.ShardNode{
			{Address: "a:1", Role: string(shard.Primary), Primary: true, Condition: string(shard.Up), Member: true, AgentLives: true, InStep: true, Armed: true, Priority: 100, Version: "7.2"}, replica(),
		}}
	}
	for name, c := range map[string]struct {
		change func(*apitype.Shard)
		want   string
		says   string
	}{
		"all is well":             {func(*apitype.Shard) {}, "ok", ""},
		"blocked":                 {func(s *apitype.Shard) { s.Health, s.Blocked = string(shard.Replaceable), "nobody is left" }, "bad", "nobody is left"},
		"no primary":              {func(s *apitype.Shard) { s.Health = string(shard.None) }, "bad", "no primary"},
		"stuck":                   {func(s *apitype.Shard) { s.Health = string(shard.Stuck) }, "bad", "may still take writes"},
		"unattended":              {func(s *apitype.Shard) { s.Health = string(shard.Unattended) }, "bad", "unattended"},
		"doubtful":                {func(s *apitype.Shard) { s.Health = string(shard.Doubtful) }, "warn", "doubtful"},
		"paused":                  {func(s *apitype.Shard) { s.Paused = &apitype.ShardPause{By: "ann"} }, "warn", "paused by ann"},
		"alone":                   {func(s *apitype.Shard) { s.Nodes = s.Nodes[:1] }, "warn", "nothing could take over"},
		"fence not armed":         {func(s *apitype.Shard) { s.Nodes[0].Armed = false }, "warn", "fence"},
		"two versions":            {func(s *apitype.Shard) { s.Nodes[1].Version = "7.0" }, "warn", "7.0, 7.2"},
		"a silent agent":          {func(s *apitype.Shard) { s.Nodes[1].AgentLives = false }, "warn", "agent of b:1 is silent"},
		"a node that is down":     {func(s *apitype.Shard) { s.Nodes[1].Condition = string(shard.Down) }, "warn", "b:1 is down"},
		"another lineage":         {func(s *apitype.Shard) { s.Nodes[1].InStep = false }, "warn", "another lineage"},
		"a link that is down":     {func(s *apitype.Shard) { s.Nodes[1].LinkUp = new(false) }, "warn", "link is down"},
		"a node with trouble":     {func(s *apitype.Shard) { s.Nodes[1].Trouble = "its disk is full" }, "warn", "its disk is full"},
		"no member yet":           {func(s *apitype.Shard) { s.Nodes = append(s.Nodes, replica()); s.Nodes[2].Member = false }, "warn", "no member yet"},
		"a priority that is zero": {func(s *apitype.Shard) { s.Nodes[1].Priority = 0 }, "ok", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := whole()
			c.change(&s)
			found := judgeShard(s)
			if verdict, says := worst(found); verdict != c.want || !strings.Contains(says, c.says) {
				t.Errorf("%s: %q; want %s and %q", verdict, says, c.want, c.says)
			}
			wantAdvice(t, found)
		})
	}
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

func TestDoctorJudgesPeers(t *testing.T) {
	others := []apitype.CachePeer{{Self: true}, {URL: "tcp://b:1", Link: "up"}}
	for name, c := range map[string]struct {
		cluster apitype.CacheCluster
		want    string
	}{
		"a member":          {apitype.CacheCluster{Self: "a", Member: true, Peers: others}, "ok"},
		"without majority":  {apitype.CacheCluster{Self: "a", Member: true, Partitioned: true, Majority: 2, Connected: 1, Peers: others}, "bad"},
		"waits to be added": {apitype.CacheCluster{Self: "a", Peers: others}, "warn"},
		"a link is down":    {apitype.CacheCluster{Self: "a", Member: true, Peers: []apitype.CachePeer{{Link: "down"}}}, "warn"},
		"with trouble":      {apitype.CacheCluster{Self: "a", Member: true, Trouble: "clocks differ", Peers: others}, "warn"},
	} {
		t.Run(name, func(t *testing.T) {
			found := judgePeer("http://a", c.cluster)
			if verdict, says := worst(found); verdict != c.want {
				t.Errorf("%s: %q; want %s", verdict, says, c.want)
			}
			wantAdvice(t, found)
		})
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

// queues is an Admin of which only the queues are asked.
type queues struct {
	dispatch.Admin
	state dispatch.Overview
}

func (q queues) Queues(context.Context) ([]dispatch.Overview, error) {
	return []dispatch.Overview{q.state}, nil
}

func TestDoctorJudgesQueues(t *testing.T) {
	held := []dispatch.HolderCount{{Instance: lease.Instance{Name: "a"}, Keys: 1}}
	for name, c := range map[string]struct {
		queue      dispatch.Overview
		want, says string
	}{
		"nothing to do":          {dispatch.Overview{}, "ok", ""},
		"at work":                {dispatch.Overview{Depth: 3, Keys: 2, Oldest: time.Second, Holders: held}, "ok", ""},
		"nobody delivers":        {dispatch.Overview{Depth: 3, Keys: 2}, "bad", "no instance delivers it; its depth is 3"},
		"blocked":                {dispatch.Overview{Depth: 3, Keys: 1, Blocked: 1, Holders: held}, "bad", "1 key blocked"},
		"dead letters":           {dispatch.Overview{DeadLetters: 2}, "warn", "2 messages dead-lettered"},
		"slow":                   {dispatch.Overview{Depth: 3, Keys: 1, Oldest: time.Hour, Holders: held}, "warn", "the oldest message waits for 1h"},
		"scheduled, not yet due": {dispatch.Overview{Scheduled: 1}, "ok", ""},
		"scheduled, overdue, and nobody is there": {dispatch.Overview{Scheduled: 1, Oldest: 5 * time.Second}, "bad", "no instance delivers it"},
		"scheduled, just due":                     {dispatch.Overview{Scheduled: 1, Oldest: 500 * time.Millisecond, Holders: held}, "ok", ""},
	} {
		c.queue.Queue = "orders"
		found, err := checkQueues(t.Context(), queues{state: c.queue})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if verdict, says := worst(found); verdict != c.want || !strings.Contains(says, c.says) {
			t.Errorf("%s: %s %q, want %s %q", name, verdict, says, c.want, c.says)
		}
	}
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

func TestDoctorJudgesJobs(t *testing.T) {
	now := time.Now()
	failed := job.Alarm{ID: "a", Reason: job.Failed, Why: "exit code 3", Scheduled: now, Raised: now}
	sent := failed
	sent.Sent = true
	for name, c := range map[string]struct {
		job      job.Job
		hasSinks bool
		want     []string // verdict and text of each finding
	}{
		"on time":              {job.Job{Next: now.Add(time.Hour)}, false, []string{"ok 1001 jobs, of which 0 run now"}},
		"overdue":              {job.Job{Next: now.Add(-time.Hour)}, false, []string{"ok", "bad backup is overdue for 1h"}},
		"overdue, paused":      {job.Job{Next: now.Add(-time.Hour), PausedBy: "ann"}, false, []string{"ok"}},
		"failed, nobody told":  {job.Job{Alarm: failed}, false, []string{"ok", "warn backup: the run of ", "warn backup: its alarm is sent to no one"}},
		"failed, on its way":   {job.Job{Alarm: failed}, true, []string{"ok", "warn backup: the run of "}},
		"failed, told":         {job.Job{Alarm: sent}, false, []string{"ok", "warn backup: the run of "}},
		"failed, a webhook":    {job.Job{Alarm: failed, Definition: job.Definition{AlarmURL: "http://x"}}, false, []string{"ok", "warn backup: the run of "}},
		"overdue, nobody told": {job.Job{Next: now.Add(-time.Hour), Alarm: failed}, false, []string{"ok", "bad backup is overdue", "warn backup: its alarm is sent to no one"}},
	} {
		c.job.Name = "backup"
		all := listed{now: now}
		for i := range jobPage {
			all.jobs = append(all.jobs, job.Job{Name: fmt.Sprintf("a%d", 10000+i)}) // it is on the second page
		}
		all.jobs = append(all.jobs, c.job)
		found, err := checkJobs(t.Context(), all, c.hasSinks)
		wantAdvice(t, found)
		right := err == nil && len(found) == len(c.want)
		for i, f := range found {
			right = right && strings.HasPrefix(f.Verdict+" "+f.Says, c.want[i])
		}
		if !right {
			t.Errorf("%s: %+v, %v; want %q", name, found, err, c.want)
		}
	}
	st := memory.New(nil)
	if _, err := st.Jobs().Change(t.Context(), "backup", job.Define("backup", job.Definition{Schedule: "@daily"})); err != nil {
		t.Fatal(err)
	}
	if found := checkParts(t.Context(), st, lease.Timing{}); !slices.ContainsFunc(found, func(f Finding) bool { return f.Check == "jobs" && f.Verdict == "ok" }) {
		t.Errorf("a store with a job: %+v", found)
	}
}

func TestDoctorFindsVacantRoles(t *testing.T) {
	st := memory.New(nil)
	ctx := t.Context()
	timing := lease.Timing{Interval: time.Minute, Timeout: time.Hour} // nobody renews, and nobody lapses
	start := func(name string) string {
		s := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance(name, ""), Timing: timing}
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
	check := func(t lease.Timing, want string, says string) func(*testing.T) {
		return func(test *testing.T) {
			found, err := checkRoles(ctx, st, t)
			verdict, said := worst(found)
			if err != nil || verdict != want || !strings.Contains(said, says) {
				test.Errorf("%s: %q, %v; want %s and %q", verdict, said, err, want, says)
			}
			wantAdvice(test, found)
		}
	}
	t.Run("held", check(timing, "ok", ""))
	if err := st.Release(ctx, lease.ReleaseRequest{Lease: id, Session: holder, Term: l.Term}); err != nil {
		t.Fatal(err)
	}
	t.Run("vacant", check(timing, "warn", "has no standby"))
	if _, err := st.Join(ctx, id, start("ben")); err != nil {
		t.Fatal(err)
	}
	t.Run("changes hands", check(timing, "warn", "changes hands"))
	t.Run("vacant for too long", check(lease.Timing{Interval: 0, Timeout: 0}, "bad", "though 1 wait"))
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

// Wherever the doctor sends a person, there is something to read.
func TestDoctorsReferences(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`"(docs/[a-z-]+\.md(?:#[a-z0-9-]+)?)"`).FindAllStringSubmatch(string(text), -1) {
			all = append(all, m[1])
		}
		for _, m := range regexp.MustCompile(`shardBook\+"(#[a-z-]+)"`).FindAllStringSubmatch(string(text), -1) {
			all = append(all, shardBook+m[1])
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) < 20 {
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
