package sabledb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/memory"
)

const (
	schema = 1
	// ever is the life of the key that tells the time, in seconds.
	ever = 10 * 365 * 86400
	// lockWait is how long a call waits for its turn, in ms.
	lockWait    = "4000"
	callTimeout = 5 * time.Second
	dialTimeout = 3 * time.Second
	// precision of the clock.
	precision = time.Second
)

// state is what the store keeps, but for the events.
type state struct {
	Schema int             `json:"schema"`
	Server string          `json:"server"` // SableDB's node id
	Lost   time.Time       `json:"lost"`   // when writes may have been lost last
	Base   int64           `json:"base"`   // the number before that of the oldest event that is kept
	Memory json.RawMessage `json:"memory,omitempty"`
}

// call is one operation, under the store's lock.
type call struct {
	s      *Store
	c      *conn
	now    time.Time
	state  state
	memory *memory.Store
	start  memory.Snapshot
	dirty  bool          // the state is to be written, whatever the operation did
	ahead  time.Duration // of the clock that the memory store sees
	extra  [][]string    // more to write
	wake   []string      // nodes that got commands
	looks  bool          // nothing is written
	long   bool          // the history is, now
	breaks int           // of the connection that is kept, of which the state knows
}

// run carries out one operation: f on the state as it is. What f changes is written also when it returns an error, unless
// that is a discard.
func (s *Store) run(ctx context.Context, f func(k *call) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	long, err := s.runOnce(ctx, f)
	if long {
		_, _ = s.Trim(ctx, s.keep) // else the next event does it
	}
	return err
}

// runOnce is run; long tells that the history is too long now. It is cut by a call of its own: a list that the same EXEC has
// written cannot be read in it.
func (s *Store) runOnce(ctx context.Context, f func(k *call) error) (long bool, err error) {
	// load looks again, under the lock: a connection that does not answer is not to be waited for there.
	if err := s.guard.check(ctx, ""); err != nil {
		return false, failure(err, false)
	}
	c, err := s.dial(ctx)
	if err != nil {
		return false, failure(err, false)
	}
	defer c.Close()
	if _, err := c.do(ctx, []string{"LOCK", s.key("lock"), lockWait}); err != nil {
		return false, failure(err, false)
	}
	k := &call{s: s, c: c}
	if err := k.load(ctx); err != nil {
		return false, err
	}
	result := f(k)
	if _, kept := errors.AsType[discard](result); kept {
		k.memory.Restore(k.start)
	}
	if k.looks {
		return false, result
	}
	if err := k.save(ctx); err != nil {
		return false, err
	}
	return k.long, result
}

// discard is an error with which nothing that the operation did is kept.
type discard struct{ error }

func (d discard) Unwrap() error { return d.error }

// load reads the state, and tells the time.
func (k *call) load(ctx context.Context) error {
	all, err := k.c.do(ctx, []string{"INFO"}, []string{"GET", k.s.key("state")}, []string{"GET", k.s.key("clock")}, []string{"TTL", k.s.key("clock")})
	if err != nil {
		return failure(err, false)
	}
	id, _, err := parseInfo(all[0])
	if err == nil {
		// Only now: a run that was there before and still is has answered this connection, and has what this call writes.
		err = k.s.guard.check(ctx, id)
	}
	if err != nil {
		return failure(err, false)
	}
	all = all[1:]
	if text := all[0].Text; text != "" {
		if err := json.Unmarshal([]byte(text), &k.state); err != nil {
			return k.s.foreign("state", err)
		}
	}
	if k.state.Schema > schema {
		return fmt.Errorf("%w: the store's is version %d and this program knows up to %d: use a newer understudy", store.ErrSchema, k.state.Schema, schema)
	}
	if all[1].Nil || all[2].Int < 0 {
		all[1].Text, all[2].Int = strconv.FormatInt(time.Now().Unix(), 10), ever
		if _, err := k.c.do(ctx, []string{"SET", k.s.key("clock"), all[1].Text, "EX", strconv.Itoa(ever)}); err != nil {
			return failure(err, false)
		}
	}
	base, err := strconv.ParseInt(all[1].Text, 10, 64)
	if err != nil {
		return k.s.foreign("clock", err)
	}
	k.now = time.Unix(base+ever-all[2].Int, 0).UTC()
	// A clock that was set back must not make it longer.
	run := k.s.guard.server()
	k.breaks = run.breaks
	if k.state.Schema == 0 || k.state.Server != id || run.breaks > run.noted || k.state.Lost.After(k.now) {
		k.state.Schema, k.state.Server, k.state.Lost, k.dirty = schema, id, k.now, true
	}
	return k.settle(ctx)
}

// settle makes the memory store as the state says, with those sessions alive whose keys have not expired.
func (k *call) settle(ctx context.Context) error {
	k.memory = memory.New(func() time.Time { return k.now.Add(k.ahead) })
	if len(k.state.Memory) > 0 {
		var err error
		if k.start, err = memory.DecodeSnapshot(k.state.Memory); err != nil {
			return k.s.foreign("state", err)
		}
	}
	read := []string{"MGET"}
	for _, id := range k.start.Sessions() {
		read = append(read, k.s.key("alive:"+id))
	}
	if len(read) > 1 {
		all, err := k.c.do(ctx, read)
		if err != nil {
			return failure(err, false)
		}
		for i, id := range k.start.Sessions() {
			k.start.Settle(id, i < len(all[0].Items) && !all[0].Items[i].Nil, k.now, 2*precision)
		}
	}
	k.memory.Restore(k.start)
	return nil
}

// save writes what has changed, in one transaction of writes alone.
func (k *call) save(ctx context.Context) error {
	snapshot := k.memory.Snapshot()
	before, err := k.start.Encode()
	if err != nil {
		return err
	}
	text, err := snapshot.Encode()
	if err != nil {
		return fmt.Errorf("%w: the state cannot be written: %w", lease.ErrInvalid, err)
	}
	k.state.Memory = text
	writes := k.extra
	if events := snapshot.Events(); len(events) > 0 {
		push := []string{"RPUSH", k.s.key("events")}
		for _, e := range events {
			text, err := json.Marshal(e)
			if err != nil {
				return fmt.Errorf("%w: an event cannot be written: %w", lease.ErrInvalid, err)
			}
			push = append(push, string(text))
		}
		writes = append(writes, push)
		k.long = snapshot.LastID()-k.state.Base > int64(k.s.keep+k.s.keep/16+16)
	}
	after, err := json.Marshal(k.state)
	if err != nil {
		return fmt.Errorf("%w: the state cannot be written: %w", lease.ErrInvalid, err)
	}
	if len(writes) == 0 && !k.dirty && bytes.Equal(before, text) {
		return nil
	}
	writes = append(writes, []string{"SET", k.s.key("state"), string(after)})
	for _, node := range k.wake {
		key := k.s.key("wake:" + node)
		if _, err := k.c.do(ctx, []string{"DEL", key}); err != nil {
			return failure(err, false)
		}
		writes = append(writes, []string{"RPUSH", key, "1"})
	}
	return k.write(ctx, writes)
}

// write is the one EXEC of the connection.
func (k *call) write(ctx context.Context, writes [][]string) error {
	commands := append(append([][]string{{"MULTI"}}, writes...), []string{"EXEC"})
	all, err := k.c.exchange(ctx, commands)
	if err != nil {
		return failure(err, true)
	}
	exec := all[len(all)-1]
	for i, r := range append(all, exec.Items...) {
		if err := r.Err(); err != nil {
			return failure(fmt.Errorf("%s: %w", commands[min(i, len(commands)-1)][0], err), exec.Err() == nil)
		}
	}
	if exec.Kind != '*' || exec.Nil || len(exec.Items) != len(writes) {
		return failure(errors.New("EXEC was not answered as it must be"), true)
	}
	k.s.guard.note(k.breaks)
	return nil
}

// trim cuts the oldest events off.
func (k *call) trim(count int64) []string {
	k.state.Base += count
	return []string{"LTRIM", k.s.key("events"), strconv.FormatInt(count, 10), "-1"}
}

// events reads those with numbers from first on, at most [history.MaxRead].
func (k *call) events(ctx context.Context, first, last int64) (out []history.Event, err error) {
	all, err := k.c.do(ctx, []string{"LRANGE", k.s.key("events"), strconv.FormatInt(first-k.state.Base-1, 10), strconv.FormatInt(last-k.state.Base-1, 10)})
	if err != nil {
		return nil, failure(err, false)
	}
	for i, item := range all[0].Items {
		var e history.Event
		if err := json.Unmarshal([]byte(item.Text), &e); err != nil {
			return nil, k.s.foreign("events", err)
		}
		e.ID = first + int64(i)
		out = append(out, e)
	}
	return out, nil
}

func (s *Store) foreign(name string, err error) error {
	return fmt.Errorf("%w: %q cannot be read, something else writes under this prefix: %w", lease.ErrUnavailable, s.key(name), err)
}

func (s *Store) key(name string) string { return "{" + s.target.prefix + "}:" + name }
