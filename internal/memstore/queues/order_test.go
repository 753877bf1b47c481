package queues

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/dispatch/dispatchtest"
	"github.com/understudy-ha/understudy/internal/memstore/claims"
)

// NewSessions makes a store of sessions. The store in memory imports this package: its tests outside set it.
var NewSessions func() claims.Backend

// TestOrderCatches proves the check: each broken store is caught.
func TestOrderCatches(t *testing.T) {
	for name, broken := range map[string]twin{
		"two in flight":                     {turn: twoInFlight},
		"a result under an old term counts": {turn: believesOldTerms},
		"a result is dropped":               {turn: dropsResults},
		"delivered again after the commit":  {turn: deliversAgain},
		"a message is passed over":          {turn: passesOver},
		"a lapsed session begins":           {turn: lapsedBegins},
		"a wake is lost":                    {add: losesWakes},
		"messages change places":            {add: reorders},
		"a scheduled one goes early":        {add: sendsEarly},
		"an interruption is not told":       {take: forgetsInterruptions},
		"the second window is ignored":      {take: ignoresWindows},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				// What is broken shows only where the dispatchers meet at it: one fight in eighty passes by without.
				for range 5 {
					s := broken
					s.Memory, s.count = NewMemory(NewSessions(), nil), new(atomic.Int64)
					limits := dispatchtest.Concurrent{Messages: 40, Clear: 3 * time.Second}
					if problem := dispatchtest.FindDisorder(t.Context(), func() dispatchtest.Store { return s }, limits); problem != "" {
						t.Logf("caught: %.300s", problem)
						return
					}
				}
				t.Fatal("not caught")
			})
		})
	}
}

// twin is a Memory that is broken in one place.
type twin struct {
	*Memory
	count *atomic.Int64
	turn  func(twin, context.Context, dispatch.Exchange) (dispatch.ExchangeResult, error)
	add   func(twin, context.Context, []dispatch.Message) ([]bool, error)
	take  func(twin, context.Context, claim.ClaimRequest) ([]claim.Claim, error)
}

// nth is true for every nth that asks.
func (w twin) nth(n int64) bool { return w.count.Add(1)%n == 0 }

func (w twin) Queue() dispatch.Queue      { return twinQueue{w.Memory.Queue(), w} }
func (w twin) QueueAdmin() dispatch.Admin { return twinAdmin{w.Memory.QueueAdmin(), w} }
func (w twin) Claims() claim.KeyTable     { return twinTable{w.Memory.Claims(), w} }

type twinQueue struct {
	dispatch.Queue
	twin
}

func (q twinQueue) Exchange(ctx context.Context, t dispatch.Exchange) (dispatch.ExchangeResult, error) {
	if q.turn == nil {
		return q.Queue.Exchange(ctx, t)
	}
	return q.turn(q.twin, ctx, t)
}

type twinAdmin struct {
	dispatch.Admin
	twin
}

func (d twinAdmin) Add(ctx context.Context, messages []dispatch.Message) ([]bool, error) {
	if d.add == nil {
		return d.Admin.Add(ctx, messages)
	}
	return d.add(d.twin, ctx, messages)
}

type twinTable struct {
	claim.KeyTable
	twin
}

func (t twinTable) ClaimKeys(ctx context.Context, w claim.ClaimRequest) ([]claim.Claim, error) {
	if t.take == nil {
		return t.KeyTable.ClaimKeys(ctx, w)
	}
	return t.take(t.twin, ctx, w)
}

func twoInFlight(w twin, ctx context.Context, t dispatch.Exchange) (dispatch.ExchangeResult, error) {
	t.Restart = true
	return w.Memory.Queue().Exchange(ctx, t)
}

func believesOldTerms(w twin, ctx context.Context, t dispatch.Exchange) (dispatch.ExchangeResult, error) {
	believed := map[int]bool{}
	for i, r := range t.Results {
		present := claims.Key{}
		_ = w.atomically(ctx, t.Queue, func(s step) error {
			if k := s.claim(r.Key); k != nil {
				present = *k
			}
			return nil
		})
		if present.Term == r.Term || present.Session == "" {
			continue
		}
		r.Term = present.Term
		out, err := w.Memory.Queue().Exchange(ctx, dispatch.Exchange{Queue: t.Queue, Session: present.Session, Results: []dispatch.Result{r}})
		believed[i] = err == nil && out.Receipts[0].Accepted
	}
	out, err := w.Memory.Queue().Exchange(ctx, t)
	for i := range out.Receipts {
		out.Receipts[i].Accepted = out.Receipts[i].Accepted || believed[i]
	}
	return out, err
}

func dropsResults(w twin, ctx context.Context, t dispatch.Exchange) (dispatch.ExchangeResult, error) {
	if len(t.Results) == 0 || !w.nth(20) {
		return w.Memory.Queue().Exchange(ctx, t)
	}
	dropped := t.Results[0]
	t.Results = t.Results[1:]
	out, err := w.Memory.Queue().Exchange(ctx, t)
	out.Receipts = append([]dispatch.Receipt{{Key: dropped.Key, Seq: dropped.Seq, Accepted: true}}, out.Receipts...)
	return out, err
}

// tamper changes the keys whose head was passed in a turn, now and then.
func (w twin) tamper(ctx context.Context, t dispatch.Exchange, change func(step, *line, *message)) (dispatch.ExchangeResult, error) {
	out, err := w.Memory.Queue().Exchange(ctx, t)
	for i, s := range out.Receipts {
		if s.Accepted && t.Results[i].After == dispatch.Next && w.nth(10) {
			_ = w.atomically(ctx, t.Queue, func(x step) error {
				l := x.q.lines[s.Key]
				change(x, l, l.messages[s.Seq-1])
				return nil
			})
		}
	}
	return out, err
}

func deliversAgain(w twin, ctx context.Context, t dispatch.Exchange) (dispatch.ExchangeResult, error) {
	return w.tamper(ctx, t, func(s step, l *line, b *message) {
		b.done, b.State = false, dispatch.Queued
		s.Offer(s.space(), b.Key, s.Now)
	})
}

func passesOver(w twin, ctx context.Context, t dispatch.Exchange) (dispatch.ExchangeResult, error) {
	return w.tamper(ctx, t, func(s step, l *line, _ *message) {
		if b := l.head(); b != nil && s.shownState(b) == dispatch.Queued {
			b.done, b.State = true, dispatch.Committed
		}
	})
}

func lapsedBegins(w twin, ctx context.Context, t dispatch.Exchange) (dispatch.ExchangeResult, error) {
	out, err := w.Memory.Queue().Exchange(ctx, t)
	if err != nil {
		return out, err
	}
	err = w.atomically(ctx, t.Queue, func(s step) error {
		for _, c := range t.Begin {
			k := s.HeldKey(s.space(), t.Session, c.Key, c.Term)
			if k == nil || s.IsLive(t.Session) || k.InStep {
				continue
			}
			if a := s.startHead(k, t, false); a != nil {
				out.Begun = append(out.Begun, *a)
				out.Holdings[c.Key] = dispatch.InProgress
			}
		}
		return nil
	})
	return out, err
}

func losesWakes(w twin, ctx context.Context, messages []dispatch.Message) ([]bool, error) {
	added, err := w.Memory.QueueAdmin().Add(ctx, messages)
	if err == nil && w.nth(20) {
		_ = w.atomically(ctx, messages[0].Queue, func(s step) error {
			if k := s.claim(messages[0].Key); k != nil && k.Session == "" {
				k.Idle = true
			}
			return nil
		})
	}
	return added, err
}

func reorders(w twin, ctx context.Context, messages []dispatch.Message) ([]bool, error) {
	added, err := w.Memory.QueueAdmin().Add(ctx, messages)
	if err != nil {
		return added, err
	}
	_ = w.atomically(ctx, messages[0].Queue, func(s step) error {
		l := s.line(messages[0].Key)
		n := len(l.messages)
		if n < 3 || l.messages[n-2].done || l.head() == l.messages[n-2] || !w.nth(10) {
			return nil
		}
		x, y := l.messages[n-2], l.messages[n-1]
		x.Seq, y.Seq = y.Seq, x.Seq
		l.messages[n-2], l.messages[n-1] = y, x
		return nil
	})
	return added, nil
}

func sendsEarly(w twin, ctx context.Context, messages []dispatch.Message) ([]bool, error) {
	messages = slices.Clone(messages)
	for i := range messages {
		messages[i].NotBefore = time.Time{}
	}
	return w.Memory.QueueAdmin().Add(ctx, messages)
}

func forgetsInterruptions(w twin, ctx context.Context, want claim.ClaimRequest) ([]claim.Claim, error) {
	taken, err := w.Memory.Claims().ClaimKeys(ctx, want)
	for i := range taken {
		taken[i].Interrupted = false
	}
	_ = w.Do(ctx, func(s *claims.Step) error {
		for _, c := range taken {
			s.Keys(want.Space)[c.Key].Interrupted = false
		}
		return nil
	})
	return taken, err
}

func ignoresWindows(w twin, ctx context.Context, want claim.ClaimRequest) ([]claim.Claim, error) {
	_ = w.Do(ctx, func(s *claims.Step) error {
		for _, k := range s.Keys(want.Space) {
			if !s.IsLive(k.Session) {
				k.Until = s.Now
			}
		}
		return nil
	})
	return w.Memory.Claims().ClaimKeys(ctx, want)
}
