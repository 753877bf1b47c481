package monitor

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/schedule"
)

// Limits of a configuration.
const (
	MaxName     = 200                  // bytes of the name of a check or source
	MaxInterval = 400 * 24 * time.Hour // of an interval, a grace, or any other duration
	MaxMissed   = 10_000
	MaxTimes    = 100 // of a schedule that may be missed
	MaxLabels   = 32
	MaxChecks   = 10_000 // in a configuration

	DefaultLearned    = 100_000
	MaxLearnedSources = 10_000_000
)

// Check says what is expected of the sources that send heartbeats under its name. Both forms of its JSON
// (checkjson.go) are made from its fields; the package's documentation says where else an option is written down.
type Check struct {
	// Name, as heartbeats carry it: 1 to MaxName bytes. Required.
	Name string `json:"check"`

	// Interval at which a heartbeat is expected, at least 100 ms, and how many may be missed, at least 1, default 3. A
	// source is silent Interval × Missed + Grace after its last heartbeat.
	Interval time.Duration `json:"interval_ms,omitempty"`
	Missed   int           `json:"missed,omitempty"`
	// Schedule, instead of an Interval: when heartbeats are expected, as in crontab(5), with an optional time zone before
	// it ("TZ=Europe/Berlin 30 2 * * *"; default UTC). A source is silent when Missed of these times, and then Grace,
	// have passed since its last heartbeat; Missed is then 1 by default.
	Schedule string        `json:"schedule,omitempty"`
	Grace    time.Duration `json:"grace_ms,omitempty"`
	// MaxRun is how long a run may last after its start before it counts as failed. 0: without limit.
	MaxRun time.Duration `json:"max_run_ms,omitempty"`

	// Fixed: only declared sources are known. Otherwise a source is learned from its first heartbeat.
	Fixed bool `json:"fixed,omitempty"`
	// MaxLearned: another source is learned while the check has fewer than this, 1 to MaxLearnedSources; 0: DefaultLearned.
	// Declared ones are always known.
	MaxLearned int `json:"max_learned,omitempty"`
	// RetireAfter retires a source that has been down for this long. 0: never.
	RetireAfter time.Duration `json:"retire_after_ms,omitempty"`
	// SenderClock judges by the time that the sender put into the heartbeat, moved into the range from the last one (of
	// the first, from when the source became known) to now. For sources whose heartbeats are late but whose clocks are right.
	SenderClock bool `json:"sender_clock,omitempty"`
	// AnyDomain counts VES events of every domain as heartbeats, and not those of the domain heartbeat alone.
	AnyDomain bool `json:"any_domain,omitempty"`

	// Flaps alarms within FlapWindow mean that a source flaps: its alarm then stands until the source has been well for
	// Steady. 0 flaps: off. Defaults of the others: 1 h, and the limit (at least 1 min).
	Flaps      int           `json:"flaps,omitempty"`
	FlapWindow time.Duration `json:"flap_window_ms,omitempty"`
	Steady     time.Duration `json:"steady_ms,omitempty"`

	// GroupBy is a label of the sources: alarms of those with one value of it that are raised within GroupWait (default 10 s) of
	// the first are reported as one, if they are at least GroupMin (default 2); later ones join it while it stands. "" reports each by itself, at once.
	GroupBy   string        `json:"group_by,omitempty"`
	GroupWait time.Duration `json:"group_wait_ms,omitempty"`
	GroupMin  int           `json:"group_min,omitempty"`

	// DependsOn names the check of the sources that those of this one depend on: while a source's parent is down, or may
	// be, the source raises no alarm. The parent has the source's own name or, if set, that in its label DependsLabel.
	DependsOn    string `json:"depends_on,omitempty"`
	DependsLabel string `json:"depends_label,omitempty"`

	// Maintenance is when windows open in which no alarm is raised, written as a Schedule, and MaintenanceFor how long
	// each lasts. Sources have a whole limit from its end.
	Maintenance    string        `json:"maintenance,omitempty"`
	MaintenanceFor time.Duration `json:"maintenance_for_ms,omitempty"`

	// Remind is how often sinks are notified again of an alarm that no one has acknowledged, at least 1 min. 0: never.
	Remind time.Duration `json:"remind_ms,omitempty"`

	// Severity, Tags and Labels are copied into alarms.
	Severity string            `json:"severity,omitempty"`
	Tags     []string          `json:"tags,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`

	// Paused raises no alarms and retires no source. An alarm that stands can still end.
	Paused bool `json:"paused,omitempty"`

	// ControlLoop is copied into control-loop events.
	ControlLoop ControlLoop `json:"control_loop,omitzero"`
}

// ControlLoop are the fields of an ONAP control-loop event that are configured.
type ControlLoop struct {
	Name          string `json:"name,omitempty"`
	PolicyName    string `json:"policy_name,omitempty"`
	PolicyScope   string `json:"policy_scope,omitempty"`
	PolicyVersion string `json:"policy_version,omitempty"`
	// TargetType is "VNF" (default) or "VM".
	TargetType string `json:"target_type,omitempty"`
	Target     string `json:"target,omitempty"`
	Version    string `json:"version,omitempty"`
}

// WithDefaults sets zero fields to their defaults.
func (c Check) WithDefaults() Check {
	if c.Missed == 0 {
		c.Missed = 3
		if c.Schedule != "" {
			c.Missed = 1
		}
	}
	if c.Flaps > 0 {
		c.FlapWindow = cmp.Or(c.FlapWindow, time.Hour)
		c.Steady = cmp.Or(c.Steady, max(c.FixedLimit(), time.Minute))
	}
	if c.GroupBy != "" {
		c.GroupWait = cmp.Or(c.GroupWait, 10*time.Second)
		if c.GroupMin == 0 {
			c.GroupMin = 2
		}
	}
	c.ControlLoop.TargetType = cmp.Or(c.ControlLoop.TargetType, "VNF")
	return c
}

// FixedLimit is the part of a source's limit that is the same at all times: with an interval all of it, with a schedule
// the grace alone ([Check.limitAfter] has the rest). What is too long for a Duration is the longest one.
func (c *Check) FixedLimit() time.Duration {
	if c.Missed > 0 && c.Interval > (math.MaxInt64-max(c.Grace, 0))/time.Duration(c.Missed) {
		return math.MaxInt64
	}
	return c.Interval*time.Duration(c.Missed) + c.Grace
}

// CanLearn reports whether the check learns one more source when it has n.
func (c *Check) CanLearn(n int64) bool {
	return !c.Fixed && n < int64(cmp.Or(c.MaxLearned, DefaultLearned))
}

// IsStricterThan reports whether a source may have an alarm under c that it had not under old: because it may be overdue, or
// because what inhibited its alarm may do so no longer. Such a change must give every source a whole limit from now, or
// it would raise alarms about the past.
func (c *Check) IsStricterThan(old *Check) bool {
	switch {
	case old.Schedule != c.Schedule || c.MaxRun > 0 && (old.MaxRun == 0 || c.MaxRun < old.MaxRun):
		return true
	case old.Maintenance != "" && (c.Maintenance != old.Maintenance || c.MaintenanceFor < old.MaintenanceFor):
		return true
	case old.DependsOn != "" && (c.DependsOn != old.DependsOn || c.DependsLabel != old.DependsLabel ||
		old.Labels[old.DependsLabel] != "" && c.Labels[old.DependsLabel] != old.Labels[old.DependsLabel]):
		return true
	}
	return c.FixedLimit() < old.FixedLimit() || c.Schedule != "" && c.Missed < old.Missed
}

// SlotLength is the time that one entry of [SourceRecord.Recent] stands for: the interval, or the time between
// the next two times of the schedule after now.
func (c *Check) SlotLength(now time.Time) time.Duration {
	if c.Schedule == "" {
		return max(time.Microsecond, c.Interval)
	}
	if s, err := schedule.ParseCrontab(c.Schedule); err == nil {
		if first := s.Next(now); !first.IsZero() {
			if second := s.Next(first); !second.IsZero() {
				return second.Sub(first)
			}
		}
	}
	return time.Hour // a schedule that comes once: any length will do
}

// Validate returns an error that wraps [lease.ErrInvalid] and says which field is
// wrong, and how. Zero fields count as their defaults.
func (c Check) Validate() error {
	if err := lease.ValidateText("check name", c.Name, 1, MaxName); err != nil {
		return err
	}
	c = c.WithDefaults()
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: check %q: %s", lease.ErrInvalid, c.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case c.Schedule == "" && c.Interval == 0:
		return wrong("say what is expected: an interval or a schedule")
	case c.Schedule != "" && c.Interval != 0:
		return wrong("an interval and a schedule exclude each other")
	case c.Schedule == "" && c.Interval < 100*time.Millisecond:
		return wrong("an interval of %v is too short; use at least 100ms", c.Interval)
	case c.Missed < 1 || c.Missed > MaxMissed:
		return wrong("%d missed beats; use 1 to %d", c.Missed, MaxMissed)
	case c.Schedule != "" && c.Missed > MaxTimes:
		return wrong("%d missed times of a schedule; use 1 to %d", c.Missed, MaxTimes)
	case c.MaxLearned < 0 || c.MaxLearned > MaxLearnedSources:
		return wrong("max learned is %d; use 1 to %d", c.MaxLearned, MaxLearnedSources)
	case c.Flaps < 0 || c.GroupMin < 0:
		return wrong("numbers of flaps and of members cannot be negative")
	case c.Remind != 0 && c.Remind < time.Minute:
		return wrong("reminders every %v are too many; use at least 1m", c.Remind)
	case (c.Maintenance == "") != (c.MaintenanceFor == 0):
		return wrong("maintenance says when windows open and maintenance_for how long they last: give both")
	case c.DependsLabel != "" && c.DependsOn == "":
		return wrong("depends_label names a source of the check in depends_on: give both")
	case c.DependsOn == c.Name && c.DependsLabel == "":
		return wrong("its sources depend on themselves; name another check, or a label with depends_label")
	case c.ControlLoop.TargetType != "VNF" && c.ControlLoop.TargetType != "VM":
		return wrong("target type %q; use VNF or VM", c.ControlLoop.TargetType)
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"interval", c.Interval}, {"grace", c.Grace}, {"the limit (interval × missed + grace)", c.FixedLimit()},
		{"max run", c.MaxRun}, {"retire after", c.RetireAfter},
		{"flap window", c.FlapWindow}, {"steady", c.Steady}, {"group wait", c.GroupWait},
		{"maintenance for", c.MaintenanceFor}, {"repeat interval", c.Remind},
	} {
		if f.d < 0 || f.d > MaxInterval {
			return wrong("%s is %v; use 0 to %v", f.name, f.d, MaxInterval)
		}
	}
	for _, text := range []string{c.Schedule, c.Maintenance} {
		if text == "" {
			continue
		}
		if _, err := schedule.ParseCrontab(text); err != nil {
			return wrong("%v", err)
		}
	}
	return c.validateText(wrong)
}

func (c *Check) validateText(wrong func(string, ...any) error) error {
	if err := ValidateLabels(c.Labels); err != nil {
		return wrong("%v", err)
	}
	if len(c.Tags) > MaxLabels {
		return wrong("%d tags; at most %d", len(c.Tags), MaxLabels)
	}
	loop := c.ControlLoop
	texts := append(slices.Clone(c.Tags), c.Severity, c.GroupBy, c.DependsOn, c.DependsLabel, loop.Name, loop.PolicyName, loop.PolicyScope, loop.PolicyVersion, loop.Target, loop.Version)
	for _, t := range texts {
		if err := lease.ValidateText("text", t, 0, MaxName); err != nil {
			return wrong("%v", err)
		}
	}
	return nil
}

// ValidateLabels refuses labels that are too many, too long, or whose names cannot appear in a query.
func ValidateLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return fmt.Errorf("%w: %d labels; at most %d", lease.ErrInvalid, len(labels), MaxLabels)
	}
	for name, value := range labels {
		if err := lease.ValidateText("label", name, 1, MaxName); err != nil {
			return err
		}
		if strings.ContainsAny(name, "=,") {
			return fmt.Errorf("%w: label %q contains '=' or ','", lease.ErrInvalid, name)
		}
		if err := lease.ValidateText("label "+name, value, 0, MaxName); err != nil {
			return err
		}
	}
	return nil
}

// Configuration is all checks at once, as a file or a service gives them.
type Configuration struct {
	Checks []Check
	// Declared sources are known before their first heartbeat.
	Declared []Declaration
	// Keep leaves checks that are not in it as they are. Otherwise they are removed: their standing alarms end, and
	// their sources are forgotten.
	Keep bool
	// Origin is where it came from, for operators.
	Origin string
}

// Validate refuses a configuration as a whole; see [Check.Validate]. One without
// any check is refused unless it keeps the checks that are there.
func (c Configuration) Validate() error {
	if len(c.Checks) == 0 && !c.Keep {
		return fmt.Errorf("%w: the configuration has no checks and would remove all; the last one stays in force", lease.ErrInvalid)
	}
	if len(c.Checks) > MaxChecks {
		return fmt.Errorf("%w: %d checks; at most %d", lease.ErrInvalid, len(c.Checks), MaxChecks)
	}
	seen := map[string]bool{}
	for _, check := range c.Checks {
		if err := check.Validate(); err != nil {
			return err
		}
		if seen[check.Name] {
			return fmt.Errorf("%w: check %q is listed twice", lease.ErrInvalid, check.Name)
		}
		seen[check.Name] = true
	}
	for _, d := range c.Declared {
		if err := d.Validate(); err != nil {
			return err
		}
		if !seen[d.Check] && !c.Keep {
			return fmt.Errorf("%w: source %q is declared for check %q, which is not configured", lease.ErrInvalid, d.Source, d.Check)
		}
	}
	return nil
}

// Declaration makes a source known before its first heartbeat: it is overdue one whole limit after it was declared.
// A source that is known already gets these labels.
type Declaration struct {
	Check  string
	Source string
	Labels map[string]string
}

// Validate returns an error that wraps [lease.ErrInvalid].
func (d Declaration) Validate() error {
	if err := lease.ValidateText("check name", d.Check, 1, MaxName); err != nil {
		return err
	}
	if err := lease.ValidateText("source", d.Source, 1, MaxName); err != nil {
		return err
	}
	return ValidateLabels(d.Labels)
}
