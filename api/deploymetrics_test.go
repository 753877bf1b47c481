package api

import (
	"encoding/json"
	"maps"
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
	"github.com/understudy-ha/understudy/internal/prometheus"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/intake"
	"github.com/understudy-ha/understudy/shard"
)

var (
	exposed    = regexp.MustCompile(`(?m)^(understudy_[a-z0-9_]+)(?:\{(.*)\})? `)
	named      = regexp.MustCompile(`understudy_[a-z0-9_]+`)
	withLabels = regexp.MustCompile(`(understudy_[a-z0-9_]+)\{([^}]*)\}`)
	compared   = regexp.MustCompile(`([a-zA-Z_]+)\s*(?:=~|!~|!=|=)\s*"`)
)

// exported returns the metrics of servers and agents, with the names of their labels.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	g := newShardRig(t)
	g.s.SetRoles([]string{"web"})
	g.s.cache.peer = newStandIn()
	g.s.router.traffic.observe(route{pattern: "GET /"}, http.StatusOK, time.Second)
	g.s.router.limit.limited.Of("read").Inc()
	primary := shard.Status{Shard: "orders", State: shard.State{Role: shard.Primary}}
	replica := shard.Status{State: shard.State{Role: shard.Replica, Link: &shard.Upstream{}}, View: shard.View{Nodes: []shard.Record{{}}}}
	samples := func(m prometheus.Scrape) {
		collectQueue(m, apitype.Queue{})
		collectDispatcher(m, dispatch.Stats{})
		collectJob(m, job.Job{}, time.Time{})
		ofMonitor := m.With("understudy_monitor_")
		collectIntake(ofMonitor, monitor.IntakeStats{})
		collectRejected(ofMonitor, map[string]int64{"syntax": 1})
		collectRouter(ofMonitor, intake.RouterStats{})
		collectWatcher(ofMonitor, monitor.WatchStats{})
		collectMonitorView(ofMonitor, apitype.Monitor{Checks: []apitype.CheckCount{{}}, Paths: []apitype.Path{{}}})
		collectShard(m.With("understudy_"), apitype.Shard{}, shard.View{Row: shard.Row{Last: &shard.Plan{Kind: shard.Failover}}})
		collectShardNode(m.With("understudy_shard_node_", "shard", "", "node", "", "address", ""), apitype.ShardNode{InStep: true, LinkUp: new(true)})
		collectAgent(m, primary, "")
		collectAgent(m, replica, "")
	}
	w := httptest.NewRecorder()
	prometheus.Handler(append(g.s.collectors(), samples)...).ServeHTTP(w, request(t.Context(), http.MethodGet, "/metrics", ""))
	out := map[string][]string{}
	for _, m := range exposed.FindAllStringSubmatch(w.Body.String(), -1) {
		out[m[1]] = []string{}
		for _, label := range compared.FindAllStringSubmatch(m[2], -1) {
			out[m[1]] = append(out[m[1]], label[1])
		}
	}
	maps.Copy(out, counted(t))
	if len(out) < 90 {
		t.Fatalf("only %d metrics found", len(out))
	}
	return out
}

// counted returns the counters that parts of the server bring, which describe nothing ahead: their names as they
// stand in the program.
func counted(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, file := range []string{"names.go", "hooks.go"} {
		text, err := os.ReadFile(filepath.Join("..", "internal", "server", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`"(understudy_(dns|hook)_[a-z_]+_total)"`).FindAllStringSubmatch(string(text), -1) {
			out[m[1]] = []string{map[string]string{"dns": "outcome", "hook": "hook"}[m[2]]}
		}
	}
	return out
}

// deployed returns every expression of the alert rules and the dashboard, by file.
func deployed(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, path := range []string{"prometheus/understudy.rules.yaml", "grafana/understudy.json"} {
		text, err := os.ReadFile(filepath.Join("..", "deploy", path))
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(path) == ".json" {
			var exprs strings.Builder
			var board any
			if err := json.Unmarshal(text, &board); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			expressions(board, &exprs)
			text = []byte(exprs.String())
		}
		out[path] = string(text)
	}
	return out
}

// expressions collects what is asked of Prometheus, anywhere in a dashboard.
func expressions(v any, out *strings.Builder) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if text, ok := value.(string); ok && (key == "expr" || key == "query" || key == "definition") {
				out.WriteString(text + "\n")
			}
			expressions(value, out)
		}
	case []any:
		for _, one := range v {
			expressions(one, out)
		}
	}
}

// What the alert rules and the dashboard ask for is exported, with these labels.
func TestDeployedMetricsAreExported(t *testing.T) {
	known := exported(t)
	for path, text := range deployed(t) {
		names := named.FindAllString(text, -1)
		if len(names) < 30 {
			t.Errorf("%s: only %d metrics found", path, len(names))
		}
		for _, problem := range unknownMetrics(known, text) {
			t.Errorf("%s: %s", path, problem)
		}
	}
}

func unknownMetrics(known map[string][]string, text string) (problems []string) {
	for _, name := range named.FindAllString(text, -1) {
		if known[name] == nil {
			problems = append(problems, name+" is exported by nobody")
		}
	}
	for _, m := range withLabels.FindAllStringSubmatch(text, -1) {
		for _, label := range compared.FindAllStringSubmatch(m[2], -1) {
			if labels := known[m[1]]; labels != nil && !slices.Contains(append(labels, "job", "instance"), label[1]) {
				problems = append(problems, m[1]+" has no label "+label[1])
			}
		}
	}
	return problems
}

// The check finds a metric that is not there, and a label that it has not.
func TestUnknownMetricsAreFound(t *testing.T) {
	known := exported(t)
	for _, expr := range []string{
		`understudy_role_holds == 0`,
		`rate(understudy_queue_depth_total[5m])`,
		`understudy_queue_depth{role="x"}`,
		`understudy_store_up_count`,
	} {
		if len(unknownMetrics(known, expr)) == 0 {
			t.Errorf("%s was not found", expr)
		}
	}
	if p := unknownMetrics(known, `histogram_quantile(0.9, rate(understudy_http_request_duration_seconds_bucket{route="GET /x"}[5m])) + understudy_agent_open{shard="orders"}`); p != nil {
		t.Errorf("found what is there: %v", p)
	}
}
