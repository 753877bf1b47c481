package doctor

import (
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

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/elect"
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
	replica := func() api.NodeView {
		return api.NodeView{Address: "b:1", Role: shard.Replica, Condition: shard.Up, Member: true, AgentLives: true, InStep: true, LinkUp: new(true), Priority: 100, Version: "7.2"}
	}
	whole := func() api.ShardView {
		return api.ShardView{Shard: "orders", Health: shard.Fine, Nodes: []api.NodeView{
			{Address: "a:1", Role: shard.Primary, Primary: true, Condition: shard.Up, Member: true, AgentLives: true, InStep: true, Armed: true, Priority: 100, Version: "7.2"}, replica(),
		}}
	}
	for name, c := range map[string]struct {
		change func(*api.ShardView)
		want   string
		says   string
	}{
		"all is well":             {func(*api.ShardView) {}, "ok", ""},
		"blocked":                 {func(s *api.ShardView) { s.Health, s.Blocked = shard.Over, "nobody is left" }, "bad", "nobody is left"},
		"no primary":              {func(s *api.ShardView) { s.Health = shard.None }, "bad", "no primary"},
		"stuck":                   {func(s *api.ShardView) { s.Health = shard.Stuck }, "bad", "may still take writes"},
		"unattended":              {func(s *api.ShardView) { s.Health = shard.Unattended }, "bad", "unattended"},
		"doubtful":                {func(s *api.ShardView) { s.Health = shard.Doubtful }, "warn", "doubtful"},
		"paused":                  {func(s *api.ShardView) { s.Paused = &shard.Pause{By: "ann"} }, "warn", "paused by ann"},
		"alone":                   {func(s *api.ShardView) { s.Nodes = s.Nodes[:1] }, "warn", "nothing could take over"},
		"fence not armed":         {func(s *api.ShardView) { s.Nodes[0].Armed = false }, "warn", "fence"},
		"two versions":            {func(s *api.ShardView) { s.Nodes[1].Version = "7.0" }, "warn", "7.0, 7.2"},
		"a silent agent":          {func(s *api.ShardView) { s.Nodes[1].AgentLives = false }, "warn", "agent of b:1 is silent"},
		"a node that is down":     {func(s *api.ShardView) { s.Nodes[1].Condition = shard.Down }, "warn", "b:1 is down"},
		"another lineage":         {func(s *api.ShardView) { s.Nodes[1].InStep = false }, "warn", "another lineage"},
		"a link that is down":     {func(s *api.ShardView) { s.Nodes[1].LinkUp = new(false) }, "warn", "link is down"},
		"a node with trouble":     {func(s *api.ShardView) { s.Nodes[1].Trouble = "its disk is full" }, "warn", "its disk is full"},
		"no member yet":           {func(s *api.ShardView) { s.Nodes = append(s.Nodes, replica()); s.Nodes[2].Member = false }, "warn", "no member yet"},
		"a priority that is zero": {func(s *api.ShardView) { s.Nodes[1].Priority = 0 }, "ok", ""},
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
	others := []client.CachePeer{{Self: true}, {CacheMember: client.CacheMember{URL: "tcp://b:1"}, Link: "up"}}
	for name, c := range map[string]struct {
		cluster client.CacheCluster
		want    string
	}{
		"a member":          {client.CacheCluster{Self: "a", Member: true, Peers: others}, "ok"},
		"without majority":  {client.CacheCluster{Self: "a", Member: true, Partitioned: true, Majority: 2, Connected: 1, Peers: others}, "bad"},
		"waits to be added": {client.CacheCluster{Self: "a", Peers: others}, "warn"},
		"a link is down":    {client.CacheCluster{Self: "a", Member: true, Peers: []client.CachePeer{{Link: "down"}}}, "warn"},
		"with trouble":      {client.CacheCluster{Self: "a", Member: true, Trouble: "clocks differ", Peers: others}, "warn"},
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
			found := q.look(t.Context())
			if verdict, says := worst(found); verdict != c.want || !strings.Contains(says, c.says) {
				t.Errorf("%s: %q; want %s and %q", verdict, says, c.want, c.says)
			}
			wantAdvice(t, found)
		})
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
	l, err := st.Acquire(ctx, lease.Claim{Lease: id, Session: holder})
	if err != nil {
		t.Fatal(err)
	}
	check := func(t lease.Timing, want string, says string) func(*testing.T) {
		return func(test *testing.T) {
			found, err := checkRolesHeld(ctx, st, t)
			verdict, said := worst(found)
			if err != nil || verdict != want || !strings.Contains(said, says) {
				test.Errorf("%s: %q, %v; want %s and %q", verdict, said, err, want, says)
			}
			wantAdvice(test, found)
		}
	}
	t.Run("held", check(timing, "ok", ""))
	if err := st.Release(ctx, lease.Handback{Lease: id, Session: holder, Term: l.Term}); err != nil {
		t.Fatal(err)
	}
	t.Run("vacant", check(timing, "warn", "nobody waits"))
	if err := st.Join(ctx, id, start("ben")); err != nil {
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
		"an old schema":    {store.Info{Schema: 2, Wanted: 3, Now: now, Notifies: true}, "bad"},
		"a newer schema":   {store.Info{Schema: 4, Wanted: 3, Now: now, Notifies: true}, "bad"},
		"a clock far off":  {store.Info{Schema: 3, Wanted: 3, Now: now.Add(time.Hour), Notifies: true}, "warn"},
		"no notifications": {store.Info{Schema: 3, Wanted: 3, Now: now}, "warn"},
		"a setting":        {store.Info{Schema: 3, Wanted: 3, Now: now, Notifies: true, Warnings: []string{"fsync is off"}}, "warn"},
	} {
		t.Run(name, func(t *testing.T) {
			if verdict, says := worst(examine(c.info, now)); verdict != c.want {
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
