package job

import (
	"fmt"
	"time"
)

// What operators decide.

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

// Pause stops the schedule; a run that is on continues, and runs can be triggered.
func Pause(who string) Decision {
	return func(j Job, now time.Time) (Change, error) {
		if j.Version == 0 || j.PausedBy != "" {
			return unchanged(j)
		}
		d := pendingChangeOf(j, now)
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

// Forget removes the job, with its runs, once the sinks of an alarm that stands know of its end, or at the second time at once. An
// instance that still offers it adds it again.
func Forget(who string) Decision {
	return func(j Job, now time.Time) (Change, error) {
		if j.Version == 0 {
			return Change{}, fmt.Errorf("%w: job %q", ErrNotFound, j.Name)
		}
		if r, on := j.Running(); on {
			return Change{}, fmt.Errorf("%w: job %q is running on %s; stop it first", ErrBusy, j.Name, r.Instance.Label())
		}
		d := pendingChangeOf(j, now)
		d.note("forgotten by "+who, 0)
		if d.Forget = !j.Alarm.Sent || j.ForgottenBy != ""; !d.Forget {
			d.clear() // receivers would show the alarm for ever
			d.Job.ForgottenBy, d.Job.Next, d.Job.Open = who, time.Time{}, nil
		}
		return d.Change, nil
	}
}
