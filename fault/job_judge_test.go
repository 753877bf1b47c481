package fault_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/fault/worker/ledger"
	"github.com/understudy-ha/understudy/job"
)

// jobWell is a job that ran at three times: well, on a host that died, and not at all.
func jobWell() fault.JobEvidence {
	created := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(n int) time.Time { return created.Add(time.Duration(n) * time.Minute) }
	return fault.JobEvidence{
		Starts: []fault.JobStart{
			{Scheduled: at(1), Attempt: 1, Term: 1, Holder: "a/1", At: at(1), Well: true},
			{Scheduled: at(2), Attempt: 1, Term: 2, Holder: "b/1", At: at(2).Add(time.Second)},
		},
		Job: job.Job{Name: "j", Version: 9, Created: created, Decided: at(3), Next: at(4),
			Definition: job.Definition{Schedule: "every 1m"}, Ended: map[job.State]int64{job.Succeeded: 1, job.Lost: 1, job.MissedRun: 1}},
		Runs: []job.Run{
			{Scheduled: at(3), State: job.MissedRun},
			{Scheduled: at(2), State: job.Lost, Attempt: 1, Term: 2},
			{Scheduled: at(1), State: job.Succeeded, Attempt: 1, Term: 1},
		},
	}
}

// TestJudgeJob shows the judge what breaks each rule, and what breaks none.
func TestJudgeJob(t *testing.T) {
	for _, c := range []struct {
		name  string
		want  []fault.Rule
		spoil func(e *fault.JobEvidence)
	}{
		{"well", nil, func(*fault.JobEvidence) {}},
		{"a second start", []fault.Rule{fault.Twice}, func(e *fault.JobEvidence) {
			e.Starts = append(e.Starts, fault.JobStart{Scheduled: e.Starts[1].Scheduled, Attempt: 1, Term: 3, Holder: "a/1", At: e.Starts[1].At})
		}},
		{"a second attempt", []fault.Rule{fault.Twice}, func(e *fault.JobEvidence) {
			e.Starts = append(e.Starts, fault.JobStart{Scheduled: e.Starts[1].Scheduled, Attempt: 2, Term: 3, Holder: "a/1", At: e.Starts[1].At})
		}},
		{"a second attempt that was declared safe", nil, func(e *fault.JobEvidence) {
			e.Starts = append(e.Starts, fault.JobStart{Scheduled: e.Starts[1].Scheduled, Attempt: 2, Term: 3, Holder: "a/1", At: e.Starts[1].At})
			e.Job.Definition.Retries = 1
		}},
		{"a second start, but in a store that was restored", nil, func(e *fault.JobEvidence) {
			e.Since = e.Starts[1].At.Add(time.Hour)
			e.Starts = append(e.Starts, fault.JobStart{Scheduled: e.Starts[1].Scheduled, Attempt: 1, Term: 3, Holder: "a/1", At: e.Since})
		}},
		{"an older term", []fault.Rule{fault.Terms}, func(e *fault.JobEvidence) { slices.Reverse(e.Starts) }},
		{"an early start", []fault.Rule{fault.Early}, func(e *fault.JobEvidence) { e.Starts[0].At = e.Starts[0].At.Add(-time.Millisecond) }},
		{"an early start by a clock that was stepped", nil, func(e *fault.JobEvidence) {
			e.Starts[0].At, e.Stepped = e.Starts[0].At.Add(-time.Minute), true
		}},
		{"a start of what was missed", []fault.Rule{fault.Ghost}, func(e *fault.JobEvidence) { e.Runs[1].State = job.MissedRun }},
		{"a start that nobody knows", []fault.Rule{fault.Ghost}, func(e *fault.JobEvidence) { e.Runs = slices.Delete(e.Runs, 1, 2) }},
		{"success without an end", []fault.Rule{fault.Ghost}, func(e *fault.JobEvidence) { e.Runs[1].State = job.Succeeded }},
		{"success without a start", []fault.Rule{fault.Ghost}, func(e *fault.JobEvidence) { e.Starts = e.Starts[1:] }},
		{"nobody runs it", []fault.Rule{fault.Shown}, func(e *fault.JobEvidence) { e.Runs[1].State = job.Running }},
		{"a time that was forgotten", []fault.Rule{fault.Account}, func(e *fault.JobEvidence) { e.Job.Ended[job.MissedRun] = 0 }},
		{"a time that was passed over", []fault.Rule{fault.Account}, func(e *fault.JobEvidence) { e.Job.Next = e.Job.Next.Add(time.Minute) }},
	} {
		e := jobWell()
		c.spoil(&e)
		var got []fault.Rule
		for _, v := range fault.JudgeJob(e).Violations {
			got = append(got, v.Rule)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// TestJobStarts reads starts and ends from a ledger.
func TestJobStarts(t *testing.T) {
	zero := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	got, err := fault.JobStarts([]ledger.Effect{
		{At: time.Second, Term: 1, Holder: "a/1", Run: "2030-01-01T00:00:01Z/1"},
		{At: 2 * time.Second, Term: 1, Holder: "a/1"},
		{At: 3 * time.Second, Term: 2, Holder: "b/1", Run: "2030-01-01T00:00:01Z/2"},
		{At: 4 * time.Second, Term: 2, Holder: "b/1", Run: "2030-01-01T00:00:01Z/2", Ended: true},
	}, zero)
	at := zero.Add(time.Second)
	want := []fault.JobStart{
		{Scheduled: at, Attempt: 1, Term: 1, Holder: "a/1", At: at},
		{Scheduled: at, Attempt: 2, Term: 2, Holder: "b/1", At: zero.Add(3 * time.Second), Well: true},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
