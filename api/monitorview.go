package api

import (
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// forever is longer than anything can be expected: a schedule with no more times.
const forever = 100 * 365 * 24 * time.Hour

// SourceView is a source, as every surface shows it in JSON.
type SourceView struct {
	Event    string            `json:"event"`
	Source   string            `json:"source"`
	Labels   map[string]string `json:"labels,omitempty"`
	Declared bool              `json:"declared"`
	State    monitor.State     `json:"state"`
	Running  bool              `json:"running,omitempty"`
	// Last is when it beat last, QuietMS how long that is ago; missing for one that never did.
	Last    *time.Time `json:"last,omitempty"`
	QuietMS *int64     `json:"quiet_ms,omitempty"`
	Beats   int64      `json:"beats"`
	// Recent has a 1 for each of its last intervals in which a beat came, and
	// otherwise a 0; the newest first.
	Recent string     `json:"recent,omitempty"`
	Sent   *time.Time `json:"sent,omitempty"`
	Seq    int64      `json:"seq,omitempty"`
	Code   int        `json:"code,omitempty"`
	Path   string     `json:"path,omitempty"`
	// LeftMS is how long it may still be quiet, negative when that is over; missing
	// when it is not judged, or nothing is expected of it any more.
	LeftMS *int64         `json:"left_ms,omitempty"`
	Alarm  string         `json:"alarm,omitempty"`
	Reason monitor.Reason `json:"reason,omitempty"`
	Since  *time.Time     `json:"since,omitempty"`
	Until  *time.Time     `json:"until,omitempty"`
	Note   string         `json:"note,omitempty"`
}

// ViewSource shows a source.
func ViewSource(s monitor.SourceRecord) SourceView {
	out := SourceView{
		Event: s.Event, Source: s.Source, Labels: s.Labels, Declared: s.Declared, State: s.State, Running: s.Running,
		Last: orNone(s.Last), Beats: s.Beats, Sent: orNone(s.Sent), Seq: s.Seq, Code: s.Code, Path: s.Path,
		Alarm: s.Alarm, Reason: s.Reason, Since: orNone(s.Since), Until: orNone(s.Until), Note: s.Note,
	}
	if out.Last != nil {
		out.QuietMS = new(s.Quiet.Milliseconds())
	}
	if (s.State == monitor.Up || s.State == monitor.Down) && s.Left < forever {
		out.LeftMS = new(s.Left.Milliseconds())
	}
	recent := make([]byte, len(s.Recent))
	for i, beat := range s.Recent {
		recent[i] = '0'
		if beat {
			recent[i] = '1'
		}
	}
	out.Recent = string(recent)
	return out
}

// AlarmView is an outage, as every surface shows it in JSON.
type AlarmView struct {
	ID     string `json:"id"`
	Event  string `json:"event"`
	Source string `json:"source,omitempty"`
	// Group that it was reported with; without a source it is that group's own,
	// and Members is how many were reported with it.
	Group   string            `json:"group,omitempty"`
	Members int               `json:"members,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Reason  monitor.Reason    `json:"reason"`
	Started time.Time         `json:"started"`
	Raised  time.Time         `json:"raised"`
	Ended   *time.Time        `json:"ended,omitempty"`
	End     monitor.Turn      `json:"end,omitempty"`
	// Acknowledged by whom.
	Acknowledged string `json:"acknowledged,omitempty"`
}

// ViewAlarm shows an alarm.
func ViewAlarm(a monitor.Alarm) AlarmView {
	return AlarmView{
		ID: a.ID, Event: a.Event, Source: a.Source, Group: a.Group, Members: a.Members, Labels: a.Labels, Reason: a.Reason,
		Started: a.Started.UTC(), Raised: a.Raised.UTC(), Ended: orNone(a.Ended), End: a.End, Acknowledged: a.Acknowledged,
	}
}

// EventView is an event name, as every surface shows it in JSON and as it is configured.
type EventView struct {
	Event         string              `json:"event"`
	IntervalMS    int64               `json:"interval_ms,omitempty"`
	Missed        int                 `json:"missed,omitempty"`
	Schedule      string              `json:"schedule,omitempty"`
	GraceMS       int64               `json:"grace_ms,omitempty"`
	MaxRunMS      int64               `json:"max_run_ms,omitempty"`
	Fixed         bool                `json:"fixed,omitempty"`
	RetireAfterMS int64               `json:"retire_after_ms,omitempty"`
	SenderClock   bool                `json:"sender_clock,omitempty"`
	Flaps         int                 `json:"flaps,omitempty"`
	FlapWindowMS  int64               `json:"flap_window_ms,omitempty"`
	SteadyMS      int64               `json:"steady_ms,omitempty"`
	GroupBy       string              `json:"group_by,omitempty"`
	GroupWaitMS   int64               `json:"group_wait_ms,omitempty"`
	GroupMin      int                 `json:"group_min,omitempty"`
	Severity      string              `json:"severity,omitempty"`
	Tags          []string            `json:"tags,omitempty"`
	Labels        map[string]string   `json:"labels,omitempty"`
	Paused        bool                `json:"paused,omitempty"`
	ControlLoop   monitor.ControlLoop `json:"control_loop,omitzero"`
}

// ViewEvent shows an event name.
func ViewEvent(e monitor.Event) EventView {
	return EventView{
		Event: e.Name, IntervalMS: e.Interval.Milliseconds(), Missed: e.Missed, Schedule: e.Schedule, GraceMS: e.Grace.Milliseconds(),
		MaxRunMS: e.MaxRun.Milliseconds(), Fixed: e.Fixed, RetireAfterMS: e.RetireAfter.Milliseconds(), SenderClock: e.SenderClock,
		Flaps: e.Flaps, FlapWindowMS: e.FlapWindow.Milliseconds(), SteadyMS: e.Steady.Milliseconds(),
		GroupBy: e.GroupBy, GroupWaitMS: e.GroupWait.Milliseconds(), GroupMin: e.GroupMin,
		Severity: e.Severity, Tags: e.Tags, Labels: e.Labels, Paused: e.Paused, ControlLoop: e.ControlLoop,
	}
}

// expected is what a view says is expected. What is too long for a duration is
// as long as one can be, which nothing allows.
func (v EventView) expected() monitor.Event {
	return monitor.Event{
		Name: v.Event, Interval: millis(v.IntervalMS), Missed: v.Missed, Schedule: v.Schedule, Grace: millis(v.GraceMS),
		MaxRun: millis(v.MaxRunMS), Fixed: v.Fixed, RetireAfter: millis(v.RetireAfterMS), SenderClock: v.SenderClock,
		Flaps: v.Flaps, FlapWindow: millis(v.FlapWindowMS), Steady: millis(v.SteadyMS),
		GroupBy: v.GroupBy, GroupWait: millis(v.GroupWaitMS), GroupMin: v.GroupMin,
		Severity: v.Severity, Tags: v.Tags, Labels: v.Labels, Paused: v.Paused, ControlLoop: v.ControlLoop,
	}
}

func millis(ms int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(max(ms, -most), most)) * time.Millisecond
}

// EventCountView is an event name with the states of its sources.
type EventCountView struct {
	EventView
	Up   int64 `json:"up"`
	Down int64 `json:"down"`
	// PausedSources do not count those of an event that is paused itself.
	PausedSources int64 `json:"paused_sources"`
	Retired       int64 `json:"retired"`
	Unseen        int64 `json:"unseen"`
	// Removed: it is not configured any more, and its sources are being forgotten.
	Removed bool `json:"removed,omitempty"`
}

// PathView is a way that beats take.
type PathView struct {
	Path string `json:"path"`
	// Seeing: it is taken to work now; QuietMS is how long ago it was proven to,
	// missing if it never was.
	Seeing  bool   `json:"seeing"`
	QuietMS *int64 `json:"quiet_ms,omitempty"`
	// BlindMS is for how long it was blind, ever.
	BlindMS int64 `json:"blind_ms"`
}

// MonitorMemberView is an instance that takes part.
type MonitorMemberView struct {
	Instance   lease.Instance `json:"instance"`
	Partitions int            `json:"partitions"`
	Active     bool           `json:"active,omitempty"`
	Process    int            `json:"process,omitempty"`
	Host       string         `json:"host,omitempty"`
	Service    string         `json:"service,omitempty"`
	Sinks      []string       `json:"sinks"`
}

// MonitorView is the monitor at a glance, as every surface shows it in JSON.
type MonitorView struct {
	Events   []EventCountView    `json:"events"`
	Paths    []PathView          `json:"paths"`
	Sinks    []string            `json:"sinks"`
	Standing int64               `json:"standing"`
	Members  []MonitorMemberView `json:"members"`
	// Configured is when a configuration was last put into force, Origin where it
	// came from, and ConfigError why the last one that was offered was not.
	Configured  *time.Time `json:"configured,omitempty"`
	Origin      string     `json:"origin,omitempty"`
	ConfigError string     `json:"config_error,omitempty"`
}

// ViewMonitor shows the monitor; its lists are never null.
func ViewMonitor(o monitor.Overview) MonitorView {
	out := MonitorView{
		Events: make([]EventCountView, 0, len(o.Events)), Paths: make([]PathView, 0, len(o.Paths)), Sinks: append([]string{}, o.Sinks...),
		Standing: o.Standing, Members: make([]MonitorMemberView, 0, len(o.Members)),
		Configured: orNone(o.Configured), Origin: o.Origin, ConfigError: o.Error,
	}
	for _, e := range o.Events {
		out.Events = append(out.Events, EventCountView{
			EventView: ViewEvent(e.Event), Up: e.Up, Down: e.Down, PausedSources: e.Paused, Retired: e.Retired, Unseen: e.Unseen, Removed: e.Removed,
		})
	}
	for _, p := range o.Paths {
		v := PathView{Path: p.Name, Seeing: p.Seeing, BlindMS: p.Blind.Milliseconds()}
		if p.Proof != 0 {
			v.QuietMS = new(p.Quiet.Milliseconds())
		}
		out.Paths = append(out.Paths, v)
	}
	for _, m := range o.Members {
		out.Members = append(out.Members, MonitorMemberView{
			Instance: m.Instance, Partitions: m.Partitions, Active: m.Active, Process: m.Process, Host: m.Host, Service: m.Service,
			Sinks: append([]string{}, m.Sinks...),
		})
	}
	return out
}
