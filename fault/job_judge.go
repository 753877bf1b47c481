package fault

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/fault/worker/ledger"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/schedule"
)

// Early is the rule of jobs that nothing starts before its time. Account is the rule that each time has its run, and nothing else
// has one.
const (
	Early   Rule = "early"
	Account Rule = "account"
)

// JobStart is one start of a job's work, as the work itself tells it.
type JobStart struct {
	Scheduled time.Time
	Attempt   int
	Term      int64
	Holder    string    // as lease.Instance.Label shows it
	At        time.Time // by the store's clock
	// Well: the work came to its end.
	Well bool
}

// JobEvidence is what [JudgeJob] looks at.
type JobEvidence struct {
	// Starts in the order in which they came about.
	Starts []JobStart
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

// JobVerdict is what it says.
type JobVerdict struct {
	Violations []Violation
	Starts     int
	Again      int // further attempts
	Lost       int // runs
	Unseen     int // of those, whose program was killed before it could tell that it runs
	Missed     int // runs, or times
	// Latest is the longest from a scheduled time to the first start of its run.
	Latest time.Duration
}

type jobJudge struct {
	JobEvidence
	JobVerdict
	runs map[int64]job.Run // by the scheduled time, in milliseconds
}

// JudgeJob looks for broken rules.
func JudgeJob(e JobEvidence) JobVerdict {
	j := jobJudge{JobEvidence: e, runs: map[int64]job.Run{}}
	for _, r := range e.Runs {
		j.runs[r.Scheduled.UnixMilli()] = r
	}
	j.starts()
	j.records()
	j.account()
	return j.JobVerdict
}

func (j *jobJudge) breaks(r Rule, format string, args ...any) {
	j.Violations = append(j.Violations, Violation{Rule: r, Subject: j.Job.Name, Detail: fmt.Sprintf(format, args...)})
}

// starts judges each start by those before it.
func (j *jobJudge) starts() {
	type attempt struct {
		scheduled int64
		n         int
	}
	before, last := map[attempt]JobStart{}, JobStart{}
	for _, s := range j.JobEvidence.Starts {
		if s.At.Before(j.Since) {
			last = s
			continue
		}
		j.JobVerdict.Starts++
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
func (j *jobJudge) records() {
	for _, r := range j.Runs {
		of := slices.IndexFunc(j.JobEvidence.Starts, func(s JobStart) bool {
			return s.Scheduled.UnixMilli() == r.Scheduled.UnixMilli() && s.Term == r.Term
		})
		switch r.State {
		case job.Succeeded:
			if of < 0 || !j.JobEvidence.Starts[of].Well {
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
func (j *jobJudge) account() {
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

// JobStarts are the starts that a ledger tells of, with the wall clock's reading at zero of the ledger's.
func JobStarts(effects []ledger.Effect, zero time.Time) (starts []JobStart, err error) {
	for _, e := range effects {
		scheduled, attempt, found := strings.Cut(e.Run, "/")
		if !found {
			continue
		}
		s := JobStart{Term: e.Term, Holder: e.Holder, At: zero.Add(e.At)}
		if s.Scheduled, err = time.Parse(time.RFC3339Nano, scheduled); err != nil {
			return nil, err
		}
		if _, err := fmt.Sscan(attempt, &s.Attempt); err != nil {
			return nil, fmt.Errorf("attempt %q: %w", attempt, err)
		}
		if !e.Ended {
			starts = append(starts, s)
			continue
		}
		for i := range starts {
			if starts[i].Term == s.Term && starts[i].Holder == s.Holder {
				starts[i].Well = true
			}
		}
	}
	return starts, nil
}
