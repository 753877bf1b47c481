package monitor

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// SourceRecord is a source as people see it.
type SourceRecord struct {
	Event    string
	Source   string
	Labels   map[string]string
	Declared bool
	State    State
	// Running: it has begun a run that has not ended.
	Running bool
	// Last is when it beat last, by the store's wall clock; zero for never. Quiet
	// is how long that is ago.
	Last  time.Time
	Quiet time.Duration
	// Beats that it has sent, ever; Recent are the last of its intervals, the
	// newest first: whether a beat came in each.
	Beats  int64
	Recent []bool
	// Sent and Seq are those of its last beat, by its own account; Code is the exit
	// status of its last run, and Path the way that its last beat took.
	Sent time.Time
	Seq  int64
	Code int
	Path string
	// Left is how long it may still be quiet; negative when it is overdue, and
	// meaningless when it is paused or retired. Due is when somebody looks.
	Left time.Duration
	// Alarm that stands, and since when.
	Alarm  string
	Reason Reason
	Since  time.Time
	// Until is when its pause ends by itself; zero when it does not.
	Until time.Time
	// Note is what a person wrote when it was paused or retired.
	Note string
}

// SourceQuery selects sources in the order of event and name.
type SourceQuery struct {
	Event       string // of this event only, when not ""
	Source      string // of this name only, when not ""
	State       State  // in this state only, when not ""
	Label       string // that have this label, when not "", with this value
	Value       string
	AfterEvent  string // with AfterSource: go on after that one
	AfterSource string
	Limit       int // 1 to MaxPage; 0 is MaxPage
}

// Alarm is one outage.
type Alarm struct {
	// ID is the request id that its ONSET and its ABATED share.
	ID     string
	Event  string
	Source string // "" for that of a group
	Group  string // the group that it was reported with, or that it is of; event, '/', value
	// Members is how many alarms were reported with a group's.
	Members int
	Labels  map[string]string
	Reason  Reason
	// Started is when the outage began: when the limit passed, or the source said
	// that it had failed. Raised is when the monitor found out, and Ended when it was
	// over, zero while it stands. All by the store's wall clock.
	Started, Raised, Ended time.Time
	// End is what ended it: "ABATED", "retire", "forget" or "" while it stands.
	End Turn
	// Acknowledged by whom; "" by nobody.
	Acknowledged string
}

// AlarmQuery selects alarms, the newest first.
type AlarmQuery struct {
	ID       string // this one only, when not ""
	Event    string
	Source   string
	Standing bool      // only those that stand
	Before   time.Time // raised before this, when not zero
	BeforeID string    // among those raised at Before: only ids before this one
	Limit    int       // 1 to MaxPage; 0 is MaxPage
}

// Overview is the monitor at a glance.
type Overview struct {
	Now    time.Time
	Events []EventCount
	Paths  []PathRecord
	Sinks  []string
	// Standing is how many alarms stand, those of groups not counted.
	Standing int64
	Members  []Member
	// Configured is when the last configuration was applied, from where, and Error
	// why the last one that was offered was not.
	Configured time.Time
	Origin     string
	Error      string
}

// EventCount is how many sources of an event are in which state.
type EventCount struct {
	Expected
	Up, Down, Paused, Retired int64
	// Unseen are those among Up and Down that never beat.
	Unseen int64
}

// PathRecord is a path as people see it.
type PathRecord struct {
	Path
	// Seeing: it is taken to work now. Quiet is how long ago it was proven.
	Seeing bool
	Quiet  time.Duration
}

// Member is an instance that takes part.
type Member struct {
	Session  string
	Instance lease.Instance
	// Process, Host and Service are shown in the view hb_common.
	Process int
	Host    string
	Service string
	// Active: it is the one that fetches the configuration.
	Active bool
	// Partitions that it looks after.
	Partitions int
	// Sinks that it delivers to: they are registered, and told of alarms from then
	// on, by whoever raises them.
	Sinks []string
}

// Verb is what a person does with sources, alarms and the rest.
type Verb string

// Verbs.
const (
	Pause       Verb = "pause"       // a source, or an event: not judged until resumed
	Unpause     Verb = "resume"      // the reverse, with a whole limit to show itself
	PutAway     Verb = "retire"      // a source: it becomes due, and is retired then; a beat brings it back
	Acknowledge Verb = "acknowledge" // an alarm
	DropSink    Verb = "drop-sink"   // a sink is told of no more alarms
	DropPath    Verb = "drop-path"   // a path is no more: its sources are judged by the one proven last
)

// Action is something that a person does.
type Action struct {
	Verb  Verb
	Event string // with Pause, Unpause, PutAway; alone for the event itself
	// Source, or the name of a sink or a path.
	Source string
	Alarm  string        // with Acknowledge
	For    time.Duration // with Pause: how long; 0 is until it is resumed
	Who    string
	Note   string
}

// Desk is what people and programs do with the monitor.
type Desk interface {
	// Configure puts a configuration into force, whole or not at all, and tells
	// what changed: what changes nothing keeps Generation and every Rev. Intake and
	// detection go on meanwhile. An event whose limit or run became shorter, whose
	// schedule changed or which is resumed gives its sources a whole limit from now.
	// A pause that a person made stays until the configured one itself changes. A
	// name that comes back before its sources are forgotten keeps them.
	Configure(ctx context.Context, c Configuration) (Configured, error)

	// Refuse records why a configuration that was offered was not put into force.
	Refuse(ctx context.Context, origin, reason string) error

	// Declare makes sources known, at most MaxSources, and tells for each whether it is new.
	// ErrNoEvent, and nothing is done, if one's event is not configured.
	Declare(ctx context.Context, sources []Declaration) ([]bool, error)

	// Sources and Alarms list.
	Sources(ctx context.Context, q SourceQuery) ([]SourceRecord, error)
	Alarms(ctx context.Context, q AlarmQuery) ([]Alarm, error)

	// Act does what a person asked for, and records who and why in the history.
	// ErrNoSource, ErrNoEvent, ErrNoAlarm; lease.ErrInvalid for a verb that is none,
	// or a sink or a path that is not there.
	Act(ctx context.Context, a Action) error

	// Overview tells about all of it. Counts may be as old as the last Sweep.
	Overview(ctx context.Context) (Overview, error)

	// Enlist makes an instance known, or keeps it so, while its session lives, and
	// registers its sinks, whose queues exist from then on. lease.ErrLapsed if the
	// session does not live.
	Enlist(ctx context.Context, m Member) error
}

// Configured is what a configuration changed.
type Configured struct {
	Added, Changed, Removed []string
	Declared                int // sources that are new
	Generation              int64
}
