package settings

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/monitor"
)

// Monitored says what is monitored: a file of its own, or a part of the
// server's.
type Monitored struct {
	Checks   []Check    `yaml:"checks" was:"events" help:"what is expected of the sources of each check"`
	Declared []Declared `yaml:"declared" help:"sources that are known before their first heartbeat"`
	Keep     bool       `yaml:"keep_others" was:"keep" help:"add to the checks in the store, and remove none"`
}

// Check is a monitor.Check in a file.
type Check struct {
	Name           string            `yaml:"check" was:"event" help:"name of the check; heartbeats carry it"`
	Interval       time.Duration     `yaml:"interval" help:"a heartbeat is expected this often …"`
	Missed         int               `yaml:"missed" help:"… and a source is down when this many are missing …"`
	Grace          time.Duration     `yaml:"grace" help:"… and this much more time has passed"`
	Schedule       string            `yaml:"schedule" help:"when heartbeats are expected, as in crontab(5), instead of an interval"`
	MaxRun         time.Duration     `yaml:"max_run" help:"a run that was started and has not ended after this time has failed"`
	Fixed          bool              `yaml:"fixed" help:"accept declared sources only; otherwise sources are learned from their first heartbeat"`
	MaxLearned     int               `yaml:"max_learned" help:"learn at most this many sources (default: 100000)"`
	RetireAfter    time.Duration     `yaml:"retire_after" help:"retire a source that has been down this long"`
	SenderClock    bool              `yaml:"sender_clock" help:"judge by the time that the sender put into the heartbeat"`
	AnyDomain      bool              `yaml:"any_domain" help:"VES events of any domain count as heartbeats (default: only the domain heartbeat)"`
	Flaps          int               `yaml:"flaps" help:"after this many alarms within the flap window, keep the alarm open …"`
	FlapWindow     time.Duration     `yaml:"flap_window" help:"… of this length …"`
	Steady         time.Duration     `yaml:"steady" help:"… until the source has been well this long"`
	GroupBy        string            `yaml:"group_by" help:"one alarm for all sources with the same value of this label that go down together …"`
	GroupWait      time.Duration     `yaml:"group_wait" help:"… within this time of each other …"`
	GroupMin       int               `yaml:"group_min" help:"… if there are at least this many"`
	DependsOn      string            `yaml:"depends_on" help:"raise no alarm for a source while the source of the same name of this check is down …"`
	DependsLabel   string            `yaml:"depends_label" help:"… or the source that this label names"`
	Maintenance    string            `yaml:"maintenance" help:"raise no alarms from these times on, as in crontab(5) …"`
	MaintenanceFor time.Duration     `yaml:"maintenance_for" help:"… for this long"`
	Remind         time.Duration     `yaml:"repeat_interval" was:"remind" help:"notify the sinks of an open alarm again this often, until someone acknowledges it"`
	Severity       string            `yaml:"severity" help:"severity, for the receivers of alarms"`
	Tags           []string          `yaml:"tags" help:"tags, for the receivers of alarms"`
	Labels         map[string]string `yaml:"labels" help:"labels of the check's sources"`
	Paused         bool              `yaml:"paused" help:"raise no alarms"`
	ControlLoop    *ControlLoop      `yaml:"control_loop" help:"fields of ONAP's control-loop events"`

	line int // in the file; 0 when it is not from one
}

// ControlLoop are the fields of ONAP's control-loop events.
type ControlLoop struct {
	Name          string `yaml:"name" help:"closedLoopControlName"`
	PolicyName    string `yaml:"policy_name" help:"policyName"`
	PolicyScope   string `yaml:"policy_scope" help:"policyScope"`
	PolicyVersion string `yaml:"policy_version" help:"policyVersion"`
	TargetType    string `yaml:"target_type" help:"VNF or VM (default: VNF)"`
	Target        string `yaml:"target" help:"target"`
	Version       string `yaml:"version" help:"version"`
}

// Declared is a monitor.Declaration in a file.
type Declared struct {
	Check  string            `yaml:"check" was:"event" help:"one of the checks"`
	Source string            `yaml:"source" help:"name of the source"`
	Labels map[string]string `yaml:"labels" help:"labels of the source"`

	line int
}

// monitored is the check that the keys describe: each option has the same name and type in both structs.
func (c *Check) monitored() monitor.Check {
	var out monitor.Check
	copyOptions(reflect.ValueOf(&out).Elem(), reflect.ValueOf(c).Elem())
	if c.ControlLoop != nil {
		out.ControlLoop = monitor.ControlLoop(*c.ControlLoop)
	}
	return out
}

// copyOptions copies the exported fields that two structs share by name and type.
func copyOptions(to, from reflect.Value) {
	for i := range from.NumField() {
		field := from.Type().Field(i)
		if into := to.FieldByName(field.Name); field.IsExported() && into.IsValid() && into.Type() == field.Type {
			into.Set(from.Field(i))
		}
	}
}

// CheckOf is the reverse of monitored.
func CheckOf(c monitor.Check) Check {
	var out Check
	copyOptions(reflect.ValueOf(&out).Elem(), reflect.ValueOf(c))
	if c.ControlLoop != (monitor.ControlLoop{}) {
		out.ControlLoop = new(ControlLoop(c.ControlLoop))
	}
	return out
}

// Configuration is what the file says, from a place that origin names.
func (c *Monitored) Configuration(origin string) monitor.Configuration {
	out := monitor.Configuration{Keep: c.Keep, Origin: origin}
	for i := range c.Checks {
		out.Checks = append(out.Checks, c.Checks[i].monitored())
	}
	for _, d := range c.Declared {
		out.Declared = append(out.Declared, monitor.Declaration{Check: d.Check, Source: d.Source, Labels: d.Labels})
	}
	return out
}

// Same reports whether two say the same.
func (c *Monitored) Same(other *Monitored) bool {
	return strictyaml.Written(reflect.ValueOf(*c)) == strictyaml.Written(reflect.ValueOf(*other))
}

// check refuses what [monitor.Configuration.Validate] refuses, and says on which line
// that is.
func (c *Monitored) check() error {
	var found []error
	for i := range c.Checks {
		if err := c.Checks[i].monitored().Validate(); err != nil {
			found = append(found, strictyaml.AtLine(c.Checks[i].line, err))
		}
	}
	for i := range c.Checks {
		same := slices.IndexFunc(c.Checks[:i], func(other Check) bool { return other.Name == c.Checks[i].Name })
		if same >= 0 {
			found = append(found, strictyaml.AtLine(c.Checks[i].line, usererr.Errorf("check %q appears twice", c.Checks[i].Name)))
		}
	}
	for _, d := range c.Declared {
		if err := (monitor.Declaration{Check: d.Check, Source: d.Source, Labels: d.Labels}).Validate(); err != nil {
			found = append(found, strictyaml.AtLine(d.line, err))
			continue
		}
		known := slices.ContainsFunc(c.Checks, func(other Check) bool { return other.Name == d.Check })
		if !known && !c.Keep {
			names := make([]string, 0, len(c.Checks))
			for _, other := range c.Checks {
				names = append(names, other.Name)
			}
			found = append(found, strictyaml.AtLine(d.line, usererr.Errorf("source %q is declared for check %q, which is not in this file%s", d.Source, d.Check, strictyaml.DidYouMean(d.Check, names))))
		}
	}
	if len(c.Checks) > monitor.MaxChecks {
		found = append(found, usererr.Errorf("%d checks; at most %d", len(c.Checks), monitor.MaxChecks))
	}
	return errors.Join(found...)
}

// locate notes on which lines of the file the checks and sources stand: below a path of keys.
func (c *Monitored) locate(lines map[string]int, below string) {
	for i := range c.Checks {
		c.Checks[i].line = lines[fmt.Sprintf("%schecks[%d]", below, i)]
	}
	for i := range c.Declared {
		c.Declared[i].line = lines[fmt.Sprintf("%sdeclared[%d]", below, i)]
	}
}

// ParseCheck reads NAME,KEY=VALUE,…, with the keys of a file. A key that stands
// alone is true; label.NAME=VALUE and tag=TEXT may be repeated, and what is no key continues
// the schedule or maintenance before it, which may have commas.
func ParseCheck(text string) (Check, error) {
	var c Check
	name, rest, _ := strings.Cut(text, ",")
	fields := map[string]any{"check": name}
	keys := strictyaml.KeysOf(reflect.TypeFor[Check]())
	last := ""
	for part := range strings.SplitSeq(rest, ",") {
		key, value, given := strings.Cut(part, "=")
		switch {
		case rest == "":
			continue
		case (last == "schedule" || last == "maintenance") && !isKey(keys, key):
			fields[last] = fmt.Sprint(fields[last], ",", part)
			continue
		case !given && kindOf(keys, key) == reflect.Bool:
			fields[key] = true
		case !given || value == "":
			return c, usererr.Errorf("--check %q: write %q as KEY=VALUE, for instance interval=5s", text, part)
		case strings.HasPrefix(key, "label."):
			within(fields, "labels")[strings.TrimPrefix(key, "label.")] = value
		case strings.HasPrefix(key, "control_loop."):
			within(fields, "control_loop")[strings.TrimPrefix(key, "control_loop.")] = value
		case key == "tag":
			tags, _ := fields["tags"].([]string)
			fields["tags"] = append(tags, value)
		case fields[key] != nil:
			return c, usererr.Errorf("--check %q: %s appears twice", text, key)
		default:
			fields[key] = plainValue(kindOf(keys, key), value)
		}
		last = key
	}
	written, err := yaml.Marshal(fields)
	if err != nil {
		return c, err
	}
	if _, err := strictyaml.Read(written, &c, "a check"); err != nil {
		return c, usererr.Errorf("--check %q: %s", text, strictyaml.WithoutLines(err.Error()))
	}
	if err := c.monitored().Validate(); err != nil {
		return c, fmt.Errorf("--check %q: %w", text, err)
	}
	return c, nil
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

// plainValue leaves numbers and words as they would stand in a file; what is text is that whatever it looks like.
func plainValue(kind reflect.Kind, value string) any {
	var v any
	if kind == reflect.String || yaml.Unmarshal([]byte(value), &v) != nil {
		return value
	}
	return v
}

// kindOf is that of a key's value; Invalid for what is no key.
func kindOf(keys map[string]strictyaml.Key, key string) reflect.Kind {
	if k, ok := keys[key]; ok {
		return k.Of.Kind()
	}
	return reflect.Invalid
}

// isKey reports whether a word is one of a check's keys in a flag.
func isKey(keys map[string]strictyaml.Key, word string) bool {
	if strings.HasPrefix(word, "label.") || strings.HasPrefix(word, "control_loop.") || word == "tag" {
		return true
	}
	for name, k := range keys {
		if word == name || word == k.Was {
			return true
		}
	}
	return false
}
