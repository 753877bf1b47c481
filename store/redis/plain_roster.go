package redis

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
)

// Join implements [lease.Roster]. Those whose sessions are over are taken off by
// the next who joins.
func (s *plain) Join(ctx context.Context, id lease.ID, session string) error {
	return s.transact(ctx, s.rest, writes, func(t *tx) error {
		queue := s.waitKey(nameOf(id))
		own, waiters := s.lookSession(session), ask("LRANGE", queue, "0", "-1")
		if err := t.watch([]string{queue, s.aliveKey(session), s.rowKey(session)}, append(own.commands(), waiters)...); err != nil {
			return err
		}
		_, me, _, err := own.show()
		if err != nil {
			return err
		}
		if !lives(me) {
			return lapsed(session)
		}
		all := waiters.texts()
		if slices.Contains(all, session) {
			return nil
		}
		if len(all) > 0 {
			alive := ask("MGET")
			for _, w := range all {
				alive.args = append(alive.args, s.aliveKey(w))
			}
			if err := t.read(alive); err != nil {
				return err
			}
			for i, mark := range alive.texts() {
				if mark == "" {
					t.do("LREM", queue, "0", all[i])
				}
			}
		}
		t.do("RPUSH", queue, session)
		t.do("SADD", s.root+"queues:"+id.Space, id.Key)
		return nil
	})
}

// Leave implements [lease.Roster].
func (s *plain) Leave(ctx context.Context, id lease.ID, session string) error {
	return s.transact(ctx, s.rest, writes, func(t *tx) error {
		queue := s.waitKey(nameOf(id))
		waiters := ask("LRANGE", queue, "0", "1")
		if err := t.watch([]string{queue}, waiters); err != nil {
			return err
		}
		t.do("LREM", queue, "0", session)
		if all := waiters.texts(); len(all) == 0 || len(all) == 1 && all[0] == session {
			t.do("SREM", s.root+"queues:"+id.Space, id.Key)
		}
		return nil
	})
}

// Waiters implements [lease.Roster]. It is read in several steps, between which it
// may change.
func (s *plain) Waiters(ctx context.Context, space string) ([]lease.Waiter, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	index := ask("SMEMBERS", s.root+"queues:"+space)
	if err := s.look(ctx, index); err != nil {
		return nil, err
	}
	keys := index.texts()
	slices.Sort(keys)
	var out []lease.Waiter
	for _, key := range keys {
		id := lease.ID{Space: space, Key: key}
		waiters := ask("LRANGE", s.waitKey(nameOf(id)), "0", "-1")
		if err := s.look(ctx, waiters); err != nil {
			return nil, err
		}
		live, err := s.live(ctx, waiters.texts())
		if err != nil {
			return nil, err
		}
		for _, one := range live {
			out = append(out, lease.Waiter{Lease: id, Session: one})
		}
	}
	return out, nil
}

// live shows those of the sessions that live, in their order.
func (s *plain) live(ctx context.Context, ids []string) (out []lease.Session, err error) {
	for chunk := range slices.Chunk(ids, sessionPage) {
		var looks []sessionLook
		err := s.transact(ctx, s.rest, reads, func(t *tx) error {
			looks = nil
			for _, id := range chunk {
				l := s.lookSession(id)
				looks = append(looks, l)
				t.queue(l.commands()...)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		for _, l := range looks {
			_, shown, ok, err := l.show()
			if err != nil {
				return nil, err
			}
			if ok && lives(shown) {
				out = append(out, shown)
			}
		}
	}
	return out, nil
}

// RequestRelease implements [lease.Roster].
func (s *plain) RequestRelease(ctx context.Context, id lease.ID, successor, who string) error {
	return s.record(ctx, s.rest, func(t *tx) (*history.Event, error) {
		doc, waiters := s.peek(id)
		if err := t.read(doc, waiters); err != nil {
			return nil, err
		}
		look, err := s.lookAt(id, doc, waiters)
		if err != nil {
			return nil, err
		}
		keys := []string{s.termKey(nameOf(id))}
		if look.session != "" {
			keys = append(keys, s.rowKey(look.session))
		}
		if err := t.watch(keys, look.commands()...); err != nil {
			return nil, err
		}
		current, row, err := look.show()
		if err != nil {
			return nil, err
		}
		if !current.Held() {
			return nil, fmt.Errorf("%s: %w", id, lease.ErrNotHeld)
		}
		row.Asked, row.AskedFor = true, successor
		t.do("SET", s.termKey(nameOf(id)), document(row))
		label := row.holder().Label()
		return &history.Event{
			Part: id.Space, Subject: id.Key, From: label, To: label, Term: row.Term,
			Reason: lease.ReleaseRequestedReason(successor, who), Duration: current.Age,
		}, nil
	})
}

// Sessions implements [lease.Roster]. Very many are read in several steps; those
// that are over are taken off the index on the way.
func (s *plain) Sessions(ctx context.Context) ([]lease.Session, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	index := ask("SMEMBERS", s.root+"sessions")
	if err := s.look(ctx, index); err != nil {
		return nil, err
	}
	out, err := s.live(ctx, index.texts())
	if err != nil {
		return nil, err
	}
	if over := len(index.texts()) - len(out); over > 0 {
		s.forget(ctx, index.texts(), out)
	}
	slices.SortFunc(out, func(a, b lease.Session) int {
		if c := a.Started.Compare(b.Started); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out, nil
}

// forget takes sessions that are over off the index: none of them can come back.
func (s *plain) forget(ctx context.Context, all []string, live []lease.Session) {
	known := map[string]bool{}
	for _, l := range live {
		known[l.ID] = true
	}
	over := ask("SREM", s.root+"sessions")
	for _, id := range all {
		if !known[id] {
			over.args = append(over.args, id)
		}
	}
	if err := s.look(ctx, over); err != nil {
		s.log.Debug("taking sessions off the list; it is done at the next look", "err", err)
	}
}
