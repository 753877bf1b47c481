//go:build linux

package fault

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/fault/worker/ledger"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/job/jobtest"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// JobsConfig describes [Jobs].
type JobsConfig struct {
	Programs Programs
	// Database of the job. Required.
	Database Database
	// Name of the job. Default "j".
	Name string
	// Options of `understudy job run`, with the schedule. Required.
	Options []string
	// Worker's flags: how long a run takes, and so on.
	Worker []string
	// Timing of all sessions. Default as in [Config].
	Timing lease.Timing
	// Stepped, Frozen and Since: see [jobtest.Evidence].
	Stepped, Frozen bool
	Since           time.Time
	// Quiet: what the program writes is not kept in the hosts' logs.
	Quiet bool
	// Seed of the links' randomness.
	Seed uint64
}

// Jobs are hosts that offer one job: understudy job run.
type Jobs struct {
	*Cluster
	JobsConfig
}

// NewJobs makes a job without hosts; [Cluster.Start] starts them.
func NewJobs(tb testing.TB, cfg JobsConfig) *Jobs {
	tb.Helper()
	if cfg.Name == "" {
		cfg.Name = "j"
	}
	j := &Jobs{JobsConfig: cfg}
	j.Cluster = NewCluster(tb, Config{Programs: cfg.Programs, Database: cfg.Database, Role: cfg.Name, Timing: cfg.Timing, Worker: cfg.Worker, Seed: cfg.Seed,
		Run: j.command, Quiet: cfg.Quiet})
	return j
}

// command is the command line of a host. Options that it has of its own come last, and win.
func (j *Jobs) command(ledger, name, url string, options []string) []string {
	args := []string{"job", "run", j.Name, "--store", url, "--name", name, "--log-level", "debug",
		"--interval", j.Cluster.Timing.Interval.String(), "--timeout", j.Cluster.Timing.Timeout.String(), "--stop-grace", j.StopGrace.String()}
	return slices.Concat(args, j.Options, options, []string{"--", j.Cluster.Programs.Worker, "-ledger", ledger}, j.Cluster.Worker)
}

// Table is the part of the store that keeps jobs, beside the links.
func (j *Jobs) Table() job.Store {
	j.tb.Helper()
	return j.open().(store.Jobs).Jobs()
}

// Job as the store has it, by the store's clock; without a version as long as it has none.
func (j *Jobs) Job() (at job.Job, now time.Time, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return j.Table().Get(ctx, j.Name)
}

// Runs are all runs, the latest first.
func (j *Jobs) Runs() (all []job.Run, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return runsOf(ctx, j.Table(), j.Name)
}

// runsOf are all runs of a job that are kept, the latest first.
func runsOf(ctx context.Context, jobs job.Store, name string) (all []job.Run, err error) {
	const most = 1000
	for q := (job.RunQuery{Job: name, Limit: most}); ; {
		page, err := jobs.Runs(ctx, q)
		if err != nil {
			return nil, err
		}
		if all = append(all, page...); len(page) < most {
			return all, nil
		}
		q.Before = page[len(page)-1].Scheduled
	}
}

// Await waits until the job is as it should be.
func (j *Jobs) Await(what string, within time.Duration, is func(at job.Job, runs []job.Run) bool) (job.Job, []job.Run) {
	j.tb.Helper()
	var at job.Job
	var runs []job.Run
	realserver.Eventually(j.tb, within, what, func() (err error) {
		if at, _, err = j.Job(); err != nil {
			return err
		}
		if runs, err = j.Runs(); err != nil {
			return err
		}
		if !is(at, runs) {
			return fmt.Errorf("it waits for %v, has %d open runs, and so many that have ended: %v", at.Next, len(at.Open), at.Ended)
		}
		return nil
	})
	return at, runs
}

// Succeeds waits for a run that is scheduled from now on, and succeeds.
func (j *Jobs) Succeeds() {
	j.tb.Helper()
	_, now, err := j.Job()
	if err != nil {
		now = time.Time{} // it has not been offered yet
	}
	j.Await("a run succeeds", 2*j.Bound(), func(_ job.Job, runs []job.Run) bool {
		return slices.ContainsFunc(runs, func(r job.Run) bool { return r.State == job.Succeeded && r.Scheduled.After(now) })
	})
}

// KillHost ends a node and all that it started, at once and at the same time.
func (n *Node) KillHost() {
	n.signalAll(syscall.SIGSTOP) // nothing of it can start anything more
	n.signalAll(syscall.SIGKILL)
}

// PauseHost stops a node and all that it started; ResumeHost lets them continue.
func (n *Node) PauseHost() { n.signalAll(syscall.SIGSTOP) }

// ResumeHost is the end of [Node.PauseHost].
func (n *Node) ResumeHost() { n.signalAll(syscall.SIGCONT) }

// signalAll sends a signal to the node, and then to what it has started, until nothing of that is new.
func (n *Node) signalAll(s syscall.Signal) {
	n.Signal(s)
	had := map[int]bool{n.PID(): true}
	for all := false; !all; {
		all = true
		for _, p := range marked(n.mark()) {
			if !had[p.PID] {
				_ = syscall.Kill(p.PID, s)
				had[p.PID], all = true, false
			}
		}
	}
}

// Finish stops all hosts, sees to it that nothing that they started is alive, and judges what they did.
func (j *Jobs) Finish() jobtest.Verdict {
	j.tb.Helper()
	for _, n := range j.Living() {
		n.Signal(syscall.SIGTERM)
	}
	for _, n := range j.nodes {
		if !n.Stop(j.Bound()) {
			j.tb.Errorf("%s did not stop within %v", n.Name, j.Bound())
		}
	}
	j.NothingLeft()
	e := j.Evidence()
	v := jobtest.Judge(e)
	for _, violation := range v.Violations {
		j.tb.Errorf("VIOLATION %v", violation)
	}
	if !j.Frozen {
		for _, violation := range Judge(Evidence{Effects: j.Effects()}).Violations {
			j.tb.Errorf("VIOLATION %v", violation)
		}
	}
	j.tb.Logf("%d starts, the latest %v after its time; %d further attempts, %d runs lost, %d of them before their program told of itself, %d missed; %v",
		v.Starts, v.Latest.Round(time.Millisecond), v.Again, v.Lost, v.Unseen, v.Missed, e.Job.Ended)
	return v
}

// Evidence is what is known.
func (j *Jobs) Evidence() jobtest.Evidence {
	j.tb.Helper()
	e := jobtest.Evidence{Stepped: j.Stepped, Frozen: j.Frozen, Since: j.Since}
	var err error
	e.Job, _, err = j.Job()
	if err == nil {
		e.Runs, err = j.Runs()
	}
	zero := time.Now().Add(-j.now())
	if err == nil {
		e.Starts, err = JobStarts(j.Effects(), zero)
	}
	if err != nil {
		j.tb.Fatalf("the evidence of job %s: %v", j.Name, err)
	}
	return e
}

// mark is in the environment of everything that this life of the node starts.
func (n *Node) mark() string { return "UNDERSTUDY_FAULT_NODE=" + n.log }

// JobStarts are the starts that a ledger tells of, with the wall clock's reading at zero of the ledger's.
func JobStarts(effects []ledger.Effect, zero time.Time) (starts []jobtest.Start, err error) {
	for _, e := range effects {
		scheduled, attempt, found := strings.Cut(e.Run, "/")
		if !found {
			continue
		}
		s := jobtest.Start{Term: e.Term, Holder: e.Holder, At: zero.Add(e.At)}
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
