package monitor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

var (
	// ErrNoSource: no such source, or it was forgotten.
	ErrNoSource = errors.New("monitor: no such source")
	// ErrNoCheck: no such check is configured.
	ErrNoCheck = errors.New("monitor: no such check")
	// ErrAlarmOpen: an alarm of the source stands.
	ErrAlarmOpen = errors.New("monitor: an alarm is open")
	// ErrNoAlarm: no such alarm, or it was pruned.
	ErrNoAlarm = errors.New("monitor: no such alarm")
)

// Limits of one call. Callers split what is more.
const (
	MaxBeats   = 10_000 // of one RecordHeartbeats
	MaxSources = 1000   // of one ResolveSources, DueSources, Sweep, ApplyChanges, Parents or Declare, and members of one ReportGroup
	MaxPage    = 1000   // rows of a list
)

// Store is all that a store keeps for the monitor.
type Store interface {
	HeartbeatStore
	Detection
	Admin
}

// HeartbeatStore stores heartbeats. Methods of this port and of the others are atomic and safe for concurrent use.
// They return [lease.ErrUnavailable] if nothing can have been done, [lease.ErrUnknown] if it may have been, and
// [lease.ErrInvalid], with nothing done, if a call brings more than it may, or what [Validated] refuses.
// Any text is only data to a store.
type HeartbeatStore interface {
	// ResolveSources finds sources, and learns those whose check is configured and not fixed. At most MaxSources, in
	// any order, possibly repeated. A text that is not a valid name is unknown, not an error.
	ResolveSources(ctx context.Context, refs []SourceRef) ([]ResolvedSource, error)

	// RecordHeartbeats records probes and heartbeats in one statement. A heartbeat changes nothing but its own row
	// (the first one of a source also how many were heard), unless an alarm of its source stands, the source is [Retired] or in a run, or the signal is not
	// [SignalSuccess]: then the source becomes due at once. A start changes neither the last heartbeat nor what is
	// known of it. Probes follow [PathStatus.RecordProbe] and [SkippedTime].
	RecordHeartbeats(ctx context.Context, d HeartbeatBatch) (BatchResult, error)

	// KeepReport keeps a report of a source, in place of the last one; its At is the store's. ErrNoSource.
	KeepReport(ctx context.Context, of SourceRef, r Report) error

	// Report returns the report of a source that is kept; the zero one if none is. ErrNoSource.
	Report(ctx context.Context, of SourceRef) (Report, error)
}

// Detection finds the sources to evaluate, and changes them.
type Detection interface {
	// Settings reads what all instances share.
	Settings(ctx context.Context) (Settings, error)

	// DueSources returns up to limit sources of the partitions that are due, the longest due first. Its cost grows
	// with their number, not with that of all sources.
	DueSources(ctx context.Context, partitions []int, limit int) (Scan, error)

	// ApplyChanges makes each change for which what was judged still holds, and returns which were made; the other
	// sources stay due. A change that only moves Due leaves Rev alone. Onset makes the source [Down] and starts an
	// alarm; Abated ends it; Retire and Forget end it if one stands. Notifications for unregistered sinks are left
	// out. Each alarm that starts or ends is an event of the history: part "monitor", subject check + "/" + source,
	// reason the Reason or the Transition, duration how long the outage had lasted then. So it is with the alarms of groups,
	// whose subject is the group.
	ApplyChanges(ctx context.Context, changes []SourceChange) ([]bool, error)

	// Sweep does up to limit of the background work: it makes sources due whose check was changed, and deletes
	// alarms that ended longer than keep ago. It returns the sources to forget: those of removed checks, and learned
	// ones that have been retired for longer than keep. Next is not after Now while more is left. The sweep after the
	// last source of a removed check deletes the check.
	Sweep(ctx context.Context, keep time.Duration, limit int) (Scan, error)

	// HeldGroups lists groups that have held members, and those whose own alarm stands while no member's does.
	HeldGroups(ctx context.Context) ([]AlarmGroup, error)

	// ReportGroup reports held alarms or ends a group's alarm, and returns whether it did.
	ReportGroup(ctx context.Context, r GroupReport) (bool, error)

	// Parents returns what is known of sources that others depend on, at most MaxSources, each at its place.
	Parents(ctx context.Context, of []SourceRef) ([]Parent, error)

	// Remind makes a [Reminder], and returns whether it did.
	Remind(ctx context.Context, r Reminder) (bool, error)
}

// ClaimSpace is the space of package claim in which instances divide the sources. Users cannot create
// a space of this name.
const ClaimSpace = "monitor/sources"

// Partitions is the number of parts into which the sources are divided; see [ClaimKeys].
const Partitions = 64

// SweepKey is claimed by the one instance that sweeps, reports groups and reminds of alarms: see [Detection.Sweep],
// [Detection.HeldGroups] and [Detection.Remind].
const SweepKey = "sweep"

// PartitionKey is the key of a partition in [ClaimSpace].
func PartitionKey(partition int) string { return fmt.Sprintf("%02d", partition) }

// ClaimKeys are all keys of [ClaimSpace].
func ClaimKeys() []string {
	keys := make([]string, 0, Partitions+1)
	for i := range Partitions {
		keys = append(keys, PartitionKey(i))
	}
	return append(keys, SweepKey)
}

// SinkQueue is the queue of package dispatch that holds the notifications of a sink.
func SinkQueue(sink string) string { return "alarms." + sink }

// ValidateSink checks a sink's name: it must fit into a queue's name.
func ValidateSink(name string) error {
	if len(name) > 25 {
		return fmt.Errorf("%w: sink %q: use at most 25 bytes", lease.ErrInvalid, name)
	}
	if err := lease.ValidateSpace(name); err != nil {
		return fmt.Errorf("sink: %w", err)
	}
	return nil
}

// Signal is what a heartbeat says besides that its source is alive.
type Signal uint8

// Signals.
const (
	SignalSuccess Signal = 0 // all is well; it ends a run, and an earlier failure
	SignalStart   Signal = 1 // a run starts. It is not a sign of life: a hanging run is found by the report that never comes
	SignalFail    Signal = 2 // a failure; it ends a run
)

// SourceRef names a source.
type SourceRef struct {
	Check  string
	Source string
}

// ResolvedSource is what is known of a [SourceRef].
type ResolvedSource struct {
	// ID of the source, never reused for another; 0 if it is unknown and was not learned, because its
	// check is not configured, is fixed or is full.
	ID int64
	// SenderClock is that of its check.
	SenderClock bool
	// Full: it was not learned because its check has as many sources as it may.
	Full bool
}

// WhyFull says why a source was not learned when [ResolvedSource.Full] is true, and what to do.
const WhyFull = "the check has learned as many sources as it may; declare this one, or raise max_learned of the check"

// HeartbeatUpdate is what one or several heartbeats of a source change in the store.
type HeartbeatUpdate struct {
	Source int64
	// Path is its index in HeartbeatBatch.Probes.
	Path   int
	Signal Signal
	// Code is the exit status of a run, 0 without one.
	Code int
	// Sent is the sender's time and Seq its sequence number; zero if it did not say. A heartbeat that has a
	// Sent, and both the same as the last one, is a replay: it is counted, and changes nothing else. Nor does an older one
	// that came late and was merged with it.
	Sent time.Time
	Seq  int64
	// BySender: the heartbeat counts from Sent, but not from before the last one and not from the future. The first one of a
	// source does not count from before its [Facts].ExpectedFrom: a source that is learned from a failure has failed since.
	BySender bool
	// Run is the [RunKey] of the run that it belongs to, 0 without one. A success of another run than the one that was
	// started ends no run; a failure, and what names no run, end any.
	Run int64
	// Count is how many heartbeats it stands for, at least 1.
	Count int
}

// CountsFrom is when the heartbeat counts as having come, before the store compares it with the last one: now, by
// the monitor's clock, or, if the check trusts its senders, when it was sent.
func (u *HeartbeatUpdate) CountsFrom(now StoreTime, wall time.Time) StoreTime {
	if !u.BySender || u.Sent.IsZero() {
		return now
	}
	// Its age is taken on the wall clock, which the sender's time is compared with, and taken off the
	// monitor's own. A time in the future counts as now, or a wrong clock could hide its source for
	// years; 0 would mean that it never reported.
	return max(1, min(now, now-StoreTime(wall.Sub(u.Sent).Microseconds())))
}

// Probe says that an intake path works.
type Probe struct {
	Path     string
	TrustFor time.Duration // see [PathStatus]
	MaxGap   time.Duration
	// NameOnly: it only names the path of heartbeats in the batch, of which others may still be on their way.
	// It says nothing about whether the path works.
	NameOnly bool
}

// HeartbeatBatch is what an instance received since the last one.
type HeartbeatBatch struct {
	// Probes of paths, each path once. They are recorded before the heartbeats.
	Probes []Probe
	// Beats of sources, each source once, ordered by ID; at most MaxBeats.
	Beats []HeartbeatUpdate
}

// BatchResult is the store's answer to a [HeartbeatBatch].
type BatchResult struct {
	// Unknown are sources that do not exist (any more): resolve them again.
	Unknown []int64
	// Replayed is how many heartbeats were replays.
	Replayed int
	// Generation: see [Settings].
	Generation int64
}

// Settings are what all instances share.
type Settings struct {
	// Generation changes with every change of the rest.
	Generation int64
	Checks     []StoredCheck
	// Sinks that are registered: they receive alarms.
	Sinks []string
	// Secret signs links; see [Links]. It is made with the store and never changes.
	Secret []byte
}

// StoredCheck is a check as the store has it.
type StoredCheck struct {
	Check // with defaults
	ID    int64
	// Rev changes with every change of the check.
	Rev int64
	// Removed: it is no longer configured, and its sources are being forgotten.
	Removed bool
}

// Candidate is a source to evaluate, with all that the rule needs.
type Candidate struct {
	ID      int64
	CheckID int64
	Source  string
	Labels  map[string]string
	// Rev, BeatRev and CheckRev are the versions that were read: of the source, its last heartbeat and its check.
	// A change is made only if all three are still the same.
	Rev, BeatRev, CheckRev int64
	Facts
	// AlarmHeld: its alarm waits to be reported with others. Group is the ID of the group's alarm that it was
	// reported with, and not a group's key as in [SourceChange].
	AlarmHeld bool
	Group     string
	// Started is when the current outage began, by the wall clock.
	Started time.Time
	// BeatSinceOnset: a success or a failure has come since its alarm was raised. With a sender's clock [Facts].LastBeat does not
	// tell: what was sent before the alarm may have come after it.
	BeatSinceOnset bool
}

// Scan is the answer to [Detection.DueSources] and Sweep.
type Scan struct {
	Now        StoreTime
	Wall       time.Time
	Generation int64
	Candidates []Candidate
	// Next is when the next source is due that is not among Candidates; not after Now if more are due already.
	Next StoreTime
}

// SourceChange is what becomes of a candidate. It is made only if the source, its last heartbeat and its check have not
// changed since it was judged. Its parent, its path and the time may have.
type SourceChange struct {
	ID                     int64
	Rev, BeatRev, CheckRev int64
	Transition             Transition
	Due                    StoreTime
	WellSince              StoreTime
	// ExpectedFrom is the new one, of Resume and Return.
	ExpectedFrom StoreTime
	// Of an alarm that starts or ends: Alarm is its ID, which Onset gives it.
	Alarm  string
	Reason Reason
	At     time.Time // when it started or ended, by the wall clock
	// Group: the alarm is held, to be reported with others of this group: check, '/', value of the label.
	Group string
	// Notifications are enqueued if the change is made, in this order.
	Notifications []Notification
}

// Notification is one alarm for one sink: a message in [SinkQueue], ordered by Key and deduplicated by ID.
type Notification struct {
	// Sink, if not empty; otherwise the notification is for each sink that is registered when it is enqueued. An ONSET
	// that named them could miss one that was registered since they were read, which then got the ABATED alone.
	Sink    string
	Key     string
	ID      string
	Payload []byte
}

// AlarmGroup is a group of alarms that wait to be reported together, or that were and have ended.
type AlarmGroup struct {
	Group string
	Check string
	// Alarm of the group, "" if it was not reported yet; Started is when it started.
	Alarm   string
	Started time.Time
	// Oldest is how long the oldest of Members has waited.
	Oldest time.Duration
	// Members are the alarms that are held, the oldest first, at most MaxSources of them; Count is how many there
	// are. In a group that was reported, they are those that joined since.
	Members []Alarm
	Count   int
	// Standing is how many alarms that were reported with the group still stand.
	Standing int
}

// GroupReport reports held alarms: as members of a group or, with Alarm "", one by one. It is made only if all
// Members are still held, and End, which has none, only if no alarm of the group stands.
type GroupReport struct {
	Group string
	// Alarm of the group: a new one, or the one that stands.
	Alarm   string
	Members []string // each once
	// End, when not "", ends the alarm of the group, and says why: Abated, Retire or Forget.
	End           Transition
	At            time.Time
	Notifications []Notification
}
