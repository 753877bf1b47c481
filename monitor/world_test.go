package monitor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/claim/claimtest"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/monitortest"
	"github.com/understudy-ha/understudy/store/memory"
)

// world is a store, in a bubble, at which instances meet.
type world struct {
	t      *testing.T
	memory *memory.Store // of the sessions
	table  monitor.Table
	ref    *monitortest.Reference
	claims *claimtest.Memory
	away   atomic.Bool // nobody reaches the store
	poll   time.Duration
	read   []monitor.Message
}

func newWorld(t *testing.T, events ...monitor.Event) *world {
	t.Helper()
	sessions := memory.New(nil)
	ref := monitortest.NewReference(monitortest.Options{Sessions: sessions, History: sessions})
	w := &world{t: t, memory: sessions, claims: claimtest.NewMemory(sessions, nil), ref: ref, table: ref}
	w.configure(false, events...)
	return w
}

func (w *world) configure(keep bool, events ...monitor.Event) {
	w.t.Helper()
	if _, err := w.ref.Configure(w.t.Context(), monitor.Configuration{Events: events, Keep: keep}); err != nil {
		w.t.Fatal(err)
	}
}

// instance is one process, and its ways to the store.
type instance struct {
	*monitor.Watcher
	inlet *monitor.Inlet
	flow  *monitor.Inflow
	stop  func()
	dead  atomic.Bool // it reaches nothing any more
	w     *world
}

func (i *instance) reaches() error {
	if i.dead.Load() || i.w.away.Load() {
		return errAway
	}
	return nil
}

// The ways of an instance to the table, to the claims and to the sessions.
type (
	tableDoor struct {
		monitor.Table
		i *instance
	}
	claimDoor struct {
		claim.Table
		i *instance
	}
	leaseDoor struct {
		lease.Store
		i *instance
	}
)

// through makes a request if the instance reaches the store.
func through[T any](i *instance, f func() (T, error)) (T, error) {
	if err := i.reaches(); err != nil {
		var none T
		return none, err
	}
	return f()
}

func (d tableDoor) Resolve(ctx context.Context, refs []monitor.Ref) ([]monitor.Resolved, error) {
	return through(d.i, func() ([]monitor.Resolved, error) { return d.Table.Resolve(ctx, refs) })
}
func (d tableDoor) Store(ctx context.Context, v monitor.Delivery) (monitor.Stored, error) {
	return through(d.i, func() (monitor.Stored, error) { return d.Table.Store(ctx, v) })
}
func (d tableDoor) Settings(ctx context.Context) (monitor.Settings, error) {
	return through(d.i, func() (monitor.Settings, error) { return d.Table.Settings(ctx) })
}
func (d tableDoor) Due(ctx context.Context, ps []int, n int) (monitor.Look, error) {
	return through(d.i, func() (monitor.Look, error) { return d.Table.Due(ctx, ps, n) })
}
func (d tableDoor) Apply(ctx context.Context, cs []monitor.Change) ([]bool, error) {
	return through(d.i, func() ([]bool, error) { return d.Table.Apply(ctx, cs) })
}
func (d tableDoor) Sweep(ctx context.Context, keep time.Duration, n int) (monitor.Look, error) {
	return through(d.i, func() (monitor.Look, error) { return d.Table.Sweep(ctx, keep, n) })
}
func (d tableDoor) Held(ctx context.Context) ([]monitor.HeldGroup, error) {
	return through(d.i, func() ([]monitor.HeldGroup, error) { return d.Table.Held(ctx) })
}
func (d tableDoor) Report(ctx context.Context, r monitor.Report) (bool, error) {
	return through(d.i, func() (bool, error) { return d.Table.Report(ctx, r) })
}
func (d tableDoor) Enlist(ctx context.Context, m monitor.Member) error {
	_, err := through(d.i, func() (int, error) { return 0, d.Table.Enlist(ctx, m) })
	return err
}
func (d claimDoor) Offer(ctx context.Context, space string, keys []string, in time.Duration) error {
	_, err := through(d.i, func() (int, error) { return 0, d.Table.Offer(ctx, space, keys, in) })
	return err
}
func (d claimDoor) Join(ctx context.Context, m claim.Member) (claim.Share, error) {
	return through(d.i, func() (claim.Share, error) { return d.Table.Join(ctx, m) })
}
func (d claimDoor) Take(ctx context.Context, n claim.Want) ([]claim.Claim, error) {
	return through(d.i, func() ([]claim.Claim, error) { return d.Table.Take(ctx, n) })
}
func (d claimDoor) Release(ctx context.Context, space, session string, cs []claim.Claim) error {
	_, err := through(d.i, func() (int, error) { return 0, d.Table.Release(ctx, space, session, cs) })
	return err
}
func (d leaseDoor) StartSession(ctx context.Context, s lease.Session) (lease.Renewal, error) {
	return through(d.i, func() (lease.Renewal, error) { return d.Store.StartSession(ctx, s) })
}
func (d leaseDoor) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	return through(d.i, func() (lease.Renewal, error) { return d.Store.RenewSession(ctx, id) })
}
func (d leaseDoor) EndSession(ctx context.Context, id, reason string) error {
	_, err := through(d.i, func() (int, error) { return 0, d.Store.EndSession(ctx, id, reason) })
	return err
}

// start starts an instance with one sink.
func (w *world) start(name string) *instance {
	w.t.Helper()
	i := &instance{w: w}
	must := func(err error) {
		if err != nil {
			w.t.Fatal(err)
		}
	}
	clock := &leasetest.BubbleClock{}
	windows := claim.Windows{First: 5 * time.Second, Second: 5 * time.Second}
	k, err := lease.NewKeeper(lease.KeeperConfig{Store: leaseDoor{w.claims, i}, Instance: lease.NewInstance(name, ""), Timing: windows.Timing(), Clock: clock})
	must(err)
	table := tableDoor{w.table, i}
	i.Watcher, err = monitor.NewWatcher(monitor.WatcherConfig{Keeper: k, Claims: claimDoor{w.claims.Claims(), i}, Table: table, Poll: w.poll, Self: monitor.Member{Sinks: []string{"hook"}}})
	must(err)
	i.inlet, err = monitor.NewInlet(monitor.InletConfig{Intake: table, Clock: clock})
	must(err)
	i.flow = i.inlet.Path(monitor.PathConfig{Name: "http", Steady: true})
	keeping, end := context.WithCancel(context.Background())
	running, halt := context.WithCancel(keeping)
	var kept, ran sync.WaitGroup
	kept.Go(func() { _ = k.Run(keeping) })
	ran.Go(func() {
		if err := i.Watcher.Run(running); err != nil {
			w.t.Error(err)
		}
	})
	ran.Go(func() { _ = i.inlet.Run(running) })
	i.stop = sync.OnceFunc(func() { halt(); ran.Wait(); end(); kept.Wait() })
	w.t.Cleanup(i.stop)
	return i
}

// beating has sources beat by an instance each second, until stop is called.
func (i *instance) beating(sources ...string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			i.beat(ctx, monitor.Fine, sources...)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	i.w.t.Cleanup(stop)
	return stop
}

// beat sends one beat of each source, and does not try for long.
func (i *instance) beat(ctx context.Context, s monitor.Signal, sources ...string) {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	beats := make([]monitor.Beat, len(sources))
	for n, name := range sources {
		beats[n] = monitor.Beat{Event: "E", Source: name, Signal: s}
	}
	if _, err := i.flow.Take(ctx, beats); err != nil && ctx.Err() == nil && !i.w.away.Load() && !i.dead.Load() {
		i.w.t.Errorf("beats were not taken: %v", err)
	}
}

// names are those of n sources.
func names(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("s%03d", i))
	}
	return out
}

// told are the messages to the sink, in order.
func (w *world) told() []monitor.Message {
	w.t.Helper()
	for _, n := range w.ref.SentTo("hook")[len(w.read):] {
		var m monitor.Message
		if err := json.Unmarshal(n.Payload, &m); err != nil {
			w.t.Fatal(err)
		}
		if want := m.RequestID + "/" + string(m.Status); n.ID != want || !strings.HasPrefix(n.Key, m.Event+"/") {
			w.t.Errorf("notice %q of key %q for %+v", n.ID, n.Key, m)
		}
		w.read = append(w.read, m)
	}
	return w.read
}

// about are the statuses of a source, in order, each pair under one id of its own.
func (w *world) about(source string) (out []monitor.Turn) {
	w.t.Helper()
	standing, seen := "", map[string]bool{}
	for _, m := range w.told() {
		if m.Source != source {
			continue
		}
		out = append(out, m.Status)
		switch {
		case m.Status == monitor.Onset && (standing != "" || seen[m.RequestID]), m.Status == monitor.Abated && m.RequestID != standing:
			w.t.Errorf("%s: %s of %s while %q stands", source, m.Status, m.RequestID, standing)
		case m.Status == monitor.Onset:
			standing, seen[m.RequestID] = m.RequestID, true
		default:
			standing = ""
		}
	}
	return out
}

// want says what was told of a source, ever.
func (w *world) want(source string, turns ...monitor.Turn) {
	w.t.Helper()
	if got := w.about(source); !slices.Equal(got, turns) {
		w.t.Errorf("%s: told %v, not %v", source, got, turns)
	}
}

func (w *world) act(a monitor.Action) {
	w.t.Helper()
	if err := w.ref.Act(w.t.Context(), a); err != nil {
		w.t.Fatal(err)
	}
}
