package jobtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/schedule"
)

// Rule is one that [Judge] has:
//
//   - twice: no attempt of a run starts twice, and none that was not declared safe.
//   - early: nothing starts before its time by the store's clock.
//   - terms: each start is under a later term than the one before.
//   - ghost: what succeeded came to its end; what was missed or skipped was not started; what was started is known.
//   - account: each scheduled time has its run, and nothing else has one.
//   - shown: nothing is shown as running when no instance works.
type Rule string

// The rules.
const (
	Twice   Rule = "twice"
	Early   Rule = "early"
	Terms   Rule = "terms"
	Ghost   Rule = "ghost"
	Account Rule = "account"
	Shown   Rule = "shown"
)

// Violation is one rule broken once.
type Violation struct {
	Rule   Rule
	Detail string
}

func (v Violation) String() string { return string(v.Rule) + ": " + v.Detail }

// Start is one start of a job's work, as the work itself tells it.
type Start struct {
	Scheduled time.Time
	Attempt   int
	Term      int64
	Holder    string    // as lease.Instance.Label shows it
	At        time.Time // by the store's clock
	// Well: the work came to its end.
	Well bool
}

// Evidence is what [Judge] looks at.
type Evidence struct {
	// Starts in the order in which they came about.
	Starts []Start
	// Job and its Runs as the store has them in the end, when no instance works.
	Job  job.Job
	Runs []job.Run
	// Stepped: the store's clock was, and so nobody knows what was early.
	Stepped bool
	// Frozen: whole hosts were stopped for longer than their sessions. A program among them may have told of its start when it went on,
	// before its watchers could end it.
	Frozen bool
	// Since is when the store was restored from a backup. What started before is judged apart.
	Since time.Time
}

// Verdict is what it says.
type Verdict struct {
	Violations []Violation
	Starts     int
	Again      int // further attempts
	Lost       int // runs
	Unseen     int // of those, whose program was killed before it could tell that it runs
	Missed     int // runs, or times
	// Latest is the longest from a scheduled time to the first start of its run.
	Latest time.Duration
}

type judge struct {
	Evidence
	Verdict
	runs map[int64]job.Run // by the scheduled time, in milliseconds
}

// Judge looks for broken rules.
func Judge(e Evidence) Verdict {
	j := judge{Evidence: e, runs: map[int64]job.Run{}}
	for _, r := range e.Runs {
		j.runs[r.Scheduled.UnixMilli()] = r
	}
	j.starts()
	j.records()
	j.account()
	return j.Verdict
}

func (j *judge) breaks(r Rule, format string, args ...any) {
	j.Violations = append(j.Violations, Violation{Rule: r, Detail: fmt.Sprintf(format, args...)})
}

// starts judges each start by those before it.
func (j *judge) starts() {
	type attempt struct {
		scheduled int64
		n         int
	}
	before, last := map[attempt]Start{}, Start{}
	for _, s := range j.Evidence.Starts {
		if s.At.Before(j.Since) {
			last = s
			continue
		}
		j.Verdict.Starts++
		at := s.Scheduled.UTC().Format(time.RFC3339Nano)
		key := attempt{s.Scheduled.UnixMilli(), s.Attempt}
		if first, again := before[key]; again {
			j.breaks(Twice, "attempt %d of the run of %s starts twice: on %s under term %d, and on %s under term %d", s.Attempt, at, first.Holder, first.Term, s.Holder, s.Term)
		}
		if s.Attempt > 1+j.Job.Definition.Retries {
			j.breaks(Twice, "attempt %d of the run of %s was not declared safe", s.Attempt, at)
		}
		if s.Term <= last.Term && !j.Frozen {
			j.breaks(Terms, "%s starts the run of %s under term %d, after %s started one under term %d", s.Holder, at, s.Term, last.Holder, last.Term)
		}
		late := s.At.Sub(s.Scheduled)
		if late < 0 && !j.Stepped {
			j.breaks(Early, "the run of %s starts %v before its time", at, -late)
		}
		switch run, known := j.runs[key.scheduled]; {
		case !known:
			j.breaks(Ghost, "the run of %s was started, and is not known", at)
		case run.State == job.MissedRun || run.State == job.Skipped:
			j.breaks(Ghost, "the run of %s is said to be %s, and was started", at, run.State)
		}
		if s.Attempt > 1 {
			j.Again++
		} else {
			j.Latest = max(j.Latest, late)
		}
		before[key], last = s, s
	}
}

// records judges what is said of runs.
func (j *judge) records() {
	for _, r := range j.Runs {
		of := slices.IndexFunc(j.Evidence.Starts, func(s Start) bool {
			return s.Scheduled.UnixMilli() == r.Scheduled.UnixMilli() && s.Term == r.Term
		})
		switch r.State {
		case job.Succeeded:
			if of < 0 || !j.Evidence.Starts[of].Well {
				j.breaks(Ghost, "the run of %v is said to have succeeded under term %d, and did not", r.Scheduled, r.Term)
			}
		case job.Lost:
			if j.Lost++; of < 0 {
				j.Unseen++
			}
		case job.MissedRun:
			j.Missed++
		case job.Running:
			j.breaks(Shown, "the run of %v is shown as running, and no instance works", r.Scheduled)
		}
	}
}

// account counts: each scheduled time has its run, and nothing else has one.
func (j *judge) account() {
	times, err := schedule.Parse(j.Job.Definition.Schedule)
	if err != nil {
		j.breaks(Account, "%v", err)
		return
	}
	from := j.Job.Definition.Anchor
	if from.IsZero() {
		from = j.Job.Created
	}
	times = times.Anchored(from)
	want, next := int64(0), times.Next(j.Job.Created)
	for ; !next.IsZero() && !next.After(j.Job.Decided); next = times.Next(next) {
		want++
	}
	got := int64(len(j.Job.Open))
	for _, n := range j.Job.Ended {
		got += n
	}
	for _, r := range j.Runs {
		if r.Trigger != "" {
			got--
		}
	}
	if got != want {
		j.breaks(Account, "%d times up to %v have %d runs: %v and %d open", want, j.Job.Decided, got, j.Job.Ended, len(j.Job.Open))
	}
	if !next.Equal(j.Job.Next) {
		j.breaks(Account, "after %v comes %v, and the job waits for %v", j.Job.Decided, next, j.Job.Next)
	}
}
