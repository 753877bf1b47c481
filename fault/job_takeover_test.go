//go:build linux

package fault_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/job/jobtest"
	"github.com/understudy-ha/understudy/lease"
)

// TestFaultJobTakeover has many trials. In each, a job on two hosts is due once, and the host that would run it is killed at a random
// moment around that time: there are never two starts of what was not declared safe, and never none of what was.
func TestFaultJobTakeover(t *testing.T) {
	t.Parallel()
	stores, pairs, rounds := []string{"postgres"}, 2, 2
	if prove {
		stores, pairs, rounds = []string{"sqlite", "postgres", "redis"}, 6, 60
	}
	programs := fault.Build(t)
	seed := givenSeed()
	for _, store := range stores {
		t.Run(store, func(t *testing.T) {
			t.Logf("UNDERSTUDY_SEED=%d", seed)
			db := database(t, store)
			var all takeovers
			t.Run("pairs", func(t *testing.T) {
				for i := range pairs {
					t.Run(fmt.Sprint(i), func(t *testing.T) {
						t.Parallel()
						trials := jobTrials{db: db, programs: programs, random: rand.New(rand.NewPCG(seed, uint64(i))), all: &all, safe: i%2 == 0}
						trials.run(t, fmt.Sprint("j", i), rounds)
					})
				}
			})
			all.report(t)
		})
	}
}

// takeovers is what the trials on one store came to.
type takeovers struct {
	mu    sync.Mutex
	n     map[string]int
	after []time.Duration // from the due time, or the death if that came later, to the start on the other host
}

func (all *takeovers) note(what string, after time.Duration) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.n == nil {
		all.n = map[string]int{}
	}
	all.n[what]++
	if after > 0 {
		all.after = append(all.after, after.Round(time.Millisecond))
	}
}

func (all *takeovers) report(t *testing.T) {
	sum := 0
	did := maps.Clone(all.n)
	maps.DeleteFunc(did, func(what string, _ int) bool { return strings.HasPrefix(what, "no trial") })
	for _, n := range did {
		sum += n
	}
	t.Logf("%d trials: %v", sum, all.n)
	tried(t, did)
	if sum == 0 {
		t.Error("nothing was tried")
	}
	if n := len(all.after); n > 0 {
		slices.Sort(all.after)
		t.Logf("%d starts on the other host, after: median %v, 99 of 100 %v, at most %v (T = %v)", n, all.after[n/2], all.after[n*99/100], all.after[n-1], jobTiming.Timeout)
	}
}

// jobTiming has a T that is short, so that many trials are made in a minute.
var jobTiming = lease.Timing{Interval: 300 * time.Millisecond, Timeout: 1500 * time.Millisecond}

// jobTrials are trials of two hosts, one after the other.
type jobTrials struct {
	db       fault.Database
	programs fault.Programs
	random   *rand.Rand
	all      *takeovers
	safe     bool // to repeat
}

func (r jobTrials) run(t *testing.T, name string, rounds int) {
	j := fault.NewJobs(t, fault.JobsConfig{Programs: r.programs, Database: r.db, Name: name, Timing: jobTiming,
		Worker: []string{"-for", "150ms", "-nested=false", "-every", "20ms"}})
	other, due := r.offer(t, j, "b")
	r.ended(j, due)
	victim := "a"
	for range rounds {
		n, due := r.offer(t, j, victim)
		if other.Link == nil && r.random.IntN(2) == 0 { // on a file, either may be the one that would run it
			n, other = other, n
		}
		r.trial(t, j, due, n, other)
		victim = n.Name
	}
	for _, n := range j.Living() {
		n.Stop(patience)
	}
	j.NothingLeft()
	for _, violation := range fault.Judge(fault.Evidence{Effects: j.Effects()}).Violations {
		t.Errorf("VIOLATION %s", violation)
	}
}

// offer starts a host, by whose definition the job is due once, in a second or so: longer where the machine is too busy for that.
func (r jobTrials) offer(t *testing.T, j *fault.Jobs, name string) (*fault.Node, time.Time) {
	for lead := time.Second; ; lead *= 2 {
		due := time.Now().UTC().Add(lead + 999*time.Millisecond).Truncate(time.Second)
		n, known := j.Start(name, r.options(due)...), false
		realserver.Eventually(t, patience, "the date is known", func() error {
			at, _, err := j.Job()
			known = err == nil && (at.Next.Equal(due) || at.Decided.Equal(due))
			if !known && !n.Exited() && time.Now().Before(due.Add(time.Second)) {
				return fmt.Errorf("it waits for %v: %w", at.Next, err)
			}
			return nil
		})
		if known {
			return n, due
		}
		n.KillHost()
	}
}

// options have the job due once.
func (r jobTrials) options(due time.Time) []string {
	options := []string{"--schedule", due.Format("2006-01-02T15:04:05"), "--zone", "UTC"}
	if r.safe {
		options = append(options, "--retry-safe")
	}
	return options
}

// ended waits until the run of a time has ended, and returns it.
func (r jobTrials) ended(j *fault.Jobs, due time.Time) job.Run {
	of := func(r job.Run) bool { return r.Scheduled.Equal(due) && r.State.Ended() }
	_, runs := j.Await("the run has ended", patience, func(_ job.Job, runs []job.Run) bool { return slices.ContainsFunc(runs, of) })
	return runs[slices.IndexFunc(runs, of)]
}

func (r jobTrials) trial(t *testing.T, j *fault.Jobs, due time.Time, victim, other *fault.Node) {
	t.Helper()
	if other.Link != nil {
		// Both try within 20 ms after the due time. This one comes later.
		other.Link.Set(fault.Way{Delay: 60 * time.Millisecond}, fault.Way{})
	}
	// From before the claim to after the result.
	j.Pass(time.Until(due) - 100*time.Millisecond + time.Duration(r.random.Int64N(int64(500*time.Millisecond))))
	victim.KillHost()
	killed := time.Now()
	if other.Link != nil {
		other.Link.Set(fault.Way{}, fault.Way{})
	}
	run := r.ended(j, due)
	var dead, took []jobtest.Start
	attempts := map[int]bool{}
	for _, s := range j.Evidence().Starts {
		if !s.Scheduled.Equal(due) {
			continue
		}
		if attempts[s.Attempt] || s.Attempt > 1 && !r.safe {
			t.Errorf("attempt %d of the run of %v was started again, or was not declared safe", s.Attempt, due)
		}
		if attempts[s.Attempt] = true; victim.Is(s.Holder) {
			dead = append(dead, s)
		} else {
			took = append(took, s)
		}
	}
	told, what := min(len(dead), 1), ""
	switch {
	case run.State == job.Lost && (run.Instance.Name == other.Name || run.Attempt > 1):
		what = "no trial: a host that lived lost the store, on a busy machine"
	case run.State == job.Lost && !r.safe:
		what = []string{"claimed, killed before its program told of itself: lost", "killed while it ran: lost"}[told]
	case run.State != job.Succeeded:
		t.Errorf("the run of %v is %s: %s", due, run.State, run.Why)
	case run.Attempt > 1:
		what = []string{"claimed, killed before its program told of itself: repeated", "killed while it ran: repeated"}[told]
	case len(took) == 1 && took[0].At.Before(killed):
		what = "no trial: it was not the one that would run it"
	case len(took) == 1:
		what = "killed before it claimed: run by the other"
	case told == 0:
		t.Errorf("the run of %v has succeeded, and nobody started it", due)
	default:
		what = "killed after it had run"
	}
	after := time.Duration(0)
	if len(took) == 1 {
		after = took[0].At.Sub(due)
		if killed.After(due) {
			after = took[0].At.Sub(killed)
		}
	}
	if what != "" {
		r.all.note(what, after)
	}
}
