package job

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// changing is a job whose definition, and whether it is paused, change at any time.
type changing struct {
	*book
	r     *rand.Rand
	came  []string // each time that came under the schedule of that moment
	trace []string
}

func (c *changing) draw() Definition {
	schedules := []string{"0 10 * * *", "0 10 * * mon-sat", "0 * * * *", "*/20 * * * *", "30 9-17 * * *", "every 1h", "every 45m"}
	return Definition{
		Schedule: schedules[c.r.IntN(len(schedules))], JitterMS: []int64{0, 20 * 60_000, 3600_000, 3 * 3600_000}[c.r.IntN(4)],
		Missed: []Missed{MissedOne, MissedSkip, MissedAll}[c.r.IntN(3)], Overlap: []Overlap{Forbid, Queue}[c.r.IntN(2)],
	}
}

func (c *changing) pass(d time.Duration) {
	for _, at := range c.job.Upcoming(c.now, 6) {
		if at.After(c.now.Add(d)) {
			break
		}
		c.came = append(c.came, at.Format(time.RFC3339Nano))
	}
	c.now = c.now.Add(d)
}

func (c *changing) run() {
	if r, on := c.job.Running(); on {
		c.apply(FinishUnwatched(r.Scheduled, r.Term, Result{State: Succeeded}))
	} else {
		c.apply(Claim(Holder{Term: c.job.Term + 1}))
	}
}

func (c *changing) step() {
	c.pass(time.Duration(c.r.Int64N(int64(90 * time.Minute))))
	paused, missed := c.job.PausedBy != "", c.job.Ended[MissedRun]
	what := "run"
	switch n := c.r.IntN(10); {
	case n < 3:
		d := c.draw()
		what = fmt.Sprintf("defined as %s with a jitter of %v", d.Schedule, ms(d.JitterMS))
		c.apply(Define("j", d))
	case n < 4:
		what = "paused"
		c.apply(Pause("ops"))
	case n < 5:
		what = "resumed"
		c.apply(Resume("ops"))
	default:
		c.run()
	}
	c.trace = append(c.trace, c.now.Format("02 15:04:05 ")+what)
	if paused && c.job.Ended[MissedRun] > missed {
		c.Fatalf("%q\na paused job has missed a run: %+v", c.trace, c.job.Last)
	}
}

// account judges, once what is due was decided about.
func (c *changing) account() {
	c.apply(Resume("ops"))
	for range 80 {
		c.pass(5 * time.Minute)
		c.run()
	}
	c.came = slices.DeleteFunc(c.came, func(at string) bool { return at >= c.job.Next.Format(time.RFC3339Nano) })
	runs := sortedKeys(c.runs)
	for _, at := range c.came {
		if !slices.Contains(runs, at) {
			c.Fatalf("%q\nthe time %s has no run; next is %v", c.trace, at, c.job.Next)
		}
	}
	for _, at := range runs {
		if !slices.Contains(c.came, at) {
			c.Fatalf("%q\n%s has a run and never came", c.trace, at)
		}
	}
}

// TestScheduleChangesSeeds: whenever a job gets another schedule, each time that came under one has its run, and nothing else has one; what
// a paused job does not run is skipped, not missed.
func TestScheduleChangesSeeds(t *testing.T) {
	for seed := range uint64(300) {
		c := &changing{book: newBook(t, "0 10 * * *"), r: rand.New(rand.NewPCG(seed, 2))}
		for range 30 {
			c.step()
		}
		c.account()
	}
}

// TestScheduleChangesWithinTheJitter: the run of a time that the new schedule has, too, starts when it is due; that of another was missed.
func TestScheduleChangesWithinTheJitter(t *testing.T) {
	hour := func(d *Definition) { d.JitterMS = time.Hour.Milliseconds() }
	for schedule, want := range map[string]State{"0 10 * * sat": Running, "0 10 * * mon": MissedRun, "*/10 * * * *": MissedRun} {
		b := newBook(t, "0 10 * * *", hour)
		due := b.job.DueAt()
		if b.now = at("10:10:30"); !due.After(b.now) {
			t.Fatalf("due at %v already", due)
		}
		def := Definition{Schedule: schedule}
		hour(&def)
		b.apply(Define("j", def))
		b.now = due
		b.apply(Claim(Holder{Term: 1}))
		if r := b.runs["2026-11-21T10:00:00Z"]; r.State != want || want == Running && b.job.Late(r) != 0 {
			t.Errorf("%s: %+v", schedule, r)
		}
	}
}
