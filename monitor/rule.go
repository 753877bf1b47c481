package monitor

import (
	"math"
	"time"
)

// Moment is a time on the monitor's own clock, in microseconds: about those since
// 1970. It goes as the store's clock does, and never back.
type Moment int64

// Never is later than every moment.
const Never = Moment(1<<63 - 1)

// Add returns the moment d later, [Never] at most; Never stays.
func (m Moment) Add(d time.Duration) Moment {
	us := Moment(d.Microseconds())
	if m == Never || us > 0 && m > Never-us {
		return Never
	}
	return m + us
}

// Sub returns how long after the other it is, as far as a Duration goes (292 years).
func (m Moment) Sub(other Moment) time.Duration {
	const most = Moment(math.MaxInt64 / int64(time.Microsecond))
	return time.Duration(min(max(m-other, -most), most)) * time.Microsecond
}

// Path is a way that beats take into the monitor, as the store knows it.
type Path struct {
	Name string
	// Proof is when it was last proven to work: whatever was sent before has
	// arrived by then.
	Proof Moment
	// Trust is how long after a proof it counts as working.
	Trust time.Duration
	// Gap is the longest that may lie between two proofs. More was blind.
	Gap time.Duration
	// Blind is for how long it was blind, ever; Resumed is when that ended last, 0
	// for never.
	Blind   time.Duration
	Resumed Moment
}

// Sight is the moment up to which the path is taken to have worked. When more than its
// gap has passed since the last proof, all that time will count as blind by the next
// one, and none of it is trusted.
func (p Path) Sight(now Moment) Moment {
	if now > p.Proof.Add(max(p.Gap, p.Trust)) {
		return p.Proof
	}
	return min(now, p.Proof.Add(p.Trust))
}

// State of a source.
type State string

// States of a source. What is up may never have beaten ([Facts.Beat] is 0).
const (
	Up      State = "up"      // nothing is known against it
	Down    State = "down"    // its alarm stands
	Paused  State = "paused"  // not judged, until it is resumed; an alarm of before may stand
	Retired State = "retired" // not judged any more; a beat brings it back
)

// Reason why an alarm was raised.
type Reason string

// Reasons of an ONSET.
const (
	Silent  Reason = "silent"  // no beat for longer than its limit
	Failed  Reason = "failed"  // it said so
	Overrun Reason = "overrun" // a run that it started did not end in time
)

// Facts are all that the rule needs to know about a source, read from the store at
// one moment. A Moment that never was is 0.
type Facts struct {
	Now  Moment
	Wall time.Time // the store's wall clock at Now, for schedules

	State State
	// Alarm that stands, "" for none, and its reason.
	Alarm  string
	Reason Reason
	// Onset is when the alarm that stands was raised; Onsets are how many were raised
	// within the event's flap window, that one included.
	Onset  Moment
	Onsets int
	// Well is since when a source whose alarm stands has been well again.
	Well Moment
	// Base is from when on silence counts at the earliest: when it was declared or
	// learned, resumed or brought back.
	Base Moment
	// Until is when a pause ends by itself.
	Until Moment
	// Ended is when it was retired; Asked: a person has asked for that.
	Ended Moment
	Asked bool

	// Beat is the last one; BlindThen is the blind time of its path by then.
	Beat      Moment
	BlindThen time.Duration
	// Path of the last beat; of a source that never beat, the path that was proven last.
	Path Path
	// Failing: the last that it said of a run was that it failed.
	Failing bool
	// Run is when a run began that has not ended.
	Run Moment

	// EventBase is when the event's timing was changed, or it was resumed.
	EventBase Moment
	// Removed: its event name is no longer configured.
	Removed bool
}

// Turn is what becomes of a source.
type Turn string

// Turns.
const (
	Stay   Turn = ""       // nothing but the time of the next look changes
	Onset  Turn = "ONSET"  // an alarm is raised
	Abated Turn = "ABATED" // its alarm ends; what is paused stays so
	Resume Turn = "resume" // its pause is over: up, with a new base; or down, if its alarm stands
	Return Turn = "return" // it was retired, and beats again: up, with a new base
	Retire Turn = "retire" // it has been down for so long, or a person asked for it; its alarm ends
	Forget Turn = "forget" // its event name was removed; its alarm ends, and so does the source
)

// Verdict is what the rule says.
type Verdict struct {
	Turn   Turn
	Reason Reason // of an Onset
	// At is when it happened: when the limit passed, or the beat arrived that ended
	// the outage. Never later than Now.
	At Moment
	// Due is when to look again, if nothing happens before: after Now, unless it
	// turns. A beat by itself makes nobody look, unless an alarm of its source
	// stands, or it is [Retired] or in a run, or its signal is not [Fine].
	Due Moment
	// Well is since when it has been well, while its alarm is kept because it flaps.
	Well Moment
}

// How soon a source is looked at again whose path is not proven to have worked
// until its deadline: the longer that takes, the less often, or a path that stalls
// would have all its sources looked at all the time.
const (
	unprovenLeast = 250 * time.Millisecond
	unprovenMost  = time.Second
	blindLeast    = time.Second
	blindMost     = 10 * time.Second
)

// Judge says what becomes of a source of this event, whose zero fields must have
// their defaults.
func (e *Event) Judge(f Facts) Verdict {
	v := e.judge(f)
	if v.Turn == Stay {
		v.Due = max(v.Due, f.Now.Add(time.Microsecond))
	}
	return v
}

func (e *Event) judge(f Facts) Verdict {
	switch {
	case f.Removed:
		return Verdict{Turn: Forget, At: f.Now, Due: Never}
	case f.State == Retired && f.Beat > f.Ended:
		return Verdict{Turn: Return, At: f.Beat, Due: e.anew(f, f.Beat)}
	case f.State == Retired:
		return Verdict{Due: Never}
	case f.Asked:
		return Verdict{Turn: Retire, At: f.Now, Due: Never}
	case f.State == Paused && f.Until != 0 && f.Now >= f.Until:
		return Verdict{Turn: Resume, At: f.Now, Due: e.anew(f, f.Now)}
	case f.Alarm != "":
		return e.standing(f)
	case f.State == Paused:
		return Verdict{Due: orNever(f.Until)}
	}
	reason, at, due := e.trouble(f)
	switch {
	case reason == "":
		return Verdict{Due: due}
	case e.Paused:
		// Resuming the event has everyone looked at again.
		return Verdict{Due: Never}
	}
	v := Verdict{Turn: Onset, Reason: reason, At: at, Due: Never}
	if e.RetireAfter > 0 {
		v.Due = f.Now.Add(e.RetireAfter)
	}
	return v
}

// anew is when to look at a source first that has a new base.
func (e *Event) anew(f Facts, base Moment) Moment {
	f.Base = base
	if f.Alarm != "" || e.failed(f) {
		return f.Now
	}
	_, due := e.expected(f)
	return due
}

// standing is for a source whose alarm stands.
func (e *Event) standing(f Facts) Verdict {
	until := Never
	if f.State == Paused {
		until = orNever(f.Until)
	}
	over, again := e.recovered(f)
	if !over {
		return e.down(f, until)
	}
	at := f.wellSince()
	if e.Flaps > 0 && f.Onsets >= e.Flaps {
		well := f.Well
		if well == 0 {
			well = at
		}
		if end := well.Add(e.Steady); f.Now < end {
			return Verdict{Due: min(again, end, until), Well: well}
		}
		at = f.Now
	}
	if f.State == Paused {
		return Verdict{Turn: Abated, At: at, Due: until}
	}
	_, due := e.expected(f)
	return Verdict{Turn: Abated, At: at, Due: due}
}

// recovered tells whether the outage is over that an alarm stands for, and when it
// may not be any more. Only a beat ends it, or a configuration by which it would be
// none. That its path was blind meanwhile, that it was resumed or that its timing
// changed gives it no new start, and no sign of life either; nor does the start of a run.
func (e *Event) recovered(f Facts) (over bool, again Moment) {
	f.EventBase = 0
	if f.Base >= f.Onset {
		f.Base = 0
	}
	beaten := f.Beat >= f.Onset
	if !beaten && f.Reason == Overrun && e.MaxRun > 0 && f.Run >= f.Onset {
		return false, 0
	}
	// A source that flaps may have beaten since, and fallen silent again.
	if !beaten || e.Flaps > 0 && f.Well == 0 {
		f.BlindThen, f.Path.Resumed, f.Path.Proof = f.Path.Blind, 0, f.Now
	}
	reason, _, again := e.trouble(f)
	return reason == "", again
}

// down is for a source whose outage goes on.
func (e *Event) down(f Facts, until Moment) Verdict {
	if e.RetireAfter == 0 || f.State == Paused || e.Paused {
		return Verdict{Due: until}
	}
	// A source that goes on saying that it fails is there.
	from := max(f.Onset, f.Beat)
	if f.Beat == 0 {
		from = max(from, f.Path.Resumed) // how long it was blind is not known
	}
	end := max(from.Add(e.RetireAfter).Add(f.blindSince(from)), max(f.Base, f.EventBase).Add(e.limit()))
	end = f.allow(end, e.Interval+e.Grace)
	switch {
	case f.Now < end:
		return Verdict{Due: end}
	case f.Path.Sight(f.Now) < end:
		return Verdict{Due: f.Now.Add(e.later(f, end))}
	}
	return Verdict{Turn: Retire, At: f.Now, Due: Never}
}

// wellSince is when the outage that stands ended: by a beat, unless the alarm was
// raised for what is no longer a reason.
func (f *Facts) wellSince() Moment {
	if f.Beat < f.Onset {
		return f.Now
	}
	return min(f.Beat, f.Now)
}

// trouble is what is wrong with a source, since when, and otherwise when something
// may be.
func (e *Event) trouble(f Facts) (r Reason, at, due Moment) {
	if e.failed(f) {
		return Failed, min(f.Beat, f.Now), Never
	}
	r, due = e.expected(f)
	switch {
	case f.Path.Sight(f.Now) > due:
		return r, due, 0
	case f.Now > due:
		return "", 0, f.Now.Add(e.later(f, due))
	}
	return "", 0, due
}

// failed tells whether a source said that it failed, after it was expected to do well.
func (e *Event) failed(f Facts) bool {
	return f.Failing && f.Beat >= max(f.Base, f.EventBase)
}

// later is when to look at a source again whose path is not proven to have worked
// until its deadline. When the path is blind, that is not before the source would be
// overdue if it could see from now on.
func (e *Event) later(f Facts, due Moment) time.Duration {
	over := f.Now.Sub(due)
	if f.Now.Sub(f.Path.Sight(f.Now)) <= f.Path.Gap {
		return min(max(over, unprovenLeast), unprovenMost)
	}
	f.Path.Blind += f.Now.Sub(f.Path.Proof)
	f.Path.Resumed = f.Now
	_, again := e.expected(f)
	most := blindMost
	if e.Schedule == "" {
		most = min(most, max(e.limit(), blindLeast))
	}
	return max(again.Sub(f.Now), min(max(over, blindLeast), most))
}

// expected is when a source is overdue, and with what.
func (e *Event) expected(f Facts) (Reason, Moment) {
	due := e.deadline(f)
	// The end of a run may have been lost while its path was blind. Silence will
	// tell.
	if e.MaxRun > 0 && f.Run != 0 && f.Path.Resumed <= f.Run {
		if end := max(f.Run, f.Base, f.EventBase).Add(e.MaxRun); end < due {
			return Overrun, end
		}
	}
	return Silent, due
}

// deadline is when a source is silent.
func (e *Event) deadline(f Facts) Moment {
	if e.Schedule != "" {
		return e.scheduled(f)
	}
	from, more := max(f.Base, f.EventBase), e.limit()
	switch {
	case f.Beat == 0:
		// How long its path was blind since is not known: it has all of it anew.
		return max(from, f.Path.Resumed).Add(e.limit())
	case f.Beat >= from:
		from, more = f.Beat, e.Interval+e.Grace
	}
	return f.allow(from.Add(e.limit()).Add(f.blindSince(from)), more)
}

// blindSince is for how long the path was blind since the last beat, or a moment
// after that: no more than there was time for.
func (f *Facts) blindSince(from Moment) time.Duration {
	if f.Beat == 0 || f.Path.Resumed <= from {
		return 0
	}
	return min(max(0, f.Path.Blind-f.BlindThen), f.Path.Resumed.Sub(from))
}

// allow gives a source some time after its path could see again: what it sent
// before may have been lost. No more than that beyond the end, or a path that drops
// out again and again would hide what is silent for ever.
func (f *Facts) allow(end Moment, more time.Duration) Moment {
	if f.Path.Resumed > f.Beat {
		return max(end, min(f.Path.Resumed, end).Add(more))
	}
	return end
}

// scheduled is when a source with a schedule is silent: as many of its times as
// may be missed, and the grace, after the last beat.
func (e *Event) scheduled(f Facts) Moment {
	s, err := ParseSchedule(e.Schedule)
	if err != nil {
		return Never // Validate refuses it
	}
	// The beats of times before the path resumed may have come while it was blind.
	from := max(f.Base, f.EventBase, f.Beat, f.Path.Resumed)
	at := f.Wall.Add(-f.Now.Sub(from))
	for range e.Missed {
		if at = s.Next(at); at.IsZero() {
			return Never
		}
	}
	return f.Now.Add(at.Sub(f.Wall)).Add(e.Grace)
}

func orNever(m Moment) Moment {
	if m == 0 {
		return Never
	}
	return m
}
