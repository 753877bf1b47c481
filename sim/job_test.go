package sim

import (
	"os"
	"testing"
)

var jobs = histories[JobResult]{
	few: 16, many: 10000,
	run: func(t *testing.T, seed uint64, trace func(string, ...any)) (JobResult, []string) {
		s := DrawJob(seed)
		s.Trace = trace
		r := RunJob(t, s)
		return r, r.Broken
	},
	sum: func(all *JobResult, r JobResult) {
		all.Starts += r.Starts
		all.Lost += r.Lost
		all.Missed += r.Missed
		all.Skipped += r.Skipped
		all.Again += r.Again
		all.Late = max(all.Late, r.Late)
	},
	idle: func(all JobResult, runs int) bool {
		return all.Starts < 5*runs || runs > 100 && all.Lost*all.Missed*all.Skipped*all.Again == 0
	},
}

// TestJobSimulation is TestSimulation for jobs.
func TestJobSimulation(t *testing.T) { jobs.explore(t) }

// TestJobYearSimulation is TestJobSimulation with whole years; make test has a month of one.
func TestJobYearSimulation(t *testing.T) {
	years := jobs
	years.few, years.many = 1, 120
	years.run = func(t *testing.T, seed uint64, trace func(string, ...any)) (JobResult, []string) {
		s := DrawJobYear(seed)
		if s.Trace = trace; os.Getenv("UNDERSTUDY_PROVE") != "1" {
			s.Length = min(s.Length, 30*day)
		}
		r := RunJob(t, s)
		return r, r.Broken
	}
	years.idle = func(all JobResult, runs int) bool {
		return runs > 10 && (all.Starts < 50*runs || all.Lost*all.Missed*all.Skipped*all.Again == 0)
	}
	years.explore(t)
}

// TestJobSeeds replays the seeds of jobs that once failed.
func TestJobSeeds(t *testing.T) { jobs.again(t, "testdata/job_seeds.txt") }

// TestJobSimulationCatches proves the checks: each broken job is caught, and for what it is.
func TestJobSimulationCatches(t *testing.T) {
	for _, twin := range JobTwins() {
		catches(t, twin.Name, twin.Caught, 30, 300, func(t *testing.T, seed uint64) []string {
			s := DrawJob(seed)
			if s.Twin = twin; twin.Need != nil {
				twin.Need(&s)
			}
			return RunJob(t, s).Broken
		})
	}
}
