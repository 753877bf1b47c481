package jobtest

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/job"
)

// jobWell is a job that ran at three times: well, on a host that died, and not at all.
func jobWell() Evidence {
	created := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(n int) time.Time { return created.Add(time.Duration(n) * time.Minute) }
	return Evidence{
		Starts: []Start{
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

// TestJudge shows the judge what breaks each rule, and what breaks none.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name  string
		want  []Rule
		spoil func(e *Evidence)
	}{
		{"well", nil, func(*Evidence) {}},
		{"a second start", []Rule{Twice}, func(e *Evidence) {
			e.Starts = append(e.Starts, Start{Scheduled: e.Starts[1].Scheduled, Attempt: 1, Term: 3, Holder: "a/1", At: e.Starts[1].At})
		}},
		{"a second attempt", []Rule{Twice}, func(e *Evidence) {
			e.Starts = append(e.Starts, Start{Scheduled: e.Starts[1].Scheduled, Attempt: 2, Term: 3, Holder: "a/1", At: e.Starts[1].At})
		}},
		{"a second attempt that was declared safe", nil, func(e *Evidence) {
			e.Starts = append(e.Starts, Start{Scheduled: e.Starts[1].Scheduled, Attempt: 2, Term: 3, Holder: "a/1", At: e.Starts[1].At})
			e.Job.Definition.Retries = 1
		}},
		{"a second start, but in a store that was restored", nil, func(e *Evidence) {
			e.Since = e.Starts[1].At.Add(time.Hour)
			e.Starts = append(e.Starts, Start{Scheduled: e.Starts[1].Scheduled, Attempt: 1, Term: 3, Holder: "a/1", At: e.Since})
		}},
		{"an older term", []Rule{Terms}, func(e *Evidence) { slices.Reverse(e.Starts) }},
		{"an early start", []Rule{Early}, func(e *Evidence) { e.Starts[0].At = e.Starts[0].At.Add(-time.Millisecond) }},
		{"an early start by a clock that was stepped", nil, func(e *Evidence) {
			e.Starts[0].At, e.Stepped = e.Starts[0].At.Add(-time.Minute), true
		}},
		{"a start of what was missed", []Rule{Ghost}, func(e *Evidence) { e.Runs[1].State = job.MissedRun }},
		{"a start that nobody knows", []Rule{Ghost}, func(e *Evidence) { e.Runs = slices.Delete(e.Runs, 1, 2) }},
		{"success without an end", []Rule{Ghost}, func(e *Evidence) { e.Runs[1].State = job.Succeeded }},
		{"success without a start", []Rule{Ghost}, func(e *Evidence) { e.Starts = e.Starts[1:] }},
		{"nobody runs it", []Rule{Shown}, func(e *Evidence) { e.Runs[1].State = job.Running }},
		{"a time that was forgotten", []Rule{Account}, func(e *Evidence) { e.Job.Ended[job.MissedRun] = 0 }},
		{"a time that was passed over", []Rule{Account}, func(e *Evidence) { e.Job.Next = e.Job.Next.Add(time.Minute) }},
	} {
		e := jobWell()
		c.spoil(&e)
		var got []Rule
		for _, v := range Judge(e).Violations {
			got = append(got, v.Rule)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
