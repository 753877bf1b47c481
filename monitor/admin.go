package monitor

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// SourceRecord is a source as operators see it.
type SourceRecord struct {
	Check    string
	Source   string
	Labels   map[string]string
	Declared bool
	State    State
	// CheckPaused: its check is paused, so that it is not judged either.
	CheckPaused bool
	// Running: it started a run that has not ended.
	Running bool
	// Last is the time of its last heartbeat, by the store's wall clock; zero for never. Quiet is how long ago
	// that was.
	Last  time.Time
	Quiet time.Duration
	// Beats is how many heartbeats it has sent so far. Recent says of the last slots of time, each as long as an interval
	// ([Check.SlotLength]), the newest first, whether a heartbeat came in each. It is to be shown, not judged by: slots are cut
	// by the clock and not by the heartbeats, so that a punctual source may have two in one slot and none in the next.
	Beats  int64
	Recent []bool
	// Sent and Seq are what its last heartbeat said; Code is the exit status of its last run, and Path the intake
	// path of its last heartbeat.
	Sent time.Time
	Seq  int64
	Code int
	Path string
	// Left is how long it may still be quiet; negative if it is overdue, meaningless if it is paused or retired.
	Left time.Duration
	// Alarm that stands, and since when.
	Alarm  string
	Reason Reason
	Since  time.Time
	// Until is when its pause ends by itself; zero if it does not.
	Until time.Time
	// Note is what an operator wrote when it was paused or retired, as long as it is.
	Note string
}

// Record is the part of a [SourceRecord] that a source's facts tell.
func (c *Candidate) Record(check Check) SourceRecord {
	out := SourceRecord{
		Check: check.Name, Source: c.Source, Labels: c.Labels, State: c.State, CheckPaused: check.Paused, Running: c.RunStarted != 0,
		Last: c.wallAt(c.LastBeat), Until: c.wallAt(c.PausedUntil), Left: check.left(c.Facts),
		Alarm: c.Alarm, Reason: c.Reason, Since: c.Started,
	}
	if c.LastBeat != 0 {
		out.Quiet = c.Now.Sub(c.LastBeat)
	}
	return out
}

// wallAt is a time by the wall clock as it goes now; zero for none.
func (f *Facts) wallAt(t StoreTime) time.Time {
	if t == 0 || t == Never {
		return time.Time{}
	}
	return f.Wall.Add(-f.Now.Sub(t))
}

// left is how long a source may still be quiet, if all that is not its own doing is as it should be.
func (c Check) left(f Facts) time.Duration {
	f.State, f.Alarm, f.RetireRequested, f.Removed = Up, "", false, false
	f.Path.LastSeen, f.Path.TrustFor = f.Now, 0
	c.Paused = false
	switch v := c.Evaluate(f); {
	case v.Transition != NoTransition:
		return v.At.Sub(f.Now)
	case v.Due == Never:
		return math.MaxInt64
	default:
		return v.Due.Sub(f.Now)
	}
}

// RecentSlots are the last slots of time, the newest first, of bits of which the lowest is the slot so many slots ago.
func RecentSlots(bits uint64, ago int64) []bool {
	bits <<= min(uint64(max(0, ago)), 64)
	out := make([]bool, 64)
	for i := range out {
		out[i] = bits>>i&1 == 1
	}
	return out
}

// PageSize is how many rows a query with this Limit gets.
func PageSize(limit int) int {
	if limit <= 0 || limit > MaxPage {
		return MaxPage
	}
	return limit
}

// SourceQuery selects sources, ordered by check and name.
type SourceQuery struct {
	Check       string // of this check only, if not ""
	Source      string // of this name only, when not ""
	State       State  // in this state only, when not ""
	Label       string // that have this label, when not "", with this value
	Value       string
	AfterCheck  string // with AfterSource: continue after that one
	AfterSource string
	Limit       int // 1 to MaxPage; 0 is MaxPage
}

// Alarm is one outage.
type Alarm struct {
	// ID is the request ID that its ONSET and ABATED share.
	ID     string
	Check  string
	Source string // "" for that of a group
	Group  string // the group that it was reported with, or that it stands for: check, '/', value
	// Members is how many alarms were reported with a group's.
	Members int
	Labels  map[string]string
	Reason  Reason
	// Started is when the outage began: when the limit passed or the source reported a failure. Raised is when the
	// monitor found out, and Ended when it ended, zero while it stands. All by the store's wall clock.
	Started, Raised, Ended time.Time
	// End is what ended it: "ABATED" (a heartbeat, or a changed configuration, which [AlarmMessage].End tells apart), "retire",
	// "forget" or "" while it stands.
	End Transition
	// Acknowledged by whom; "" if it is not.
	Acknowledged string
	// Reminders is how many were sent.
	Reminders int
}

// AlarmQuery selects alarms, the newest first.
type AlarmQuery struct {
	ID       string // this one only, when not ""
	Check    string
	Source   string
	Standing bool // only those that stand
	// NotifiedBefore, when not zero: only those to remind of, of which sinks were last notified before this. Those are not
	// acknowledged, and wait for no group and were reported with none.
	NotifiedBefore time.Time
	Before         time.Time // raised before this, when not zero
	BeforeID       string    // among those raised at Before: only ids before this one
	Limit          int       // 1 to MaxPage; 0 is MaxPage
}

// Overview is the monitor at a glance.
type Overview struct {
	Now    time.Time
	Checks []CheckCount
	Paths  []PathView
	Sinks  []string
	// Standing is how many alarms stand, without those of groups.
	Standing int64
	Members  []Member
	// Configured is when the last configuration was applied, and Origin where it came from. Error is why the last
	// one that was offered was refused.
	Configured time.Time
	Origin     string
	Error      string
}

// CheckCount is how many sources of a check are in which state.
type CheckCount struct {
	StoredCheck
	Up, Down, Paused, Retired int64
	// NeverSeen are those among Up and Down that never beat.
	NeverSeen int64
}

// PathView is an intake path as operators see it.
type PathView struct {
	PathStatus
	// Working: it counts as working now. Quiet is how long ago it was last seen.
	Working bool
	Quiet   time.Duration
}

// View is the path as operators see it at a time.
func (p PathStatus) View(now StoreTime) PathView {
	quiet := now.Sub(p.LastSeen)
	return PathView{PathStatus: p, Working: quiet <= max(p.TrustFor, p.MaxGap), Quiet: quiet}
}

// Member is an instance that takes part.
type Member struct {
	Session  string
	Instance lease.Instance
	// Process, Host and Service are shown in the view hb_common.
	Process int
	Host    string
	Service string
	// Active: it fetches the configuration.
	Active bool
	// Partitions that it looks after.
	Partitions int
	// Sinks that it delivers to. They are registered, and from then on receive the alarms of all instances.
	Sinks []string
}

// ActionType is what an operator does with sources, alarms, sinks and paths.
type ActionType string

// Types of actions.
const (
	ActionPause  ActionType = "pause"  // a source or a check: not judged until resumed
	ActionResume ActionType = "resume" // the reverse, with a whole limit to report
	ActionRetire ActionType = "retire" // a source: it is retired at the next evaluation; a heartbeat brings it back
	// ActionRemove deletes a source of which no alarm stands; one that still sends heartbeats is learned again. Without a
	// source it removes the check: its alarms end and its sources are forgotten, as if a configuration lacked it.
	ActionRemove      ActionType = "remove"
	ActionAcknowledge ActionType = "acknowledge" // an alarm
	ActionRemoveSink  ActionType = "drop-sink"   // a sink receives no more alarms
	ActionRemovePath  ActionType = "drop-path"   // a path is deleted: its sources are judged by the one seen last
)

// Action is something that an operator does.
type Action struct {
	Type  ActionType
	Check string // to pause, resume, retire or remove; without a Source: the check itself
	// Source, or the name of a sink or path.
	Source string
	Alarm  string        // to acknowledge
	For    time.Duration // to pause: how long; 0 is until it is resumed
	Who    string        // "" if no name is known
	Note   string
}

// Validate returns an error that wraps [lease.ErrInvalid] if no store could do it.
func (a Action) Validate() error {
	switch a.Type {
	case ActionPause, ActionResume, ActionRetire, ActionRemove, ActionAcknowledge, ActionRemoveSink, ActionRemovePath:
	default:
		return fmt.Errorf("%w: %q is not a known action", lease.ErrInvalid, a.Type)
	}
	switch {
	case a.For < 0 || a.For > MaxInterval:
		return fmt.Errorf("%w: a pause of %v; use 0 to %v", lease.ErrInvalid, a.For, MaxInterval)
	case a.Type == ActionPause && a.Source == "" && a.For != 0:
		return fmt.Errorf("%w: a check is paused until it is resumed; only a source can be paused for a while", lease.ErrInvalid)
	case a.Type == ActionRetire && a.Source == "":
		return fmt.Errorf("%w: name the source of %q to retire", lease.ErrInvalid, a.Check)
	}
	return nil
}

// Actor is who acts, as the history and [Alarm.Acknowledged] have it. Never "", which would mean that nobody did.
func (a Action) Actor() string { return cmp.Or(a.Who, "somebody") }

// HistoryReason is what the history says of it, before it is cut.
func (a Action) HistoryReason() string {
	reason := string(a.Type) + " by " + a.Actor()
	if a.Note != "" {
		reason += ": " + a.Note
	}
	return reason
}

// Admin configures, shows and operates the monitor.
type Admin interface {
	// Configure applies a configuration, whole or not at all, and returns what changed. One that changes nothing keeps
	// Generation and every Rev. Intake and detection continue meanwhile. A check that became stricter (see
	// [Check.IsStricterThan]) or is resumed gives its sources a whole limit from now. An operator's pause stays until the
	// configured one changes. A check that comes back before its sources are forgotten keeps them.
	Configure(ctx context.Context, c Configuration) (ConfigurationChanges, error)

	// RejectConfiguration records why a configuration was refused.
	RejectConfiguration(ctx context.Context, origin, reason string) error

	// Declare makes sources known, at most MaxSources, and returns for each whether it is new. ErrNoCheck, with
	// nothing done, if a check is not configured.
	Declare(ctx context.Context, sources []Declaration) ([]bool, error)

	// Sources and Alarms list.
	Sources(ctx context.Context, q SourceQuery) ([]SourceRecord, error)
	Alarms(ctx context.Context, q AlarmQuery) ([]Alarm, error)

	// ApplyAction does what an operator asked for, and records who and why in the history. ErrNoSource, ErrNoCheck,
	// ErrNoAlarm, ErrAlarmOpen; lease.ErrInvalid for an unknown type, sink or path.
	ApplyAction(ctx context.Context, a Action) error

	// Overview shows all of it at a glance. Counts may be as old as the last Sweep.
	Overview(ctx context.Context) (Overview, error)

	// RegisterMember makes an instance known while its session lives, and registers its sinks, whose queues exist from
	// then on. Call it again to stay known. lease.ErrLapsed if the session has lapsed.
	RegisterMember(ctx context.Context, m Member) error
}

// ConfigurationChanges is what a configuration changed.
type ConfigurationChanges struct {
	Added, Changed, Removed []string
	Declared                int // sources that are new
	Generation              int64
}

// AlarmOpenError is what [Admin.ApplyAction] says when a source with an open alarm is to be removed.
func AlarmOpenError(check, source string) error {
	return fmt.Errorf("%w for source %q of check %q: retire the source first, which ends it", ErrAlarmOpen, source, check)
}
