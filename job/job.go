package job

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/url"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/schedule"
)

// Space is the space of the leases of jobs: an instance holds that of a job while it runs it.
const Space = "job"

// Limits.
const (
	MaxName     = 190                  // bytes
	MaxQueued   = 100                  // runs of a job that wait
	MaxRetry    = 100                  // attempts after the first
	MaxJitter   = 24 * time.Hour       // of the start
	KeepRuns    = 10_000               // of each job; older ones are dropped
	KeepTails   = 200                  // runs of each job whose output is kept
	MaxRecent   = 60                   // runs in [Job.Recent]
	MaxTail     = 16 << 10             // bytes that are kept of a run's output: its end
	maxGone     = 24 * time.Hour       // how old a time may be that "all" still runs
	onTime      = time.Minute          // how late a time may be that "skip" still runs
	maxWalk     = 1000                 // times that are counted one by one
	MaxDeadline = 366 * 24 * time.Hour // of a run, from its start
)

// Overlap says what happens when a job's time comes while a run of it is on.
type Overlap string

// The rules for overlaps.
const (
	Forbid  Overlap = "forbid"  // the new run is skipped; the default
	Queue   Overlap = "queue"   // the new run waits for its turn
	Replace Overlap = "replace" // the old run is stopped
)

// Missed says which of the times run that passed while no instance was there.
type Missed string

// The rules for missed times.
const (
	MissedOne  Missed = "one"  // the latest; the default
	MissedSkip Missed = "skip" // none, but for one that is less than a minute late
	MissedAll  Missed = "all"  // all of the last 24 hours, one after the other
)

// Definition says when and how a job runs. All instances that offer the job should say the same: the one that
// started last decides.
type Definition struct {
	// Schedule is when it runs; see [schedule.Parse]. Required.
	Schedule string `json:"schedule"`
	// Anchor is what a period is counted from. Default: when the job was added.
	Anchor time.Time `json:"anchor,omitzero"`
	// JitterMS spreads runs, in milliseconds: each starts so much later at most, the same for all instances.
	JitterMS int64 `json:"jitter_ms,omitempty"`
	// DeadlineMS is how long a run may take, in milliseconds, before it is stopped. 0: as long as it likes.
	DeadlineMS int64 `json:"deadline_ms,omitempty"`
	// Overlap and Missed are rules. Default: forbid, and one.
	Overlap Overlap `json:"overlap"`
	Missed  Missed  `json:"missed"`
	// Retries is how often a run is repeated that failed, timed out, was lost or was stopped with its instance, but not one that
	// another replaced: it declares that this is safe.
	Retries int `json:"retries,omitempty"`
	// AlarmURL gets the job's alarms, beside the sinks that the store's monitor has: http or https. It may hold a secret.
	AlarmURL string `json:"alarm_url,omitempty"`
}

// WithDefaults fills what is empty.
func (d Definition) WithDefaults() Definition {
	if d.Overlap == "" {
		d.Overlap = Forbid
	}
	if d.Missed == "" {
		d.Missed = MissedOne
	}
	return d
}

// Validate returns an error that wraps lease.ErrInvalid and says what is wrong.
func (d Definition) Validate() error {
	d = d.WithDefaults()
	_, err := schedule.Parse(d.Schedule)
	switch {
	case err != nil:
	case !slices.Contains([]Overlap{Forbid, Queue, Replace}, d.Overlap):
		err = fmt.Errorf("overlap %q: use forbid, queue or replace", d.Overlap)
	case !slices.Contains([]Missed{MissedOne, MissedSkip, MissedAll}, d.Missed):
		err = fmt.Errorf("missed %q: use one, skip or all", d.Missed)
	case d.Overlap == Replace && d.Missed == MissedAll:
		err = errors.New("overlap replace and missed all contradict each other: each missed run would be replaced by the next")
	case d.JitterMS < 0 || d.JitterMS > MaxJitter.Milliseconds():
		err = fmt.Errorf("a jitter of %v; use 0 to %v", ms(d.JitterMS), MaxJitter)
	case d.DeadlineMS < 0 || d.DeadlineMS > MaxDeadline.Milliseconds():
		err = fmt.Errorf("a deadline of %v; use 0 (none) to %v", ms(d.DeadlineMS), MaxDeadline)
	case d.Retries < 0 || d.Retries > MaxRetry:
		err = fmt.Errorf("%d retries; use 0 to %d", d.Retries, MaxRetry)
	case d.AlarmURL != "":
		if u, e := url.Parse(d.AlarmURL); e != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" {
			err = errors.New("the URL for alarms: write it as https://ops.example/hook, without a user and without #") // it may be a secret
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", lease.ErrInvalid, err)
	}
	return nil
}

func (d Definition) equal(o Definition) bool {
	same := d.Anchor.Equal(o.Anchor)
	d.Anchor, o.Anchor = time.Time{}, time.Time{}
	return same && d == o
}

// ValidateName returns an error that wraps lease.ErrInvalid unless a job can have the name.
func ValidateName(name string) error {
	if err := lease.ValidateText("job", name, 1, MaxName); err != nil {
		return err
	}
	return LeaseID(name).Validate()
}

// LeaseID is the lease that an instance holds while it runs the job.
func LeaseID(name string) lease.ID { return lease.ID{Space: Space, Key: name} }

// State of a run.
type State string

// The states of a run.
const (
	Queued    State = "queued"    // it waits for its turn
	Running   State = "running"   // written before the program starts
	Succeeded State = "succeeded" // it ended well
	Failed    State = "failed"    // it ended with an error
	TimedOut  State = "timed_out" // it was stopped at its deadline
	Cancelled State = "cancelled" // it was stopped: replaced, or its instance was stopped
	Lost      State = "lost"      // its instance died: it may have ended well or not
	MissedRun State = "missed"    // it did not start: no instance was there
	Skipped   State = "skipped"   // it did not start: another run was on, or the job was paused
)

// Ended reports whether the state is a run's last one.
func (s State) Ended() bool { return s != Queued && s != Running }

// Bad reports whether somebody should look at the run.
func (s State) Bad() bool { return s == Failed || s == TimedOut || s == Lost || s == MissedRun }

// Letter is the state in [Job.Recent].
func (s State) Letter() byte {
	const letters = "qrsftclmk" // in the order of States
	return letters[slices.Index(States(), s)]
}

// States are all of them.
func States() []State {
	return []State{Queued, Running, Succeeded, Failed, TimedOut, Cancelled, Lost, MissedRun, Skipped}
}

// Run is one run of a job. Its key is Scheduled: there is one run for each scheduled time.
type Run struct {
	// Scheduled is the time of the schedule, in UTC, or when the run was triggered.
	Scheduled time.Time `json:"scheduled"`
	// Trigger is who asked for the run; "" is the schedule.
	Trigger string `json:"trigger,omitempty"`
	State   State  `json:"state"`
	// Attempt counts starts from 1.
	Attempt int `json:"attempt"`
	// Before is how the attempt before it ended, if there was one, and TermBefore under which term.
	Before     State `json:"before,omitempty"`
	TermBefore int64 `json:"term_before,omitempty"`
	// NotBefore is when a queued run may start.
	NotBefore time.Time `json:"not_before,omitzero"`
	// Term under which it runs or ran, by which instance. The term is the fencing token.
	Term     int64          `json:"term,omitempty"`
	Instance lease.Instance `json:"instance,omitzero"`
	// Started and Ended are by the store's clock.
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	// ExitCode of the program, if it failed with one.
	ExitCode int `json:"exit_code,omitempty"`
	// Why it ended as it did, or did not run.
	Why string `json:"why,omitempty"`
}

// Job is a job as a store keeps it.
type Job struct {
	Name string `json:"name"`
	// Version grows with each change; 0: there is no such job.
	Version    int64      `json:"-"`
	Definition Definition `json:"definition"`
	// Created is when it was added, by the store's clock.
	Created time.Time `json:"created"`
	// Next is the earliest scheduled time that nothing was decided about; zero when there is none.
	Next time.Time `json:"next,omitzero"`
	// Decided is the latest scheduled time that something was decided about.
	Decided time.Time `json:"decided,omitzero"`
	// Behind is the latest of the times that [MissedAll] has yet to queue, because no more may be queued now; zero when there are none.
	Behind time.Time `json:"behind,omitzero"`
	// Triggered is the key of the latest run that was asked for.
	Triggered time.Time `json:"triggered,omitzero"`
	// Term is the lowest under which a run may be claimed: the highest under which one was, or the one after.
	Term int64 `json:"term,omitempty"`
	// PausedBy is who paused it; "" when it is not paused.
	PausedBy string `json:"paused_by,omitempty"`
	// Open are the runs that are queued or running, by their keys. One at most is running.
	Open []Run `json:"open,omitempty"`
	// Alarm stands while the job does not run as it should; it is kept until its sinks know of its end.
	Alarm Alarm `json:"alarm,omitzero"`
	// ForgottenBy is who forgot it while its alarm stood: it goes once the sinks know of the end. "": it is not forgotten.
	ForgottenBy string `json:"forgotten_by,omitempty"`
	// Last is the run that ended last, and says how the job is.
	Last Run `json:"last,omitzero"`
	// Recent is how the last runs ended, the latest first: a [State.Letter] for each.
	Recent string `json:"recent,omitempty"`
	// Ended counts the runs that have ended, by state.
	Ended map[State]int64 `json:"ended,omitempty"`
}

// Running is the run that is on; false when there is none.
func (j Job) Running() (Run, bool) {
	for _, r := range j.Open {
		if r.State == Running {
			return r, true
		}
	}
	return Run{}, false
}

// RunningUnder is Running for a holder of the job's lease: false if what runs has another term.
func (j Job) RunningUnder(term int64) (Run, bool) {
	r, on := j.Running()
	return r, on && r.Term == term
}

// isBehind reports whether the next time waits for a place among the queued runs: nothing is decided about it while a run is on.
func (j Job) isBehind() bool {
	full := j.Definition.Missed == MissedAll && j.Definition.Overlap == Queue && j.queued() >= MaxQueued
	return !j.Next.IsZero() && (full || !j.Next.After(j.Behind))
}

func (j Job) queued() (n int) {
	for _, r := range j.Open {
		if r.State == Queued {
			n++
		}
	}
	return n
}

// DueAt is when an instance should attend to the job, by the store's clock: when its next run is due, or at once while
// a run is on, because its holder may die. Zero: never.
func (j Job) DueAt() time.Time {
	var due time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (due.IsZero() || t.Before(due)) {
			due = t
		}
	}
	sooner(j.startsAt(j.Next))
	for _, r := range j.Open {
		if r.State == Running {
			sooner(r.Started)
		} else {
			sooner(r.NotBefore)
		}
	}
	return due
}

// startsAt is when the run of a scheduled time is due: later by the jitter, which is the same for everyone.
func (j Job) startsAt(scheduled time.Time) time.Time {
	if scheduled.IsZero() || j.Definition.JitterMS == 0 {
		return scheduled
	}
	return scheduled.Add(spread(ms(j.Definition.JitterMS), j.Name, scheduled.Format(time.RFC3339Nano)))
}

// Late is how long after it was due a run started: after its time and, unless it was triggered, the jitter.
func (j Job) Late(r Run) time.Duration {
	due := r.Scheduled
	if r.Trigger == "" {
		due = j.startsAt(due)
	}
	return max(0, r.Started.Sub(due))
}

// spread is a duration less than most that depends on the words alone.
func spread(most time.Duration, words ...string) time.Duration {
	h := fnv.New64a()
	for _, w := range words {
		_, _ = h.Write([]byte(w + "\x00"))
	}
	return time.Duration(h.Sum64() % uint64(max(1, most)))
}

// times is the job's schedule. A definition is stored only if it is valid.
func (j Job) times() schedule.Schedule {
	s, err := schedule.Parse(j.Definition.Schedule)
	if err != nil {
		return schedule.Schedule{}
	}
	if j.Definition.Anchor.IsZero() {
		return s.Anchored(j.Created)
	}
	return s.Anchored(j.Definition.Anchor)
}

// Upcoming are the next scheduled times after one, at most n.
func (j Job) Upcoming(after time.Time, n int) (all []time.Time) {
	s := j.times()
	for next := s.Next(after); n > 0 && !next.IsZero(); n-- {
		all = append(all, next.UTC())
		next = s.Next(next)
	}
	return all
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
