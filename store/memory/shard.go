package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/store"
)

var _ store.Shards = (*Store)(nil)

// Registry is what the store keeps for package shard.
func (s *Store) Registry() shard.Registry { return shard.Validated(registry{s}) }

// registry is the [shard.Registry] of a Store.
type registry struct{ s *Store }

// shards are all shards of a store, under its lock.
type shards struct {
	byName    map[string]*shardState
	home      map[string]string          // the shard of a node
	addresses map[string]map[string]bool // the nodes at an address
	locks     map[string]failoverLock    // by primary
	queues    map[string][]queued        // by node
	coming    map[string]chan struct{}   // by node; closed when a command comes
	watchers  map[int]shardWatcher
	nextW     int
}

type shardState struct {
	row   shard.Row
	nodes map[string]node
}

// node is a record and when it was written. What its pointers lead to never changes.
type node struct {
	shard.Record
	At time.Time `json:"at"`
}

func (n node) lives(now time.Time) bool { return shard.AgeAt(now, n.At, n.Timeout) <= n.Timeout }

type failoverLock struct {
	Value   string    `json:"value"`
	Expires time.Time `json:"expires"`
}

type shardWatcher struct {
	shard string
	wake  func(string)
}

func newShards() shards {
	return shards{
		byName: map[string]*shardState{}, home: map[string]string{}, addresses: map[string]map[string]bool{},
		locks: map[string]failoverLock{}, queues: map[string][]queued{}, coming: map[string]chan struct{}{},
		watchers: map[int]shardWatcher{},
	}
}

// begin locks the store for a call, unless its context has ended.
func (s *Store) begin(ctx context.Context, op string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("memory: %s: %w: %w", op, lease.ErrUnavailable, context.Cause(ctx))
	}
	s.mu.Lock()
	return nil
}

// Report implements [shard.Registry].
func (r registry) Report(ctx context.Context, n shard.Record, urgent bool) (shard.View, error) {
	if err := r.s.begin(ctx, "reporting a node"); err != nil {
		return shard.View{}, err
	}
	defer r.s.mu.Unlock()
	now, all := r.s.now(), &r.s.shards
	if err := all.taken(n, now); err != nil {
		return shard.View{}, err
	}
	all.put(n, now)
	if urgent {
		all.tell(n.Shard)
	}
	return r.s.view(n.Shard, now), nil
}

// taken reports whether the node is registered otherwise.
func (all *shards) taken(n shard.Record, now time.Time) error {
	home, known := all.home[n.ID]
	switch {
	case known && home != n.Shard:
		return n.TakenError(shard.TakenShard, n.ID, home)
	case known:
		if old := all.byName[home].nodes[n.ID]; old.Instance != n.Instance && old.lives(now) {
			return n.TakenError(shard.TakenInstance, n.ID, old.Instance)
		}
	}
	for id := range all.addresses[n.Address] {
		home := all.home[id]
		if home != n.Shard {
			return n.TakenError(shard.TakenAddressShard, id, home)
		}
		if id != n.ID && all.byName[home].nodes[id].lives(now) {
			return n.TakenError(shard.TakenAddress, id, "")
		}
	}
	return nil
}

func (all *shards) put(n shard.Record, now time.Time) {
	all.drop(n.Shard, n.ID)
	of := all.state(n.Shard)
	n = copyRecord(n)
	n.Updated, n.Age = now.UnixMicro(), 0
	of.nodes[n.ID] = node{n, now}
	all.home[n.ID] = n.Shard
	if all.addresses[n.Address] == nil {
		all.addresses[n.Address] = map[string]bool{}
	}
	all.addresses[n.Address][n.ID] = true
}

// drop deletes a node's record, if it is of that shard.
func (all *shards) drop(name, id string) {
	of := all.byName[name]
	if of == nil || all.home[id] != name {
		return
	}
	address := of.nodes[id].Address
	delete(of.nodes, id)
	delete(all.home, id)
	delete(all.addresses[address], id)
	if len(all.addresses[address]) == 0 {
		delete(all.addresses, address)
	}
	if len(of.nodes) == 0 && of.row.Rev == 0 {
		delete(all.byName, name)
	}
}

func (all *shards) state(name string) *shardState {
	of := all.byName[name]
	if of == nil {
		of = &shardState{row: shard.Row{Name: name}, nodes: map[string]node{}}
		all.byName[name] = of
	}
	return of
}

// view is a shard that is there, as it stands.
func (s *Store) view(name string, now time.Time) shard.View {
	of := s.shards.byName[name]
	v := shard.View{Row: copyRow(of.row), Now: now.Round(time.Microsecond), Lease: s.show(shard.LeaseID(name), now)}
	if of.row.Primary != "" {
		v.Lock = s.shards.lockedBy(of.row.Primary, now)
	}
	for _, id := range slices.Sorted(maps.Keys(of.nodes)) {
		n := of.nodes[id]
		r := copyRecord(n.Record)
		r.Age = shard.AgeAt(now, n.At, r.Timeout)
		v.Nodes = append(v.Nodes, r)
	}
	return v
}

// ReadView implements [shard.Registry].
func (r registry) ReadView(ctx context.Context, name string) (shard.View, error) {
	if err := r.s.begin(ctx, "looking at a shard"); err != nil {
		return shard.View{}, err
	}
	defer r.s.mu.Unlock()
	if r.s.shards.byName[name] == nil {
		return shard.View{}, fmt.Errorf("%w: no shard %q", shard.ErrNotFound, name)
	}
	return r.s.view(name, r.s.now()), nil
}

// List implements [shard.Registry].
func (r registry) List(ctx context.Context, after string, limit int) ([]shard.View, error) {
	if err := r.s.begin(ctx, "listing shards"); err != nil {
		return nil, err
	}
	defer r.s.mu.Unlock()
	var names []string
	for name := range r.s.shards.byName {
		if name > after {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	now := r.s.now()
	var out []shard.View
	for _, name := range names[:min(len(names), limit)] {
		out = append(out, r.s.view(name, now))
	}
	return out, nil
}

// UpdateRow implements [shard.Registry].
func (r registry) UpdateRow(ctx context.Context, d shard.RowUpdate) (int64, error) {
	if err := r.s.begin(ctx, "deciding about a shard"); err != nil {
		return 0, err
	}
	defer r.s.mu.Unlock()
	now, all := r.s.now(), &r.s.shards
	rev := int64(0)
	if of := all.byName[d.Row.Name]; of != nil {
		rev = of.row.Rev
	}
	if rev != d.Row.Rev {
		return 0, fmt.Errorf("%w: shard %q is at %d, not at %d", shard.ErrChanged, d.Row.Name, rev, d.Row.Rev)
	}
	of := all.state(d.Row.Name)
	if of.row = (shard.Row{Name: d.Row.Name}); !d.Remove {
		of.row = copyRow(d.Row)
		of.row.Rev = max(rev+1, now.UnixMicro())
	}
	for _, id := range d.Drop {
		all.drop(d.Row.Name, id)
		delete(all.queues, id)
	}
	if d.Remove && len(of.nodes) == 0 {
		delete(all.byName, d.Row.Name)
	}
	for _, c := range d.Commands {
		all.send(c, now)
	}
	if d.Event != nil {
		r.s.record(now, *d.Event, lease.Change{})
	}
	all.tell(d.Row.Name)
	return of.row.Rev, nil
}

// lockedBy is the value of a lock, "" when it is free.
func (all *shards) lockedBy(primary string, now time.Time) string {
	l, held := all.locks[primary]
	if held && !now.Before(l.Expires) {
		delete(all.locks, primary)
		return ""
	}
	return l.Value
}

// Lock implements [shard.Registry].
func (r registry) Lock(ctx context.Context, l shard.Lock) error {
	if err := r.s.begin(ctx, "taking the failover lock"); err != nil {
		return err
	}
	defer r.s.mu.Unlock()
	now := r.s.now()
	if held := r.s.shards.lockedBy(l.Primary, now); held != l.Instead {
		return fmt.Errorf("%w: of primary %.8s, with the value %q", shard.ErrLocked, l.Primary, held)
	}
	r.s.shards.locks[l.Primary] = failoverLock{l.Value, now.Add(shard.LockTime)}
	return nil
}

// Unlock implements [shard.Registry].
func (r registry) Unlock(ctx context.Context, l shard.Lock) error {
	if err := r.s.begin(ctx, "giving the failover lock up"); err != nil {
		return err
	}
	defer r.s.mu.Unlock()
	if r.s.shards.lockedBy(l.Primary, r.s.now()) == l.Instead {
		delete(r.s.shards.locks, l.Primary)
	}
	return nil
}

// Watch implements [shard.Registry].
func (r registry) Watch(ctx context.Context, name string, wake func(string)) error {
	s := r.s
	s.mu.Lock()
	n := s.shards.nextW
	s.shards.nextW++
	s.shards.watchers[n] = shardWatcher{name, wake}
	wake("")
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	delete(s.shards.watchers, n)
	s.mu.Unlock()
	return nil
}

// tell wakes those who watch a shard.
func (all *shards) tell(name string) {
	for _, w := range all.watchers {
		if w.shard == "" || w.shard == name {
			w.wake(name)
		}
	}
}
