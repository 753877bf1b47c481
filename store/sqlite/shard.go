package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/store"
)

var _ store.Shards = (*Store)(nil)

// Registry is what the store keeps for package shard.
func (s *Store) Registry() shard.Registry { return shard.Validated(registry{s}) }

// registry is the [shard.Registry] of a Store.
type registry struct{ s *Store }

const (
	sameNodes = "SELECT id, shard, address, instance, timeout_ns, boot, at_us FROM understudy_shard_node WHERE id = ?1 OR address = ?2"

	putNode = `
INSERT INTO understudy_shard_node (id, shard, address, instance, timeout_ns, boot, at_us, updated_us, doc)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (id) DO UPDATE SET address = ?3, instance = ?4, timeout_ns = ?5, boot = ?6, at_us = ?7, updated_us = ?8, doc = ?9`

	shardNodes = "SELECT boot, at_us, updated_us, doc FROM understudy_shard_node WHERE shard = ?1 ORDER BY id"
	shardRow   = "SELECT rev, doc FROM understudy_shard WHERE name = ?1"
	shardRev   = "SELECT rev FROM understudy_shard WHERE name = ?1"
	shardLock  = "SELECT value FROM understudy_shard_lock WHERE node = ?1 AND boot = ?2 AND expires_us > ?3"
	shardNames = `
SELECT name FROM understudy_shard WHERE name > ?1
UNION SELECT shard FROM understudy_shard_node WHERE shard > ?1 ORDER BY 1 LIMIT ?2`

	putShard = `
INSERT INTO understudy_shard (name, rev, doc) VALUES (?1, ?2, ?3) ON CONFLICT (name) DO UPDATE SET rev = ?2, doc = ?3`

	dropShard    = "DELETE FROM understudy_shard WHERE name = ?1"
	dropNode     = "DELETE FROM understudy_shard_node WHERE id = ?1 AND shard = ?2"
	dropCommands = "DELETE FROM understudy_shard_command WHERE node = ?1"
	wakeShard    = "INSERT INTO understudy_shard_wake (shard) VALUES (?1)"

	putLock = `
INSERT INTO understudy_shard_lock (node, value, boot, expires_us) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (node) DO UPDATE SET value = ?2, boot = ?3, expires_us = ?4`

	dropLock    = "DELETE FROM understudy_shard_lock WHERE node = ?1 AND value = ?2"
	forgetLocks = "DELETE FROM understudy_shard_lock WHERE boot <> ?1 OR expires_us <= ?2"
)

// readShards runs fn on one state of the file.
func (s *Store) readShards(ctx context.Context, op string, fn func(*txn) error) error {
	return s.snapshot(ctx, op, readReaders, []any{new(int)}, fn)
}

// age is that of a record. One that was written before the host was started again is of an
// agent that is no more.
func (t *txn) age(boot string, at, updated int64, timeout time.Duration) time.Duration {
	if boot != t.boot {
		return max(micros(t.wall-updated), timeout+time.Microsecond)
	}
	return max(0, micros(t.now-at))
}

func (t *txn) view(name string) (shard.View, error) {
	out := shard.View{Row: shard.Row{Name: name}, Now: time.UnixMicro(t.wall)}
	var doc string
	err := t.one(shardRow, []any{name}, &out.Row.Rev, &doc)
	if err == nil {
		rev := out.Row.Rev
		err = json.Unmarshal([]byte(doc), &out.Row)
		out.Row.Rev = rev
	}
	if err = notThere(err); err != nil {
		return shard.View{}, err
	}
	out.Nodes, err = list(t.call, shardNodes, []any{name}, func(scan scanner) (r shard.Record, err error) {
		var boot string
		var at, updated int64
		if err := scan(&boot, &at, &updated, &doc); err != nil {
			return r, err
		}
		err = json.Unmarshal([]byte(doc), &r)
		r.Updated, r.Age = updated, t.age(boot, at, updated, r.Timeout)
		return r, err
	})
	if err == nil && out.Row.Rev == 0 && len(out.Nodes) == 0 {
		err = fmt.Errorf("%w: no shard %q", shard.ErrNotFound, name)
	}
	if err == nil {
		out.Lock, err = t.lock(out.Row.Primary)
	}
	if err == nil {
		out.Lease, err = t.lease(shard.LeaseID(name), t.boot, "")
	}
	if err != nil {
		return shard.View{}, err
	}
	return out, nil
}

// lock is the value of a primary's lock, "" when it is free.
func (t *txn) lock(primary string) (value string, err error) {
	err = t.one(shardLock, []any{primary, t.boot, t.now}, &value)
	return value, notThere(err)
}

// Report implements [shard.Registry].
func (r registry) Report(ctx context.Context, n shard.Record, urgent bool) (shard.View, error) {
	var out shard.View
	err := r.s.write(ctx, "reporting a node", func(t *txn) error {
		if err := t.taken(n); err != nil {
			return err
		}
		n.Updated = t.wall
		doc, err := json.Marshal(n)
		if err != nil {
			return err
		}
		_, err = t.exec(putNode, n.ID, n.Shard, n.Address, n.Instance, n.Timeout.Nanoseconds(), t.boot, t.now, t.wall, string(doc))
		if err == nil && urgent {
			_, err = t.exec(wakeShard, n.Shard)
		}
		if err == nil {
			out, err = t.view(n.Shard)
		}
		return err
	})
	if err != nil {
		return shard.View{}, err
	}
	return out, nil
}

// taken reports whether the node is registered otherwise.
func (t *txn) taken(n shard.Record) error {
	return t.each(sameNodes, []any{n.ID, n.Address}, func(scan scanner) error {
		var id, home, address, instance, boot string
		var timeout, at int64
		if err := scan(&id, &home, &address, &instance, &timeout, &boot, &at); err != nil {
			return err
		}
		lives := boot == t.boot && micros(t.now-at) <= time.Duration(timeout)
		switch {
		case id == n.ID && home != n.Shard:
			return n.TakenError(shard.TakenShard, id, home)
		case home != n.Shard:
			return n.TakenError(shard.TakenAddressShard, id, home)
		case id == n.ID && instance != n.Instance && lives:
			return n.TakenError(shard.TakenInstance, id, instance)
		case id != n.ID && lives:
			return n.TakenError(shard.TakenAddress, id, "")
		}
		return nil
	})
}

// ReadView implements [shard.Registry].
func (r registry) ReadView(ctx context.Context, name string) (shard.View, error) {
	var out shard.View
	err := r.s.readShards(ctx, "looking at a shard", func(t *txn) (err error) {
		out, err = t.view(name)
		return err
	})
	if err != nil {
		return shard.View{}, err
	}
	return out, nil
}

// List implements [shard.Registry].
func (r registry) List(ctx context.Context, after string, limit int) ([]shard.View, error) {
	var out []shard.View
	err := r.s.readShards(ctx, "listing shards", func(t *txn) error {
		out = nil
		names, err := list(t.call, shardNames, []any{after, limit}, list1[string])
		for _, name := range names {
			if err != nil {
				return err
			}
			var one shard.View
			one, err = t.view(name)
			out = append(out, one)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// UpdateRow implements [shard.Registry]. A new revision is at least the clock, so that a file
// that was put back from a backup gives none out a second time.
func (r registry) UpdateRow(ctx context.Context, d shard.RowUpdate) (rev int64, err error) {
	name := d.Row.Name
	err = r.s.write(ctx, "deciding about a shard", func(t *txn) error {
		rev = 0
		if err := notThere(t.one(shardRev, []any{name}, &rev)); err != nil {
			return err
		}
		if rev != d.Row.Rev {
			return fmt.Errorf("%w: shard %q is at %d, not at %d", shard.ErrChanged, name, rev, d.Row.Rev)
		}
		if rev, err = t.putRow(d, max(rev+1, t.wall)); err != nil {
			return err
		}
		for _, id := range d.Drop {
			_, err := t.exec(dropNode, id, name)
			if err == nil {
				_, err = t.exec(dropCommands, id)
			}
			if err != nil {
				return err
			}
		}
		if err := t.send(d.Commands); err != nil {
			return err
		}
		if d.Event != nil {
			if err := t.record(*d.Event, changeNoLease, ""); err != nil {
				return err
			}
		}
		_, err = t.exec(wakeShard, name)
		return err
	})
	if err != nil {
		return 0, err
	}
	return rev, nil
}

// putRow writes or deletes the row.
func (t *txn) putRow(d shard.RowUpdate, rev int64) (int64, error) {
	if d.Remove {
		_, err := t.exec(dropShard, d.Row.Name)
		return 0, err
	}
	doc, err := json.Marshal(d.Row)
	if err == nil {
		_, err = t.exec(putShard, d.Row.Name, rev, string(doc))
	}
	return rev, err
}

// Lock implements [shard.Registry].
func (r registry) Lock(ctx context.Context, l shard.Lock) error {
	return r.s.write(ctx, "taking the failover lock", func(t *txn) error {
		held, err := t.lock(l.Primary)
		if err != nil {
			return err
		}
		if held != l.Instead {
			return fmt.Errorf("%w: of primary %.8s, with the value %q", shard.ErrLocked, l.Primary, held)
		}
		if _, err := t.exec(forgetLocks, t.boot, t.now); err != nil {
			return err
		}
		_, err = t.exec(putLock, l.Primary, l.Value, t.boot, t.now+shard.LockTime.Microseconds())
		return err
	})
}

// Unlock implements [shard.Registry].
func (r registry) Unlock(ctx context.Context, l shard.Lock) error {
	return r.s.write(ctx, "giving the failover lock up", func(t *txn) error {
		_, err := t.exec(dropLock, l.Primary, l.Instead)
		return err
	})
}
