package job

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

// An alarm says that a job does not run as it should. It stands from the first bad run, or from when the job is overdue, until
// the next good run: one alarm per job, not per run. It is kept with the job until its sinks know of its start and of its end,
// so that another instance sends what the one that decided it could not.

// OverdueAfter is how late a job may be before it is overdue: as far as can be told, no instance offers it.
const OverdueAfter = time.Minute

// Overdue is the reason of an alarm for which no run is to blame. All other reasons are the [State] of the run.
const Overdue State = "overdue"

// Alarm is that of a job; the zero one is none.
type Alarm struct {
	// ID is the same for its start and its end, and another alarm has another.
	ID string `json:"id"`
	// Reason is the state of the run that raised it, or [Overdue].
	Reason State `json:"reason"`
	// Why is that run's, and Scheduled its time; of a job that was overdue the time at which it should have run.
	Why       string    `json:"why,omitempty"`
	Scheduled time.Time `json:"scheduled"`
	// Instance that ran it, by name, and the ExitCode of the program.
	Instance string `json:"instance,omitempty"`
	ExitCode int    `json:"exit_code,omitempty"`
	// Raised and Cleared are by the store's clock; Cleared is zero while it stands.
	Raised  time.Time `json:"raised"`
	Cleared time.Time `json:"cleared,omitzero"`
	// Sent: its sinks know that it was raised.
	Sent bool `json:"sent,omitempty"`
	// NextTry is when an instance may try to send what they do not know yet, and Tries how often one did.
	NextTry time.Time `json:"next_try,omitzero"`
	Tries   int       `json:"tries,omitempty"`
	// WebhookTries is how often only the job's own webhook did not take it.
	WebhookTries int `json:"webhook_tries,omitempty"`
	// Again is the first bad run since it was cleared, for the next alarm: receivers may have closed this one already.
	Again Run `json:"again,omitzero"`
}

// Stands reports whether the job has not had a good run since it was raised, or since a bad one after its end.
func (a Alarm) Stands() bool { return a.ID != "" && (a.Cleared.IsZero() || a.Again.State != "") }

// Pending reports whether its sinks have yet to be told of its start or its end.
func (a Alarm) Pending() bool { return a.ID != "" && (!a.Sent || !a.Cleared.IsZero()) }

// The pause between two tries to send, which doubles. The first is longer than a try may take: until then, the instance
// that tries is alone.
const (
	firstPause = 30 * time.Second
	mostPause  = 10 * time.Minute
)

// OverdueSince returns since when a run should have started, if that is so long ago that no instance seems to offer the job.
func (j Job) OverdueSince(now time.Time) (since time.Time, overdue bool) {
	if j.PausedBy != "" {
		return since, false
	}
	since = j.DueAt()
	switch _, on := j.Running(); {
	case on:
		// Over HTTP, only the end of a run decides about the times that came. If its instance has died, WatchAlarms ends it.
		return time.Time{}, false
	case !since.IsZero() && since.Before(j.Last.Ended) && !j.Last.Ended.After(now):
		since = j.Last.Ended // what is queued waited for that run
	}
	return since, !since.IsZero() && now.Sub(since) > OverdueAfter
}

// raise raises an alarm for a run that is not as it should be, as its state says. One that stands is the job's only one; one
// that has been cleared stands again if no sink knows it.
func (d *pendingChange) raise(r Run) {
	a := &d.Job.Alarm
	switch {
	case a.ID == "":
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d\x00%d", d.Job.Name, d.Job.Created.UnixMicro(), d.Job.Version, d.now.UnixMicro()))
		*a = Alarm{ID: hex.EncodeToString(sum[:16]), Raised: d.now, NextTry: d.now}
		a.blame(r)
	case a.Cleared.IsZero() && a.Reason == Overdue && r.State != Overdue:
		// An instance is back, and that is what is wrong now. Scheduled stays, by which receivers know when it began.
		since := a.Scheduled
		a.blame(r)
		a.Scheduled = since
	case !a.Sent && !a.Cleared.IsZero():
		// It is not known that any sink knows of either. What they are told is what is wrong now, under the ID by which a message may be under way.
		a.Cleared, a.Raised = time.Time{}, d.now
		a.blame(r)
	case !a.Cleared.IsZero() && a.Again.State == "":
		a.Again = r
	}
}

// blame makes a run the reason.
func (a *Alarm) blame(r Run) {
	a.Reason, a.Why, a.Scheduled, a.ExitCode, a.Instance = r.State, r.Why, r.Scheduled, r.ExitCode, ""
	if r.Instance.ID != "" { // it has started
		a.Instance = r.Instance.Label()
	}
}

// clear ends the alarm that stands, if one does.
func (d *pendingChange) clear() {
	a := &d.Job.Alarm
	if a.Again = (Run{}); a.ID == "" || !a.Cleared.IsZero() {
		return
	}
	if a.Cleared = d.now; a.Sent { // otherwise its start is still to be sent, and may be under way
		a.NextTry, a.Tries, a.WebhookTries = d.now, 0, 0
	}
}

// judge raises or ends the alarm for a run that has ended.
func (d *pendingChange) judge(r Run) {
	switch {
	case r.State.Bad():
		d.raise(r)
	case r.State == Succeeded:
		d.clear()
	}
}

// ClaimAlarm decides whether the alarm of a job is this instance's to send: claimed then has it, and until NextTry no other
// instance tries. It raises one if the job is overdue. The job's sinks get the start of the alarm before its end, both at
// least once.
func ClaimAlarm(claimed *Alarm) Decision { return claimAlarm(claimed, true) }

// claimAlarm is ClaimAlarm, which raises one only if raises is set.
func claimAlarm(claimed *Alarm, raises bool) Decision {
	return func(j Job, now time.Time) (Change, error) {
		*claimed = Alarm{}
		d := pendingChangeOf(j, now)
		if since, overdue := j.OverdueSince(d.now); raises && overdue && j.Version > 0 {
			d.raise(Run{State: Overdue, Scheduled: since, Why: "no instance that offers it runs"})
		}
		a := &d.Job.Alarm
		if !a.Pending() || a.NextTry.After(d.now) {
			return Change{Job: j, Unchanged: true}, nil
		}
		a.NextTry = d.now.Add(min(firstPause<<min(a.Tries, 10), mostPause))
		a.Tries++
		*claimed = *a
		return d.Change, nil
	}
}

// MarkSent records that the sinks of a job know of what was claimed: the start of an alarm, or, if that was sent before, its end.
func MarkSent(claimed Alarm) Decision {
	return func(j Job, now time.Time) (Change, error) {
		a := j.Alarm
		if a.ID != claimed.ID || a.ID == "" || a.Sent != claimed.Sent {
			return Change{Job: j, Unchanged: true}, nil // another instance was faster
		}
		d := pendingChangeOf(j, now)
		if !a.Sent {
			a := &d.Job.Alarm
			a.Sent, a.NextTry, a.Tries, a.WebhookTries = true, time.Time{}, 0, 0
			if !a.Cleared.IsZero() {
				a.NextTry = d.now
			}
			return d.Change, nil
		}
		d.Job.Alarm = Alarm{}
		d.Forget = j.ForgottenBy != ""
		if a.Again.State != "" {
			d.raise(a.Again)
		}
		return d.Change, nil
	}
}

// noteWebhook counts that only the webhook of a job did not take what was claimed.
func noteWebhook(claimed Alarm) Decision {
	return func(j Job, now time.Time) (Change, error) {
		if a := j.Alarm; a.ID != claimed.ID || a.ID == "" || a.Sent != claimed.Sent {
			return Change{Job: j, Unchanged: true}, nil
		}
		d := pendingChangeOf(j, now)
		d.Job.Alarm.WebhookTries = claimed.WebhookTries + 1
		return d.Change, nil
	}
}
