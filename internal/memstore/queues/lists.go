package queues

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/memstore/claims"
	"github.com/understudy-ha/understudy/lease"
)

// shownState returns the state to show; for a message in flight it follows from the key.
func (s step) shownState(b *message) dispatch.State {
	k := s.claim(b.Key)
	switch {
	case s.q.lines[b.Key].head() != b || b.State.IsAtTarget() || b.State.IsFinal() || b.State == dispatch.Unknown:
		return b.State
	case k.InStep:
		return dispatch.Submitting
	case k.Interrupted:
		return dispatch.Unknown
	}
	return b.State
}

// record returns a message as the API shows it.
func (s step) record(b *message, whole bool) dispatch.Record {
	r := b.Record
	r.State = s.shownState(b)
	r.Payload, r.Trail = slices.Clone(r.Payload), slices.Clone(r.Trail)
	if !whole {
		r.Payload, r.Headers, r.Trail = nil, nil, nil
	}
	return r
}

func (d queueAdmin) Queues(ctx context.Context) (out []dispatch.Overview, err error) {
	err = d.m.Do(ctx, func(s *claims.Step) error {
		for _, name := range slices.Sorted(maps.Keys(d.m.queues)) {
			out = append(out, step{Step: s, q: d.m.queues[name]}.overview())
		}
		return nil
	})
	return out, err
}

func (s step) overview() dispatch.Overview {
	o := dispatch.Overview{Queue: s.q.name, Scheduled: int64(len(s.q.scheduled))}
	for _, b := range s.q.scheduled {
		o.Oldest = max(o.Oldest, s.Now.Sub(b.NotBefore))
	}
	held := map[lease.Instance]int{}
	for key, l := range s.q.lines {
		o.Done += l.done
		for _, b := range l.messages {
			if b.deadLettered() {
				o.Done--
				o.DeadLetters++
			}
		}
		k, head := s.claim(key), l.head()
		if k.Session != "" {
			held[k.Holder]++
		}
		if head == nil {
			continue
		}
		o.Keys++
		o.Depth += l.depth()
		o.Oldest = max(o.Oldest, s.Now.Sub(head.Enqueued))
		switch {
		case head.Blocks:
			o.Blocked++
		case k.InStep:
			o.InStep++
		case head.State.IsAtTarget():
			o.Pending++
		case head.State == dispatch.Delayed || head.State == dispatch.Unknown:
			o.Delayed++
		}
	}
	for member, asleep := range s.Members(s.space()) {
		o.Holders = append(o.Holders, dispatch.HolderCount{Instance: member, Keys: held[member], Asleep: asleep})
	}
	slices.SortFunc(o.Holders, func(a, b dispatch.HolderCount) int {
		return cmp.Or(cmp.Compare(a.Instance.Name, b.Instance.Name), cmp.Compare(a.Instance.ID, b.Instance.ID))
	})
	return o
}

func (b *message) deadLettered() bool {
	return b.done && (b.State == dispatch.Invalid || b.State == dispatch.Failed)
}

func (l *line) depth() (n int64) {
	for _, b := range l.messages {
		if !b.done {
			n++
		}
	}
	return n
}

func (d queueAdmin) Keys(ctx context.Context, q dispatch.KeyQuery) (out []dispatch.KeyRecord, err error) {
	err = d.m.atomically(ctx, q.Queue, func(s step) error {
		for _, key := range slices.Sorted(maps.Keys(s.q.lines)) {
			l, k := s.q.lines[key], s.claim(key)
			head := l.head()
			blocked := head != nil && head.Blocks
			if key <= q.After || q.Blocked && !blocked || head == nil && !q.Idle || len(out) == dispatch.PageSize(q.Limit) {
				continue
			}
			r := dispatch.KeyRecord{Key: key, Depth: l.depth(), Holder: k.Holder, Term: k.Term, InStep: k.InStep, Blocked: blocked}
			if head != nil {
				r.Head, r.State, r.Waiting = head.ID, s.shownState(head), s.Now.Sub(head.Enqueued)
				if r.State != dispatch.Queued && r.State != dispatch.Submitting {
					r.Reason = head.Detail
				}
				if !blocked {
					r.Next = max(0, k.Ready.Sub(s.Now))
				}
			}
			out = append(out, r)
		}
		return nil
	})
	return out, err
}

func (d queueAdmin) Messages(ctx context.Context, q dispatch.MessageQuery) (out []dispatch.Record, err error) {
	if len(q.IDs) > dispatch.MaxPage {
		return nil, fmt.Errorf("%w: %d ids; at most %d are allowed", lease.ErrInvalid, len(q.IDs), dispatch.MaxPage)
	}
	err = d.m.atomically(ctx, q.Queue, func(s step) error {
		var all []*message
		if q.State == dispatch.Scheduled || len(q.IDs) > 0 {
			all = s.listScheduled()
		}
		for _, key := range slices.Sorted(maps.Keys(s.q.lines)) {
			all = append(all, s.q.lines[key].messages...)
		}
		for _, b := range all {
			after := b.Key > q.AfterKey || b.Key == q.AfterKey && b.Seq > q.AfterSeq
			r := s.record(b, false)
			if after && (q.Key == "" || q.Key == b.Key) && (q.State == "" || q.State == r.State) &&
				(len(q.IDs) == 0 || slices.Contains(q.IDs, b.ID)) && len(out) < dispatch.PageSize(q.Limit) {
				out = append(out, r)
			}
		}
		return nil
	})
	return out, err
}

func (d queueAdmin) Message(ctx context.Context, name, id string) (out dispatch.Record, err error) {
	err = d.m.Do(ctx, func(s *claims.Step) error {
		found := 0
		for _, q := range d.m.queues {
			if b := q.ids[id]; b != nil && (name == "" || name == q.name) {
				out = step{Step: s, q: q}.record(b, true)
				found++
			}
		}
		switch {
		case found == 1:
			return nil
		case name != "" && d.m.queues[name] == nil:
			return fmt.Errorf("%q: %w", name, dispatch.ErrNoQueue)
		case found > 1:
			return fmt.Errorf("%w: %d queues have a message %q; name the queue", lease.ErrInvalid, found, id)
		}
		return fmt.Errorf("%q: %w", id, dispatch.ErrNoMessage)
	})
	return out, err
}
