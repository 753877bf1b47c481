package monitor

import (
	"time"

	"github.com/understudy-ha/understudy/schedule"
)

// overdueAt is when a source becomes overdue, and for what reason.
func (c *Check) overdueAt(f Facts) (Reason, StoreTime) {
	due := c.silentAt(f)
	// The report that ended a run may have been lost in a blind period after its start. Then the run does not count;
	// if it really hangs, silence will tell.
	if c.MaxRun > 0 && f.RunStarted != 0 && f.Path.BlindUntil <= f.RunStarted {
		if end := max(f.RunStarted, f.ExpectedFrom, f.CheckChanged).Add(c.MaxRun); end < due {
			return Overrun, end
		}
	}
	return Silent, due
}

// silentAt is when a source counts as silent.
func (c *Check) silentAt(f Facts) StoreTime {
	from, more := max(f.ExpectedFrom, f.CheckChanged), c.FixedLimit()
	switch {
	case c.Schedule != "":
		// Heartbeats of times before the end of a blind period may have come and been lost in it.
		from = max(from, f.Path.BlindUntil)
		return c.scheduledAfter(max(from, f.LastBeat), f.LastBeat >= from, &f)
	case f.LastBeat == 0:
		// How long its path was blind since then is not known: it gets a whole limit again.
		return c.limitAfter(max(from, f.Path.BlindUntil), &f)
	case f.LastBeat >= from:
		// The usual case. After a blind period one interval and grace are enough for its next heartbeat; a source
		// that was declared, resumed or changed since its last heartbeat has the whole limit.
		from, more = f.LastBeat, c.Interval+c.Grace
	}
	return f.extendAfterBlindness(c.limitAfter(from, &f).Add(f.blindSince(from)), more)
}

// blindSince is for how long the path was blind since the last heartbeat, or since a later time: no longer than from
// that time to the end of the last blind period.
func (f *Facts) blindSince(from StoreTime) time.Duration {
	if f.LastBeat == 0 || f.Path.BlindUntil <= from {
		return 0
	}
	return min(max(0, f.Path.BlindTotal-f.BlindAtBeat), f.Path.BlindUntil.Sub(from))
}

// extendAfterBlindness gives a source some time after a blind period, because what it sent just before may have been
// lost. The extension reaches at most the allowance beyond the end: a path that fails again and again must not hide a silent
// source for ever.
func (f *Facts) extendAfterBlindness(end StoreTime, allowance time.Duration) StoreTime {
	if f.Path.BlindUntil > f.LastBeat {
		return max(end, min(f.Path.BlindUntil, end).Add(allowance))
	}
	return end
}

// limitAfter is when a whole limit has passed since a time: with a schedule, as many of its times as may be missed, and
// the grace.
func (c *Check) limitAfter(from StoreTime, f *Facts) StoreTime {
	if c.Schedule == "" {
		return from.Add(c.FixedLimit())
	}
	return c.scheduledAfter(from, false, f)
}

// scheduledAfter is limitAfter of a schedule. With beat it is from a heartbeat, which may have kept a time before it came.
func (c *Check) scheduledAfter(from StoreTime, beat bool, f *Facts) StoreTime {
	s, err := schedule.ParseCrontab(c.Schedule)
	if err != nil {
		return Never // Validate refuses it
	}
	// Schedules are about the wall clock. Both ways go through the same pair (Now, Wall), so that a stepped clock
	// moves the times of the schedule, and not the length of the silence.
	at := f.Wall.Add(-f.Now.Sub(from))
	if beat {
		at = c.timeKept(s, at)
	}
	for range c.Missed {
		if at = s.Next(at); at.IsZero() {
			return Never
		}
	}
	return f.Now.Add(at.Sub(f.Wall)).Add(c.Grace)
}

// mostEarly is how much too early a heartbeat may be that counts for a time of a schedule; no more than the grace.
const mostEarly = time.Minute

// timeKept is the time of a schedule that a heartbeat counts for, if it came a moment before, by the store's clock: that of
// the job's host may be ahead, and a quick job would be late each time. Otherwise it is when the heartbeat came.
func (c *Check) timeKept(s schedule.Schedule, beat time.Time) time.Time {
	next := s.Next(beat)
	early := next.Sub(beat)
	// If a time before it is nearer, it is that one's.
	if next.IsZero() || early > min(c.Grace, mostEarly) || s.Next(beat.Add(-early)).Before(next) {
		return beat
	}
	return next
}
