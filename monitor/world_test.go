package monitor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/internal/memstore/checks"
	"github.com/understudy-ha/understudy/internal/memstore/claims"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store/memory"
)

// world is a store, in a bubble, at which instances meet.
type world struct {
	t      *testing.T
	memory *memory.Store // of the sessions
	table  monitor.Store
	ref    *checks.Memory
	claims *claims.Memory
	away   atomic.Bool // nobody reaches the store
	first  func()      // runs before an ONSET is stored
	poll   time.Duration
	read   []monitor.AlarmMessage
}

func newWorld(t *testing.T, events ...monitor.Check) *world {
	t.Helper()
	sessions := memory.New(nil)
	ref := checks.NewMemory(checks.Options{Sessions: sessions, History: sessions})
	w := &world{t: t, memory: sessions, claims: claims.NewMemory(sessions, nil), ref: ref, table: ref}
	if len(events) > 0 {
		w.configure(false, events...)
	}
	return w
}

func (w *world) configure(keep bool, events ...monitor.Check) {
	w.t.Helper()
	if _, err := w.ref.Configure(w.t.Context(), monitor.Configuration{Checks: events, Keep: keep}); err != nil {
		w.t.Fatal(err)
	}
}

// instance is one process, and its ways to the store.
type instance struct {
	*monitor.Watcher
	inlet *monitor.Intake
	flow  *monitor.IntakePath
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
		monitor.Store
		i *instance
	}
	claimDoor struct {
		claim.KeyTable
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

func (d tableDoor) ResolveSources(ctx context.Context, refs []monitor.SourceRef) ([]monitor.ResolvedSource, error) {
	return through(d.i, func() ([]monitor.ResolvedSource, error) { return d.Store.ResolveSources(ctx, refs) })
}
func (d tableDoor) RecordHeartbeats(ctx context.Context, v monitor.HeartbeatBatch) (monitor.BatchResult, error) {
	return through(d.i, func() (monitor.BatchResult, error) { return d.Store.RecordHeartbeats(ctx, v) })
}
func (d tableDoor) Settings(ctx context.Context) (monitor.Settings, error) {
	return through(d.i, func() (monitor.Settings, error) { return d.Store.Settings(ctx) })
}
func (d tableDoor) DueSources(ctx context.Context, ps []int, n int) (monitor.Scan, error) {
	return through(d.i, func() (monitor.Scan, error) { return d.Store.DueSources(ctx, ps, n) })
}
func (d tableDoor) ApplyChanges(ctx context.Context, cs []monitor.SourceChange) ([]bool, error) {
	return through(d.i, func() ([]bool, error) { d.i.w.before(cs...); return d.Store.ApplyChanges(ctx, cs) })
}
func (d tableDoor) Sweep(ctx context.Context, keep time.Duration, n int) (monitor.Scan, error) {
	return through(d.i, func() (monitor.Scan, error) { return d.Store.Sweep(ctx, keep, n) })
}
func (d tableDoor) HeldGroups(ctx context.Context) ([]monitor.AlarmGroup, error) {
	return through(d.i, func() ([]monitor.AlarmGroup, error) { return d.Store.HeldGroups(ctx) })
}
func (d tableDoor) ReportGroup(ctx context.Context, r monitor.GroupReport) (bool, error) {
	return through(d.i, func() (bool, error) { return d.Store.ReportGroup(ctx, r) })
}
func (d tableDoor) Parents(ctx context.Context, of []monitor.SourceRef) ([]monitor.Parent, error) {
	return through(d.i, func() ([]monitor.Parent, error) { return d.Store.Parents(ctx, of) })
}
func (d tableDoor) Remind(ctx context.Context, r monitor.Reminder) (bool, error) {
	return through(d.i, func() (bool, error) { return d.Store.Remind(ctx, r) })
}
func (d tableDoor) RegisterMember(ctx context.Context, m monitor.Member) error {
	_, err := through(d.i, func() (int, error) { return 0, d.Store.RegisterMember(ctx, m) })
	return err
}
func (d claimDoor) Offer(ctx context.Context, space string, keys []string, in time.Duration) error {
	_, err := through(d.i, func() (int, error) { return 0, d.KeyTable.Offer(ctx, space, keys, in) })
	return err
}
func (d claimDoor) Join(ctx context.Context, m claim.Member) (claim.Share, error) {
	return through(d.i, func() (claim.Share, error) { return d.KeyTable.Join(ctx, m) })
}
func (d claimDoor) ClaimKeys(ctx context.Context, n claim.ClaimRequest) ([]claim.Claim, error) {
	return through(d.i, func() ([]claim.Claim, error) { return d.KeyTable.ClaimKeys(ctx, n) })
}
func (d claimDoor) Release(ctx context.Context, space, session string, cs []claim.Claim) error {
	_, err := through(d.i, func() (int, error) { return 0, d.KeyTable.Release(ctx, space, session, cs) })
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
	i.Watcher, err = monitor.NewWatcher(monitor.WatcherConfig{Keeper: k, Claims: claimDoor{w.claims.Claims(), i}, Store: table, Poll: w.poll, PublicURL: "https://monitor.example/", Self: monitor.Member{Sinks: []string{"hook"}}})
	must(err)
	i.inlet, err = monitor.NewIntake(monitor.IntakeConfig{Store: table, Clock: clock})
	must(err)
	i.flow = i.inlet.OpenPath(monitor.PathConfig{Name: "http", Synchronous: true})
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
			i.beat(ctx, monitor.SignalSuccess, sources...)
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
	beats := make([]monitor.Heartbeat, len(sources))
	for n, name := range sources {
		beats[n] = monitor.Heartbeat{Check: "E", Source: name, Signal: s}
	}
	if _, err := i.flow.Record(ctx, beats); err != nil && ctx.Err() == nil && !i.w.away.Load() && !i.dead.Load() {
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

// before runs what a test wants done between a decision and its change.
func (w *world) before(cs ...monitor.SourceChange) {
	for i := range cs {
		if w.first != nil && cs[i].Transition == monitor.Onset {
			w.first()
		}
	}
}

// told are the messages to the sink, in order.
func (w *world) told() []monitor.AlarmMessage {
	w.t.Helper()
	for _, n := range w.ref.SentTo("hook")[len(w.read):] {
		var m monitor.AlarmMessage
		if err := json.Unmarshal(n.Payload, &m); err != nil {
			w.t.Fatal(err)
		}
		want := m.RequestID + "/" + string(m.Status)
		if m.Reminder > 0 {
			want += "/" + strconv.Itoa(m.Reminder)
		}
		if n.ID != want || !strings.HasPrefix(n.Key, m.Event+"/") {
			w.t.Errorf("notice %q of key %q for %+v", n.ID, n.Key, m)
		}
		w.read = append(w.read, m)
	}
	return w.read
}

// about are the statuses of a source, in order, each pair under one id of its own.
func (w *world) about(source string) (out []monitor.Transition) {
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
func (w *world) want(source string, turns ...monitor.Transition) {
	w.t.Helper()
	if got := w.about(source); !slices.Equal(got, turns) {
		w.t.Errorf("%s: told %v, not %v", source, got, turns)
	}
}

func (w *world) act(a monitor.Action) {
	w.t.Helper()
	if err := w.ref.ApplyAction(w.t.Context(), a); err != nil {
		w.t.Fatal(err)
	}
}
