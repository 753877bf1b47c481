package sim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// monitorNode is one run of one instance of the monitor.
type monitorNode struct {
	process
	name   string
	world  *monitorWorld
	clock  *clock
	inlet  *monitor.Intake
	http   *monitor.IntakePath
	router *monitor.IntakePath
	flying sync.WaitGroup // requests that go on without it

	dead  atomic.Bool
	cut   atomic.Bool  // from the store
	heals atomic.Int64 // when that ends, Unix nanoseconds
	leave context.CancelFunc
	end   context.CancelFunc
	done  chan struct{}

	mu    sync.Mutex
	looks map[version]time.Time // when it read what it judges
}

// version is what a source was like when it was read.
type version struct{ id, rev, stamp, eventRev int64 }

func (w *monitorWorld) newNode(name string, stream uint64) *monitorNode {
	d := newDice(w.setup.Seed, stream)
	g := &gate{dice: d}
	return &monitorNode{
		process: process{dice: d, gate: g, freezes: func() bool { return false }},
		name:    name, world: w, done: make(chan struct{}), looks: map[version]time.Time{},
		clock: &clock{
			gate: g, begin: time.Now(), rate: 1 + 0.0005*[]float64{-1, 1, 0, 0.5}[d.n(4)],
			offset: d.upTo(1000 * time.Hour), wall: d.upTo(time.Hour),
		},
	}
}

// start runs the node until it is stopped or killed.
func (n *monitorNode) start() {
	w := n.world
	must := func(err error) {
		if err != nil {
			panic(err) // the set-up is ours
		}
	}
	keeper, err := lease.NewKeeper(lease.KeeperConfig{
		Store: nodeSessions{w.base.sessions, n}, Instance: lease.NewInstance(n.name, ""), Timing: w.windows().Timing(), Clock: n.clock,
		Jitter: func(d time.Duration) time.Duration { return n.dice.upTo(d - 1) },
	})
	must(err)
	table := nodeTable{Store: w.judge, n: n}
	watcher, err := monitor.NewWatcher(monitor.WatcherConfig{
		Keeper: keeper, Claims: nodeClaims{w.base.claims, n}, Store: table, Windows: w.windows(), Poll: w.setup.Poll,
		Self: monitor.Member{Host: n.name, Sinks: monitorSinks},
	})
	must(err)
	var intake monitor.HeartbeatStore = table
	if twin := w.setup.Twin.Intake; twin != nil {
		intake = twin(intake)
	}
	n.inlet, err = monitor.NewIntake(monitor.IntakeConfig{Store: intake, Clock: n.clock, ProbeInterval: inletEvery})
	must(err)
	n.http = n.inlet.OpenPath(monitor.PathConfig{Name: "http", Synchronous: true})
	n.router = n.inlet.OpenPath(monitor.PathConfig{Name: "router", MaxGap: routerGap})

	var work, keep context.Context
	work, n.leave = context.WithCancel(context.Background())
	keep, n.end = context.WithCancel(context.Background())
	var running, working sync.WaitGroup
	running.Go(func() { n.mustStop(keep, "the keeper", keeper.Run(keep)) })
	working.Go(func() { n.mustStop(work, "the watcher", watcher.Run(work)) })
	working.Go(func() { n.mustStop(work, "the inlet", n.inlet.Run(work)) })
	if w.setup.Router {
		working.Go(func() { w.router.consume(work, n) })
	}
	go func() {
		defer close(n.done)
		working.Wait()
		n.end()
		running.Wait()
	}()
}

func (n *monitorNode) mustStop(ctx context.Context, what string, err error) {
	if ctx.Err() == nil || err != nil {
		n.world.judge.says("%s of %s returned %v", what, n.name, err)
	}
}

// stop ends the node in order.
func (n *monitorNode) stop() { n.leave() }

// kill ends the node without a word to anybody. What it has sent may still arrive.
func (n *monitorNode) kill() {
	n.dead.Store(true)
	n.gate.thaw()
	n.leave()
	n.end()
}

// running reports whether it works: it is neither dead nor stopped.
func (n *monitorNode) running() bool {
	n.gate.mu.Lock()
	defer n.gate.mu.Unlock()
	return n.gate.resumed == nil && !n.dead.Load()
}

var (
	errRefused = fmt.Errorf("sim: refused: %w", lease.ErrUnavailable)
	errSilent  = fmt.Errorf("sim: no answer: %w", lease.ErrUnknown)
)

// sends takes one request of the node to the store.
func sends[T any](ctx context.Context, n *monitorNode, op func(context.Context) (T, error)) (out T, err error) {
	n.gate.wait()
	ill := n.world.health.now()
	switch {
	case n.dead.Load(), n.cut.Load(), ill.down, ctx.Err() != nil:
		return out, errRefused
	case ill.lossy && n.dice.hit(0.2):
		return out, errRefused
	}
	loses, late := ill.lossy && n.dice.hit(0.2), ill.lossy && n.dice.hit(0.1)
	if !ill.slow && !late && !ill.hangs {
		out, err = op(ctx)
		n.gate.wait()
		if loses || n.dead.Load() {
			var none T
			return none, errSilent
		}
		return out, err
	}
	// It takes its time, and reaches the store even if nobody waits for it.
	answers := make(chan struct{})
	var got T
	var failed error
	n.flying.Go(func() {
		if ill.slow || late {
			pause(n.dice.upTo(1500 * time.Millisecond))
		}
		n.world.store.wait()
		got, failed = op(context.WithoutCancel(ctx))
		close(answers)
	})
	var deadline <-chan time.Time
	if late {
		deadline = time.After(0)
	}
	select {
	case <-answers:
		out, err = got, failed
	case <-ctx.Done():
		err = errSilent
	case <-deadline:
		err = errSilent
	}
	n.gate.wait()
	if loses || n.dead.Load() {
		var none T
		return none, errSilent
	}
	return out, err
}

func told(ctx context.Context, n *monitorNode, op func(context.Context) error) error {
	_, err := sends(ctx, n, func(ctx context.Context) (struct{}, error) { return struct{}{}, op(ctx) })
	return err
}

// The ways of an instance to the sessions, the claims and the table.
type (
	nodeSessions struct {
		lease.Store
		n *monitorNode
	}
	nodeClaims struct {
		claim.KeyTable
		n *monitorNode
	}
	nodeTable struct {
		monitor.Store
		n *monitorNode
	}
)

func (s nodeSessions) StartSession(ctx context.Context, v lease.Session) (lease.Renewal, error) {
	return sends(ctx, s.n, func(ctx context.Context) (lease.Renewal, error) { return s.Store.StartSession(ctx, v) })
}

func (s nodeSessions) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	return sends(ctx, s.n, func(ctx context.Context) (lease.Renewal, error) { return s.Store.RenewSession(ctx, id) })
}

func (s nodeSessions) EndSession(ctx context.Context, id, reason string) error {
	return told(ctx, s.n, func(ctx context.Context) error { return s.Store.EndSession(ctx, id, reason) })
}

func (s nodeSessions) Watch(ctx context.Context, wake func(lease.Change)) error {
	return s.Store.Watch(ctx, func(c lease.Change) { s.n.gate.run(func() { wake(c) }) })
}

func (c nodeClaims) Offer(ctx context.Context, space string, keys []string, in time.Duration) error {
	return told(ctx, c.n, func(ctx context.Context) error { return c.KeyTable.Offer(ctx, space, keys, in) })
}

func (c nodeClaims) Join(ctx context.Context, m claim.Member) (claim.Share, error) {
	return sends(ctx, c.n, func(ctx context.Context) (claim.Share, error) { return c.KeyTable.Join(ctx, m) })
}

func (c nodeClaims) ClaimKeys(ctx context.Context, v claim.ClaimRequest) ([]claim.Claim, error) {
	return sends(ctx, c.n, func(ctx context.Context) ([]claim.Claim, error) { return c.KeyTable.ClaimKeys(ctx, v) })
}

func (c nodeClaims) Release(ctx context.Context, space, session string, cs []claim.Claim) error {
	return told(ctx, c.n, func(ctx context.Context) error { return c.KeyTable.Release(ctx, space, session, cs) })
}

func (c nodeClaims) List(ctx context.Context, q claim.Query) ([]claim.Row, error) {
	return sends(ctx, c.n, func(ctx context.Context) ([]claim.Row, error) { return c.KeyTable.List(ctx, q) })
}

func (t nodeTable) ResolveSources(ctx context.Context, refs []monitor.SourceRef) ([]monitor.ResolvedSource, error) {
	refs = slices.Clone(refs) // it may arrive when the inlet uses them for others
	return sends(ctx, t.n, func(ctx context.Context) ([]monitor.ResolvedSource, error) { return t.Store.ResolveSources(ctx, refs) })
}

func (t nodeTable) RecordHeartbeats(ctx context.Context, d monitor.HeartbeatBatch) (monitor.BatchResult, error) {
	d = cloneDelivery(d) // it may arrive when the inlet uses it for another
	return sends(ctx, t.n, func(ctx context.Context) (monitor.BatchResult, error) { return t.Store.RecordHeartbeats(ctx, d) })
}

func (t nodeTable) Settings(ctx context.Context) (monitor.Settings, error) {
	return sends(ctx, t.n, func(ctx context.Context) (monitor.Settings, error) { return t.Store.Settings(ctx) })
}

func (t nodeTable) DueSources(ctx context.Context, ps []int, limit int) (monitor.Scan, error) {
	return t.read(ctx, func(ctx context.Context) (monitor.Scan, error) { return t.Store.DueSources(ctx, ps, limit) })
}

func (t nodeTable) Sweep(ctx context.Context, keep time.Duration, limit int) (monitor.Scan, error) {
	return t.read(ctx, func(ctx context.Context) (monitor.Scan, error) { return t.Store.Sweep(ctx, keep, limit) })
}

type lookAt struct {
	monitor.Scan
	at time.Time
}

// read notes when the node has read what.
func (t nodeTable) read(ctx context.Context, op func(context.Context) (monitor.Scan, error)) (monitor.Scan, error) {
	l, err := sends(ctx, t.n, func(ctx context.Context) (lookAt, error) {
		l, err := op(ctx)
		return lookAt{l, time.Now()}, err
	})
	if err == nil && len(l.Candidates) > 0 {
		t.n.mu.Lock()
		for _, c := range l.Candidates {
			t.n.looks[version{c.ID, c.Rev, c.BeatRev, c.CheckRev}] = l.at
		}
		t.n.mu.Unlock()
	}
	return l.Scan, err
}

func (t nodeTable) ApplyChanges(ctx context.Context, cs []monitor.SourceChange) ([]bool, error) {
	looked := make([]time.Time, len(cs))
	t.n.mu.Lock()
	for i, c := range cs {
		v := version{c.ID, c.Rev, c.BeatRev, c.CheckRev}
		looked[i] = t.n.looks[v]
		delete(t.n.looks, v)
	}
	t.n.mu.Unlock()
	acts := slices.ContainsFunc(cs, func(c monitor.SourceChange) bool { return c.Transition != monitor.NoTransition })
	if w := t.n.world; acts && w.setup.Freezes && !w.calm.Load() && t.n.dice.hit(w.setup.Hesitates) { // between looking and acting
		d := t.n.dice.upTo(5 * time.Second)
		w.judge.trace("%s is frozen for %v before it acts", t.n.name, d)
		t.n.gate.freeze(d)
		w.judge.hindered(t.n, t.n.frozenUntil())
		w.health.up(time.Now().Add(d + 4*time.Second))
	}
	return sends(ctx, t.n, func(ctx context.Context) ([]bool, error) { return t.n.world.judge.applies(ctx, t.n, cs, looked) })
}

func (t nodeTable) HeldGroups(ctx context.Context) ([]monitor.AlarmGroup, error) {
	return sends(ctx, t.n, func(ctx context.Context) ([]monitor.AlarmGroup, error) { return t.Store.HeldGroups(ctx) })
}

func (t nodeTable) ReportGroup(ctx context.Context, r monitor.GroupReport) (bool, error) {
	return sends(ctx, t.n, func(ctx context.Context) (bool, error) { return t.Store.ReportGroup(ctx, r) })
}

func (t nodeTable) Parents(ctx context.Context, of []monitor.SourceRef) ([]monitor.Parent, error) {
	return sends(ctx, t.n, func(ctx context.Context) ([]monitor.Parent, error) { return t.Store.Parents(ctx, of) })
}

func (t nodeTable) Remind(ctx context.Context, r monitor.Reminder) (bool, error) {
	return sends(ctx, t.n, func(ctx context.Context) (bool, error) { return t.Store.Remind(ctx, r) })
}

func (t nodeTable) Alarms(ctx context.Context, q monitor.AlarmQuery) ([]monitor.Alarm, error) {
	return sends(ctx, t.n, func(ctx context.Context) ([]monitor.Alarm, error) { return t.Store.Alarms(ctx, q) })
}

func (t nodeTable) RegisterMember(ctx context.Context, m monitor.Member) error {
	return told(ctx, t.n, func(ctx context.Context) error { return t.Store.RegisterMember(ctx, m) })
}

func cloneDelivery(d monitor.HeartbeatBatch) monitor.HeartbeatBatch {
	d.Probes, d.Beats = slices.Clone(d.Probes), slices.Clone(d.Beats)
	return d
}
