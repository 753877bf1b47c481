package monitor

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"
)

// TestCheckJSON: the two forms of a check. The stored one is frozen, because processes of other versions read it.
func TestCheckJSON(t *testing.T) {
	c := Check{
		Name: "n", Interval: time.Second, Missed: 2, Schedule: "@daily", Grace: 1500 * time.Millisecond, MaxRun: time.Minute, Fixed: true, MaxLearned: 7,
		RetireAfter: time.Hour, SenderClock: true, AnyDomain: true, Flaps: 4, FlapWindow: 2 * time.Hour, Steady: 3 * time.Second, GroupBy: "g", GroupWait: 4 * time.Second,
		GroupMin: 5, DependsOn: "h", DependsLabel: "dl", Maintenance: "@weekly", MaintenanceFor: 5 * time.Second, Remind: 6 * time.Second, Severity: "s", Tags: []string{"t"}, Labels: map[string]string{"l": "v"}, Paused: true, ControlLoop: ControlLoop{Name: "cl"},
	}
	stored := `{"name":"n","interval":1000000000,"missed":2,"schedule":"@daily","grace":1500000000,"max_run":60000000000,"fixed":true,"max_learned":7,` +
		`"retire_after":3600000000000,"sender_clock":true,"any_domain":true,"flaps":4,"flap_window":7200000000000,"steady":3000000000,"group_by":"g",` +
		`"group_wait":4000000000,"group_min":5,"depends_on":"h","depends_label":"dl","maintenance":"@weekly","maintenance_for":5000000000,"remind":6000000000,"severity":"s","tags":["t"],"labels":{"l":"v"},"paused":true,"control_loop":{"name":"cl"}}`
	shown := `{"check":"n","interval_ms":1000,"missed":2,"schedule":"@daily","grace_ms":1500,"max_run_ms":60000,"fixed":true,"max_learned":7,` +
		`"retire_after_ms":3600000,"sender_clock":true,"any_domain":true,"flaps":4,"flap_window_ms":7200000,"steady_ms":3000,"group_by":"g",` +
		`"group_wait_ms":4000,"group_min":5,"depends_on":"h","depends_label":"dl","maintenance":"@weekly","maintenance_for_ms":5000,"remind_ms":6000,"severity":"s","tags":["t"],"labels":{"l":"v"},"paused":true,"control_loop":{"name":"cl"}}`
	for name, form := range map[string]struct {
		want string
		to   func(Check) ([]byte, error)
		from func([]byte, *Check) error
	}{
		"stored": {stored, Check.MarshalStored, func(b []byte, c *Check) error { return c.UnmarshalStored(b) }},
		"shown":  {shown, func(c Check) ([]byte, error) { return json.Marshal(c) }, func(b []byte, c *Check) error { return json.Unmarshal(b, c) }},
	} {
		text, err := form.to(c)
		if err != nil || string(text) != form.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, text, form.want)
		}
		var back Check
		if err := form.from(text, &back); err != nil || !reflect.DeepEqual(back, c) {
			t.Errorf("%s: read back %v, %+v", name, err, back)
		}
		if text, err := form.to(Check{Name: "n", Interval: time.Second}); err != nil || len(text) > 40 {
			t.Errorf("%s: zero fields are not left out: %v %s", name, err, text)
		}
	}
	for i := range reflect.TypeFor[Check]().NumField() {
		if reflect.ValueOf(c).Field(i).IsZero() {
			t.Errorf("this test does not cover %s", reflect.TypeFor[Check]().Field(i).Name)
		}
	}
	var s StoredCheck
	if err := s.UnmarshalStored([]byte(`{"name":"n","grace":1,"ID":3,"Rev":4,"Removed":true}`)); err != nil || s.ID != 3 || s.Rev != 4 || !s.Removed || s.Grace != 1 {
		t.Errorf("a stored check: %v, %+v", err, s)
	}
	var long Check
	if err := json.Unmarshal([]byte(`{"interval_ms":9223372036854775807}`), &long); err != nil || long.Interval < math.MaxInt64-time.Millisecond {
		t.Errorf("too long: %v, %v", err, long.Interval)
	}
}
