package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// plainRegistry is the registry of a store without scripts: keys as with scripts
// (see shard_form.go), except for the index of shards, which is a SET, and the age of
// a record, which is what remains of "<NODE_ID>_age".
type plainRegistry struct{ s *plain }

// Report implements [shard.Registry].
func (r plainRegistry) Report(ctx context.Context, n shard.Record, _ bool) (shard.View, error) {
	if err := n.Validate(); err != nil {
		return shard.View{}, err
	}
	if err := unsafeTiming(lease.Timing{Interval: n.Interval, Timeout: n.Timeout}); err != nil {
		return shard.View{}, err
	}
	fields, err := recordFields(n)
	if err != nil {
		return shard.View{}, fmt.Errorf("%w: %w", lease.ErrInvalid, err)
	}
	s := r.s
	var look viewLook
	err = s.transact(ctx, s.rest, writes, func(t *tx) error {
		p := s.peekView(n.Shard)
		address := ask("SMEMBERS", s.addressKey(n.Address))
		if err := t.read(append(p.commands(), address)...); err != nil {
			return err
		}
		old, err := s.registered(t, n, address.texts())
		if err != nil {
			return err
		}
		s.putRecord(t, n, fields, old, p, address.texts())
		if look, err = s.lookView(p, n.ID); err != nil {
			return err
		}
		t.queue(look.commands()...)
		return nil
	})
	if err != nil {
		return shard.View{}, err
	}
	view, err := look.show(s.now())
	if errors.Is(err, errAgain) {
		return r.ReadView(ctx, n.Shard) // the record is written, and more changed with it
	}
	return view, err
}

// registered watches what tells whether the node is registered otherwise, which is
// ErrTaken. It returns the fields of the record that there is.
func (s *plain) registered(t *tx, n shard.Record, atAddress []string) (map[string]string, error) {
	others := slices.DeleteFunc(atAddress, func(id string) bool { return id == n.ID })
	slices.Sort(others)
	keys := []string{s.nodeKey(n.ID), s.addressKey(n.Address)}
	own, age, again := ask("HGETALL", s.nodeKey(n.ID)), ask("TTL", s.recordAgeKey(n.ID)), ask("SMEMBERS", s.addressKey(n.Address))
	all := []*command{own, age, again}
	for _, id := range others {
		keys = append(keys, s.nodeKey(id))
		all = append(all, ask("HMGET", s.nodeKey(id), "shard_name", "timeout_ns"), ask("TTL", s.recordAgeKey(id)))
	}
	if err := t.watch(keys, all...); err != nil {
		return nil, err
	}
	if now := slices.DeleteFunc(again.texts(), func(id string) bool { return id == n.ID }); !sameSet(now, others) {
		return nil, errAgain
	}
	old := own.fields()
	if len(old) > 0 {
		if home := old["shard_name"]; home != n.Shard {
			return nil, n.TakenError(shard.TakenShard, n.ID, home)
		}
		if old["instance"] != n.Instance && reports(old["timeout_ns"], age) {
			return nil, n.TakenError(shard.TakenInstance, n.ID, old["instance"])
		}
	}
	for i, id := range others {
		about := all[3+2*i].texts()
		switch {
		case about[0] == "":
		case about[0] != n.Shard:
			return nil, n.TakenError(shard.TakenAddressShard, id, about[0])
		case reports(about[1], all[4+2*i]):
			return nil, n.TakenError(shard.TakenAddress, id, "")
		}
	}
	return old, nil
}

// reports tells that a record is as young as its timeout, or a second older: ages
// are known to the second, and what is doubtful is not taken over.
func reports(timeout string, age *command) bool {
	t, _ := strconv.ParseInt(timeout, 10, 64)
	return age.number() >= 0 && ageOf(age) <= time.Duration(t)
}

func sameSet(a, b []string) bool {
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// putRecord queues the record. What is there already is not added again, so that those who
// watch it are not disturbed.
func (s *plain) putRecord(t *tx, n shard.Record, fields []any, old map[string]string, p viewPeek, atAddress []string) {
	set := ask("HSET", s.nodeKey(n.ID), "last_updated", strconv.FormatInt(s.now().UnixMicro(), 10))
	for _, f := range fields {
		set.args = append(set.args, fmt.Sprint(f))
	}
	t.queue(set)
	t.do("SET", s.recordAgeKey(n.ID), "1", "EX", strconv.Itoa(ever))
	if was := old["node_address"]; was != "" && was != n.Address {
		t.do("SREM", s.addressKey(was), n.ID)
	}
	if !slices.Contains(atAddress, n.ID) {
		t.do("SADD", s.addressKey(n.Address), n.ID)
	}
	if !slices.Contains(p.nodes.texts(), n.ID) {
		t.do("SADD", s.shardNodesKey(n.Shard), n.ID)
		t.do("SADD", s.root+"shards", n.Shard)
	}
}

// UpdateRow implements [shard.Registry].
func (r plainRegistry) UpdateRow(ctx context.Context, d shard.RowUpdate) (rev int64, err error) {
	if err := d.Validate(); err != nil {
		return 0, err
	}
	s := r.s
	var length *command
	err = s.transact(ctx, s.rest, writes, func(t *tx) error {
		length = nil
		queues := s.queues(d.Commands)
		now, nodes := ask("HMGET", s.shardKey(d.Row.Name), "rev", "primary"), ask("SMEMBERS", s.shardNodesKey(d.Row.Name))
		all, keys := []*command{now, nodes}, append([]string{s.shardKey(d.Row.Name)}, queues.keys()...)
		var dropped []*command
		for _, id := range d.Drop {
			keys = append(keys, s.nodeKey(id))
			dropped = append(dropped, ask("HMGET", s.nodeKey(id), "shard_name", "node_address"))
		}
		if err := t.watch(keys, slices.Concat(all, dropped, queues.reads())...); err != nil {
			return err
		}
		old, _ := strconv.ParseInt(now.texts()[0], 10, 64)
		if old != d.Row.Rev {
			return fmt.Errorf("%w: shard %q is at %d, not at %d", shard.ErrChanged, d.Row.Name, old, d.Row.Rev)
		}
		rev = max(old+1, s.now().UnixMicro())
		if err := s.putRow(t, d.Row, rev, now.texts()[1]); err != nil {
			return err
		}
		s.drop(t, d, dropped, queues)
		if err := queues.send(t, d.Commands); err != nil {
			return err
		}
		if d.Event != nil {
			length = s.write(t, *d.Event)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	s.trimAfter(ctx, length)
	return rev, nil
}

// putRow queues the row, and its members in the specification's form.
func (s *plain) putRow(t *tx, row shard.Row, rev int64, primary string) error {
	row.Rev = rev
	doc, err := json.Marshal(row)
	if err != nil {
		return fmt.Errorf("%w: the row of shard %q cannot be written: %w", lease.ErrInvalid, row.Name, err)
	}
	t.do("HSET", s.shardKey(row.Name), "rev", strconv.FormatInt(rev, 10), "primary", row.Primary, "doc", string(doc))
	t.do("SADD", s.root+"shards", row.Name)
	if primary != "" {
		t.do("DEL", s.replicasKey(primary))
	}
	if row.Primary == "" {
		return nil
	}
	replicas := slices.DeleteFunc(members(row), func(id string) bool { return id == row.Primary })
	t.do("DEL", s.replicasKey(row.Primary))
	if len(replicas) > 0 {
		t.do(append([]string{"SADD", s.replicasKey(row.Primary)}, replicas...)...)
	}
	return nil
}

// drop queues the deletion of records of the shard, and of their queues.
func (s *plain) drop(t *tx, d shard.RowUpdate, found []*command, queues queueLooks) {
	for i, id := range d.Drop {
		about := found[i].texts()
		if about[0] == d.Row.Name {
			t.do("DEL", s.nodeKey(id), s.recordAgeKey(id))
			t.do("SREM", s.shardNodesKey(d.Row.Name), id)
			t.do("SREM", s.addressKey(about[1]), id)
		}
		if id != d.Row.Primary {
			t.do("DEL", s.replicasKey(id))
		}
		t.do("DEL", s.nodeQueueKey(id))
		queues.emptied(id)
	}
}

// Lock implements [shard.Registry]. A free lock is taken by SET NX EX.
func (r plainRegistry) Lock(ctx context.Context, l shard.Lock) error {
	if err := l.Validate(); err != nil {
		return err
	}
	if l.Value == "" {
		return fmt.Errorf("%w: a failover lock needs a value", lease.ErrInvalid)
	}
	key := r.s.lockKey(l.Primary)
	var set *command
	err := r.s.transact(ctx, r.s.rest, writes, func(t *tx) error {
		now := ask("GET", key)
		if err := t.watch([]string{key}, now); err != nil {
			return err
		}
		if now.text() != l.Instead {
			return fmt.Errorf("%w: of primary %.8s, with the value %q", shard.ErrLocked, l.Primary, now.text())
		}
		set = t.do("SET", key, l.Value)
		if l.Instead == "" {
			set.args = append(set.args, "NX")
		}
		set.args = append(set.args, "EX", strconv.Itoa(lockSeconds))
		return nil
	})
	if err == nil && set.nothing() {
		return fmt.Errorf("%w: of primary %.8s", shard.ErrLocked, l.Primary)
	}
	return err
}

// Unlock implements [shard.Registry].
func (r plainRegistry) Unlock(ctx context.Context, l shard.Lock) error {
	if err := l.Validate(); err != nil {
		return err
	}
	key := r.s.lockKey(l.Primary)
	return r.s.transact(ctx, r.s.rest, writes, func(t *tx) error {
		now := ask("GET", key)
		if err := t.watch([]string{key}, now); err != nil {
			return err
		}
		if !now.nothing() && now.text() == l.Instead {
			t.do("DEL", key)
		}
		return nil
	})
}

// ReadView implements [shard.Registry].
func (r plainRegistry) ReadView(ctx context.Context, name string) (shard.View, error) {
	if err := shard.ValidateName(name); err != nil {
		return shard.View{}, err
	}
	all, err := r.s.views(ctx, name)
	if err != nil {
		return shard.View{}, err
	}
	if len(all) == 0 {
		return shard.View{}, fmt.Errorf("%w: no shard %q", shard.ErrNotFound, name)
	}
	return all[0], nil
}

// viewsChunk is how many shards of a list are read at one moment.
const viewsChunk = 16

// List implements [shard.Registry]. Very many are read in several steps.
func (r plainRegistry) List(ctx context.Context, after string, limit int) ([]shard.View, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	index := ask("SMEMBERS", r.s.root+"shards")
	if err := r.s.look(ctx, index); err != nil {
		return nil, err
	}
	names := slices.DeleteFunc(index.texts(), func(n string) bool { return strings.Compare(n, after) <= 0 })
	slices.Sort(names)
	limit = min(max(limit, 1), shard.MaxShards)
	var out []shard.View
	for chunk := range slices.Chunk(names, viewsChunk) {
		if len(out) >= limit {
			break
		}
		read, err := r.s.views(ctx, chunk...)
		if err != nil {
			return nil, err
		}
		out = append(out, read...)
	}
	return out[:min(len(out), limit)], nil
}

// Watch implements [shard.Registry]: there is nothing to listen to.
func (r plainRegistry) Watch(_ context.Context, name string, _ func(string)) error {
	if name != "" {
		if err := shard.ValidateName(name); err != nil {
			return err
		}
	}
	return fmt.Errorf("redis without scripts: %w", errors.ErrUnsupported)
}

func (s *plain) nodeKey(id string) string          { return s.root + id }
func (s *plain) recordAgeKey(id string) string     { return s.root + id + "_age" }
func (s *plain) replicasKey(primary string) string { return s.root + primary + "_replicas" }
func (s *plain) lockKey(primary string) string     { return s.root + primary + "_FAILOVER" }
func (s *plain) nodeQueueKey(id string) string     { return s.root + id + "_queue" }
func (s *plain) shardKey(name string) string       { return s.root + "shard:" + name }
func (s *plain) shardNodesKey(name string) string  { return s.root + "shard-nodes:" + name }
func (s *plain) addressKey(address string) string  { return s.root + "node-address:" + address }
