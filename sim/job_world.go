package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store/memory"
)

const jobName = "j"

// JobSetup is one run of instances that offer a job: see [Setup].
type JobSetup struct {
	Seed    uint64
	Nodes   int
	Timing  lease.Timing
	Grace   time.Duration
	Length  time.Duration
	Begin   time.Duration // from the bubble's first moment: it may be near a change of clocks
	Def     job.Definition
	Takes   time.Duration // that the work takes at most
	Fails   float64       // the chance that it fails
	Network leasetest.Network
	// Freezes has instances frozen at any point, Steps the store's clock stepped.
	Freezes, Steps bool
	Twin           JobTwin
	// Trace, when not nil, is told what happens, for whoever replays a seed.
	Trace func(format string, args ...any)
}

// DrawJob returns the run of a seed.
func DrawJob(seed uint64) JobSetup {
	d := newDice(seed, 0x6a6f62)
	interval := []time.Duration{200 * time.Millisecond, time.Second}[d.n(2)]
	timing := lease.Timing{Interval: interval, Timeout: interval*7/2 + d.upTo(5*interval)}
	s := JobSetup{
		Seed: seed, Nodes: 2 + d.n(4), Timing: timing, Grace: d.between(interval/20, interval/2),
		Length: d.between(12*timing.Timeout, 30*timing.Timeout),
		Def: job.Definition{
			Schedule: fmt.Sprintf("every %ds", 1+d.n(12)),
			Overlap:  []job.Overlap{job.Forbid, job.Queue, job.Replace}[d.n(3)],
			Missed:   []job.Missed{job.MissedOne, job.MissedSkip, job.MissedAll}[d.n(3)],
			Retries:  []int{0, 0, 2}[d.n(3)],
		},
		Fails: []float64{0, 0.2}[d.n(2)], Freezes: d.hit(0.3), Steps: d.hit(0.3),
	}
	if s.Def.Overlap == job.Replace && s.Def.Missed == job.MissedAll {
		s.Def.Missed = job.MissedOne
	}
	s.Takes = []time.Duration{interval, 2 * timing.Timeout}[d.n(2)]
	if d.hit(0.3) {
		s.Def.JitterMS = interval.Milliseconds()
	}
	if d.hit(0.2) {
		s.Def.DeadlineMS = timing.Timeout.Milliseconds()
	}
	if d.hit(0.25) {
		s.atChangeOfClocks(d)
	}
	s.Network.MaxDelay = d.upTo(timing.CallTimeout() / 5)
	if d.hit(0.7) {
		s.Network.Lose = 0.1 * float64(d.n(101)) / 100
		s.Network.Refuse, s.Network.Duplicate, s.Network.Late, s.Network.LoseWake = 0.02, 0.04, 0.03, 0.2
	}
	return s
}

// atChangeOfClocks has a crontab in Berlin, where the clock is put back, or on, in the middle of the run. A bubble begins with the
// year 2000.
func (s *JobSetup) atChangeOfClocks(d *dice) {
	s.Def.Schedule = "TZ=Europe/Berlin " + []string{"*/5 * * * *", "*/7 2 * * *", "15,45 1-3 * * *"}[d.n(3)]
	s.Timing = lease.Timing{Interval: 20 * time.Second, Timeout: 100 * time.Second}
	s.Grace, s.Takes, s.Length = 5*time.Second, 30*time.Second, 3*time.Hour
	s.Steps, s.Def.JitterMS, s.Def.DeadlineMS = false, 0, 0
	change := []time.Time{time.Date(2000, 3, 26, 1, 0, 0, 0, time.UTC), time.Date(2000, 10, 29, 1, 0, 0, 0, time.UTC)}[d.n(2)]
	s.Begin = change.Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) - 90*time.Minute
}

// JobResult is what a run came to.
type JobResult struct {
	Broken                             []string
	Starts, Lost, Missed, Skipped, Two int // Two: further attempts
	// Late is the longest that a run started after its time once faults had stopped, in T.
	Late float64
}

type jobWorld struct {
	setup   JobSetup
	dice    *dice
	store   *memory.Store
	judge   *jobJudge
	server  server
	stepped atomic.Int64 // the store's clock, by so much
	ahead   time.Duration
	calm    atomic.Bool
	nodes   []*jobNode
	past    []*jobNode
	streams uint64
}

// RunJob runs a job and its instances in a bubble of its own.
func RunJob(t *testing.T, setup JobSetup) (result JobResult) {
	synctest.Test(t, func(*testing.T) {
		pause(setup.Begin)
		w := newJobWorld(setup)
		w.suffer()
		result = w.recover()
	})
	return result
}

func newJobWorld(setup JobSetup) *jobWorld {
	w := &jobWorld{setup: setup, dice: newDice(setup.Seed, 0x776f72), nodes: make([]*jobNode, setup.Nodes)}
	w.store = memory.New(w.now)
	w.judge = newJobJudge(w)
	w.server = server{w.store, &gate{dice: w.dice}}
	for i := range w.nodes {
		w.launch(i)
	}
	return w
}

// now is the store's clock.
func (w *jobWorld) now() time.Time { return time.Now().Add(time.Duration(w.stepped.Load())) }

func (w *jobWorld) launch(i int) {
	w.streams++
	w.nodes[i] = w.newNode(fmt.Sprintf("n%d", i), w.streams)
	w.nodes[i].start()
}

func (w *jobWorld) network() leasetest.Network {
	if w.calm.Load() {
		return leasetest.Network{MaxDelay: time.Millisecond}
	}
	return w.setup.Network
}

// suffer lets faults befall the instances for the length of the run.
func (w *jobWorld) suffer() {
	faults := []func(*jobNode){w.cut, w.cut, w.kill, w.kill, w.stop, w.freezeStore, w.trigger, w.pauseJob}
	if w.setup.Freezes {
		faults = append(faults, w.freeze, w.freeze)
	}
	if w.setup.Steps {
		faults = append(faults, w.stepStore)
	}
	for end := time.Now().Add(w.setup.Length); time.Now().Before(end); {
		pause(w.dice.between(w.setup.Timing.Interval/4, w.setup.Timing.Timeout))
		faults[w.dice.n(len(faults))](w.victim())
	}
}

// victim is a node: rather one that runs the job.
func (w *jobWorld) victim() *jobNode {
	for _, n := range w.nodes {
		if n.working.Load() > 0 && w.dice.hit(0.5) {
			return n
		}
	}
	return w.nodes[w.dice.n(len(w.nodes))]
}

func (w *jobWorld) cut(n *jobNode) {
	way := w.dice.n(3)
	n.link.Change(func(l *leasetest.Network) { l.CutRequests, l.CutAnswers = way != 1, way != 0 })
	time.AfterFunc(w.dice.upTo(3*w.setup.Timing.Timeout), func() {
		if !n.dead.Load() {
			n.link.Change(func(l *leasetest.Network) { *l = w.network() })
		}
	})
}

func (w *jobWorld) kill(n *jobNode)   { n.kill(); w.replace(n) }
func (w *jobWorld) stop(n *jobNode)   { n.leave(); w.replace(n) }
func (w *jobWorld) freeze(n *jobNode) { n.gate.freeze(w.dice.upTo(4 * w.setup.Timing.Timeout)) }

func (w *jobWorld) freezeStore(*jobNode) {
	w.server.gate.freeze(w.dice.upTo(w.setup.Timing.Timeout * 3 / 2))
}

// replace starts another run of the instance, after a while or at once.
func (w *jobWorld) replace(n *jobNode) {
	w.past = append(w.past, n)
	if w.dice.hit(0.5) {
		pause(w.dice.upTo(w.setup.Timing.Timeout))
	}
	for i := range w.nodes {
		if w.nodes[i] == n {
			w.launch(i)
		}
	}
}

// stepStore steps the store's clock, as far as an hour.
func (w *jobWorld) stepStore(*jobNode) {
	by := w.dice.between(-10*w.setup.Timing.Timeout, 10*w.setup.Timing.Timeout)
	w.judge.trace("the store's clock steps by %v", by)
	w.stepped.Add(int64(by))
	w.ahead = max(w.ahead, time.Duration(w.stepped.Load()))
}

func (w *jobWorld) operate(decide job.Decision) {
	_, err := w.judge.Change(context.Background(), jobName, decide)
	if err != nil && !errors.Is(err, job.ErrNotFound) && !errors.Is(err, job.ErrBusy) {
		w.judge.says("an operator was told %v", err)
	}
}

func (w *jobWorld) trigger(*jobNode) { w.operate(job.Trigger("operator")) }

func (w *jobWorld) pauseJob(*jobNode) {
	w.operate(job.Pause("operator"))
	pause(w.dice.upTo(w.setup.Timing.Timeout))
	w.operate(job.Resume("operator"))
}

// recover ends all faults. The job must then run at its times again, and all of its times be accounted for.
func (w *jobWorld) recover() JobResult {
	w.calm.Store(true)
	w.server.gate.thaw()
	for _, n := range w.nodes {
		n.gate.thaw()
		n.link.Change(func(l *leasetest.Network) { *l = w.network() })
	}
	// A clock that was stepped back shows times again that were decided about; nothing is due before they have passed.
	pause(10*w.setup.Timing.Timeout + 2*w.setup.Takes + w.ahead - time.Duration(w.stepped.Load()))
	w.judge.quiet.Store(true)
	pause(w.calmLength())
	w.end()
	w.judge.account()
	w.judge.mu.Lock()
	defer w.judge.mu.Unlock()
	r := w.judge.result
	r.Late /= w.setup.Timing.Timeout.Seconds()
	return r
}

// calmLength is long enough for several times of the schedule.
func (w *jobWorld) calmLength() time.Duration { return max(time.Minute, 4*w.setup.Timing.Timeout) }

// end stops everything. The bubble fails if something does not stop.
func (w *jobWorld) end() {
	for _, n := range w.nodes {
		n.leave()
	}
	for _, n := range append(w.past, w.nodes...) {
		<-n.done
		n.link.Wait()
	}
	pause(2 * w.setup.Timing.Interval) // what a twin has left to be written
}

// jobNode is one run of one instance that offers the job.
type jobNode struct {
	process
	name  string
	world *jobWorld
	clock *clock
	link  *leasetest.Faulty

	dead    atomic.Bool
	working atomic.Int64
	leave   context.CancelFunc // what is offered
	end     context.CancelFunc // the keeper's
	done    chan struct{}
}

func (w *jobWorld) newNode(name string, stream uint64) *jobNode {
	d := newDice(w.setup.Seed, stream)
	g := &gate{dice: d}
	rate := 1 + 0.9*w.setup.Timing.RateTolerance()*[]float64{-1, 1, 0, 0.5}[d.n(4)]
	n := &jobNode{
		process: process{
			dice: d, gate: g, longest: 4 * w.setup.Timing.Timeout,
			freezes: func() bool { return !w.calm.Load() && w.setup.Freezes },
		},
		name: name, world: w, done: make(chan struct{}),
		clock: &clock{gate: g, begin: time.Now(), rate: rate, offset: d.upTo(1000 * time.Hour), wall: d.upTo(time.Hour) - 30*time.Minute},
		link:  leasetest.NewFaulty(w.server, w.setup.Seed^stream),
	}
	n.link.Change(func(l *leasetest.Network) { *l = w.network() })
	return n
}

func (n *jobNode) start() {
	s := n.world.setup
	view := frozen{n.link, &n.process, s.Timing}
	keeper, err := lease.NewKeeper(lease.KeeperConfig{
		Store: view, Roster: view, Instance: lease.NewInstance(n.name, ""), Timing: s.Timing, Clock: n.clock,
		Jitter: func(d time.Duration) time.Duration { return n.dice.upTo(d - 1) },
	})
	if err != nil {
		panic(err) // the set-up is ours
	}
	cfg := job.Config{
		Keeper: keeper, Store: jobView{node: n}, StopGrace: s.Grace,
		Offers: []job.Offer{{Name: jobName, Definition: s.Def, Work: n.work}},
	}
	var offer, keep context.Context
	offer, n.leave = context.WithCancel(context.Background())
	keep, n.end = context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { n.mustStop(keep, "the keeper", keeper.Run(keep)) })
	running.Go(func() {
		defer n.end()
		n.mustStop(offer, "what is offered", job.Serve(offer, cfg))
	})
	go func() {
		defer close(n.done)
		running.Wait()
	}()
}

func (n *jobNode) mustStop(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		n.world.judge.says("%s of %s returned %v", what, n.name, err)
	}
}

// kill ends the node without a word to anybody: see node.kill.
func (n *jobNode) kill() {
	n.dead.Store(true)
	n.world.judge.dies(n)
	n.link.Change(func(l *leasetest.Network) { *l = leasetest.Network{Lose: 1} })
	n.gate.thaw()
	n.leave()
	n.end()
}

// work is a run: it takes some time, and when it is told to stop nearly all of its grace.
func (n *jobNode) work(ctx context.Context, t job.Task) error {
	if n.dead.Load() {
		return ctx.Err()
	}
	n.working.Add(1)
	defer n.working.Add(-1)
	n.world.judge.starts(n, t)
	fails := n.dice.hit(n.world.setup.Fails)
	if lease.Sleep(ctx, n.clock, n.dice.upTo(n.world.setup.Takes)) {
		n.gate.wait()
		if n.world.judge.ends(n, t, !fails); fails {
			return errors.New("it failed")
		}
		return nil
	}
	lease.Sleep(context.Background(), n.clock, time.Duration(float64(n.world.setup.Grace)*0.9))
	n.world.judge.ends(n, t, false)
	return ctx.Err()
}

// jobView is an instance's view of the jobs. A change is decided in the instance, from what it read, and written if the
// job is still the same: of all stores' ways, this leaves most room for faults.
type jobView struct {
	job.Store
	node *jobNode
}

var errChanged = errors.New("the job has changed")

type jobAt struct {
	job job.Job
	now time.Time
}

func (v jobView) send(ctx context.Context, op func(context.Context) (jobAt, error)) (jobAt, error) {
	return through(&v.node.process, func() (jobAt, error) {
		return leasetest.Send(ctx, v.node.link, func(ctx context.Context) (jobAt, error) {
			v.node.world.server.gate.wait()
			return op(ctx)
		})
	})
}

func (v jobView) read(ctx context.Context) (jobAt, error) {
	return v.send(ctx, func(ctx context.Context) (at jobAt, err error) {
		at.job, at.now, err = v.node.world.store.Jobs().Get(ctx, jobName)
		return at, err
	})
}

func (v jobView) Get(ctx context.Context, _ string) (job.Job, time.Time, error) {
	at, err := v.read(ctx)
	return at.job, at.now, err
}

func (v jobView) Change(ctx context.Context, name string, decide job.Decision) (job.Job, error) {
	w := v.node.world
	if twin := w.setup.Twin.Decide; twin != nil {
		decide = twin(v.node, decide)
	}
	for {
		was, err := v.read(ctx)
		if errors.Is(err, job.ErrNotFound) {
			was, err = jobAt{job.Job{Name: name}, w.now()}, nil
		}
		if err != nil {
			return job.Job{}, err
		}
		c, err := decide(was.job, was.now)
		if err != nil || c.Unchanged {
			return was.job, err
		}
		write := func(ctx context.Context) (at jobAt, err error) {
			at.job, err = w.judge.Change(ctx, name, func(j job.Job, _ time.Time) (job.Change, error) {
				if j.Version != was.job.Version {
					return job.Change{}, errChanged
				}
				return c, nil
			})
			return at, err
		}
		if twin := w.setup.Twin.Write; twin != nil {
			if j, done := twin(v.node, was.job, c, write); done {
				return j, nil
			}
		}
		got, err := v.send(ctx, write)
		if !errors.Is(err, errChanged) {
			return got.job, err
		}
	}
}

func (v jobView) PutOutput(context.Context, job.RunKey, int64, job.Output) error { return nil }
