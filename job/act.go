package job

import (
	"errors"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/schedule"
)

// What operators and definitions change.

// errPast refuses to add a job whose only time has passed.
var errPast = errors.New("that is in the past")

// Define adds the job, or gives it another definition.
func Define(name string, def Definition) Decision {
	return func(j Job, now time.Time) (Change, error) {
		def := def.WithDefaults()
		if err := errors.Join(ValidateName(name), def.Validate()); err != nil {
			return Change{}, err
		}
		if j.Version > 0 && j.ForgottenBy == "" && j.Definition.equal(def) {
			return Change{Job: j, Unchanged: true}, nil
		}
		d := pendingChangeOf(j, now)
		if j.Version == 0 || j.ForgottenBy != "" {
			d.Job = Job{Name: name, Version: j.Version, Created: d.now, Ended: map[State]int64{}, Alarm: j.Alarm, Decided: j.Decided}
			d.note("added", 0)
		} else {
			d.note("its definition changed", 0)
		}
		moved := d.Job.Next.IsZero() || j.Definition.Schedule != def.Schedule || !j.Definition.Anchor.Equal(def.Anchor)
		if moved {
			d.reschedule(def)
		}
		d.Job.Definition = def
		if j.Version == 0 && d.Job.Next.IsZero() {
			return Change{}, fmt.Errorf("%w: schedule %q: %w", lease.ErrInvalid, def.Schedule, errPast)
		}
		return d.Change, nil
	}
}

// reschedule replaces the definition by one with other times. Each time that has come under the old one gets its run.
func (d *pendingChange) reschedule(def Definition) {
	j, after := d.Job, d.now
	if j.Decided.After(after) {
		after = j.Decided // the clock was stepped back: a time that has its run does not come again
	}
	was := j.times()
	j.Definition = def
	cameAlone := func(times schedule.Schedule) bool {
		later := times.Next(j.Next)
		return times.Next(j.Next.Add(-1)).Equal(j.Next) && (later.IsZero() || later.After(d.now))
	}
	switch {
	case j.Next.IsZero() || j.Next.After(d.now):
	case cameAlone(was) && cameAlone(j.times()):
		after = j.Next.Add(-1) // it is a time of both: with a jitter, it may not be due yet
	case j.PausedBy != "":
		d.passOver(was.Last(j.Next.Add(-1), d.now), Skipped, "paused by "+j.PausedBy)
	default:
		d.passOver(was.Last(j.Next.Add(-1), d.now), MissedRun, "the schedule changed before it started")
	}
	d.Job.Definition = def
	d.seekNext(after)
}

// Trigger queues a run at once, in the name of who asks.
func Trigger(who string) Decision {
	return func(j Job, now time.Time) (Change, error) {
		d := pendingChangeOf(j, now)
		switch {
		case j.Version == 0 || j.ForgottenBy != "":
			return Change{}, fmt.Errorf("%w: job %q", ErrNotFound, j.Name)
		case d.Job.queued() >= MaxQueued:
			return Change{}, fmt.Errorf("%w: %d runs of job %q are queued already", ErrBusy, MaxQueued, j.Name)
		}
		// Scheduled times are whole seconds, so that the key is another's by neither.
		key := d.now.Truncate(time.Millisecond)
		if !key.After(j.Triggered) {
			key = j.Triggered.Add(time.Millisecond)
		}
		if key.Nanosecond() == 0 {
			key = key.Add(time.Millisecond)
		}
		d.Job.Triggered = key
		d.queue(key, who)
		d.note("triggered by "+who, 0)
		return d.Change, nil
	}
}

// Pause stops the schedule; a run that is on continues, and runs can be triggered. Times were missed that came so long before that an
// instance would have run them.
func Pause(who string) Decision {
	return func(j Job, now time.Time) (Change, error) {
		if j.Version == 0 || j.PausedBy != "" {
			return unchanged(j)
		}
		d := pendingChangeOf(j, now)
		if _, on := j.Running(); !on && !j.Next.IsZero() {
			if last := j.times().Last(j.Next.Add(-1), d.now.Add(-onTime-ms(j.Definition.JitterMS))); !last.IsZero() {
				d.passOver(last, MissedRun, nobody)
			}
		}
		d.note("paused by "+who, 0)
		d.Job.PausedBy = who
		return d.Change, nil
	}
}

// Resume continues the schedule. Times that passed meanwhile were skipped.
func Resume(who string) Decision {
	return func(j Job, now time.Time) (Change, error) {
		if j.Version == 0 || j.PausedBy == "" {
			return unchanged(j)
		}
		d := pendingChangeOf(j, now)
		d.decideOverdue()
		d.note("resumed by "+who, 0)
		d.Job.PausedBy = ""
		return d.Change, nil
	}
}

func unchanged(j Job) (Change, error) {
	if j.Version == 0 {
		return Change{}, fmt.Errorf("%w: job %q", ErrNotFound, j.Name)
	}
	return Change{Job: j, Unchanged: true}, nil
}

// Forget removes the job, with its runs: at once, or, if sinks may know of its alarm, once they know of its end. The second time it does
// so at once. An instance that still offers the job adds it again.
func Forget(who string) Decision {
	return func(j Job, now time.Time) (Change, error) {
		if j.Version == 0 {
			return Change{}, fmt.Errorf("%w: job %q", ErrNotFound, j.Name)
		}
		if r, on := j.Running(); on {
			return Change{}, fmt.Errorf("%w: job %q is running on %s; stop it first", ErrBusy, j.Name, r.Instance.Label())
		}
		d := pendingChangeOf(j, now)
		a := &d.Job.Alarm
		if d.Forget = a.ID == "" || !a.Sent && a.Tries == 0 || j.ForgottenBy != ""; !d.Forget {
			for _, r := range j.Open {
				d.drop(r, "forgotten by "+who) // their rows stay until the job goes, or with it if it is offered again
			}
			d.clear() // receivers would show the alarm for ever
			d.Job.ForgottenBy, d.Job.Next, d.Job.Open = who, time.Time{}, nil
			if soon := d.now.Add(firstPause); a.NextTry.After(soon) {
				a.NextTry = soon // a try that is under way has ended by then
			}
		}
		d.note("forgotten by "+who, 0)
		return d.Change, nil
	}
}
