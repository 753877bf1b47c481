package queues

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
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
			if q.ids[b.ID] != nil {
				continue
			}
			b.Payload = slices.Clone(b.Payload)
			n := &message{Record: dispatch.Record{Message: b, Size: len(b.Payload)}}
			added[i], q.ids[b.ID] = true, n
			step{Step: s, q: q}.append(n)
			n.note(s.Now, "")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return added, nil
}

func (d queueAdmin) Act(ctx context.Context, name, id string, a dispatch.Action, who string) error {
	return d.m.do(ctx, name, func(s step) error {
		b := s.q.ids[id]
		if b == nil {
			return fmt.Errorf("%q in %s: %w", id, name, dispatch.ErrNoMessage)
		}
		now := s.state(b)
		if !may(a, b, now) {
			return fmt.Errorf("%s of a message that is %s: %w", a, now, dispatch.ErrState)
		}
		l, k := s.q.lines[b.Key], s.claim(b.Key)
		wasHead := l.head() == b
		switch {
		case a == dispatch.Retry && b.over:
			l.messages = slices.DeleteFunc(l.messages, func(o *message) bool { return o == b })
			l.done--
			b.again()
			s.append(b)
		case a == dispatch.Retry:
			b.again()
			b.State = dispatch.Queued
		default:
			b.State = b.aside(a)
			b.Ended = s.Now
			l.pass(b)
		}
		b.note(s.Now, fmt.Sprintf("%s by %s", a, who))
		if wasHead {
			s.goOn(l, k)
		}
		return s.event(b, fmt.Sprintf("%s by %s: %s", a, who, cmp.Or(b.Detail, string(now))))
	})
}

// may is the table of what can be done in which state.
func may(a dispatch.Action, b *message, now dispatch.State) bool {
	waits := now == dispatch.Delayed || now == dispatch.Unknown
	switch a {
	case dispatch.Retry:
		return b.Blocks || waits || b.over && now != dispatch.Committed
	case dispatch.Skip:
		return b.Blocks || waits
	case dispatch.Cancel:
		return now == dispatch.Queued && b.Begun.IsZero()
	}
	return false
}

// again makes a message as it was before it was first sent.
func (b *message) again() {
	b.Blocks, b.Attempts, b.Code, b.Detail, b.Link = false, 0, 0, "", ""
	b.Ended = time.Time{}
}

// aside is the state in which a message steps aside.
func (b *message) aside(a dispatch.Action) dispatch.State {
	switch {
	case a == dispatch.Cancel:
		return dispatch.Cancelled
	case b.State == dispatch.Invalid:
		return dispatch.Invalid
	}
	return dispatch.Failed
}

// goOn lets a key go on with its head, at once, now that its old one waits no
// more.
func (s step) goOn(l *line, k *claims.Key) {
	k.Blocked, k.Interrupted = false, false
	if l.head() == nil {
		k.Idle = k.Session == ""
		return
	}
	s.Offer(s.space(), l.key, s.Now)
}
