package job_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store/memory"
)

var timing = lease.Timing{Interval: time.Second, Timeout: 5 * time.Second}

// link is an instance's way to the jobs of a store.
type link struct {
	job.Store
	cut  atomic.Bool
	lose atomic.Int64 // answers that are lost from now on
	// changed gets what a change has made.
	changed atomic.Pointer[func(job.Job)]
	// late gets the next change, which has no answer, and reaches the store when late applies it.
	late atomic.Pointer[func(apply func() error)]
}

func (l *link) Change(ctx context.Context, name string, decide job.Decision) (job.Job, error) {
	if l.cut.Load() {
		return job.Job{}, lease.ErrUnavailable
	}
	if late := l.late.Swap(nil); late != nil {
		(*late)(func() error { _, err := l.Store.Change(context.WithoutCancel(ctx), name, decide); return err })
		return job.Job{}, lease.ErrUnknown
	}
	j, err := l.Store.Change(ctx, name, decide)
	if changed := l.changed.Load(); changed != nil {
		(*changed)(j)
	}
	if l.lose.Add(-1) >= 0 {
		return job.Job{}, lease.ErrUnknown
	}
	return j, err
}

func (l *link) Get(ctx context.Context, name string) (job.Job, time.Time, error) {
	if l.cut.Load() {
		return job.Job{}, time.Time{}, lease.ErrUnavailable
	}
	return l.Store.Get(ctx, name)
}

// PutOutput hangs while the link is cut.
func (l *link) PutOutput(ctx context.Context, key job.RunKey, term int64, o job.Output) error {
	if l.cut.Load() {
		<-ctx.Done()
		return lease.ErrUnavailable
	}
	return l.Store.PutOutput(ctx, key, term, o)
}

// start is one start of a job's work.
type start struct {
	node string
	job.Task
}

// stage is a store, and all that its instances start.
type stage struct {
	t     *testing.T
	store *memory.Store
	work  job.Work // what each run does after it was noted
	with  string   // see [job.Offer]
	way   func(*link) job.Store

	mu     sync.Mutex
	starts []start
	on     int
}

func newStage(t *testing.T, work job.Work) *stage {
	return &stage{t: t, store: memory.New(nil), work: work, way: func(l *link) job.Store { return l }}
}

type node struct {
	name  string
	lease *leasetest.Faulty
	jobs  *link
	way   job.Store // as it is offered to the instance
	// stop stops the instance, which must return then.
	stop func()
}

// cut takes the node off the store, both ways.
func (n *node) cut() {
	n.lease.Change(func(l *leasetest.Network) { l.CutRequests, l.CutAnswers = true, true })
	n.jobs.cut.Store(true)
}

func (s *stage) node(name string, def job.Definition) *node {
	s.t.Helper()
	n := &node{name: name, lease: leasetest.NewFaulty(s.store, rand.Uint64()), jobs: &link{Store: s.store.Jobs()}}
	n.way = s.way(n.jobs)
	k, err := lease.NewKeeper(lease.KeeperConfig{
		Store: n.lease, Roster: n.lease, Instance: lease.NewInstance(name, ""), Timing: timing, Clock: &leasetest.BubbleClock{},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	keep, endKeeping := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { _ = k.Run(keep) })
	all.Go(func() {
		defer endKeeping()
		overrun := func(string) { s.t.Errorf("%s: Overrun was called", name) }
		err := job.Serve(ctx, job.Config{Keeper: k, Store: n.way, Overrun: overrun, Offers: []job.Offer{{Name: "j", Definition: def, Work: s.note(name), With: s.with}}})
		if !errors.Is(err, context.Canceled) {
			s.t.Errorf("%s: Serve returned %v", name, err)
		}
	})
	n.stop = sync.OnceFunc(func() { cancel(); all.Wait(); n.lease.Wait() })
	s.t.Cleanup(n.stop)
	return n
}

// note is work that fails the test when it runs twice at a time.
func (s *stage) note(name string) job.Work {
	return func(ctx context.Context, t job.Task) error {
		s.mu.Lock()
		s.starts = append(s.starts, start{name, t})
		if s.on++; s.on > 1 {
			s.t.Errorf("%s starts the run of %v while another is on", name, t.Scheduled)
		}
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.on--
		}()
		return s.work(ctx, t)
	}
}

func (s *stage) started() []start {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.starts)
}

func (s *stage) job() job.Job {
	j, _, err := s.store.Jobs().Get(context.Background(), "j")
	if err != nil {
		s.t.Fatal(err)
	}
	return j
}

// states are the states of the runs, the earliest first.
func (s *stage) states() (all []job.State) {
	runs, err := s.store.Jobs().Runs(context.Background(), job.RunQuery{Job: "j", Limit: 1000})
	if err != nil {
		s.t.Fatal(err)
	}
	slices.Reverse(runs)
	for _, r := range runs {
		all = append(all, r.State)
	}
	return all
}

func (s *stage) want(states ...job.State) {
	s.t.Helper()
	if got := s.states(); !slices.Equal(got, states) {
		s.t.Errorf("the runs are %q, want %q", got, states)
	}
}

func quick(ctx context.Context, t job.Task) error {
	fmt.Fprintf(t.Output, "run %d\n", t.Term)
	time.Sleep(time.Second)
	return ctx.Err()
}

// until works until its context ends.
func until(ctx context.Context, _ job.Task) error { <-ctx.Done(); return ctx.Err() }

func every(period string) job.Definition { return job.Definition{Schedule: "every " + period} }

func TestEachTimeRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, quick)
		for i := range 5 {
			s.node(fmt.Sprint("n", i), every("10s"))
		}
		time.Sleep(105 * time.Second)
		starts, nodes := s.started(), map[string]bool{}
		if len(starts) != 10 {
			t.Fatalf("%d starts in 105 s", len(starts))
		}
		for i, st := range starts {
			nodes[st.node] = true
			if i > 0 && (st.Term <= starts[i-1].Term || st.Scheduled.Sub(starts[i-1].Scheduled) != 10*time.Second) {
				t.Errorf("start %d: %v under term %d after %v under %d", i, st.Scheduled, st.Term, starts[i-1].Scheduled, starts[i-1].Term)
			}
			if late := st.Started.Sub(st.Scheduled); late < 0 || late > 100*time.Millisecond {
				t.Errorf("%v started %v late", st.Scheduled, late)
			}
		}
		if len(nodes) < 2 {
			t.Errorf("all runs were on %v", nodes)
		}
		o, err := s.store.Jobs().Output(t.Context(), job.RunKey{Job: "j", Scheduled: starts[0].Scheduled})
		if want := fmt.Sprintf("run %d\n", starts[0].Term); err != nil || string(o.Tail) != want {
			t.Errorf("output %q, want %q (%v)", o.Tail, want, err)
		}
		if j := s.job(); j.Ended[job.Succeeded] != 10 || len(j.Open) != 0 {
			t.Errorf("counted %v, open %v", j.Ended, j.Open)
		}
	})
}

// An instance that is cut off while it runs the job stops it; its run is lost, and the next time runs elsewhere.
func TestCutOffWhileItRuns(t *testing.T) {
	for name, c := range map[string]struct {
		retries int
		states  []job.State
		starts  int
	}{
		"lost":     {0, []job.State{job.Lost}, 1},
		"repeated": {1, []job.State{job.Running}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, until)
				def := every("1h")
				def.Retries = c.retries
				nodes := map[string]*node{"a": s.node("a", def), "b": s.node("b", def)}
				time.Sleep(time.Hour + time.Second)
				if len(s.started()) != 1 {
					t.Fatalf("starts: %+v", s.started())
				}
				nodes[s.started()[0].node].cut()
				time.Sleep(timing.WorstTakeover() + time.Second)
				s.want(c.states...)
				starts := s.started()
				if len(starts) != c.starts {
					t.Fatalf("%d starts, want %d", len(starts), c.starts)
				}
				if c.starts == 2 && (starts[1].node == starts[0].node || starts[1].Attempt != 2 || !starts[1].Scheduled.Equal(starts[0].Scheduled)) {
					t.Errorf("the second start is %+v", starts[1])
				}
			})
		})
	}
}

// Work that returns as soon as its context ends is no overrun, though its last output cannot be kept.
func TestLastOutputOfACutOffRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(ctx context.Context, t job.Task) error {
			for ctx.Err() == nil {
				fmt.Fprintln(t.Output, "still at it")
				lease.Sleep(ctx, &leasetest.BubbleClock{}, 50*time.Millisecond)
			}
			return ctx.Err()
		})
		n := s.node("a", every("1h"))
		time.Sleep(time.Hour + 10*time.Second)
		n.cut()
		time.Sleep(time.Minute)
		if s.mu.Lock(); s.on != 0 || len(s.starts) != 1 {
			t.Errorf("%d starts, %d on", len(s.starts), s.on)
		}
		s.mu.Unlock()
	})
}

// Whoever is gone when the time comes is replaced within T + I.
func TestCutOffBeforeItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, quick)
		a := s.node("a", every("1h"))
		time.Sleep(time.Second)
		s.node("b", every("1h"))
		time.Sleep(time.Hour - 1500*time.Millisecond)
		a.cut()
		time.Sleep(2*time.Second + timing.WorstTakeover())
		if starts := s.started(); len(starts) != 1 || starts[0].node != "b" {
			t.Errorf("starts: %+v", starts)
		}
		s.want(job.Succeeded)
	})
}

// Answers that are lost, to a claim as to a result, make neither a second start nor another result.
func TestLostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, quick)
		n := s.node("a", every("1m"))
		time.Sleep(time.Minute - time.Second)
		n.jobs.lose.Store(1)
		time.Sleep(1500 * time.Millisecond)
		n.jobs.lose.Store(1)
		time.Sleep(5 * time.Second)
		if starts := s.started(); len(starts) != 1 {
			t.Errorf("%d starts", len(starts))
		}
		s.want(job.Succeeded)
	})
}

func TestStoppedInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, until)
		def := every("1h")
		def.Retries = 1
		nodes := map[string]*node{"a": s.node("a", def), "b": s.node("b", def)}
		time.Sleep(time.Hour + time.Second)
		first := s.started()[0]
		nodes[first.node].stop()
		time.Sleep(2 * time.Second)
		if starts := s.started(); len(starts) != 2 || starts[1].node == first.node {
			t.Errorf("starts: %+v", starts)
		}
		s.want(job.Running)
	})
}

func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		s := newStage(t, func(ctx context.Context, _ job.Task) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		})
		def := every("1h")
		def.DeadlineMS = 90_000
		s.node("a", def)
		time.Sleep(time.Hour + 2*time.Minute)
		s.want(job.TimedOut)
		if last := s.job().Last; last.Ended.Sub(last.Started) != 90*time.Second || !errors.Is(cause, job.ErrDeadline) {
			t.Errorf("took %v, stopped by %v", last.Ended.Sub(last.Started), cause)
		}
	})
}

func TestOverlaps(t *testing.T) {
	for rule, want := range map[job.Overlap][]job.State{
		job.Forbid:  {job.Running, job.Skipped, job.Skipped},
		job.Queue:   {job.Running, job.Queued, job.Queued},
		job.Replace: {job.Cancelled, job.Cancelled, job.Running},
	} {
		t.Run(string(rule), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, until)
				def := every("1m")
				def.Overlap = rule
				s.node("a", def)
				s.node("b", def)
				time.Sleep(3*time.Minute + 10*time.Second)
				s.want(want...)
			})
		})
	}
}

// An instance that works off more missed runs than may be queued is not busy with what waits.
func TestMissedAllWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(context.Context, job.Task) error { time.Sleep(20 * time.Second); return nil })
		def := every("1m")
		def.Missed = job.MissedAll
		if _, err := s.store.Jobs().Change(t.Context(), "j", job.Define("j", def)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Hour)
		var changes atomic.Int64
		count := func(job.Job) { changes.Add(1) }
		s.node("a", def).jobs.changed.Store(&count)
		time.Sleep(3 * time.Hour)
		if j := s.job(); len(j.Open) > 1 || j.Ended[job.Succeeded] < 300 || j.Next.Before(time.Now()) || j.Ended[job.MissedRun] > 0 {
			t.Errorf("next at %v, %d open, %v", j.Next, len(j.Open), j.Ended)
		}
		if runs := int64(len(s.started())); changes.Load() > 5*runs {
			t.Errorf("%d changes for %d runs", changes.Load(), runs)
		}
	})
}

type exitError int

func (e exitError) Error() string { return fmt.Sprint("exit code ", int(e)) }
func (e exitError) ExitCode() int { return int(e) }

func TestFailedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(context.Context, job.Task) error { return fmt.Errorf("backup: %w", exitError(3)) })
		s.node("a", every("1h"))
		time.Sleep(time.Hour + time.Second)
		s.want(job.Failed)
		if last := s.job().Last; last.ExitCode != 3 || last.Why != "backup: exit code 3" {
			t.Errorf("last: %+v", last)
		}
	})
}

// A run whose work panicked has started: it is not given back to be run again, on every instance in turn.
func TestRunThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(context.Context, job.Task) error { runtime.Goexit(); return nil })
		s.node("a", every("1h"))
		s.node("b", every("1h"))
		time.Sleep(time.Hour + time.Minute)
		s.want(job.Failed)
		if n := len(s.started()); n != 1 {
			t.Errorf("it was started %d times", n)
		}
	})
}

// A run that is asked for starts within two intervals, and also if the job was forgotten meanwhile.
func TestTrigger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, quick)
		s.node("a", every("24h"))
		ctx := t.Context()
		time.Sleep(time.Minute)
		if _, err := s.store.Jobs().Change(ctx, "j", job.Forget("bob")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * timing.Interval)
		if _, err := s.store.Jobs().Change(ctx, "j", job.Trigger("bob")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * timing.Interval)
		if starts := s.started(); len(starts) != 1 || starts[0].Trigger != "bob" {
			t.Errorf("starts: %+v", starts)
		}
	})
}

// counted returns so many jobs, each due so often, whose runs are counted.
func counted(n int, often string, ran *atomic.Int64) (out []job.Offer) {
	for i := range n {
		out = append(out, job.Offer{Name: fmt.Sprint("j", i), Definition: every(often), Work: func(context.Context, job.Task) error {
			ran.Add(1)
			return nil
		}})
	}
	return out
}

// With many offers, what is due is read in one list.
func TestManyOffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		var ran atomic.Int64
		cfg := job.Config{Store: store.Jobs(), Offers: counted(300, "1m", &ran)}
		stop := serve(t, store, cfg)
		time.Sleep(65 * time.Second)
		if n := ran.Load(); n != 300 {
			t.Errorf("%d runs", n)
		}
		stop()
	})
}

// A date that has passed, of a job that the store does not know, is logged once; the other jobs are offered.
func TestDateHasPassed(t *testing.T) {
	for _, many := range []int{1, 5} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.New(nil)
			var logged strings.Builder
			var ran atomic.Int64
			cfg := job.Config{Store: store.Jobs(), Offers: counted(many, "10s", &ran), Logger: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn}))}
			gift := job.Offer{Name: "gift", Definition: job.Definition{Schedule: "1999-12-24 18:00"}, Work: cfg.Offers[0].Work}
			cfg.Offers = append([]job.Offer{gift}, cfg.Offers...)
			stop := serve(t, store, cfg)
			time.Sleep(65 * time.Second)
			if n := ran.Load(); n != int64(6*many) {
				t.Errorf("%d runs of %d jobs in 65 s", n, many)
			}
			stop()
			if warned := logged.String(); strings.Count(warned, "\n") != 1 || !strings.Contains(warned, "its date has passed") {
				t.Errorf("logged:\n%s", warned)
			}
		})
	}
}

// What the store has lost of many jobs, or was told to forget, is there again within a minute.
func TestManyOffersAreAddedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		var ran atomic.Int64
		cfg := job.Config{Store: store.Jobs(), Offers: counted(5, "10s", &ran)}
		defer serve(t, store, cfg)()
		time.Sleep(5 * time.Second)
		for _, name := range []string{"j0", "j3"} {
			if _, err := store.Jobs().Change(t.Context(), name, job.Forget("bob")); err != nil {
				t.Fatal(err)
			}
		}
		changed := every("20s") // by an instance of another version, which has the last word
		if _, err := store.Jobs().Change(t.Context(), "j1", job.Define("j1", changed)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute + 2*timing.Interval)
		ran.Store(0)
		time.Sleep(20 * time.Second)
		if n := ran.Load(); n != 4*2+1 {
			t.Errorf("%d runs in 20 s", n)
		}
	})
}

// serve runs an instance until stop is called.
func serve(t *testing.T, store *memory.Store, cfg job.Config) (stop func()) {
	t.Helper()
	k, err := lease.NewKeeper(lease.KeeperConfig{Store: store, Roster: store, Instance: lease.NewInstance("a", ""), Timing: timing, Clock: &leasetest.BubbleClock{}})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Keeper = k
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { _ = k.Run(ctx) })
	all.Go(func() {
		if err := job.Serve(ctx, cfg); !errors.Is(err, context.Canceled) {
			t.Errorf("Serve returned %v", err)
		}
	})
	return func() { cancel(); all.Wait() }
}

// holdRole holds a role, as an instance of this name, until the end of the function that it returns.
func (s *stage) holdRole(role, name string) (release func()) {
	s.t.Helper()
	k, err := lease.NewKeeper(lease.KeeperConfig{Store: s.store, Instance: lease.NewInstance(name, ""), Timing: timing, Clock: &leasetest.BubbleClock{}})
	if err != nil {
		s.t.Fatal(err)
	}
	keep, endKeeping := context.WithCancel(context.Background())
	var keeping sync.WaitGroup
	keeping.Go(func() { _ = k.Run(keep) })
	held, err := k.Acquire(context.Background(), lease.AcquireRequest{Leases: elect.Leases(role, 1)})
	if err != nil {
		s.t.Fatal(err)
	}
	return func() {
		if err := held.Release(context.Background(), "", ""); err != nil {
			s.t.Error(err)
		}
		endKeeping()
		keeping.Wait()
	}
}

func TestRunsWhereItsRoleIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(ctx context.Context, _ job.Task) error {
			lease.Sleep(ctx, &leasetest.BubbleClock{}, 30*time.Minute)
			return context.Cause(ctx)
		})
		s.with = "primary"
		def := every("1h")
		def.Retries = 1
		s.node("a", def)
		s.node("b", def)
		time.Sleep(70 * time.Minute)
		if got := s.started(); len(got) != 0 {
			t.Fatalf("nobody holds the role, and %s started a run", got[0].node)
		}
		leaveB := s.holdRole("primary", "b")
		time.Sleep(5 * time.Minute)
		leaveB()
		time.Sleep(5 * time.Second)
		defer s.holdRole("primary", "a")()
		time.Sleep(40 * time.Minute)

		var where []string
		for _, one := range s.started() {
			where = append(where, fmt.Sprint(one.node, " ", one.Attempt))
		}
		if !slices.Equal(where, []string{"b 1", "a 2"}) {
			t.Errorf("started by %v; the holder of the role runs it, and the next holder repeats what was cut short", where)
		}
		if last := s.job().Last; last.State != job.Succeeded || last.Attempt != 2 {
			t.Errorf("%+v", last)
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	store := memory.New(nil)
	k, err := lease.NewKeeper(lease.KeeperConfig{Store: store, Instance: lease.NewInstance("a", ""), Timing: timing})
	if err != nil {
		t.Fatal(err)
	}
	good := job.Offer{Name: "j", Definition: every("1h"), Work: quick}
	for name, c := range map[string]job.Config{
		"no keeper":   {Store: store.Jobs(), Offers: []job.Offer{good}},
		"no store":    {Keeper: k, Offers: []job.Offer{good}},
		"no offer":    {Keeper: k, Store: store.Jobs()},
		"twice":       {Keeper: k, Store: store.Jobs(), Offers: []job.Offer{good, good}},
		"no work":     {Keeper: k, Store: store.Jobs(), Offers: []job.Offer{{Name: "j", Definition: every("1h")}}},
		"no role":     {Keeper: k, Store: store.Jobs(), Offers: []job.Offer{{Name: "j", Definition: every("1h"), Work: quick, With: "a#2"}}},
		"no schedule": {Keeper: k, Store: store.Jobs(), Offers: []job.Offer{{Name: "j", Work: quick}}},
		"no time":     {Keeper: k, Store: store.Jobs(), Offers: []job.Offer{good}, StopGrace: time.Minute},
	} {
		if err := job.Serve(t.Context(), c); !errors.Is(err, lease.ErrInvalid) && !errors.Is(err, lease.ErrUnsafeTiming) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An instance that can never have a session again serves no jobs.
func TestKeeperThatCannotContinue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var ran atomic.Int64
		err := job.Serve(ctx, job.Config{Keeper: leasetest.NewDamagedKeeper(t, store, timing), Store: store.Jobs(), Offers: counted(1, "1h", &ran)})
		if !errors.Is(err, lease.ErrDamaged) {
			t.Errorf("Serve returned %v", err)
		}
	})
}

// A run whose work has ended in time succeeded, however long it takes to pass on what the work has left.
func TestDeadlineAfterTheEndOfTheWork(t *testing.T) {
	for name, c := range map[string]struct {
		marks bool
		state job.State
	}{"ended before": {true, job.Succeeded}, "ends at it": {false, job.TimedOut}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, func(ctx context.Context, task job.Task) error {
					if c.marks {
						task.MarkEnded()
					}
					<-ctx.Done()
					return nil
				})
				def := every("1h")
				def.DeadlineMS = 10_000
				s.node("a", def)
				time.Sleep(time.Hour + time.Minute)
				s.want(c.state)
			})
		})
	}
}

// refusingJobs refuses each change, with an error.
type refusingJobs struct {
	job.Store
	err error
}

func (s refusingJobs) Change(context.Context, string, job.Decision) (job.Job, error) {
	return job.Job{}, s.err
}

// A job that cannot be stored is tried again, with one warning for the whole outage, unless no retry can help.
func TestOfferThatCannotBeStored(t *testing.T) {
	for name, c := range map[string]struct {
		err      error
		warnings int
		ends     bool
	}{"no store": {lease.ErrUnavailable, 1, false}, "damaged": {lease.ErrDamaged, 0, true}, "two hosts": {lease.ErrTwoHosts, 0, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st, text := memory.New(nil), new(strings.Builder)
				k, err := lease.NewKeeper(lease.KeeperConfig{Store: st, Roster: st, Instance: lease.NewInstance("a", ""), Timing: timing, Clock: &leasetest.BubbleClock{}})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				began := time.Now()
				err = job.Serve(ctx, job.Config{
					Keeper: k, Store: refusingJobs{st.Jobs(), c.err}, Logger: slog.New(slog.NewTextHandler(text, nil)),
					Offers: []job.Offer{{Name: "j", Definition: every("1h"), Work: quick}},
				})
				if ended := time.Since(began) < time.Minute; ended != c.ends || c.ends && !errors.Is(err, c.err) {
					t.Errorf("Serve returned %v after %v", err, time.Since(began))
				}
				if n := strings.Count(text.String(), "level=WARN"); n != c.warnings {
					t.Errorf("%d warnings, want %d", n, c.warnings)
				}
			})
		})
	}
}
