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
	// ExpectedFrom: see [Facts].
	ExpectedFrom StoreTime
	Labels       map[string]string
	// Check that it is a source of; nil: it is not known, and inhibits nothing. No store fills this in.
	Check *Check
	// Parent is the one that it depends on itself, read while it is up without an alarm: its own may be inhibited. No store
	// fills this in.
	Parent *Parent
}

// How soon to evaluate a source again whose alarm waits for its parent. The pause grows with the time that it is overdue.
const (
	waitLeast = time.Second
	waitMost  = 10 * time.Second
)

// inhibit reports whether the problem of a source is not to be reported now, or at all, and what becomes of the source then.
func (c *Check) inhibit(f Facts) (v Evaluation, inhibited bool) {
	from := c.lastWindowEnd(f)
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
	case !p.isInUse():
		return Evaluation{}, false
	case p.isDown(at, reason):
		mark := f.Now
		if f.WellSince != 0 && p.LastBeat > f.WellSince {
			mark = f.WellSince // the parent has returned already, only its alarm or its pause has not ended yet
		}
		return Evaluation{Due: again, WellSince: mark}, true
	case p.LastBeat <= at && reason != Failed && f.Now < p.answerDue(max(at, f.WellSince), at, &f):
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

// isInUse reports whether a parent is known and in use: otherwise it inhibits nothing.
func (p *Parent) isInUse() bool {
	return p != nil && p.Check != nil && p.State != "" && p.State != Retired
}

// isDown reports whether a parent counts as down:
//
//   - it has an alarm: yes;
//   - it is paused, and has been silent since the child has: yes, but not for a failure that the child reported;
//   - it was heard since, or the child reported a failure: no;
//   - otherwise it is as silent as the child, and its own alarm may be inhibited: it counts as down if its own parent does.
//
// Only an alarm or a pause decides, never another alarm that is inhibited: sources that depend on each other would wait for ever.
func (p *Parent) isDown(at StoreTime, reason Reason) bool {
	for ; p.isInUse(); p = p.Parent {
		if p.Alarm || p.State == Paused && p.LastBeat <= at && reason != Failed {
			return true
		}
		if p.LastBeat > at || reason == Failed {
			return false
		}
	}
	return false
}

// answerDue is by when a parent that was silent at a time has been heard or has an alarm.
func (p *Parent) answerDue(from, at StoreTime, f *Facts) StoreTime {
	allowance := waitMost
	if above := p.Parent; above.isInUse() {
		allowance += waitMost // it may be evaluated so long after its own parent's return
		if above.LastBeat <= at {
			from = above.answerDue(from, at, f) // it waits itself until then
		}
	}
	return p.Check.limitAfter(max(from, p.ExpectedFrom), f).Add(p.Check.Interval + allowance)
}

// lastWindowEnd is when the maintenance window ends that is open, or that was the last; 0 for none.
func (c *Check) lastWindowEnd(f Facts) StoreTime {
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

// lastMaintenance is when the last window was opened, zero for not within twice MaxInterval.
func (c *Check) lastMaintenance(wall time.Time) time.Time {
	if c.Maintenance == "" {
		return time.Time{}
	}
	s, err := schedule.ParseCrontab(c.Maintenance)
	if err != nil {
		return time.Time{} // Validate refuses it
	}
	return s.Last(wall.Add(-2*MaxInterval), wall)
}

// MovesFromParent reports whether a source depends on one by its labels before, and not by those after. It must have a whole limit
// then, as after a change that makes a check stricter: what inhibited its alarm may do so no longer.
func (c *Check) MovesFromParent(source string, before, after map[string]string) bool {
	if c.DependsOn == "" {
		return false
	}
	parent := c.parentOf(source, before)
	return parent.Source != "" && c.parentOf(source, after) != parent
}

// parentOf is the source that another one depends on.
func (c *Check) parentOf(source string, labels map[string]string) SourceRef {
	name := source
	if c.DependsLabel != "" {
		name = cmp.Or(labels[c.DependsLabel], c.Labels[c.DependsLabel])
	}
	return SourceRef{Check: c.DependsOn, Source: name}
}
