//go:build linux

package fault_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/open"
)

// The steps of a run at which an instance is killed or stopped. It waits there until it is told to continue.
const (
	beforeClaim  = "before the claim"
	beforeStart  = "between claim and start"
	whileItRuns  = "while it runs"
	beforeResult = "before the result is written"
	afterResult  = "after the result is written"
)

// stepEnv tells a process of this test's program that it is an instance: its store, its name, the date of its job, the step at
// which it waits, and the file that it writes its starts to.
const stepEnv = "UNDERSTUDY_FAULT_STEP"

// TestFaultJobSteps kills and stops an instance exactly at each step of a run, and looks what a second one makes of it. A run is started
// at most once, unless that is declared safe; and it is started, unless the instance ended between claim and start, of which nobody knows.
func TestFaultJobSteps(t *testing.T) {
	t.Parallel()
	type outcome struct {
		state  job.State
		starts string // the instances that started it, in order
	}
	const first, second, both, none = "a", "b", "a b", ""
	for _, c := range []struct {
		step              string
		lost, repeated    outcome // of a run that is not, and that is, declared safe to repeat
		stopped, restarts outcome // … if the instance is stopped, and continues when the other has decided
	}{
		{beforeClaim, outcome{job.Succeeded, second}, outcome{job.Succeeded, second}, outcome{job.Succeeded, second}, outcome{job.Succeeded, second}},
		{beforeStart, outcome{job.Lost, none}, outcome{job.Succeeded, second}, outcome{job.Lost, none}, outcome{job.Succeeded, second}},
		{whileItRuns, outcome{job.Lost, first}, outcome{job.Succeeded, both}, outcome{job.Lost, first}, outcome{job.Succeeded, both}},
		{beforeResult, outcome{job.Lost, first}, outcome{job.Succeeded, both}, outcome{job.Lost, first}, outcome{job.Succeeded, both}},
		{afterResult, outcome{job.Succeeded, first}, outcome{job.Succeeded, first}, outcome{job.Succeeded, first}, outcome{job.Succeeded, first}},
	} {
		for _, sent := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
			for _, safe := range []bool{false, true} {
				if !prove && (safe || sent == syscall.SIGSTOP && (c.step == beforeResult || c.step == afterResult)) {
					continue
				}
				want := map[bool]map[syscall.Signal]outcome{
					false: {syscall.SIGKILL: c.lost, syscall.SIGSTOP: c.stopped}, true: {syscall.SIGKILL: c.repeated, syscall.SIGSTOP: c.restarts},
				}[safe][sent]
				t.Run(fmt.Sprintf("%s/%s/safe=%v", c.step, map[syscall.Signal]string{syscall.SIGKILL: "SIGKILL", syscall.SIGSTOP: "SIGSTOP"}[sent], safe), func(t *testing.T) {
					t.Parallel()
					trial := newStepTrial(t, safe)
					a := trial.start("a", c.step)
					a.await(t, "step")
					if sent == syscall.SIGSTOP {
						trial.stop(t, a)
					} else {
						a.signal(t, sent)
					}
					b := trial.start("b", "")
					run := trial.ended(t)
					if sent == syscall.SIGSTOP {
						a.signal(t, syscall.SIGCONT)
						a.goOn(t)
						a.looks(t)
						a.stop(t)
					}
					b.looks(t)
					b.stop(t)
					run = trial.ended(t)
					if got := (outcome{run.State, strings.Join(trial.starts(t), " ")}); got != want {
						t.Errorf("it is %s, and was started by %q, want %s and %q (%s)", got.state, got.starts, want.state, want.starts, run.Why)
					}
				})
			}
		}
	}
}

// stepTrial is a job that is due once, in a file.
type stepTrial struct {
	t        *testing.T
	dir, url string
	def      job.Definition
	table    job.Store
}

func newStepTrial(t *testing.T, safe bool) *stepTrial {
	s := &stepTrial{t: t, dir: t.TempDir()}
	s.url = "sqlite:" + filepath.Join(s.dir, "store.db")
	st, err := open.Open(t.Context(), s.url, open.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	s.table = st.(store.Jobs).Jobs()
	s.def = job.Definition{Schedule: time.Now().UTC().Add(1500 * time.Millisecond).Truncate(time.Second).Format("2006-01-02T15:04:05"), Missed: job.MissedOne}
	if safe {
		s.def.Retries = 1
	}
	if _, err := s.table.Change(t.Context(), "j", job.Define("j", s.def)); err != nil {
		t.Fatal(err)
	}
	return s
}

// stop sends SIGSTOP to an instance between two of its writes: in the middle of one, a renewal say, it would keep the file locked.
func (s *stepTrial) stop(t *testing.T, p *stepProcess) {
	t.Helper()
	realserver.Eventually(t, time.Minute, "the file can be written", func() error {
		p.signal(t, syscall.SIGSTOP)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.table.Change(ctx, "probe", job.Define("probe", job.Definition{Schedule: "@yearly"}))
		if err != nil {
			p.signal(t, syscall.SIGCONT)
		}
		return err
	})
}

// stepProcess is an instance.
type stepProcess struct {
	cmd   *exec.Cmd
	stdin *os.File
	lines chan string
}

func (s *stepTrial) start(name, step string) *stepProcess {
	s.t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestFaultJobStepInstance$")
	cmd.Env = append(os.Environ(), stepEnv+"="+strings.Join([]string{s.url, name, s.def.Schedule, fmt.Sprint(s.def.Retries), step, filepath.Join(s.dir, "starts")}, "\n"))
	in, tell, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd.Stdin, cmd.Stderr = in, os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	_ = in.Close()
	p := &stepProcess{cmd: cmd, stdin: tell, lines: make(chan string, 100)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for text := bufio.NewScanner(out); text.Scan(); {
			select {
			case p.lines <- text.Text():
			default: // nobody waits for so many
			}
		}
	}()
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
		_ = tell.Close()
	})
	return p
}

func (p *stepProcess) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// goOn lets it continue at its step.
func (p *stepProcess) goOn(t *testing.T) {
	t.Helper()
	if _, err := p.stdin.WriteString("go on\n"); err != nil {
		t.Fatal(err)
	}
}

// looks waits until it has looked for due runs a few times more, and has done what came of that before.
func (p *stepProcess) looks(t *testing.T) {
	t.Helper()
	for len(p.lines) > 0 {
		<-p.lines
	}
	for range 3 {
		p.await(t, "look")
	}
}

// stop stops it, and waits until all that it does has ended.
func (p *stepProcess) stop(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	p.await(t, "stopped")
}

func (p *stepProcess) await(t *testing.T, want string) {
	t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case line := <-p.lines:
			if line == want {
				return
			}
		case <-deadline:
			t.Fatalf("an instance did not say %q", want)
		}
	}
}

// ended waits until the run has ended.
func (s *stepTrial) ended(t *testing.T) (run job.Run) {
	t.Helper()
	realserver.Eventually(t, patience, "the run has ended", func() error {
		runs, err := s.table.Runs(t.Context(), job.RunQuery{Job: "j", Limit: 10})
		if err == nil && (len(runs) != 1 || !runs[0].State.Ended()) {
			err = fmt.Errorf("runs: %+v", runs)
		}
		if err == nil {
			run = runs[0]
		}
		return err
	})
	return run
}

func (s *stepTrial) starts(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, "starts"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Fields(string(data))
}

// TestFaultJobStepInstance is the instance: the program of this test, started by [stepTrial.start].
func TestFaultJobStepInstance(t *testing.T) {
	args := strings.Split(os.Getenv(stepEnv), "\n")
	if len(args) != 6 {
		t.Skip("it is started by TestFaultJobSteps")
	}
	url, name, step, starts := args[0], args[1], args[4], args[5]
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	st, err := open.Open(ctx, url, open.Options{})
	if err != nil {
		t.Fatal(err)
	}
	keeper, err := lease.NewKeeper(lease.KeeperConfig{
		Store: st, Roster: st, Instance: lease.NewInstance(name, ""), Timing: lease.Timing{Interval: 200 * time.Millisecond, Timeout: 1200 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	gate := &stepGate{CombinedStore: st.(store.Jobs).Jobs().(job.CombinedStore), step: step}
	def := job.Definition{Schedule: args[2], Missed: job.MissedOne}
	if _, err := fmt.Sscan(args[3], &def.Retries); err != nil {
		t.Fatal(err)
	}
	work := func(ctx context.Context, task job.Task) error {
		f, err := os.OpenFile(starts, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err == nil {
			_, err = f.WriteString(name + "\n")
		}
		if err != nil {
			return err
		}
		gate.wait(whileItRuns)
		return ctx.Err()
	}
	var all sync.WaitGroup
	keep, endKeeping := context.WithCancel(context.WithoutCancel(ctx))
	all.Go(func() { _ = keeper.Run(keep) })
	all.Go(func() {
		defer endKeeping()
		_ = job.Serve(ctx, job.Config{Keeper: keeper, Store: gate, StopGrace: 200 * time.Millisecond, Offers: []job.Offer{{Name: "j", Definition: def, Work: work}}})
	})
	all.Wait()
	fmt.Println("stopped")
}

// stepGate is a store that has its instance wait at a step, once.
type stepGate struct {
	job.CombinedStore
	step string
	once sync.Once
}

func (g *stepGate) wait(step string) {
	if step != g.step {
		return
	}
	g.once.Do(func() {
		fmt.Println("step")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	})
}

// Get is how an instance looks for what is due.
func (g *stepGate) Get(ctx context.Context, name string) (job.Job, time.Time, error) {
	fmt.Println("look")
	return g.CombinedStore.Get(ctx, name)
}

func (g *stepGate) AcquireAndChange(ctx context.Context, e lease.Expectation, name string, decide func(lease.Lease) job.Decision) (lease.Lease, job.Job, error) {
	g.wait(beforeClaim)
	l, j, err := g.CombinedStore.AcquireAndChange(ctx, e, name, decide)
	if err == nil {
		g.wait(beforeStart)
	}
	return l, j, err
}

func (g *stepGate) ChangeAndRelease(ctx context.Context, name string, decide job.Decision, r lease.ReleaseRequest) error {
	g.wait(beforeResult)
	err := g.CombinedStore.ChangeAndRelease(ctx, name, decide, r)
	g.wait(afterResult)
	return err
}
