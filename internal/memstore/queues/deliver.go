package queues

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/internal/memstore/claims"
	"github.com/understudy-ha/understudy/lease"
)

// deliver is the dispatch.Queue of a [Memory].
type deliver struct{ m *Memory }

func (d deliver) Exchange(ctx context.Context, t dispatch.Exchange) (out dispatch.ExchangeResult, err error) {
	err = d.m.do(ctx, t.Queue, func(s step) error {
		settled := map[string]bool{}
		for _, r := range t.Results {
			ok, err := s.settle(t.Session, r)
			if err != nil {
				return err
			}
			settled[r.Key] = ok
			out.Receipts = append(out.Receipts, dispatch.Receipt{Key: r.Key, Seq: r.Seq, Accepted: ok})
		}
		for _, c := range t.Begin {
			k := s.Held(s.space(), t.Session, c.Key, c.Term)
			if k == nil || k.InStep && !t.Restart || !s.Live(t.Session) {
				continue
			}
			if a := s.begin(k, t, settled[c.Key]); a != nil {
				out.Begun = append(out.Begun, *a)
			}
		}
		out.Holdings = map[string]dispatch.Holding{}
		for _, r := range t.Results {
			out.Holdings[r.Key] = s.standing(t.Session, r.Key, r.Term)
		}
		for _, c := range t.Begin {
			out.Holdings[c.Key] = s.standing(t.Session, c.Key, c.Term)
		}
		return nil
	})
	return out, err
}

// standing tells where a key stands.
func (s step) standing(session, key string, term int64) dispatch.Holding {
	k, head := s.Held(s.space(), session, key, term), s.q.lines[key].head()
	switch {
	case !s.Live(session):
		return dispatch.Lost
	case s.given[key] && s.claim(key).Term == term:
		return dispatch.Released
	case k == nil:
		return dispatch.Lost
	case k.InStep || head != nil && atTarget(head.State):
		return dispatch.InProgress
	}
	return dispatch.Ready
}

// atTarget tells that the target has the message.
func atTarget(s dispatch.State) bool { return s == dispatch.Pending || s == dispatch.Valid }

// settle records a result.
func (s step) settle(session string, r dispatch.Result) (accepted bool, err error) {
	k, l := s.Held(s.space(), session, r.Key, r.Term), s.q.lines[r.Key]
	b := l.head()
	if k == nil || b == nil || b.Seq != r.Seq || b.State.IsFinal() {
		return false, nil
	}
	s.Finish(k)
	b.State, b.Term, b.Attempts, b.Code, b.Detail = r.State, r.Term, r.Attempt, r.Code, r.Detail
	b.Link = cmp.Or(r.Link, b.Link)
	if b.State.IsFinal() {
		b.Ended = s.Now
	}
	b.note(s.Now, r.Detail)
	switch r.After {
	case dispatch.Next:
		l.pass(b)
		if l.head() == nil {
			s.giveIdle(k)
		}
	case dispatch.RetryLater:
		k.Ready = s.Now.Add(r.Wait)
		s.give(k)
	case dispatch.Block:
		b.Blocks, k.Blocked = true, true
		s.give(k)
		return true, s.event(b, "blocked: "+r.Detail)
	}
	return true, nil
}

func (s step) give(k *claims.Key) {
	s.Free(s.space(), k)
	s.given[k.Key] = true
}

func (s step) giveIdle(k *claims.Key) {
	k.Idle = true
	s.give(k)
}

func (s step) event(b *message, reason string) error {
	return s.Event(history.Event{
		Part: "batch", Subject: b.Queue + "/" + b.Key, Term: b.Term, Reason: lease.TruncateReason(reason),
	})
}

// begin begins a step with the head of a key, or looks at it.
func (s step) begin(k *claims.Key, t dispatch.Exchange, settled bool) *dispatch.Assignment {
	b := s.q.lines[k.Key].head()
	if b == nil {
		s.giveIdle(k)
		return nil
	}
	todo, anew := dispatch.Send, k.InStep
	switch {
	case atTarget(b.State) && settled:
		return nil
	case atTarget(b.State):
		todo = dispatch.Poll
	case b.State == dispatch.Unknown:
		todo = dispatch.Resolve
	case k.Interrupted:
		todo = dispatch.Resolve
		b.State = dispatch.Unknown
		b.note(s.Now, "its instance was interrupted")
	}
	if todo != dispatch.Poll {
		s.Begin(k, t.Window)
		b.Term = k.Term
	}
	if todo == dispatch.Send && !anew {
		b.Attempts++
		b.Begun, b.Code, b.Detail = s.Now, 0, ""
		n := *b // its state stays what it was, for as long as nobody knows more
		n.State = dispatch.Submitting
		n.note(s.Now, "")
		b.Trail = n.Trail
	}
	a := dispatch.Assignment{Message: b.Message, Work: todo, Seq: b.Seq, Term: k.Term, Attempt: b.Attempts, Link: b.Link}
	a.Payload = slices.Clone(b.Payload)
	return &a
}

func (d deliver) Prune(ctx context.Context, name string, keep time.Duration, limit int) (deleted int, through bool, err error) {
	err = d.m.do(ctx, name, func(s step) error {
		for _, key := range slices.Sorted(maps.Keys(s.q.lines)) {
			if key < s.q.cursor {
				continue
			}
			l := s.q.lines[key]
			for _, b := range slices.Clone(l.messages) {
				if !b.over || b.Blocks || s.Now.Sub(b.Ended) <= keep {
					continue
				}
				if deleted == limit {
					s.q.cursor = key
					return nil
				}
				l.messages = slices.DeleteFunc(l.messages, func(o *message) bool { return o == b })
				delete(s.q.ids, b.ID)
				deleted++
			}
		}
		s.q.cursor, through = "", true
		return nil
	})
	return deleted, through, err
}
