package queues

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/memstore/claims"
)

// makeRoom reports whether a message may be stored. A scheduled one gives way to one of the same ID that has no time; it is
// counted until it is due, as in the stores, where an enqueuer does not look for it.
func (s step) makeRoom(m dispatch.Message) bool {
	known := s.q.ids[m.ID]
	if known == nil {
		return true
	}
	if known.State != dispatch.Scheduled || !m.NotBefore.IsZero() {
		return false
	}
	known.givesWay = true
	return true
}

// schedule keeps a message out of its key until it is due.
func (s step) schedule(b *message) {
	s.q.scheduledEver++
	b.Seq, b.State, b.Enqueued = s.q.scheduledEver, dispatch.Scheduled, s.Now
	s.q.scheduled = append(s.q.scheduled, b)
}

// join puts a scheduled message at the end of its key.
func (s step) join(b *message) {
	s.q.scheduled = slices.DeleteFunc(s.q.scheduled, func(o *message) bool { return o == b })
	if b.givesWay {
		return
	}
	b.Trail = nil
	s.append(b)
	if b.NotBefore.Before(s.Now) {
		b.Enqueued = b.NotBefore
	}
	b.NotBefore = time.Time{}
	b.addNote(b.Enqueued, "")
}

// dueTable tells of a queue whether scheduled messages are due.
type dueTable struct {
	claim.KeyTable
	m *Memory
}

func (t dueTable) Join(ctx context.Context, member claim.Member) (claim.Share, error) {
	share, err := t.KeyTable.Join(ctx, member)
	if err != nil {
		return share, err
	}
	return share, t.m.Do(ctx, func(s *claims.Step) error {
		q := t.m.queues[strings.TrimPrefix(member.Space, dispatch.Space(""))]
		share.Due = q != nil && slices.ContainsFunc(q.scheduled, func(b *message) bool { return !b.NotBefore.After(s.Now) })
		return nil
	})
}

func (d deliver) EnqueueDue(ctx context.Context, name string, limit int) (enqueued int, err error) {
	err = d.m.atomically(ctx, name, func(s step) error {
		var due []*message
		for _, b := range s.q.scheduled {
			if !b.NotBefore.After(s.Now) {
				due = append(due, b)
			}
		}
		slices.SortFunc(due, func(a, b *message) int { return cmp.Or(a.NotBefore.Compare(b.NotBefore), cmp.Compare(a.Seq, b.Seq)) })
		for _, b := range due[:min(limit, len(due))] {
			s.join(b)
			enqueued++
		}
		return nil
	})
	return enqueued, err
}

// listScheduled lists scheduled messages by key, and in it as they were enqueued.
func (s step) listScheduled() []*message {
	shown := slices.DeleteFunc(slices.Clone(s.q.scheduled), func(b *message) bool { return b.givesWay })
	return slices.SortedFunc(slices.Values(shown), func(a, b *message) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Seq, b.Seq))
	})
}
