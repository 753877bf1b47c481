package sim

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/monitor"
)

// Sinks that are told in a run of a monitor, and what of it never changes.
var monitorSinks = []string{"mail", "hook"}

const (
	inletEvery = 500 * time.Millisecond
	steadyGap  = 4 * inletEvery
	routerPoll = time.Second
	routerGap  = routerPoll + 3*time.Second
)

// MonitorSetup is one run of a monitor: its instances, what it is told to expect,
// and what may befall it.
type MonitorSetup struct {
	Seed   uint64
	Nodes  int
	Length time.Duration // for which there are faults
	First  time.Duration // window of the claims
	Poll   time.Duration
	Checks []monitor.Check
	// Sources of each event.
	Sources int
	// Router: some sources beat by a message router; Freezes has instances stopped for
	// a while; Steps has the store's clock stepped, Outage the whole monitor down for
	// ten minutes; Operators change what is expected meanwhile.
	Router, Freezes, Steps, Outage, Operators bool
	// Hesitates is the chance that an instance is stopped between looking and acting, if
	// Freezes.
	Hesitates float64
	// Replays: senders say again what they said last.
	Replays bool
	// SQLite: they meet in a file, whose moments do not follow the wall clock, and not
	// in memory.
	SQLite bool
	Twin   MonitorTwin
	// Trace, when not nil, is told what happens, for whoever replays a seed.
	Trace func(format string, args ...any)
}

// DrawMonitor returns the run of a seed.
func DrawMonitor(seed uint64) MonitorSetup {
	d := newDice(seed, 0x6d6f6e)
	s := MonitorSetup{
		Hesitates: 0.1,
		Seed:      seed, Nodes: 2 + d.n(4), Length: d.between(20*time.Second, 70*time.Second), Sources: 1 + d.n(3),
		First:  []time.Duration{2 * time.Second, 5 * time.Second}[d.n(2)],
		Poll:   []time.Duration{100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond}[d.n(3)],
		Router: d.hit(0.5), Freezes: d.hit(0.5), Steps: d.hit(0.3), Outage: d.hit(0.2), Operators: d.hit(0.6), Replays: d.hit(0.5),
	}
	every := func() time.Duration { return d.between(800*time.Millisecond, 2*time.Second).Round(time.Millisecond) }
	all := []monitor.Check{
		{Name: "plain", Interval: every(), Missed: 1 + d.n(3), Grace: d.upTo(time.Second)},
		{Name: "fixed", Interval: every(), Missed: 2, Fixed: true},
		{Name: "grouped", Interval: every(), Missed: 2, GroupBy: "rack", GroupWait: d.between(time.Second, 4*time.Second), GroupMin: 2},
		{Name: "flapping", Interval: every(), Missed: 2, Flaps: 2, FlapWindow: 2 * time.Minute, Steady: d.between(4*time.Second, 8*time.Second)},
		{Name: "runs", Interval: 2 * every(), Missed: 3, MaxRun: d.between(2*time.Second, 6*time.Second)},
		{Name: "sender", Interval: every(), Missed: 3, SenderClock: true},
		{Name: "retiring", Interval: every(), Missed: 2, RetireAfter: d.between(6*time.Second, 15*time.Second)},
	}
	if d.hit(0.1) {
		s.Checks = append(s.Checks, monitor.Check{Name: "schedule", Schedule: "* * * * *", Grace: 5 * time.Second})
		s.Length += 2 * time.Minute
	}
	for len(s.Checks) < 3 {
		i := d.n(len(all))
		s.Checks = append(s.Checks, all[i])
		all = append(all[:i], all[i+1:]...)
	}
	return s
}

// MonitorResult is what a run came to.
type MonitorResult struct {
	Broken []string // promises, each with what happened
	Beats  int      // acknowledged
	Onsets int
	Abated int
	Blind  int // times that a path could not see
	Groups int // alarms of groups
}

type monitorWorld struct {
	setup   MonitorSetup
	dice    *dice
	base    monitorStore
	table   monitor.Store // of base, or the twin of it
	judge   *monitorJudge
	store   *gate        // the store's process
	stepped atomic.Int64 // the store's wall clock, by so much
	health  monitorHealth
	router  *router
	calm    atomic.Bool // no more faults
	well    atomic.Bool // all sources are well, and stay so
	quiet   chan struct{}
	nodes   []*monitorNode // nil: it is down
	past    []*monitorNode
	mu      sync.Mutex // of nodes
	streams uint64
	sources []*monitorSource
	senders sync.WaitGroup
}

// RunMonitor runs a monitor and its sources in a bubble of its own.
func RunMonitor(t *testing.T, setup MonitorSetup) (result MonitorResult) {
	path := ""
	if setup.SQLite {
		path = filepath.Join(t.TempDir(), "store.db")
	}
	synctest.Test(t, func(*testing.T) {
		defer countSimulated(time.Now())
		w := newMonitorWorld(setup, path)
		done := make(chan struct{})
		var watching sync.WaitGroup
		watching.Go(func() { w.watch(done) })
		w.suffer()
		w.settle()
		close(done)
		watching.Wait()
		w.end()
		result = w.judge.result()
	})
	return result
}

func newMonitorWorld(setup MonitorSetup, path string) *monitorWorld {
	w := &monitorWorld{
		setup: setup, dice: newDice(setup.Seed, 0x776f72), nodes: make([]*monitorNode, setup.Nodes),
		quiet: make(chan struct{}),
	}
	w.store = &gate{dice: w.dice}
	if w.base = memoryMonitor(w.wall); path != "" {
		var err error
		if w.base, err = sqliteMonitor(path, w.wall); err != nil {
			panic(err) // the file is ours
		}
	}
	if w.table = w.base.Store; setup.Twin.Table != nil {
		w.table = setup.Twin.Table(w.table)
	}
	w.judge = newMonitorJudge(w)
	w.router = &router{}
	w.configure(monitor.Configuration{Checks: setup.Checks, Declared: w.populate()})
	for i := range w.nodes {
		w.launch(i)
	}
	w.health.up(time.Now().Add(2 * time.Second))
	for _, s := range w.sources {
		w.senders.Go(s.live)
	}
	return w
}

// wall is the store's wall clock.
func (w *monitorWorld) wall() time.Time { return time.Now().Add(time.Duration(w.stepped.Load())) }

// populate makes the sources and tells which are declared.
func (w *monitorWorld) populate() (declared []monitor.Declaration) {
	for _, e := range w.setup.Checks {
		for i := range w.setup.Sources + map[bool]int{true: 2}[e.GroupBy != ""] {
			ref := monitor.SourceRef{Check: e.Name, Source: fmt.Sprintf("s%d", i)}
			path := "http"
			if w.setup.Router && w.dice.hit(0.4) {
				path = "router"
			}
			w.sources = append(w.sources, w.newSource(ref, path))
			if e.Fixed || e.GroupBy != "" || w.dice.hit(0.3) {
				declared = append(declared, monitor.Declaration{Check: ref.Check, Source: ref.Source, Labels: map[string]string{"rack": "r1"}})
			}
		}
	}
	return declared
}

func (w *monitorWorld) launch(i int) {
	w.mu.Lock()
	w.streams++
	n := w.newNode(fmt.Sprintf("n%d", i), w.streams)
	w.nodes[i] = n
	w.mu.Unlock()
	w.judge.trace("%s starts", n.name)
	n.start()
}

// anybody is an instance that runs, nil when the one that was drawn does not.
func (w *monitorWorld) anybody(d *dice) (int, *monitorNode) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := d.n(len(w.nodes))
	return i, w.nodes[i]
}

// gone takes an instance out of those that run.
func (w *monitorWorld) gone(i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.past = append(w.past, w.nodes[i])
	w.nodes[i] = nil
}

func (w *monitorWorld) windows() claim.Windows {
	return claim.Windows{First: w.setup.First, Second: w.setup.First}
}

// watch has the judge look at everything all the time.
func (w *monitorWorld) watch(done <-chan struct{}) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			w.judge.tick()
		}
	}
}

// end stops everything. The bubble fails if something does not stop.
func (w *monitorWorld) end() {
	close(w.quiet)
	w.senders.Wait()
	for _, n := range w.nodes {
		n.stop()
	}
	for _, n := range append(w.past, w.nodes...) {
		<-n.done
		n.flying.Wait()
	}
	if err := w.base.close(); err != nil {
		w.judge.says("closing the store: %v", err)
	}
}

// sleep pauses, but not past the end of the run.
func (w *monitorWorld) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.quiet:
	}
}

func (w *monitorWorld) over() bool {
	select {
	case <-w.quiet:
		return true
	default:
		return false
	}
}

// configure changes what is expected, as a person does: beside all networks.
func (w *monitorWorld) configure(c monitor.Configuration) {
	w.judge.configures(c, func() error {
		_, err := w.table.Configure(context.Background(), c)
		return err
	})
}

func (w *monitorWorld) act(a monitor.Action) {
	w.judge.acts(a, func() error { return w.table.ApplyAction(context.Background(), a) })
}
