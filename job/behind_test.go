package job

import (
	"fmt"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// catchUp runs what is due, each for so long, until nothing is, and decides meanwhile about what comes. It returns how many runs that took.
func (b *book) catchUp(takes time.Duration, watched bool) (n int) {
	b.Helper()
	for ; ; n++ {
		if n > 2000 {
			b.Fatalf("at %v the job is not caught up: next at %v, %d open, %v", b.now, b.job.Next, len(b.job.Open), b.job.Ended)
		}
		term := b.job.Term + 1
		b.apply(Claim(Holder{Term: term, Instance: lease.Instance{ID: "i", Name: "a"}}))
		r, on := b.job.RunningUnder(term)
		if !on {
			return n
		}
		end := b.now.Add(takes)
		if b.now = b.now.Add(time.Millisecond); watched {
			b.apply(Overlapping(Holder{Term: term}))
		}
		if since, overdue := b.job.OverdueSince(b.now); overdue {
			b.Fatalf("overdue since %v while a run is on", since)
		}
		b.now = end
		b.apply(FinishUnwatched(r.Scheduled, term, Result{State: Succeeded}))
		if b.now = b.now.Add(5 * time.Millisecond); b.job.Next.IsZero() {
			b.Fatal("no next time")
		}
		if since, overdue := b.job.OverdueSince(b.now); overdue {
			b.Fatalf("overdue since %v between two runs", since)
		}
	}
}

// TestMissedAllBeyondTheQueue: all times of an outage run that are more than may be queued, and the job is caught up in the end.
func TestMissedAllBeyondTheQueue(t *testing.T) {
	for _, c := range []struct {
		rule    Overlap
		watched bool
		takes   time.Duration
	}{
		{Forbid, true, 10 * time.Second}, {Forbid, false, 10 * time.Second}, {Forbid, true, 150 * time.Second}, {Forbid, false, 150 * time.Second},
		{Queue, true, 10 * time.Second}, {Queue, false, 10 * time.Second},
	} {
		t.Run(fmt.Sprintf("%s, %v, watched %v", c.rule, c.takes, c.watched), func(t *testing.T) {
			b := newBook(t, "* * * * *", func(d *Definition) { d.Missed, d.Overlap = MissedAll, c.rule })
			b.now = at("14:00:00")
			b.catchUp(c.takes, c.watched)
			for when := at("09:01:00"); !when.After(at("14:00:00")); when = when.Add(time.Minute) {
				if r := b.runs[when.Format(time.RFC3339Nano)]; r.State != Succeeded {
					t.Fatalf("the run of %v is %q: %s", when, r.State, r.Why)
				}
			}
			if c.rule == Queue && b.job.Ended[Skipped] > 0 || b.job.Ended[MissedRun] > 0 || c.takes > time.Minute && b.job.Ended[Skipped] == 0 {
				t.Errorf("%v", b.job.Ended)
			}
		})
	}
}

// TestMissedAllAgain: a second outage comes before the job has caught up with the first. All times of both run that are of the last day.
func TestMissedAllAgain(t *testing.T) {
	b := newBook(t, "* * * * *", func(d *Definition) { d.Missed = MissedAll })
	b.claim("14:00:30", 1)
	b.now = at("14:00:31")
	b.apply(Overlapping(Holder{Term: 1}))
	if b.finish("14:10:00", Succeeded); b.job.Behind.IsZero() {
		t.Fatal("more is queued than may be")
	}
	b.now = at("16:00:30") // what came while the first was on cannot be told any more from what came after it
	b.catchUp(10*time.Second, true)
	if n := b.job.Ended[MissedRun]; n > 0 {
		t.Errorf("%d were missed", n)
	}
	for when := at("09:01:00"); !when.After(at("16:00:00")); when = when.Add(time.Minute) {
		// While the first was on, some times came: nothing tells them from those after it.
		if r := b.runs[when.Format(time.RFC3339Nano)]; r.State != Succeeded {
			t.Fatalf("the run of %v is %q: %s", when, r.State, r.Why)
		}
	}
	b = newBook(t, "* * * * *", func(d *Definition) { d.Missed = MissedAll })
	b.now = at("+3 09:00:00")
	b.catchUp(time.Second, true)
	for when := at("09:01:00"); !when.After(at("+3 09:00:00")); when = when.Add(time.Minute) {
		r, known := b.runs[when.Format(time.RFC3339Nano)]
		if when.After(at("+2 09:00:00")) && r.State != Succeeded || known && !when.After(at("+2 09:00:00")) && r.State != MissedRun {
			t.Fatalf("the run of %v is %q: %s", when, r.State, r.Why)
		}
	}
}
