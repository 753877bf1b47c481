package settings

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/monitor"
)

func TestEventFlag(t *testing.T) {
	for text, want := range map[string]monitor.Check{
		"job,interval=5s,missed=3":              {Name: "job", Interval: 5 * time.Second, Missed: 3},
		"job,interval=5s,fixed,severity=1":      {Name: "job", Interval: 5 * time.Second, Fixed: true, Severity: "1"},
		"job,schedule=0,30 2 * * 1,5,grace=1m":  {Name: "job", Schedule: "0,30 2 * * 1,5", Grace: time.Minute},
		"a b/ü,interval=1m,tag=x,tag=y":         {Name: "a b/ü", Interval: time.Minute, Tags: []string{"x", "y"}},
		"job,interval=1m,label.x=1,label.y=a=b": {Name: "job", Interval: time.Minute, Labels: map[string]string{"x": "1", "y": "a=b"}},
		"job,interval=1m,control_loop.name=CL,control_loop.target_type=VM": {
			Name: "job", Interval: time.Minute, ControlLoop: monitor.ControlLoop{Name: "CL", TargetType: "VM"},
		},
	} {
		got, err := ParseCheck(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, got.monitored()); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", text, diff)
		}
	}
	for text, says := range map[string]string{
		"":                                   "check name is empty",
		"job":                                "an interval or a schedule",
		"job,5s":                             `write "5s" as KEY=VALUE`,
		"job,interval=":                      "KEY=VALUE",
		"job,interval=5":                     `"5" is not a valid duration`,
		"job,intervall=5s":                   `did you mean "interval"?`,
		"job,interval=5s,interval=6s":        "interval appears twice",
		"job,interval=5s,missed=many":        `"many" is not a whole number`,
		"job,interval=5s,missed=-1":          "-1 missed beats",
		"job,interval=1ms":                   "too short",
		"job,schedule=61 * * * *":            "schedule",
		"job,interval=5s,schedule=@daily":    "exclude each other",
		"job,interval=5s,control_loop.nam=x": `did you mean "name"?`,
	} {
		_, err := ParseCheck(text)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "settings.") || strings.Contains(err.Error(), "line ") {
			t.Errorf("%s: says %q, should say %q", text, err, says)
		}
		if !refused(err) {
			t.Errorf("%s: %v is not the user's error", text, err)
		}
	}
}

// TestChecksRoundTrip: what "config show" prints can be applied, and changes nothing.
func TestChecksRoundTrip(t *testing.T) {
	e := monitor.Check{
		Name: "a: [b", Interval: 90 * time.Second, Missed: 2, Grace: 1500 * time.Millisecond, MaxRun: time.Hour, Fixed: true,
		RetireAfter: 24 * time.Hour, SenderClock: true, AnyDomain: true, Flaps: 4, FlapWindow: time.Hour, Steady: time.Minute,
		GroupBy: "site", GroupWait: 10 * time.Second, GroupMin: 2, DependsOn: "no", DependsLabel: "0x1", Maintenance: "@daily", MaintenanceFor: time.Hour, Remind: time.Hour, Severity: "yes", Tags: []string{"1", "null"},
		Labels: map[string]string{"x": "0x10", "y": ""}, Paused: true, ControlLoop: monitor.ControlLoop{Name: "CL", TargetType: "VM", Version: "1.0"},
	}
	text, err := yaml.Marshal(Monitored{Checks: []Check{CheckOf(e)}})
	if err != nil {
		t.Fatal(err)
	}
	doc, err := parseDocument(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if diff := cmp.Diff([]monitor.Check{e}, doc.Checks); diff != "" {
		t.Errorf("(-want +got)\n%s%s", diff, text)
	}
}
