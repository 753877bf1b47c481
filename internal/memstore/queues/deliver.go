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
)

// deliver is the dispatch.Queue of a [Memory].
type deliver struct{ m *Memory }

func (d deliver) Exchange(ctx context.Context, t dispatch.Exchange) (out dispatch.ExchangeResult, err error) {
	err = d.m.atomically(ctx, t.Queue, func(s step) error {
		settled, room := map[string]bool{}, 2*dispatch.MaxPayload
		for _, r := range t.Results {
			ok, err := s.recordResult(t.Session, r)
			if err != nil {
				return err
			}
			settled[r.Key] = ok
			out.Receipts = append(out.Receipts, dispatch.Receipt{Key: r.Key, Seq: r.Seq, Accepted: ok})
		}
		for _, c := range t.Begin {
			k := s.HeldKey(s.space(), t.Session, c.Key, c.Term)
			if k == nil || k.InStep && !t.Restart || !s.IsLive(t.Session) {
				continue
			}
			if b := s.q.lines[c.Key].head(); b != nil && len(b.Payload) > room {
				continue // an answer has a size; its turn comes with the next one
			}
			if a := s.startHead(k, t, settled[c.Key]); a != nil {
				out.Begun = append(out.Begun, *a)
				room -= len(a.Payload)
			}
		}
		out.Holdings = map[string]dispatch.Holding{}
		for _, r := range t.Results {
			out.Holdings[r.Key] = s.holding(t.Session, r.Key, r.Term)
		}
		for _, c := range t.Begin {
			out.Holdings[c.Key] = s.holding(t.Session, c.Key, c.Term)
		}
		return nil
	})
	return out, err
}

// holding returns the state of a key for the session that claimed it.
func (s step) holding(session, key string, term int64) dispatch.Holding {
	k, head := s.HeldKey(s.space(), session, key, term), s.q.lines[key].head()
	switch {
	case !s.IsLive(session):
		return dispatch.Lost
	case s.released[key] && s.claim(key).Term == term:
		return dispatch.Released
	case k == nil:
		return dispatch.Lost
	case k.InStep || head != nil && head.State.IsAtTarget():
		return dispatch.InProgress
	}
	return dispatch.Ready
}

// recordResult records the result of an attempt if the session still holds the key.
func (s step) recordResult(session string, r dispatch.Result) (accepted bool, err error) {
	k, l := s.HeldKey(s.space(), session, r.Key, r.Term), s.q.lines[r.Key]
	b := l.head()
	if k == nil || b == nil || b.Seq != r.Seq || b.State.IsFinal() {
		return false, nil
	}
	s.FinishStep(k)
	b.State, b.Term, b.Attempts, b.Code, b.Detail = r.State, r.Term, r.Attempt, r.Code, r.Detail
	b.Link = cmp.Or(r.Link, b.Link)
	if b.State.IsFinal() {
		b.Ended = s.Now
	}
	b.addNote(s.Now, r.Detail)
	wasBlocked := b.Blocks
	b.Blocks = r.Blocks()
	if b.Blocks != wasBlocked || r.After == dispatch.Block {
		holder := k.Holder.Label()
		if err := s.recordEvent(b, history.Event{From: holder, To: holder, Reason: r.BlockingReason()}); err != nil {
			return false, err
		}
	}
	switch r.After {
	case dispatch.Next:
		l.passHead(b)
		if l.head() == nil {
			s.releaseIdle(k)
		}
	case dispatch.RetryLater:
		k.Ready = s.Now.Add(r.Wait)
		s.release(k)
	case dispatch.Block:
		k.Blocked = true // one that is stuck may be claimed: it is polled
		s.release(k)
	}
	return true, nil
}

func (s step) release(k *claims.Key) {
	s.ReleaseKey(s.space(), k)
	s.released[k.Key] = true
}

func (s step) releaseIdle(k *claims.Key) {
	k.Idle = true
	s.release(k)
}

func (s step) recordEvent(b *message, e history.Event) error {
	e.Part, e.Subject, e.Term = "batch", b.Queue+"/"+b.Key, b.Term
	return s.RecordEvent(e)
}

// startHead starts a step with the head of a key, or polls its target.
func (s step) startHead(k *claims.Key, t dispatch.Exchange, settled bool) *dispatch.Assignment {
	b := s.q.lines[k.Key].head()
	if b == nil {
		s.releaseIdle(k)
		return nil
	}
	work, restarted := dispatch.Send, k.InStep
	switch {
	case b.State.IsAtTarget() && settled:
		return nil
	case b.State.IsAtTarget():
		work = dispatch.Poll
	case b.State == dispatch.Unknown:
		work = dispatch.Resolve
	case k.Interrupted:
		work = dispatch.Resolve
		b.State = dispatch.Unknown
		b.addNote(s.Now, "its instance was interrupted")
	}
	if work != dispatch.Poll {
		s.StartStep(k, t.Window)
		b.Term = k.Term
	}
	if work == dispatch.Send && !restarted {
		b.Attempts++
		b.Begun, b.Code, b.Detail = s.Now, 0, ""
		n := *b // the stored state stays until there is a result
		n.State = dispatch.Submitting
		n.addNote(s.Now, "")
		b.Trail = n.Trail
	}
	a := dispatch.Assignment{Message: b.Message, Work: work, Seq: b.Seq, Term: k.Term, Attempt: b.Attempts, Age: s.Now.Sub(b.Enqueued), Link: b.Link}
	switch work {
	case dispatch.Poll:
		a.Undecided = s.Now.Sub(b.Begun)
	case dispatch.Resolve:
		a.Code, a.Detail = b.Code, b.Detail
	case dispatch.Send:
		a.Retried = dispatch.WasRetried(b.Trail)
	}
	a.Payload = slices.Clone(b.Payload)
	return &a
}

func (d deliver) Prune(ctx context.Context, name string, keep time.Duration, limit int) (deleted int, through bool, err error) {
	err = d.m.atomically(ctx, name, func(s step) error {
		for _, key := range slices.Sorted(maps.Keys(s.q.lines)) {
			if key < s.q.cursor {
				continue
			}
			l := s.q.lines[key]
			for _, b := range slices.Clone(l.messages) {
				if !b.done || b.Blocks || s.Now.Sub(b.Ended) <= keep {
					continue
				}
				if deleted == limit {
					s.q.cursor = key
					return nil
				}
				l.messages = slices.DeleteFunc(l.messages, func(o *message) bool { return o == b })
				delete(s.q.ids, b.ID)
				s.q.scheduled = slices.DeleteFunc(s.q.scheduled, func(o *message) bool { return o.ID == b.ID })
				if b.deadLettered() {
					l.done--
				}
				deleted++
			}
		}
		s.q.cursor, through = "", true
		return nil
	})
	return deleted, through, err
}
