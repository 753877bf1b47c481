package settings

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/internal/strict"
	"github.com/understudy-ha/understudy/internal/usage"
	"github.com/understudy-ha/understudy/monitor"
)

// Monitored says what is monitored: a file of its own, or a part of the
// server's.
type Monitored struct {
	Events []Event `yaml:"events,omitempty"`
	// Declared sources are known before their first beat.
	Declared []Declared `yaml:"declared,omitempty"`
	// Keep leaves event names that do not stand here as they are.
	Keep bool `yaml:"keep,omitempty"`
}

// Event is a monitor.Event in a file.
type Event struct {
	Event       string            `yaml:"event"`
	Interval    strict.Duration   `yaml:"interval,omitempty"`
	Missed      int               `yaml:"missed,omitempty"`
	Schedule    string            `yaml:"schedule,omitempty"`
	Grace       strict.Duration   `yaml:"grace,omitempty"`
	MaxRun      strict.Duration   `yaml:"max_run,omitempty"`
	Fixed       bool              `yaml:"fixed,omitempty"`
	RetireAfter strict.Duration   `yaml:"retire_after,omitempty"`
	SenderClock bool              `yaml:"sender_clock,omitempty"`
	Flaps       int               `yaml:"flaps,omitempty"`
	FlapWindow  strict.Duration   `yaml:"flap_window,omitempty"`
	Steady      strict.Duration   `yaml:"steady,omitempty"`
	GroupBy     string            `yaml:"group_by,omitempty"`
	GroupWait   strict.Duration   `yaml:"group_wait,omitempty"`
	GroupMin    int               `yaml:"group_min,omitempty"`
	Severity    string            `yaml:"severity,omitempty"`
	Tags        []string          `yaml:"tags,omitempty"`
	Labels      map[string]string `yaml:"labels,omitempty"`
	Paused      bool              `yaml:"paused,omitempty"`
	ControlLoop *ControlLoop      `yaml:"control_loop,omitempty"`

	line int // in the file; 0 when it is not from one
}

// ControlLoop are the fields of ONAP's control-loop events.
type ControlLoop struct {
	Name          string `yaml:"name,omitempty"`
	PolicyName    string `yaml:"policy_name,omitempty"`
	PolicyScope   string `yaml:"policy_scope,omitempty"`
	PolicyVersion string `yaml:"policy_version,omitempty"`
	// TargetType is VNF or VM. Default VNF.
	TargetType string `yaml:"target_type,omitempty"`
	Target     string `yaml:"target,omitempty"`
	Version    string `yaml:"version,omitempty"`
}

// Declared is a monitor.Declaration in a file.
type Declared struct {
	Event  string            `yaml:"event"`
	Source string            `yaml:"source"`
	Labels map[string]string `yaml:"labels,omitempty"`

	line int
}

func (e *Event) event() monitor.Event {
	out := monitor.Event{
		Name: e.Event, Interval: time.Duration(e.Interval), Missed: e.Missed, Schedule: e.Schedule, Grace: time.Duration(e.Grace),
		MaxRun: time.Duration(e.MaxRun), Fixed: e.Fixed, RetireAfter: time.Duration(e.RetireAfter), SenderClock: e.SenderClock,
		Flaps: e.Flaps, FlapWindow: time.Duration(e.FlapWindow), Steady: time.Duration(e.Steady),
		GroupBy: e.GroupBy, GroupWait: time.Duration(e.GroupWait), GroupMin: e.GroupMin,
		Severity: e.Severity, Tags: e.Tags, Labels: e.Labels, Paused: e.Paused,
	}
	if e.ControlLoop != nil {
		out.ControlLoop = monitor.ControlLoop(*e.ControlLoop)
	}
	return out
}

// EventOf is the reverse of event.
func EventOf(e monitor.Event) Event {
	out := Event{
		Event: e.Name, Interval: strict.Duration(e.Interval), Missed: e.Missed, Schedule: e.Schedule, Grace: strict.Duration(e.Grace),
		MaxRun: strict.Duration(e.MaxRun), Fixed: e.Fixed, RetireAfter: strict.Duration(e.RetireAfter), SenderClock: e.SenderClock,
		Flaps: e.Flaps, FlapWindow: strict.Duration(e.FlapWindow), Steady: strict.Duration(e.Steady),
		GroupBy: e.GroupBy, GroupWait: strict.Duration(e.GroupWait), GroupMin: e.GroupMin,
		Severity: e.Severity, Tags: e.Tags, Labels: e.Labels, Paused: e.Paused,
	}
	if e.ControlLoop != (monitor.ControlLoop{}) {
		out.ControlLoop = new(ControlLoop(e.ControlLoop))
	}
	return out
}

// Configuration is what the file says, from a place that origin names.
func (c *Monitored) Configuration(origin string) monitor.Configuration {
	out := monitor.Configuration{Keep: c.Keep, Origin: origin}
	for i := range c.Events {
		out.Events = append(out.Events, c.Events[i].event())
	}
	for _, d := range c.Declared {
		out.Declared = append(out.Declared, monitor.Declaration{Event: d.Event, Source: d.Source, Labels: d.Labels})
	}
	return out
}

// Same tells whether two say the same.
func (c *Monitored) Same(other *Monitored) bool {
	return strict.Written(reflect.ValueOf(*c)) == strict.Written(reflect.ValueOf(*other))
}

// check refuses what [monitor.Configuration.Validate] refuses, and says on which line
// that is.
func (c *Monitored) check() error {
	var found []error
	for i := range c.Events {
		if err := c.Events[i].event().Validate(); err != nil {
			found = append(found, strict.AtLine(c.Events[i].line, err))
		}
	}
	for i := range c.Events {
		same := slices.IndexFunc(c.Events[:i], func(e Event) bool { return e.Event == c.Events[i].Event })
		if same >= 0 {
			found = append(found, strict.AtLine(c.Events[i].line, usage.Errorf("event %q stands twice", c.Events[i].Event)))
		}
	}
	for _, d := range c.Declared {
		if err := (monitor.Declaration{Event: d.Event, Source: d.Source, Labels: d.Labels}).Validate(); err != nil {
			found = append(found, strict.AtLine(d.line, err))
			continue
		}
		known := slices.ContainsFunc(c.Events, func(e Event) bool { return e.Event == d.Event })
		if !known && !c.Keep {
			names := make([]string, 0, len(c.Events))
			for _, e := range c.Events {
				names = append(names, e.Event)
			}
			found = append(found, strict.AtLine(d.line, usage.Errorf("source %q is declared for event %q, which does not stand here%s", d.Source, d.Event, strict.DidYouMean(d.Event, names))))
		}
	}
	if len(c.Events) > monitor.MaxEvents {
		found = append(found, usage.Errorf("%d event names; at most %d", len(c.Events), monitor.MaxEvents))
	}
	return errors.Join(found...)
}

// locate notes on which lines of the file the events and sources stand: below a path of keys.
func (c *Monitored) locate(lines map[string]int, below string) {
	for i := range c.Events {
		c.Events[i].line = lines[fmt.Sprintf("%sevents[%d]", below, i)]
	}
	for i := range c.Declared {
		c.Declared[i].line = lines[fmt.Sprintf("%sdeclared[%d]", below, i)]
	}
}

// ParseEvent reads NAME,KEY=VALUE,…, with the keys of a file. A key that stands
// alone is true; label.NAME=VALUE and tag=TEXT may be repeated, and what is no key goes on with
// the schedule before it, which may have commas.
func ParseEvent(text string) (Event, error) {
	var e Event
	name, rest, _ := strings.Cut(text, ",")
	fields := map[string]any{"event": name}
	last := ""
	for part := range strings.SplitSeq(rest, ",") {
		key, value, given := strings.Cut(part, "=")
		switch {
		case rest == "":
			continue
		case last == "schedule" && !isKey(key):
			fields[last] = fmt.Sprint(fields[last], ",", part)
			continue
		case !given && (key == "fixed" || key == "paused" || key == "sender_clock"):
			fields[key] = true
		case !given || value == "":
			return e, usage.Errorf("--event %q: write %q as KEY=VALUE, for instance interval=5s", text, part)
		case strings.HasPrefix(key, "label."):
			within(fields, "labels")[strings.TrimPrefix(key, "label.")] = value
		case strings.HasPrefix(key, "control_loop."):
			within(fields, "control_loop")[strings.TrimPrefix(key, "control_loop.")] = value
		case key == "tag":
			tags, _ := fields["tags"].([]string)
			fields["tags"] = append(tags, value)
		case fields[key] != nil:
			return e, usage.Errorf("--event %q: %s stands twice", text, key)
		default:
			fields[key] = plainValue(key, value)
		}
		last = key
	}
	written, err := yaml.Marshal(fields)
	if err != nil {
		return e, err
	}
	if _, err := strict.Read(written, &e, "an event"); err != nil {
		return e, usage.Errorf("--event %q: %s", text, strict.WithoutLines(err.Error()))
	}
	if err := e.event().Validate(); err != nil {
		return e, fmt.Errorf("--event %q: %w", text, err)
	}
	return e, nil
}

// within is the mapping of a key, made if it is not there.
func within(fields map[string]any, key string) map[string]any {
	m, ok := fields[key].(map[string]any)
	if !ok {
		m = map[string]any{}
		fields[key] = m
	}
	return m
}

// plainValue leaves numbers and words as they would stand in a file.
func plainValue(key, value string) any {
	switch key {
	case "schedule", "severity", "group_by":
		return value
	}
	var v any
	if yaml.Unmarshal([]byte(value), &v) != nil {
		return value
	}
	return v
}

// isKey tells whether a word is one of an event's keys in a flag.
func isKey(word string) bool {
	if strings.HasPrefix(word, "label.") || strings.HasPrefix(word, "control_loop.") || word == "tag" {
		return true
	}
	return strict.KeysOf(reflect.TypeFor[Event]())[word] != nil
}
