package monitor

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// Limits of what people configure.
const (
	MaxName     = 200                  // bytes of an event's or a source's name
	MaxInterval = 400 * 24 * time.Hour // of an interval, a grace, or any other duration
	MaxMissed   = 10_000
	MaxTimes    = 100 // of a schedule that may be missed
	MaxLabels   = 32
	MaxEvents   = 10_000 // event names of a configuration
)

// Event says what is expected of the sources that beat under its name.
type Event struct {
	// Name, which a beat carries, exactly: 1 to MaxName bytes. Required.
	Name string `json:"name"`

	// Interval at which a beat is expected, and how many may be missed: a source
	// is silent Interval × Missed + Grace after its last beat. At least 100 ms;
	// Missed at least 1, default 3.
	Interval time.Duration `json:"interval,omitempty"`
	Missed   int           `json:"missed,omitempty"`
	// Schedule, instead of an Interval: when beats are expected, as in crontab(5),
	// with an optional time zone before it ("TZ=Europe/Berlin 30 2 * * *"; UTC
	// otherwise). A source is silent when Missed of these times, and Grace,
	// have passed since its last beat; Missed is then 1 by default.
	Schedule string        `json:"schedule,omitempty"`
	Grace    time.Duration `json:"grace,omitempty"`
	// MaxRun is how long a run that was started may last before it counts as
	// failed. 0: any time.
	MaxRun time.Duration `json:"max_run,omitempty"`

	// Fixed: only declared sources are known. Otherwise a source is learned from
	// its first beat.
	Fixed bool `json:"fixed,omitempty"`
	// RetireAfter retires a source that has been down for so long. 0: never.
	RetireAfter time.Duration `json:"retire_after,omitempty"`
	// SenderClock judges by the time that the sender put into the beat, which may
	// lie neither before the last one nor in the future. For sources whose beats
	// are late but whose clocks are right.
	SenderClock bool `json:"sender_clock,omitempty"`

	// Flaps in FlapWindow make a source one that flaps: its alarm then stands until it
	// has been well for Steady. 0 flaps: never. Defaults of the others: 1 h, and the limit.
	Flaps      int           `json:"flaps,omitempty"`
	FlapWindow time.Duration `json:"flap_window,omitempty"`
	Steady     time.Duration `json:"steady,omitempty"`

	// GroupBy is a label of the sources: those of one value that fall silent
	// within GroupWait (default 10 s) of each other are one alarm, if they are at
	// least GroupMin (default 2). "" reports each by itself, at once.
	GroupBy   string        `json:"group_by,omitempty"`
	GroupWait time.Duration `json:"group_wait,omitempty"`
	GroupMin  int           `json:"group_min,omitempty"`

	// Severity, Tags and Labels are for those who are told.
	Severity string            `json:"severity,omitempty"`
	Tags     []string          `json:"tags,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Paused   bool              `json:"paused,omitempty"`

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

// WithDefaults fills what is zero.
func (e Event) WithDefaults() Event {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	if e.Missed == 0 {
		e.Missed = 3
		if e.Schedule != "" {
			e.Missed = 1
		}
	}
	if e.Flaps > 0 {
		set(&e.FlapWindow, time.Hour)
		set(&e.Steady, max(e.limit(), time.Minute))
	}
	if e.GroupBy != "" {
		set(&e.GroupWait, 10*time.Second)
		if e.GroupMin == 0 {
			e.GroupMin = 2
		}
	}
	if e.ControlLoop.TargetType == "" {
		e.ControlLoop.TargetType = "VNF"
	}
	return e
}

// limit is how long a source with an interval may be quiet. What is too long for a
// Duration is the longest one.
func (e *Event) limit() time.Duration {
	if e.Missed > 0 && e.Interval > (math.MaxInt64-max(e.Grace, 0))/time.Duration(e.Missed) {
		return math.MaxInt64
	}
	return e.Interval*time.Duration(e.Missed) + e.Grace
}

// Validate returns an error that wraps [lease.ErrInvalid] and says which field is
// wrong, and how. Zero fields count as their defaults.
func (e Event) Validate() error {
	if err := lease.ValidateText("event name", e.Name, 1, MaxName); err != nil {
		return err
	}
	e = e.WithDefaults()
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: event %q: %s", lease.ErrInvalid, e.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case e.Schedule == "" && e.Interval == 0:
		return wrong("say what is expected: an interval or a schedule")
	case e.Schedule != "" && e.Interval != 0:
		return wrong("an interval and a schedule exclude each other")
	case e.Schedule == "" && e.Interval < 100*time.Millisecond:
		return wrong("an interval of %v is too short; use at least 100ms", e.Interval)
	case e.Missed < 1 || e.Missed > MaxMissed:
		return wrong("%d missed beats; use 1 to %d", e.Missed, MaxMissed)
	case e.Schedule != "" && e.Missed > MaxTimes:
		return wrong("%d missed times of a schedule; use 1 to %d", e.Missed, MaxTimes)
	case e.Flaps < 0 || e.GroupMin < 0:
		return wrong("numbers of flaps and of members cannot be negative")
	case e.ControlLoop.TargetType != "VNF" && e.ControlLoop.TargetType != "VM":
		return wrong("target type %q; use VNF or VM", e.ControlLoop.TargetType)
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"interval", e.Interval}, {"grace", e.Grace}, {"the limit (interval × missed + grace)", e.limit()},
		{"max run", e.MaxRun}, {"retire after", e.RetireAfter},
		{"flap window", e.FlapWindow}, {"steady", e.Steady}, {"group wait", e.GroupWait},
	} {
		if f.d < 0 || f.d > MaxInterval {
			return wrong("%s is %v; use 0 to %v", f.name, f.d, MaxInterval)
		}
	}
	if e.Schedule != "" {
		if _, err := ParseSchedule(e.Schedule); err != nil {
			return wrong("%v", err)
		}
	}
	return e.validateText(wrong)
}

func (e *Event) validateText(wrong func(string, ...any) error) error {
	if err := ValidateLabels(e.Labels); err != nil {
		return wrong("%v", err)
	}
	if len(e.Tags) > MaxLabels {
		return wrong("%d tags; at most %d", len(e.Tags), MaxLabels)
	}
	c := e.ControlLoop
	texts := append(slices.Clone(e.Tags), e.Severity, e.GroupBy, c.Name, c.PolicyName, c.PolicyScope, c.PolicyVersion, c.Target, c.Version)
	for _, t := range texts {
		if err := lease.ValidateText("text", t, 0, MaxName); err != nil {
			return wrong("%v", err)
		}
	}
	return nil
}

// ValidateLabels refuses labels that are too many, too long, or named so that
// nobody could ask for them.
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

// Configuration is all event names at once, as a file or a service gives them.
type Configuration struct {
	Events []Event `json:"events"`
	// Declared sources are known before their first beat.
	Declared []Declaration `json:"declared,omitempty"`
	// Keep leaves event names that are not in it as they are. Otherwise they are
	// removed: their standing alarms end, and their sources are forgotten.
	Keep bool `json:"keep,omitempty"`
	// Origin is where it came from, for people.
	Origin string `json:"origin,omitempty"`
}

// Validate refuses a configuration as a whole; see [Event.Validate]. One without
// any event is refused unless it keeps what is there.
func (c Configuration) Validate() error {
	if len(c.Events) == 0 && !c.Keep {
		return fmt.Errorf("%w: the configuration has no event names, and would remove all; the last one stays in force", lease.ErrInvalid)
	}
	if len(c.Events) > MaxEvents {
		return fmt.Errorf("%w: %d event names; at most %d", lease.ErrInvalid, len(c.Events), MaxEvents)
	}
	seen := map[string]bool{}
	for _, e := range c.Events {
		if err := e.Validate(); err != nil {
			return err
		}
		if seen[e.Name] {
			return fmt.Errorf("%w: event %q stands twice", lease.ErrInvalid, e.Name)
		}
		seen[e.Name] = true
	}
	for _, d := range c.Declared {
		if err := d.Validate(); err != nil {
			return err
		}
		if !seen[d.Event] && !c.Keep {
			return fmt.Errorf("%w: source %q is declared for event %q, which is not configured", lease.ErrInvalid, d.Source, d.Event)
		}
	}
	return nil
}

// Declaration makes a source known before its first beat: it is overdue one whole
// limit after it was declared. A source that is known gets these labels.
type Declaration struct {
	Event  string            `json:"event"`
	Source string            `json:"source"`
	Labels map[string]string `json:"labels,omitempty"`
}

// Validate returns an error that wraps [lease.ErrInvalid].
func (d Declaration) Validate() error {
	if err := lease.ValidateText("event name", d.Event, 1, MaxName); err != nil {
		return err
	}
	if err := lease.ValidateText("source", d.Source, 1, MaxName); err != nil {
		return err
	}
	return ValidateLabels(d.Labels)
}
