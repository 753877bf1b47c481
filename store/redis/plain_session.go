package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// sessionRow is what is remembered of a session, for a day longer than it lives.
type sessionRow struct {
	Instance string `json:"instance"`
	Name     string `json:"name"`
	Address  string `json:"address"`
	Interval int64  `json:"interval_ns"`
	Timeout  int64  `json:"timeout_ns"`
	Seq      int64  `json:"seq"`
	Over     bool   `json:"over,omitempty"`
	Started  int64  `json:"started_us"`
}

func (r sessionRow) instance() lease.Instance {
	return lease.Instance{ID: r.Instance, Name: r.Name, Address: r.Address}
}

func (r sessionRow) timing() lease.Timing {
	return lease.Timing{Interval: time.Duration(r.Interval), Timeout: time.Duration(r.Timeout)}
}

// life is the time to live of the row: it tells, once the session has lapsed, how
// long ago.
func (r sessionRow) life() string {
	return strconv.FormatInt(whole(time.Duration(r.Timeout))+day, 10)
}

// sessionLook asks for all of a session.
type sessionLook struct {
	id               string
	doc, alive, rest *command
}

func (s *plain) lookSession(id string) sessionLook {
	return sessionLook{id, ask("GET", s.rowKey(id)), ask("TTL", s.aliveKey(id)), ask("TTL", s.rowKey(id))}
}

func (l sessionLook) commands() []*command { return []*command{l.doc, l.alive, l.rest} }

// show reads the answers; ok is false when the row is gone.
func (l sessionLook) show() (row sessionRow, shown lease.Session, ok bool, err error) {
	if l.doc.nothing() {
		return row, lease.Session{ID: l.id}, false, nil
	}
	if err := json.Unmarshal([]byte(l.doc.text()), &row); err != nil {
		return row, shown, false, foreign(l.doc.args[1], err)
	}
	shown = lease.Session{
		ID: l.id, Instance: row.instance(), Timing: row.timing(), Seq: row.Seq, Ended: row.Over, Started: time.UnixMicro(row.Started),
	}
	if l.alive.number() >= 0 {
		shown.Remaining = left(l.alive, time.Duration(row.Timeout))
	} else {
		shown.Remaining = min(0, time.Duration(l.rest.number()-day)*time.Second)
	}
	return row, shown, true, nil
}

func lives(s lease.Session) bool { return !s.Ended && s.Remaining > 0 }

// StartSession implements [lease.Store].
func (s *plain) StartSession(ctx context.Context, n lease.Session) (lease.Renewal, error) {
	if err := unsafeTiming(n.Timing); err != nil {
		return lease.Renewal{}, err
	}
	row := sessionRow{
		Instance: n.Instance.ID, Name: n.Instance.Name, Address: n.Instance.Address,
		Interval: int64(n.Timing.Interval), Timeout: int64(n.Timing.Timeout), Seq: 1, Started: s.now().UnixMicro(),
	}
	var changed *command
	err := s.transact(ctx, s.heart, writes, func(t *tx) error {
		schema, used, alive := ask("GET", s.root+"schema"), ask("GET", s.rowKey(n.ID)), ask("GET", s.aliveKey(n.ID))
		if err := t.watch([]string{s.rowKey(n.ID), s.aliveKey(n.ID), s.root + "schema"}, schema, used, alive); err != nil {
			return err
		}
		if err := fits(schema); err != nil {
			return err
		}
		if !used.nothing() || !alive.nothing() {
			return fmt.Errorf("session %s was used before: %w", n.ID, lease.ErrLapsed)
		}
		if schema.nothing() {
			// Whoever opened the store made sure of its schema: somebody has deleted
			// everything since, under the hands of those who hold.
			s.found(t)
			t.do("SET", s.root+"lost", "1", "EX", strconv.Itoa(day))
		}
		t.do("SET", s.rowKey(n.ID), document(row), "EX", row.life())
		t.do("SET", s.aliveKey(n.ID), "1", "EX", seconds(n.Timing.Timeout))
		t.do("SADD", s.root+"sessions", n.ID)
		changed = t.do("GET", s.root+"changed")
		return nil
	})
	if err != nil {
		return lease.Renewal{}, err
	}
	return lease.Renewal{Seq: 1, Changes: changed.number()}, nil
}

// RenewSession implements [lease.Store]. That the key still lives is decided
// by the very command that prolongs it. Who is refused is told so by everything that
// shows the session from then on: it counts as ended.
func (s *plain) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	var row sessionRow
	var renewed, changed *command
	err := s.transact(ctx, s.heart, writes, func(t *tx) error {
		renewed = nil
		own := s.lookSession(id)
		if err := t.watch([]string{s.aliveKey(id), s.rowKey(id)}, own.commands()...); err != nil {
			return err
		}
		var shown lease.Session
		var known bool
		var err error
		if row, shown, known, err = own.show(); err != nil {
			return err
		}
		if !lives(shown) {
			if known && !row.Over {
				s.close(t, id, row, shown)
			}
			return nil
		}
		row.Seq++
		renewed = t.do("EXPIRE", s.aliveKey(id), seconds(time.Duration(row.Timeout)))
		t.do("SET", s.rowKey(id), document(row), "EX", row.life())
		changed = t.do("GET", s.root+"changed")
		return nil
	})
	if err != nil {
		return lease.Renewal{}, err
	}
	switch {
	case renewed == nil:
		return lease.Renewal{}, lapsed(id)
	case renewed.number() != 1:
		// It lapsed between the look and the renewal, on a server whose WATCH does not
		// mind: from now on it is seen to be gone.
		return s.RenewSession(ctx, id)
	}
	return lease.Renewal{Seq: row.Seq, Changes: changed.number()}, nil
}

// EndSession implements [lease.Store]. The first step ends the session and releases its
// leases, all at one moment; those of a session with very many are released by further
// ones.
func (s *plain) EndSession(ctx context.Context, id, reason string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	for begun := false; ; begun = true {
		more, err := s.endSome(ctx, id, reason)
		switch {
		case err != nil && begun:
			// Not what the step says of itself: those before it were carried out.
			return lease.PartiallyEnded(id, err)
		case err != nil || !more:
			return err
		}
	}
}

// endSome ends the session and releases some of its leases. more tells that it has others.
func (s *plain) endSome(ctx context.Context, id, reason string) (more bool, err error) {
	var length *command
	err = s.transact(ctx, s.heart, writes, func(t *tx) error {
		length = nil
		peek := ask("SMEMBERS", s.heldKey(id))
		if err := t.read(peek); err != nil {
			return err
		}
		all := slices.Sorted(slices.Values(peek.texts()))
		some := all[:min(len(all), endChunk)]
		more = len(some) < len(all)
		own, held := s.lookSession(id), ask("SMEMBERS", s.heldKey(id))
		keys, looks := []string{s.aliveKey(id), s.rowKey(id), s.heldKey(id)}, append(own.commands(), held)
		docs, ages := make([]*command, len(some)), make([]*command, len(some))
		for i, name := range some {
			docs[i], ages[i] = ask("GET", s.termKey(name)), ask("TTL", s.sinceKey(name))
			keys, looks = append(keys, s.termKey(name)), append(looks, docs[i], ages[i])
		}
		if err := t.watch(keys, looks...); err != nil {
			return err
		}
		if !slices.Equal(all, slices.Sorted(slices.Values(held.texts()))) {
			return errAgain
		}
		row, shown, known, err := own.show()
		if err != nil {
			return err
		}
		if known && !row.Over {
			s.close(t, id, row, shown)
		}
		for i, name := range some {
			l, _, err := readLease(lease.ID{}, docs[i])
			if err != nil {
				return err
			}
			if l.Session != id {
				t.do("SREM", s.heldKey(id), name)
				continue
			}
			length = s.write(t, *s.free(t, l, ageOf(ages[i]), reason, "", 0))
		}
		return nil
	})
	if err == nil {
		s.trimAfter(ctx, length)
	}
	return more, err
}

// close ends a session that has not ended.
func (s *plain) close(t *tx, id string, row sessionRow, shown lease.Session) {
	row.Over = true
	since := max(0, -shown.Remaining)
	t.do("SET", s.rowKey(id), document(row), "EX", seconds(day*time.Second-since))
	t.do("DEL", s.aliveKey(id))
	t.do("SREM", s.root+"sessions", id)
}

func (s *plain) rowKey(id string) string   { return s.root + "session:" + id }
func (s *plain) aliveKey(id string) string { return s.root + "alive:" + id }
func (s *plain) heldKey(id string) string  { return s.root + "held:" + id }
