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

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
)

// leaseRow is a lease; it never expires, so that its term never falls.
type leaseRow struct {
	Space     string `json:"space"`
	Key       string `json:"key"`
	Term      int64  `json:"term"`
	Session   string `json:"session"`
	Since     int64  `json:"since_us"`
	Successor string `json:"successor,omitempty"`
	Asked     bool   `json:"asked,omitempty"`
	AskedFor  string `json:"asked_for,omitempty"`
	Instance  string `json:"instance,omitempty"`
	Name      string `json:"name,omitempty"`
	Address   string `json:"address,omitempty"`
}

func (r leaseRow) id() lease.ID { return lease.ID{Space: r.Space, Key: r.Key} }
func (r leaseRow) holder() lease.Instance {
	return lease.Instance{ID: r.Instance, Name: r.Name, Address: r.Address}
}

// waiters that are looked at to count those who wait.
const headOfQueue = 128

// leaseLook asks for all of a lease, given the session and the waiters that it had
// a moment ago.
type leaseLook struct {
	id                       lease.ID
	session                  string
	doc, age, reserved, wait *command
	holder                   sessionLook
}

func (s *plain) lookLease(id lease.ID, session string, waiters []string) leaseLook {
	name := nameOf(id)
	l := leaseLook{id: id, session: session, doc: ask("GET", s.termKey(name)), age: ask("TTL", s.sinceKey(name)), reserved: ask("TTL", s.reservedKey(name))}
	if session != "" {
		l.holder = s.lookSession(session)
	}
	if len(waiters) > 0 {
		l.wait = ask("MGET")
		for _, w := range waiters {
			l.wait.args = append(l.wait.args, s.aliveKey(w))
		}
	}
	return l
}

func (l leaseLook) commands() []*command {
	out := []*command{l.doc, l.age, l.reserved}
	if l.session != "" {
		out = append(out, l.holder.commands()...)
	}
	if l.wait != nil {
		out = append(out, l.wait)
	}
	return out
}

// peek asks what must be known before a lease can be looked at.
func (s *plain) peek(id lease.ID) (doc, waiters *command) {
	name := nameOf(id)
	return ask("GET", s.termKey(name)), ask("LRANGE", s.waitKey(name), "0", strconv.Itoa(headOfQueue-1))
}

// lookAt looks after a peek, under the session that the lease has now.
func (s *plain) lookAt(id lease.ID, doc, waiters *command) (leaseLook, error) {
	row, _, err := readLease(id, doc)
	return s.lookLease(id, row.Session, waiters.texts()), err
}

func readLease(id lease.ID, doc *command) (row leaseRow, known bool, err error) {
	if doc.nothing() {
		return leaseRow{Space: id.Space, Key: id.Key}, false, nil
	}
	if err := json.Unmarshal([]byte(doc.text()), &row); err != nil {
		return row, false, foreign(doc.args[1], err)
	}
	return row, true, nil
}

// show reads the answers. It is errAgain when the lease has another session than
// the one that was asked for.
func (l leaseLook) show() (lease.Lease, leaseRow, error) {
	out := lease.Lease{ID: l.id}
	if l.wait != nil {
		for _, alive := range l.wait.texts() {
			if alive != "" {
				out.Waiting++
			}
		}
	}
	row, known, err := readLease(l.id, l.doc)
	switch {
	case err != nil || !known && l.session == "":
		return out, row, err
	case row.Session != l.session:
		return out, row, errAgain
	}
	out.Term, out.Session, out.Since, out.Age = row.Term, row.Session, time.UnixMicro(row.Since), ageOf(l.age)
	out.Successor, out.ReleaseRequested, out.RequestedSuccessor, out.Holder = row.Successor, row.Asked, row.AskedFor, row.holder()
	if row.Successor != "" {
		out.Reserved = left(l.reserved, lease.MaxTimeout)
	}
	if l.session != "" {
		_, h, _, err := l.holder.show()
		if err != nil {
			return out, row, err
		}
		out.Timing, out.Seq, out.Remaining, out.Ended = h.Timing, h.Seq, h.Remaining, h.Ended
	}
	return out, row, nil
}

// Acquire implements [lease.Store].
func (s *plain) Acquire(ctx context.Context, c lease.Expectation) (lease.Lease, error) {
	var out lease.Lease
	err := s.record(ctx, s.rest, func(t *tx) (*history.Event, error) {
		doc, waiters := s.peek(c.Lease)
		if err := t.read(doc, waiters); err != nil {
			return nil, err
		}
		look, err := s.lookAt(c.Lease, doc, waiters)
		if err != nil {
			return nil, err
		}
		own, lost := s.lookSession(c.Session), ask("TTL", s.root+"lost")
		keys := []string{s.termKey(nameOf(c.Lease)), s.aliveKey(c.Session), s.rowKey(c.Session)}
		if look.session != "" && look.session != c.Session {
			keys = append(keys, s.rowKey(look.session))
		}
		if err := t.watch(keys, slices.Concat(look.commands(), own.commands(), []*command{lost})...); err != nil {
			return nil, err
		}
		_, me, _, err := own.show()
		if err != nil {
			return nil, err
		}
		current, row, err := look.show()
		if err != nil {
			return nil, err
		}
		if !lives(me) {
			return nil, lapsed(c.Session)
		}
		out = current
		if current.Session == c.Session {
			return nil, nil
		}
		reason, ok := c.Permits(current, me.Instance)
		if !ok {
			return nil, fmt.Errorf("%s: %w", c.Lease, lease.ErrHeld)
		}
		if kept := keptFor(lost, me.Timing.Timeout); kept > 0 {
			out = lease.Lease{}
			return nil, fmt.Errorf("%w: the server was started or reached anew a moment ago and may have forgotten who holds what: no lease is given away for another %v",
				lease.ErrUnavailable, kept)
		}
		var e *history.Event
		out, e, err = s.take(t, look, current, row, me, reason)
		return e, err
	})
	if err != nil && !errors.Is(err, lease.ErrHeld) {
		return lease.Lease{}, err
	}
	return out, err
}

// keptFor is how long nothing is given away yet, after a loss that is as long
// ago as its key tells.
func keptFor(lost *command, timeout time.Duration) time.Duration {
	if lost.number() < 0 {
		return 0
	}
	ago := time.Duration(day-lost.number()) * time.Second
	return max(0, time.Duration(whole(timeout)+1)*time.Second-ago)
}

// take queues the takeover of a lease that may be taken.
func (s *plain) take(t *tx, look leaseLook, current lease.Lease, row leaseRow, me lease.Session, reason string) (lease.Lease, *history.Event, error) {
	name, from, vacant := nameOf(look.id), "", current.Age
	if row.Term == 0 {
		vacant = 0
		t.do("SADD", s.root+"leases:"+row.Space, row.Key)
	}
	if look.session != "" {
		old, shown, known, err := look.holder.show()
		if err != nil {
			return current, nil, err
		}
		vacant = max(0, -shown.Remaining)
		if known && !old.Over {
			s.close(t, look.session, old, shown)
		}
		t.do("SREM", s.heldKey(look.session), name)
	}
	if reason == history.Lapsed {
		from = row.holder().Label()
	}
	now := s.now()
	taken := leaseRow{
		Space: row.Space, Key: row.Key, Term: max(row.Term+1, now.UnixMilli()), Session: me.ID, Since: now.UnixMicro(),
		Instance: me.Instance.ID, Name: me.Instance.Name, Address: me.Instance.Address,
	}
	t.do("SET", s.termKey(name), document(taken))
	t.do("SET", s.sinceKey(name), "1", "EX", strconv.Itoa(ever))
	t.do("DEL", s.reservedKey(name))
	t.do("SADD", s.heldKey(me.ID), name)
	t.do("LREM", s.waitKey(name), "0", me.ID)
	out := lease.Lease{
		ID: look.id, Term: taken.Term, Session: me.ID, Holder: me.Instance, Timing: me.Timing, Seq: me.Seq, Remaining: me.Remaining,
		Since: time.UnixMicro(taken.Since), Waiting: current.Waiting,
	}
	return out, &history.Event{Part: row.Space, Subject: row.Key, From: from, To: me.Instance.Label(), Term: taken.Term, Reason: reason, Duration: vacant}, nil
}

// Release implements [lease.Store].
func (s *plain) Release(ctx context.Context, h lease.ReleaseRequest) error {
	return s.record(ctx, s.rest, func(t *tx) (*history.Event, error) {
		name := nameOf(h.Lease)
		doc, age := ask("GET", s.termKey(name)), ask("TTL", s.sinceKey(name))
		if err := t.watch([]string{s.termKey(name)}, doc, age); err != nil {
			return nil, err
		}
		row, _, err := readLease(h.Lease, doc)
		if err != nil {
			return nil, err
		}
		if row.Session == "" || row.Session != h.Session || row.Term != h.Term {
			return nil, fmt.Errorf("%s under term %d: %w", h.Lease, h.Term, lease.ErrNotHeld)
		}
		return s.free(t, row, ageOf(age), h.Reason, h.Successor, h.Reserve), nil
	})
}

// free queues the release of a lease that is held, and keeps its term.
func (s *plain) free(t *tx, row leaseRow, held time.Duration, reason, successor string, reserve time.Duration) *history.Event {
	name := nameOf(row.id())
	now := s.now()
	t.do("SREM", s.heldKey(row.Session), name)
	t.do("SET", s.termKey(name), document(leaseRow{Space: row.Space, Key: row.Key, Term: row.Term, Since: now.UnixMicro(), Successor: successor}))
	t.do("SET", s.sinceKey(name), "1", "EX", strconv.Itoa(ever))
	if successor != "" && reserve > 0 {
		t.do("SET", s.reservedKey(name), "1", "EX", seconds(min(reserve, lease.MaxTimeout)))
	} else {
		t.do("DEL", s.reservedKey(name))
	}
	return &history.Event{Part: row.Space, Subject: row.Key, From: row.holder().Label(), Term: row.Term, Reason: lease.TruncateReason(reason), Duration: held}
}

// Get implements [lease.Store].
func (s *plain) Get(ctx context.Context, id lease.ID) (lease.Lease, error) {
	all, err := s.leases(ctx, id)
	if err != nil {
		return lease.Lease{}, err
	}
	return all[0], nil
}

// leases shows leases as they stand, all at one moment.
func (s *plain) leases(ctx context.Context, ids ...lease.ID) (out []lease.Lease, err error) {
	err = s.transact(ctx, s.rest, reads, func(t *tx) error {
		var peeks []*command
		for _, id := range ids {
			doc, waiters := s.peek(id)
			peeks = append(peeks, doc, waiters)
		}
		if err := t.read(peeks...); err != nil {
			return err
		}
		looks := make([]leaseLook, len(ids))
		for i, id := range ids {
			var err error
			if looks[i], err = s.lookAt(id, peeks[2*i], peeks[2*i+1]); err != nil {
				return err
			}
		}
		all := &tx{w: t.w}
		for _, l := range looks {
			all.queue(l.commands()...)
		}
		if _, err := all.commit(); err != nil {
			return err
		}
		out = make([]lease.Lease, len(ids))
		for i, l := range looks {
			var err error
			if out[i], _, err = l.show(); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// listChunk is how many leases of a list are read at one moment.
const listChunk = 64

// List implements [lease.Store]. Very many are read in several steps.
func (s *plain) List(ctx context.Context, space, after string, limit int) ([]lease.Lease, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	keys := ask("SMEMBERS", s.root+"leases:"+space)
	if err := s.look(ctx, keys); err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(keys.texts(), func(k string) bool { return strings.Compare(k, after) <= 0 })
	slices.Sort(all)
	var out []lease.Lease
	for chunk := range slices.Chunk(all[:min(len(all), max(limit, 1), lease.MaxList)], listChunk) {
		var ids []lease.ID
		for _, key := range chunk {
			ids = append(ids, lease.ID{Space: space, Key: key})
		}
		read, err := s.leases(ctx, ids...)
		if err != nil {
			return nil, err
		}
		out = append(out, read...)
	}
	return out, nil
}

// Watch implements [lease.Store]: there is nothing to listen to.
func (s *plain) Watch(context.Context, func(lease.Change)) error {
	return fmt.Errorf("redis without scripts: %w", errors.ErrUnsupported)
}

func (s *plain) termKey(name string) string     { return s.root + "lease:" + name }
func (s *plain) sinceKey(name string) string    { return s.root + "since:" + name }
func (s *plain) reservedKey(name string) string { return s.root + "reserved:" + name }
func (s *plain) waitKey(name string) string     { return s.root + "waiting:" + name }
