package monitor

import (
	"cmp"
	"time"

	"github.com/understudy-ha/understudy/schedule"
)

// Parent is the source that another one depends on.
type Parent struct {
	State    State // "" if there is no such source
	Alarm    bool  // one stands
	LastBeat StoreTime
	// Check that it is a source of; nil: it is not known, and holds nothing back. No store fills this in.
	Check *Check
}

// How soon to evaluate a source again whose alarm waits for its parent. The pause grows with the time that it is overdue.
const (
	waitLeast = time.Second
	waitMost  = 10 * time.Second
)

// heldBack reports whether the problem of a source is not to be reported now, or at all, and what becomes of the source then.
func (c *Check) heldBack(f Facts) (v Evaluation, held bool) {
	from := c.maintainedUntil(f)
	if from > f.Now {
		return Evaluation{Due: from}, true
	}
	f.ExpectedFrom = max(f.ExpectedFrom, from)
	reason, at, due := c.problem(f)
	if reason == "" {
		return Evaluation{Due: due}, true
	}
	again := f.Now.Add(min(max(f.Now.Sub(at), waitLeast), waitMost))
	switch p := f.Parent; {
	case p == nil || p.Check == nil || p.State == "" || p.State == Retired:
		return Evaluation{}, false
	case p.Alarm || p.State == Paused && p.LastBeat <= at && reason != Failed:
		mark := f.Now
		if f.WellSince != 0 && p.LastBeat > f.WellSince {
			mark = f.WellSince // the parent has returned already, only its alarm or its pause has not ended yet
		}
		return Evaluation{Due: again, WellSince: mark}, true
	case p.LastBeat <= at && reason != Failed && f.Now < p.Check.limitAfter(max(at, f.WellSince), &f).Add(p.Check.Interval+waitMost):
		// Both may have fallen silent at once, the parent with the longer limit, or the parent's pause has just ended: wait
		// until it was heard or has an alarm. No longer than its limit, and what a blind period may add to that, so that two
		// that depend on each other do not wait for ever.
		return Evaluation{Due: again, WellSince: f.WellSince}, true
	case f.WellSince != 0 && p.LastBeat > f.WellSince && reason != Failed:
		// Its parent has returned: it has as much time to report as after a pause.
		return Evaluation{Transition: Resume, At: f.Now, Due: c.firstDue(f, f.Now)}, true
	}
	return Evaluation{}, false
}

// maintainedUntil is when the maintenance window ends that is open, or that was the last; 0 for none.
func (c *Check) maintainedUntil(f Facts) StoreTime {
	start := c.lastMaintenance(f.Wall)
	if start.IsZero() {
		return 0
	}
	// By the same pair as schedules: a stepped clock moves the window, and not the length of the silence.
	return f.Now.Add(start.Add(c.MaintenanceFor).Sub(f.Wall))
}

// inMaintenance reports whether a window is open.
func (c *Check) inMaintenance(wall time.Time) bool {
	start := c.lastMaintenance(wall)
	return !start.IsZero() && wall.Before(start.Add(c.MaintenanceFor))
}

// lastMaintenance is when the last window was opened, zero for never.
func (c *Check) lastMaintenance(wall time.Time) time.Time {
	if c.Maintenance == "" {
		return time.Time{}
	}
	s, err := schedule.ParseCrontab(c.Maintenance)
	if err != nil {
		return time.Time{} // Validate refuses it
	}
	return lastTime(s, wall)
}

// lastTime is the latest time of a schedule that is not after t; zero when there is none within MaxInterval before it.
func lastTime(s schedule.Schedule, t time.Time) time.Time {
	for back := time.Minute; back < 2*MaxInterval; back *= 2 {
		at := s.Next(t.Add(-back))
		if at.IsZero() || at.After(t) {
			continue // look back further
		}
		for next := s.Next(at); !next.IsZero() && !next.After(t); next = s.Next(next) {
			at = next
		}
		return at
	}
	return time.Time{}
}

// parentOf is the source that another one depends on.
func (c *Check) parentOf(of *Candidate) SourceRef {
	name := of.Source
	if c.DependsLabel != "" {
		name = cmp.Or(of.Labels[c.DependsLabel], c.Labels[c.DependsLabel])
	}
	return SourceRef{Check: c.DependsOn, Source: name}
}
