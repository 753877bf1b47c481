package queues

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/internal/memstore/claims"
	"github.com/understudy-ha/understudy/lease"
)

// queueAdmin is the dispatch.Admin of a [Memory].
type queueAdmin struct{ m *Memory }

func (d queueAdmin) CreateQueue(ctx context.Context, name string) error {
	if err := dispatch.ValidateQueue(name); err != nil {
		return err
	}
	return d.m.Do(ctx, func(*claims.Step) error {
		if d.m.queues[name] == nil {
			d.m.queues[name] = &queue{name: name, ids: map[string]*message{}, lines: map[string]*line{}}
		}
		return nil
	})
}

func (d queueAdmin) RemoveQueue(ctx context.Context, name string, messages int64, who string) error {
	return d.m.atomically(ctx, name, func(s step) error {
		has := int64(0)
		for _, b := range s.q.ids {
			if !b.done || b.State == dispatch.Invalid || b.State == dispatch.Failed {
				has++
			}
		}
		for _, b := range s.q.scheduled {
			if b.givesWay { // not in ids
				has++
			}
		}
		if err := dispatch.CheckRemoval(name, messages, has, int64(len(s.Members(s.space())))); err != nil {
			return err
		}
		delete(d.m.queues, name)
		s.Forget(s.space())
		return s.RecordEvent(history.Event{Part: "batch", Subject: name, Reason: dispatch.RemovalReason(has, who)})
	})
}

func (d queueAdmin) Add(ctx context.Context, messages []dispatch.Message) ([]bool, error) {
	if len(messages) > claim.MaxKeys {
		return nil, fmt.Errorf("%w: %d messages at once; at most %d are allowed", lease.ErrInvalid, len(messages), claim.MaxKeys)
	}
	added := make([]bool, len(messages))
	err := d.m.Do(ctx, func(s *claims.Step) error {
		whole := slices.Clone(messages)
		for i, b := range whole {
			whole[i] = b.WithDefaults()
			if err := whole[i].Validate(); err != nil {
				return err
			}
			if d.m.queues[b.Queue] == nil {
				return fmt.Errorf("%q: %w", b.Queue, dispatch.ErrNoQueue)
			}
		}
		for i, b := range whole {
			q := d.m.queues[b.Queue]
			x := step{Step: s, q: q}
			if !x.makeRoom(b) {
				continue
			}
			b.Payload = slices.Clone(b.Payload)
			n := &message{Record: dispatch.Record{Message: b, Size: len(b.Payload)}}
			added[i], q.ids[b.ID] = true, n
			if n.NotBefore.After(s.Now) {
				x.schedule(n)
			} else {
				n.NotBefore = time.Time{}
				x.append(n)
			}
			n.addNote(s.Now, "")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return added, nil
}

func (d queueAdmin) Act(ctx context.Context, name, id string, a dispatch.Action, who string) error {
	return d.m.atomically(ctx, name, func(s step) error {
		b := s.q.ids[id]
		if b == nil {
			return fmt.Errorf("%q in %s: %w", id, name, dispatch.ErrNoMessage)
		}
		now := s.shownState(b)
		if s.isInStep(b) || !isAllowed(a, b, now) {
			return fmt.Errorf("%s of a message that is %s: %w", a, now, dispatch.ErrState)
		}
		stuck := b.Blocks && b.State.IsAtTarget()
		if a == dispatch.Retry && (now == dispatch.Unknown || stuck || b.done && dispatch.WasSkippedUnknown(b.Trail)) {
			return fmt.Errorf("retry of %q: %w", id, dispatch.ErrUncertain)
		}
		e := history.Event{Reason: dispatch.ActionReason(a, who, now, b.Detail, b.ID), Duration: s.Now.Sub(b.Trail[len(b.Trail)-1].At)}
		if b.State == dispatch.Scheduled {
			s.join(b)
		}
		l, k := s.q.lines[b.Key], s.claim(b.Key)
		wasHead := l.head() == b
		switch {
		case a.Retries() && b.done:
			l.messages = slices.DeleteFunc(l.messages, func(o *message) bool { return o == b })
			l.done--
			b.resetForRetry()
			s.append(b)
		case a.Retries():
			b.resetForRetry()
			b.State = dispatch.Queued
		default:
			b.State = b.endState(a)
			b.Ended = s.Now
			l.passHead(b)
		}
		b.addNote(s.Now, fmt.Sprintf("%s by %s", a, who))
		b.Trail[len(b.Trail)-1].Action = a
		if stuck {
			s.release(k) // whoever polls the target for it is told at the next result
		}
		if wasHead {
			s.resumeKey(l, k)
		}
		return s.recordEvent(b, e)
	})
}

// isInStep reports whether somebody sends a message, or asks for it.
func (s step) isInStep(b *message) bool {
	return s.q.lines[b.Key].head() == b && s.claim(b.Key).InStep
}

// isAllowed reports whether an action is possible in a state.
func isAllowed(a dispatch.Action, b *message, now dispatch.State) bool {
	waits := now == dispatch.Delayed || now == dispatch.Unknown
	switch a {
	case dispatch.Retry, dispatch.RetryUnknown:
		return b.Blocks || waits || b.done && now != dispatch.Committed
	case dispatch.Skip:
		return b.Blocks || waits
	case dispatch.Cancel:
		return now == dispatch.Scheduled || now == dispatch.Queued && b.Begun.IsZero() || b.Blocks && b.State.IsAtTarget()
	}
	return false
}

// resetForRetry clears what earlier attempts left.
func (b *message) resetForRetry() {
	b.Blocks, b.Attempts, b.Code, b.Detail, b.Link = false, 0, 0, "", ""
	b.Ended = time.Time{}
}

// endState is the final state that an action gives a message.
func (b *message) endState(a dispatch.Action) dispatch.State {
	switch {
	case a == dispatch.Cancel:
		return dispatch.Cancelled
	case b.State == dispatch.Invalid:
		return dispatch.Invalid
	}
	return dispatch.Failed
}

// resumeKey makes the next message of a key ready at once, after its head has ended.
func (s step) resumeKey(l *line, k *claims.Key) {
	k.Blocked, k.Interrupted = false, false
	if l.head() == nil {
		k.Idle = k.Session == ""
		return
	}
	s.Offer(s.space(), l.key, s.Now)
}
