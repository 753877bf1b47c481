package monitor

import "time"

// State of a source.
type State string

// States of a source. One that is up may never have sent a heartbeat ([Facts.LastBeat] is 0).
const (
	Up      State = "up"      // nothing is known against it
	Down    State = "down"    // its alarm stands
	Paused  State = "paused"  // not judged until it is resumed; an earlier alarm may stand
	Retired State = "retired" // not judged any more; a heartbeat brings it back
)

// Reason why an alarm was raised.
type Reason string

// Reasons of an ONSET.
const (
	Silent  Reason = "silent"  // no heartbeat for longer than its limit
	Failed  Reason = "failed"  // it reported a failure
	Overrun Reason = "overrun" // a run that it started did not end in time
)

// Facts are all that [Check.Evaluate] needs to know about a source, read from the store at one moment.
// A StoreTime of something that never happened is 0.
type Facts struct {
	Now  StoreTime
	Wall time.Time // the store's wall clock at Now, for schedules

	State State
	// Alarm that stands, "" for none, and its reason.
	Alarm  string
	Reason Reason
	// OnsetAt is when the alarm that stands was raised, and not [Alarm.Started]: that is when the outage began.
	// RecentOnsets is how many were raised within the check's flap window, that one included. A store may stop counting
	// at the check's Flaps.
	OnsetAt      StoreTime
	RecentOnsets int
	// WellSince is when a source whose alarm stands recovered, while the alarm is kept because it flaps. Of a source without
	// an alarm it is the last time at which one was inhibited because its parent was down. One field serves both, because a
	// flapping alarm stands and an inhibited one does not: a source never needs both at once.
	WellSince StoreTime
	// ExpectedFrom is the earliest time from which silence counts: when the source was declared, learned,
	// resumed or brought back, or given labels by which it depends on another source ([Check.MovesFromParent]).
	ExpectedFrom StoreTime
	// PausedUntil is when a pause ends by itself.
	PausedUntil StoreTime
	// RetiredAt is when it was retired. RetireRequested: an operator asked for it.
	RetiredAt       StoreTime
	RetireRequested bool

	// LastBeat is when the last heartbeat counts from. BlindAtBeat is the blind time of its path by then.
	LastBeat    StoreTime
	BlindAtBeat time.Duration
	// Path of the last heartbeat. For a source that never sent one, the path that was probed last.
	Path PathStatus
	// Failing: the last thing that it reported about a run is that it failed.
	Failing bool
	// RunStarted is when a run started that has not ended.
	RunStarted StoreTime

	// CheckChanged is when the check was added, last became stricter ([Check.IsStricterThan]) or was resumed.
	CheckChanged StoreTime
	// Removed: its check is no longer configured.
	Removed bool
	// Forget: a sweep has found that it is time to forget it. No store fills this in.
	Forget bool

	// Parent is the source that it depends on; nil: none is known.
	Parent *Parent
}
