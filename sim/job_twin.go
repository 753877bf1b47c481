package sim

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/job"
)

// JobTwin is a job that is broken on purpose, in one way: see [Twin].
type JobTwin struct {
	Name string
	// Caught is what the judge has to say of it.
	Caught string
	// Decide replaces what an instance decides.
	Decide func(*jobNode, job.Decision) job.Decision
	// Write replaces the writing of a change; it reports whether it did.
	Write func(n *jobNode, was job.Job, c job.Change, write func(context.Context) (jobAt, error)) (job.Job, bool)
	// Need makes sure that a run has what the fault needs to show.
	Need func(*JobSetup)
}

// after is a twin whose decisions are changed afterwards.
func after(edit func(was job.Job, c *job.Change)) func(*jobNode, job.Decision) job.Decision {
	return func(_ *jobNode, decide job.Decision) job.Decision {
		return func(j job.Job, now time.Time) (job.Change, error) {
			c, err := decide(j, now)
			if err == nil && !c.Unchanged {
				edit(j, &c)
			}
			return c, err
		}
	}
}

// JobTwins returns every one that the simulation must catch.
func JobTwins() []JobTwin {
	calmClock := func(s *JobSetup) { s.Steps = false }
	var again map[time.Time]bool // hours that were counted again, in the run that is on
	return []JobTwin{
		{Name: "due by the host's clock", Caught: "before its time", Need: calmClock,
			Decide: func(n *jobNode, decide job.Decision) job.Decision {
				return func(j job.Job, _ time.Time) (job.Change, error) { return decide(j, n.clock.Wall()) }
			}},
		{Name: "the claim is written after the start", Caught: "starts twice",
			Need: func(s *JobSetup) { s.Def.Retries, s.Freezes, s.Steps = 0, false, false },
			Write: func(n *jobNode, was job.Job, c job.Change, write func(context.Context) (jobAt, error)) (job.Job, bool) {
				r, on := c.Job.Running()
				if _, before := was.Running(); !on || before || r.Term != c.Job.Term {
					return job.Job{}, false
				}
				go func() {
					pause(n.world.setup.Timing.Interval)
					if !n.dead.Load() {
						_, _ = write(context.Background())
					}
				}()
				return c.Job, true
			}},
		{Name: "an hour that comes twice counts twice", Caught: "starts twice",
			Need: func(s *JobSetup) {
				again = map[time.Time]bool{}
				s.atChangeOfClocks(newDice(s.Seed, 1))
				s.Def.Schedule, s.Def.Missed, s.Freezes = "TZ=Europe/Berlin */5 * * * *", job.MissedOne, false
			},
			Decide: after(func(was job.Job, c *job.Change) {
				// The first of the second hour begins the first one again.
				if h := c.Job.Decided.Truncate(time.Hour); was.Decided.Before(h) && !was.Decided.IsZero() && h.Hour() == 1 && !again[h] {
					again[h] = true
					c.Job.Next = c.Job.Next.Add(-time.Hour)
				}
			})},
		{Name: "missed times are forgotten", Caught: "times up to", Need: calmClock,
			Decide: after(func(was job.Job, c *job.Change) {
				c.Job.Ended[job.MissedRun] = was.Ended[job.MissedRun]
			})},
		{Name: "what cannot be queued is skipped", Caught: "was due when nothing ran",
			Need: func(s *JobSetup) {
				s.Def.Missed, s.Def.Overlap, s.Begin = job.MissedAll, job.Forbid, 0
				s.farBehind(newDice(s.Seed, 1))
			},
			Decide: after(func(_ job.Job, c *job.Change) { c.Job.Behind = time.Time{} })},
		{Name: "a lost run is started again", Caught: "was not declared safe",
			Need: func(s *JobSetup) { s.Def.Retries = 0 },
			Decide: func(_ *jobNode, decide job.Decision) job.Decision {
				return func(j job.Job, now time.Time) (job.Change, error) {
					if j.Version > 0 {
						j.Definition.Retries = 3
					}
					return decide(j, now)
				}
			}},
		{Name: "lost runs have succeeded", Caught: "is said to have succeeded",
			Decide: after(func(_ job.Job, c *job.Change) {
				for i, r := range c.Runs {
					if r.State == job.Lost {
						c.Runs[i].State = job.Succeeded
					}
				}
			})},
	}
}
