package monitor

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/lease"
)

func TestEventValidate(t *testing.T) {
	many := map[string]string{}
	for i := range MaxLabels + 1 {
		many[fmt.Sprint(i)] = ""
	}
	for want, change := range map[string]func(*Check){
		"":                                func(*Check) {},
		"check name is empty":             func(e *Check) { e.Name = "" },
		"unprintable":                     func(e *Check) { e.Name = "a\nb" },
		"an interval or a schedule":       func(e *Check) { e.Interval = 0 },
		"exclude each other":              func(e *Check) { e.Schedule = "@daily" },
		"too short":                       func(e *Check) { e.Interval = 99 * time.Millisecond },
		"-1 missed beats":                 func(e *Check) { e.Missed = -1 },
		"10001 missed beats":              func(e *Check) { e.Missed = MaxMissed + 1 },
		"interval is 9600h0m0.000000001s": func(e *Check) { e.Interval = MaxInterval + 1 },
		"grace is -1ns":                   func(e *Check) { e.Grace = -1 },
		"the limit":                       func(e *Check) { e.Interval, e.Missed = MaxInterval/2, 3 },
		"max run is":                      func(e *Check) { e.MaxRun = -1 },
		"retire after is":                 func(e *Check) { e.RetireAfter = MaxInterval + 1 },
		"steady is":                       func(e *Check) { e.Steady = -1 },
		"cannot be negative":              func(e *Check) { e.Flaps = -1 },
		`target type "vm"`:                func(e *Check) { e.ControlLoop.TargetType = "vm" },
		"33 labels":                       func(e *Check) { e.Labels = many },
		"contains '=' or ','":             func(e *Check) { e.Labels = map[string]string{"a=b": ""} },
		"label is empty":                  func(e *Check) { e.Labels = map[string]string{"": "b"} },
		`label a "\n" begins`:             func(e *Check) { e.Labels = map[string]string{"a": "\n"} },
		"33 tags":                         func(e *Check) { e.Tags = make([]string, MaxLabels+1) },
		"begins or ends":                  func(e *Check) { e.ControlLoop.PolicyName = " " },
		"it never comes":                  func(e *Check) { e.Interval, e.Schedule = 0, "0 0 30 2 *" },
		"101 missed times":                func(e *Check) { e.Interval, e.Schedule, e.Missed = 0, "@daily", 101 },
	} {
		e := Check{Name: "e", Interval: time.Minute}
		change(&e)
		err := e.Validate()
		if want == "" != (err == nil) || err != nil && (!errors.Is(err, lease.ErrInvalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestEventDefaults(t *testing.T) {
	got := Check{Name: "e", Interval: time.Minute, Flaps: 3, GroupBy: "rack"}.WithDefaults()
	want := Check{
		Name: "e", Interval: time.Minute, Missed: 3, Flaps: 3, FlapWindow: time.Hour, Steady: 3 * time.Minute,
		GroupBy: "rack", GroupWait: 10 * time.Second, GroupMin: 2, ControlLoop: ControlLoop{TargetType: "VNF"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(got, got.WithDefaults()); d != "" {
		t.Errorf("defaults change what has them: %s", d)
	}
	if e := (Check{Schedule: "@daily"}).WithDefaults(); e.Missed != 1 {
		t.Errorf("of a schedule, %d may be missed", e.Missed)
	}
}

// TestD18ConfigurationWhole: an empty configuration would remove everything, and is
// refused; so is one of which any part is wrong.
func TestD18ConfigurationWhole(t *testing.T) {
	good := Check{Name: "e", Interval: time.Minute}
	for want, c := range map[string]Configuration{
		"":                {Checks: []Check{good}, Declared: []Declaration{{Check: "e", Source: "s"}}},
		"has no checks":   {},
		"at most 10000":   {Checks: make([]Check, MaxChecks+1)},
		"is listed twice": {Checks: []Check{good, good}},
		"too short":       {Checks: []Check{good, {Name: "f", Interval: 1}}},
		"not configured":  {Checks: []Check{good}, Declared: []Declaration{{Check: "f", Source: "s"}}},
		"source is empty": {Keep: true, Declared: []Declaration{{Check: "f"}}},
	} {
		err := c.Validate()
		if want == "" != (err == nil) || err != nil && (!errors.Is(err, lease.ErrInvalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := (Configuration{Keep: true}).Validate(); err != nil {
		t.Errorf("one that keeps all and adds nothing: %v", err)
	}
}
