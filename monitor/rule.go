package monitor

import "time"

// Moment is a time on the monitor's own clock, in microseconds: about those since
// 1970. It goes as the store's clock does, and never back.
type Moment int64

// Never is later than every moment.
const Never = Moment(1<<63 - 1)

// Add returns the moment d later; [Never] stays.
func (m Moment) Add(d time.Duration) Moment {
	if m == Never {
		return Never
	}
	return m + Moment(d.Microseconds())
}

// Sub returns how long after the other it is.
func (m Moment) Sub(other Moment) time.Duration {
	return time.Duration(m-other) * time.Microsecond
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

// Sight is the moment up to which the path is taken to have worked.
func (p Path) Sight(now Moment) Moment { return min(now, p.Proof.Add(p.Trust)) }

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
	Abated Turn = "ABATED" // its alarm ends
	Resume Turn = "resume" // its pause is over: up, with a new base
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
	// Due is when to look again, if nothing happens before. A beat by itself makes
	// nobody look, unless the source is [Down] or [Retired] or is told by a signal.
	Due Moment
	// Well is since when it has been well, while its alarm is kept because it flaps.
	Well Moment
}

// unproven is how soon a source is looked at again whose path has not been proven
// since its deadline passed.
const unproven = 250 * time.Millisecond

// Judge says what becomes of a source of this event, whose zero fields must have
// their defaults.
func (e *Event) Judge(f Facts) Verdict {
	switch {
	case f.Removed:
		return Verdict{Turn: Forget, At: f.Now, Due: Never}
	case f.State == Retired && f.Beat > f.Ended:
		return Verdict{Turn: Return, At: f.Beat, Due: e.deadline(f, f.Beat)}
	case f.State == Retired:
		return Verdict{Due: Never}
	case f.Asked:
		return Verdict{Turn: Retire, At: f.Now, Due: Never}
	case f.State == Paused && f.Until != 0 && f.Now >= f.Until:
		return Verdict{Turn: Resume, At: f.Now, Due: e.deadline(f, f.Now)}
	}
	reason, at, due := e.trouble(f)
	switch {
	case reason != "" && f.Alarm != "":
		return e.down(f)
	case f.State == Paused && f.Alarm == "":
		return Verdict{Due: orNever(f.Until)}
	case reason != "" && e.Paused:
		// Resuming the event has everyone looked at again.
		return Verdict{Due: Never}
	case reason != "":
		v := Verdict{Turn: Onset, Reason: reason, At: at, Due: Never}
		if e.RetireAfter > 0 {
			v.Due = f.Now.Add(e.RetireAfter)
		}
		return v
	case f.Alarm == "":
		return Verdict{Due: due}
	case e.Flaps > 0 && f.Onsets >= e.Flaps:
		return e.damp(f, due)
	}
	return Verdict{Turn: Abated, At: f.wellSince(), Due: due}
}

// down is for a source whose alarm stands with reason.
func (e *Event) down(f Facts) Verdict {
	if e.RetireAfter == 0 || f.State == Paused {
		return Verdict{Due: orNever(f.Until)}
	}
	end := f.Onset.Add(e.RetireAfter)
	if f.Now < end {
		return Verdict{Due: end}
	}
	return Verdict{Turn: Retire, At: f.Now, Due: Never}
}

// damp keeps the alarm of a source that flaps until it has been well for a while.
func (e *Event) damp(f Facts, due Moment) Verdict {
	well := f.Well
	if well == 0 {
		well = f.wellSince()
	}
	if end := well.Add(e.Steady); f.Now < end {
		return Verdict{Due: min(due, end), Well: well}
	}
	return Verdict{Turn: Abated, At: f.Now, Due: due}
}

// wellSince is when the outage that stands ended: by a beat, unless the alarm was
// raised for no longer a reason since.
func (f *Facts) wellSince() Moment {
	if f.Beat < f.Onset {
		return f.Now
	}
	return f.Beat
}

// trouble is what is wrong with a source, since when, and otherwise when something
// may be.
func (e *Event) trouble(f Facts) (r Reason, at, due Moment) {
	if f.Failing {
		return Failed, f.Beat, Never
	}
	due = e.deadline(f, f.Base)
	overrun := Never
	if f.Run != 0 && e.MaxRun > 0 {
		overrun = f.Run.Add(e.MaxRun + f.blindSince())
		overrun = f.allow(overrun, e.MaxRun)
	}
	r = Silent
	if overrun < due {
		due, r = overrun, Overrun
	}
	switch sight := f.Path.Sight(f.Now); {
	case sight > due:
		return r, due, 0
	case f.Now > due:
		return "", 0, f.Now.Add(e.later(f.Now.Sub(sight) > f.Path.Gap))
	}
	return "", 0, due
}

// later is when to look at a source again whose path is not proven to have worked
// until its deadline. When the path was blind, it has at least what allow gives.
func (e *Event) later(blind bool) time.Duration {
	if !blind {
		return unproven
	}
	return max(time.Second, e.Interval+e.Grace)
}

// deadline is when a source is overdue.
func (e *Event) deadline(f Facts, base Moment) Moment {
	if e.Schedule != "" {
		return e.scheduled(f, base)
	}
	end := max(base, f.EventBase).Add(e.limit())
	if f.Beat != 0 {
		end = max(end, f.Beat.Add(e.limit()+f.blindSince()))
		return f.allow(end, e.Interval+e.Grace)
	}
	return f.allow(end, e.limit())
}

// blindSince is for how long the path was blind since the last beat.
func (f *Facts) blindSince() time.Duration {
	if f.Beat == 0 {
		return 0
	}
	return max(0, f.Path.Blind-f.BlindThen)
}

// allow gives a source some time after its path could see again, if the path was
// blind since the last beat, or since the source is expected.
func (f *Facts) allow(end Moment, more time.Duration) Moment {
	if f.Path.Resumed > max(f.Beat, 1) && f.Path.Resumed > f.Base {
		return max(end, f.Path.Resumed.Add(more))
	}
	return end
}

// scheduled is when a source with a schedule is overdue: as many of its times as
// may be missed, and the grace, after the last beat.
func (e *Event) scheduled(f Facts, base Moment) Moment {
	s, err := ParseSchedule(e.Schedule)
	if err != nil {
		return Never // Validate refuses it
	}
	from := max(base, f.EventBase, f.Beat)
	at := f.Wall.Add(-f.Now.Sub(from))
	for range e.Missed {
		if at = s.Next(at); at.IsZero() {
			return Never
		}
	}
	end := f.Now.Add(at.Sub(f.Wall) + e.Grace)
	// A beat that came while the path was blind may have been the one.
	return f.allow(end, e.Grace)
}

func orNever(m Moment) Moment {
	if m == 0 {
		return Never
	}
	return m
}
