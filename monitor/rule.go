package monitor

import "time"

// Transition is what becomes of a source.
type Transition string

// Transitions.
const (
	NoTransition Transition = ""       // nothing changes but the time of the next evaluation
	Onset        Transition = "ONSET"  // an alarm is raised
	Abated       Transition = "ABATED" // its alarm ends; a paused source stays paused
	Resume       Transition = "resume" // its pause has ended, or its parent has returned: up, expected from now; or down, if its alarm stands
	Return       Transition = "return" // it was retired and reports again: up, expected from its heartbeat
	Retire       Transition = "retire" // it was down for so long, or an operator asked for it; its alarm ends
	Forget       Transition = "forget" // its check was removed, or it was retired for so long; its alarm ends, and the source is deleted
)

// Evaluation is the outcome of the rule.
type Evaluation struct {
	Transition Transition
	Reason     Reason // of an Onset
	// At is when it happened: when the limit passed, or when the heartbeat arrived that ended the outage.
	// Never later than Now.
	At StoreTime
	// Due is when to evaluate the source again if nothing happens before: after Now, or, of a transition, when to
	// evaluate its new state: Never for an alarm that only a heartbeat ends. Few heartbeats cause an evaluation before:
	// see [HeartbeatStore].RecordHeartbeats.
	Due StoreTime
	// WellSince is when it recovered, while its alarm is kept because it flaps; or see [Facts].WellSince.
	WellSince StoreTime
}

// How soon to evaluate a source again whose deadline has passed, but whose path has not been seen to work until
// then. The pause grows with the time that has passed, or a stalled path would have all its sources evaluated
// all the time. "unseen" is the normal wait for the next probe; "blind" is for a path whose gap has passed, too.
const (
	unseenLeast = 250 * time.Millisecond
	unseenMost  = time.Second
	blindLeast  = time.Second
	blindMost   = 10 * time.Second
)

// Evaluate decides what becomes of a source of this check, whose zero fields must have their defaults.
// It is pure: the same facts give the same answer on every instance.
func (c *Check) Evaluate(f Facts) Evaluation {
	v := c.evaluate(f)
	if v.Transition == NoTransition {
		// A source that stays due is returned by every scan: without this it would be evaluated for ever.
		v.Due = max(v.Due, f.Now.Add(time.Microsecond))
	}
	return v
}

// evaluate goes from what ends a source, over what an operator asked for, to what its heartbeats say.
func (c *Check) evaluate(f Facts) Evaluation {
	switch {
	case f.Removed, f.Forget:
		// First: a removed check has no limit that the rest could use.
		return Evaluation{Transition: Forget, At: f.Now, Due: Never}
	case f.State == Retired && f.LastBeat > f.RetiredAt:
		return Evaluation{Transition: Return, At: f.LastBeat, Due: c.firstDue(f, f.LastBeat)}
	case f.State == Retired:
		return Evaluation{Due: Never}
	case f.RetireRequested:
		// Before the pause and the alarm: a paused or failing source can be retired too, which ends its alarm.
		return Evaluation{Transition: Retire, At: f.Now, Due: Never}
	case f.State == Paused && f.PausedUntil != 0 && f.Now >= f.PausedUntil:
		return Evaluation{Transition: Resume, At: f.Now, Due: c.firstDue(f, f.Now)}
	case f.Alarm != "":
		// Before the pause: pausing raises no alarm, but a heartbeat still ends one that stands.
		return c.evaluateWithAlarm(f)
	case f.State == Paused:
		return Evaluation{Due: orNever(f.PausedUntil)}
	}
	reason, at, due := c.problem(f)
	switch {
	case reason == "":
		return Evaluation{Due: due}
	case c.Paused:
		// Nothing to wait for: resuming the check makes all its sources due.
		return Evaluation{Due: Never}
	}
	if v, inhibited := c.inhibit(f); inhibited {
		return v
	}
	v := Evaluation{Transition: Onset, Reason: reason, At: at, Due: Never}
	if c.RetireAfter > 0 {
		v.Due = f.Now.Add(c.RetireAfter)
	}
	return v
}

// firstDue is when to evaluate a source first that is expected from a new time on.
func (c *Check) firstDue(f Facts, from StoreTime) StoreTime {
	f.ExpectedFrom = from
	if f.Alarm != "" || c.hasFailed(f) {
		return f.Now
	}
	_, due := c.overdueAt(f)
	return due
}

// evaluateWithAlarm is for a source whose alarm stands.
func (c *Check) evaluateWithAlarm(f Facts) Evaluation {
	until := Never
	if f.State == Paused {
		until = orNever(f.PausedUntil)
	}
	recovered, recheckAt := c.hasRecovered(f)
	if !recovered {
		return c.evaluateDown(f, until)
	}
	at := f.recoveredAt()
	if c.Flaps > 0 && f.RecentOnsets >= c.Flaps {
		// It flaps: its alarm stands until it has been well for c.Steady without a break.
		well := f.WellSince
		if well == 0 {
			well = at
		}
		if end := well.Add(c.Steady); f.Now < end {
			return Evaluation{Due: min(recheckAt, end, until), WellSince: well}
		}
		at = f.Now
	}
	if f.State == Paused {
		return Evaluation{Transition: Abated, At: at, Due: until}
	}
	_, due := c.overdueAt(f)
	return Evaluation{Transition: Abated, At: at, Due: due}
}

// hasRecovered reports whether the outage has ended that an alarm stands for, and when that may no longer be so.
// Only a heartbeat ends it, or a check by whose times it is not overdue. The whole limit that a stricter check grants does
// not, nor does a blind period, a resume or the start of a run: they give the source more time, but are no sign of life.
func (c *Check) hasRecovered(f Facts) (recovered bool, recheckAt StoreTime) {
	// The ordinary rule decides, on the facts without what came after the onset and is no sign of life.
	without := f
	without.CheckChanged = 0
	if f.ExpectedFrom >= f.OnsetAt {
		without.ExpectedFrom = 0
	}
	reported := f.LastBeat >= f.OnsetAt
	if !reported && f.Reason == Overrun && c.MaxRun > 0 && f.RunStarted >= f.OnsetAt {
		return false, 0 // the next run began, and the one that hung has still not ended
	}
	// Without a heartbeat since the onset, a blind period must not end the alarm: its extra time would put the deadline
	// back into the future. So the facts are made those of a path that was never blind since the last heartbeat and has
	// been seen to work until now. The same holds for a source that flaps and has not begun to be well: it may have
	// reported since the onset and fallen silent again.
	if !reported || c.Flaps > 0 && f.WellSince == 0 {
		without.BlindAtBeat, without.Path.BlindUntil, without.Path.LastSeen = f.Path.BlindTotal, 0, f.Now
	}
	reason, _, recheckAt := c.problem(without)
	return reason == "", recheckAt
}

// evaluateDown is for a source whose outage continues: it is retired after [Check.RetireAfter].
func (c *Check) evaluateDown(f Facts, until StoreTime) Evaluation {
	if c.RetireAfter == 0 || f.State == Paused || c.Paused {
		return Evaluation{Due: until}
	}
	// A source that keeps reporting failures still exists: its time runs from its last report.
	from := max(f.OnsetAt, f.LastBeat)
	if f.LastBeat == 0 {
		from = max(from, f.Path.BlindUntil) // how much of its time the path was blind is not known
	}
	end := max(from.Add(c.RetireAfter).Add(f.blindSince(from)), c.limitAfter(max(f.ExpectedFrom, f.CheckChanged), &f))
	end = f.extendAfterBlindness(end, c.Interval+c.Grace)
	switch {
	case f.Now < end:
		return Evaluation{Due: end}
	case f.Path.SeenUntil(f.Now) < end:
		// Its heartbeat may be on its way through a path that does not work at the moment.
		return Evaluation{Due: f.Now.Add(c.recheckAfter(f, end))}
	}
	return Evaluation{Transition: Retire, At: f.Now, Due: Never}
}

// recoveredAt is when the outage that stands ended: with a heartbeat, or now, if what it was raised for is no
// longer a reason.
func (f *Facts) recoveredAt() StoreTime {
	if f.LastBeat < f.OnsetAt {
		return f.Now
	}
	return min(f.LastBeat, f.Now)
}

// problem is what is wrong with a source, and since when; otherwise when something may be.
func (c *Check) problem(f Facts) (r Reason, at, due StoreTime) {
	if c.hasFailed(f) {
		return Failed, min(f.LastBeat, f.Now), Never
	}
	r, due = c.overdueAt(f)
	switch {
	// Not f.Now: the deadline must lie in time in which its path is known to have worked.
	case f.Path.SeenUntil(f.Now) > due:
		return r, due, 0
	case f.Now > due:
		return "", 0, f.Now.Add(c.recheckAfter(f, due))
	}
	return "", 0, due
}

// hasFailed reports whether a source said that it failed. A failure from before it was resumed, or before the check
// changed, does not count.
func (c *Check) hasFailed(f Facts) bool {
	return f.Failing && f.LastBeat >= max(f.ExpectedFrom, f.CheckChanged)
}

// recheckAfter is when to evaluate a source again whose path has not been seen to work until its deadline.
func (c *Check) recheckAfter(f Facts, due StoreTime) time.Duration {
	over := f.Now.Sub(due)
	if f.Now.Sub(f.Path.SeenUntil(f.Now)) <= f.Path.MaxGap {
		return min(max(over, unseenLeast), unseenMost)
	}
	// The path is blind. The source cannot be overdue before it would be if its path worked from now on.
	f.Path.BlindTotal += f.Now.Sub(f.Path.LastSeen)
	f.Path.BlindUntil = f.Now
	_, recheckAt := c.overdueAt(f)
	most := blindMost
	if c.Schedule == "" {
		most = min(most, max(c.FixedLimit(), blindLeast)) // a short limit wants silence found about one limit later
	}
	return max(recheckAt.Sub(f.Now), min(max(over, blindLeast), most))
}

func orNever(t StoreTime) StoreTime {
	if t == 0 {
		return Never
	}
	return t
}
