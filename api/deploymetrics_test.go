package api

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/internal/prometheus"
	"github.com/understudy-ha/understudy/shard"
)

// quietAgent is an agent of which only the name of its shard is asked.
type quietAgent struct{}

func (quietAgent) Status() shard.Status { return shard.Status{Shard: "orders"} }

var (
	described  = regexp.MustCompile(`fqName: "([^"]+)".*constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}`)
	named      = regexp.MustCompile(`understudy_[a-z0-9_]+`)
	withLabels = regexp.MustCompile(`(understudy_[a-z0-9_]+)\{([^}]*)\}`)
	compared   = regexp.MustCompile(`([a-zA-Z_]+)\s*(?:=~|!~|!=|=)\s*"`)
)

// exported returns the metrics of servers and agents, with the names of their labels.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	s := &Server{}
	traffic := newTraffic()
	collectors := []prometheus.Collector{
		newKernelCollector(s), newQueueCollector(s), newCacheCollector(&cachePart{}), newMonitorCollector(s), newShardCollector(&shardPart{}),
		newAgentCollector(quietAgent{}, ""), traffic.requests, traffic.duration,
		newLimiter(Limits{}).limited, certificateCollector(nil),
	}
	out := map[string][]string{}
	for _, c := range collectors {
		descs := make(chan *prometheus.Desc, 200)
		c.Describe(descs)
		close(descs)
		for d := range descs {
			m := described.FindStringSubmatch(d.String())
			if m == nil {
				t.Fatalf("cannot read %s", d)
			}
			labels := strings.Split(m[3], ",")
			for pair := range strings.SplitSeq(m[2], ",") {
				name, _, _ := strings.Cut(pair, "=")
				labels = append(labels, name)
			}
			if c == prometheus.Collector(traffic.duration) {
				labels = append(labels, "le") // a histogram
			}
			out[m[1]] = labels
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
	base := func(name string) string {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if cut, ok := strings.CutSuffix(name, suffix); ok && slices.Contains(known[cut], "le") {
				return cut
			}
		}
		return name
	}
	for _, name := range named.FindAllString(text, -1) {
		if known[base(name)] == nil {
			problems = append(problems, name+" is exported by nobody")
		}
	}
	for _, m := range withLabels.FindAllStringSubmatch(text, -1) {
		for _, label := range compared.FindAllStringSubmatch(m[2], -1) {
			if labels := known[base(m[1])]; labels != nil && !slices.Contains(append(labels, "job", "instance"), label[1]) {
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
