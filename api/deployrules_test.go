package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

const runbook = "https://github.com/understudy-ha/understudy/blob/main/docs/runbook.md"

// alertRule is an alarm as Prometheus reads it.
type alertRule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func alertRules(t *testing.T) (out []alertRule) {
	t.Helper()
	text, err := os.ReadFile("../deploy/prometheus/understudy.rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []alertRule `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		out = append(out, g.Rules...)
	}
	return out
}

// Each alarm says how bad it is, has an entry in the runbook, which its link leads to, and a test. No
// entry and no test is of an alarm that is not there.
func TestEachAlertHasAnEntryAndATest(t *testing.T) {
	text, err := os.ReadFile("../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	var entries []string
	for line := range strings.Lines(string(text)) {
		if name, is := strings.CutPrefix(strings.TrimSpace(line), "### Understudy"); is {
			entries = append(entries, "Understudy"+name)
		}
	}
	var names []string
	for _, r := range alertRules(t) {
		names = append(names, r.Alert)
		if want := runbook + "#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("%s: its link is %q, not %q", r.Alert, r.Annotations["runbook_url"], want)
		}
		if r.Annotations["summary"] == "" || !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s: no summary, or no severity", r.Alert)
		}
	}
	if len(names) < 40 {
		t.Errorf("only %d alarms", len(names))
	}
	tests, err := filepath.Glob("../deploy/prometheus/tests/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range tests {
		tests[i] = strings.TrimSuffix(filepath.Base(path), ".yaml")
	}
	for what, list := range map[string][]string{"entries in the runbook": entries, "tests": tests} {
		slices.Sort(list)
		slices.Sort(names)
		if !slices.Equal(list, names) {
			t.Errorf("the %s are not those of the alarms:\n%v\n%v", what, list, names)
		}
	}
}

// promtool runs Prometheus's own tool, where it is installed.
func promtool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	realserver.SkipIfShort(t, "promtool")
	path, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("UNDERSTUDY_REQUIRE_BACKENDS") == "1" {
			t.Fatal("promtool is missing: scripts/test-deps")
		}
		t.Skip("promtool is not installed; it is in Debian's package prometheus")
	}
	var out bytes.Buffer
	c := exec.Command(path, args...)
	c.Stdout, c.Stderr = &out, &out
	err = c.Run()
	return out.String(), err
}

// Each alarm fires when it should, and not when it should not.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	if out, err := promtool(t, "check", "rules", "../deploy/prometheus/understudy.rules.yaml"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	tests, err := filepath.Glob("../deploy/prometheus/tests/*.yaml")
	if err != nil || len(tests) == 0 {
		t.Fatalf("%v, %v", tests, err)
	}
	if out, err := promtool(t, append([]string{"test", "rules"}, tests...)...); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The tests see a rule that never fires, and one that always does.
func TestBrokenAlertRulesAreFound(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../deploy/prometheus/understudy.rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for what, expr := range map[string]string{
		"never fires":  "max by (role) (understudy_role_held) > 5",
		"always fires": "max by (role) (understudy_role_held) >= 0",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			broken := strings.Replace(string(text), "max by (role) (understudy_role_held) == 0", expr, 1)
			if broken == string(text) {
				t.Fatal("there is nothing to break")
			}
			test, err := os.ReadFile("../deploy/prometheus/tests/UnderstudyRoleVacant.yaml")
			if err != nil {
				t.Fatal(err)
			}
			for path, content := range map[string]string{"understudy.rules.yaml": broken, "tests/test.yaml": string(test)} {
				path = filepath.Join(dir, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if out, err := promtool(t, "test", "rules", filepath.Join(dir, "tests/test.yaml")); err == nil || !strings.Contains(out, "FAILED") {
				t.Errorf("it passed: %v\n%s", err, out)
			}
		})
	}
}

// The dashboard needs nothing that Grafana has not, and asks the data source that is chosen.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../deploy/grafana/understudy.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		UID    string `json:"uid"`
		Title  string `json:"title"`
		Inputs []any  `json:"__inputs"`
		Panels []struct {
			ID      int    `json:"id"`
			Type    string `json:"type"`
			Title   string `json:"title"`
			GridPos struct{ X, Y, W, H int }
			Targets []struct {
				Expr       string
				Datasource struct{ Type, UID string }
			}
		} `json:"panels"`
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	if board.UID == "" || board.Title == "" || board.Inputs != nil {
		t.Error("it has no uid or title, or asks for inputs")
	}
	rows := map[string]bool{}
	taken := map[string]string{}
	for i, p := range board.Panels {
		if p.Title == "" || p.ID != i+1 {
			t.Errorf("panel %d has no title, or another number", i)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				at := fmt.Sprint(x, "/", y)
				if other := taken[at]; other != "" || x >= 24 {
					t.Fatalf("%s lies on %q, or outside", p.Title, other)
				}
				taken[at] = p.Title
			}
		}
		switch p.Type {
		case "row":
			rows[p.Title] = true
			continue
		case "stat", "timeseries":
		default:
			t.Errorf("%s is of type %s", p.Title, p.Type)
		}
		if len(p.Targets) == 0 {
			t.Errorf("%s asks nothing", p.Title)
		}
		for _, target := range p.Targets {
			if target.Expr == "" || target.Datasource.Type != "prometheus" || target.Datasource.UID != "${datasource}" {
				t.Errorf("%s: %+v", p.Title, target)
			}
		}
	}
	for _, part := range []string{"Overview", "Roles", "Queues", "Monitor", "Shards", "Cache"} {
		if !rows[part] {
			t.Errorf("there is no row %s", part)
		}
	}
}
