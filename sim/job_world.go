package sim

import (
	"context"
	"errors"
	"fmt"
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
	// Between is the longest from one fault to the next, Outage the longest of the store.
	Between, Outage time.Duration
	// CatchUp is how long the job may take in the end for what came during outages, beside the usual.
	CatchUp time.Duration
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
	s.Between, s.Outage = s.Timing.Timeout, s.Timing.Timeout*3/2
	s.Network.MaxDelay = d.upTo(timing.CallTimeout() / 5)
	if d.hit(0.7) {
		s.Network.Lose = 0.1 * float64(d.n(101)) / 100
		s.Network.Refuse, s.Network.Duplicate, s.Network.Late, s.Network.LoseWake = 0.02, 0.04, 0.03, 0.2
	}
	if d := newDice(seed, 0x626568696e64); s.Def.Missed == job.MissedAll && s.Begin == 0 && !s.Steps && d.hit(0.2) {
		s.farBehind(d)
	}
	return s
}

// farBehind has outages of the store in which more times come than may be queued.
func (s *JobSetup) farBehind(d *dice) {
	period := time.Duration(1+d.n(3)) * time.Second
	s.Def.Schedule = fmt.Sprintf("every %v", period)
	s.Timing = lease.Timing{Interval: time.Second, Timeout: d.between(3500*time.Millisecond, 8*time.Second)}
	s.Grace, s.Takes = 200*time.Millisecond, d.upTo(period)
	s.Outage = d.between(job.MaxQueued, 3*job.MaxQueued) * period
	s.Between, s.Length, s.CatchUp = s.Outage/2, 3*s.Outage, 4*s.Outage
	s.Steps, s.Def.JitterMS, s.Def.DeadlineMS = false, 0, 0
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

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// DrawJobYear returns the run of a seed that is a year of a job, somewhere between 2000 and 2030. Its leases are slow: renewals are what a year costs.
func DrawJobYear(seed uint64) JobSetup {
	d := newDice(seed, 0x79656172)
	s := DrawJob(seed)
	zones := []string{
		"UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "America/Havana", "Africa/Casablanca", "Asia/Kathmandu",
		"Asia/Tehran", "Australia/Lord_Howe", "Pacific/Apia",
	}
	crontabs := []string{
		"15 * * * *", "0 */6 * * *", "0 0 * * *", "0 2 * * *", "30 2 * * *", "30 1 * * 1-5", "59 23 * * 0", "0 4 1 * *", "0 0 31 * *", "0 12 29 2 *",
	}
	s.Def.Schedule = "TZ=" + zones[d.n(len(zones))] + " " + crontabs[d.n(len(crontabs))]
	s.Timing = lease.Timing{Interval: 5 * time.Minute, Timeout: 25 * time.Minute}
	s.Nodes, s.Grace, s.Takes = 2+d.n(2), 30*time.Second, d.upTo(3*time.Hour)
	s.Begin, s.Length = d.upTo(30*year), year
	s.Between, s.Outage = d.between(time.Hour, 10*day), d.between(time.Hour, 20*day)
	s.Steps, s.Def.JitterMS, s.Def.DeadlineMS, s.CatchUp = false, 0, 0, 0
	s.Network.MaxDelay = d.upTo(10 * time.Second)
	return s
}

// JobResult is what a run came to.
type JobResult struct {
	Broken                               []string
	Starts, Lost, Missed, Skipped, Again int // Again: further attempts
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
		defer countSimulated(time.Now())
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
		pause(w.dice.between(w.setup.Timing.Interval/4, w.setup.Between))
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
	w.server.gate.freeze(w.dice.upTo(w.setup.Outage))
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

// stepStore steps the store's clock, by up to 10 T.
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
	pause(10*w.setup.Timing.Timeout + 2*w.setup.Takes + w.setup.CatchUp + w.ahead - time.Duration(w.stepped.Load()))
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
func (w *jobWorld) calmLength() time.Duration {
	return max(time.Minute, 4*w.setup.Timing.Timeout, w.setup.Length/8)
}

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
