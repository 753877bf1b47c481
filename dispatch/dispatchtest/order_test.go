package dispatchtest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/claim/claimtest"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/store/memory"
)

func TestOrderMemory(t *testing.T) {
	t.Parallel()
	m := NewMemory(memory.New(nil), nil)
	CheckOrder(t, func(*testing.T) Store { return m }, Concurrent{})
}

// TestOrderCatches proves the check: each broken store is caught.
func TestOrderCatches(t *testing.T) {
	for name, broken := range map[string]twin{
		"two in flight":                     {turn: twoInFlight},
		"a result under an old term counts": {turn: believesOldTerms},
		"a result is dropped":               {turn: dropsResults},
		"delivered again after the commit":  {turn: deliversAgain},
		"a batch is passed over":            {turn: passesOver},
		"a lapsed session begins":           {turn: lapsedBegins},
		"a wake is lost":                    {add: losesWakes},
		"batches change places":             {add: reorders},
		"an interruption is not told":       {take: forgetsInterruptions},
		"the second window is ignored":      {take: ignoresWindows},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 30 { // a busy machine does little in a second
				s := broken
				s.Memory, s.count = NewMemory(memory.New(nil), nil), new(atomic.Int64)
				limits := Concurrent{Length: time.Second, Batches: 40, Clear: 3 * time.Second}
				if problem := checkOrder(t.Context(), func() Store { return s }, limits); problem != "" {
					t.Logf("caught: %.300s", problem)
					return
				}
			}
			t.Error("not caught")
		})
	}
}

// twin is a Memory that is broken in one place.
type twin struct {
	*Memory
	count *atomic.Int64
	turn  func(twin, context.Context, dispatch.Turn) (dispatch.Turned, error)
	add   func(twin, context.Context, []dispatch.Batch) ([]bool, error)
	take  func(twin, context.Context, claim.Want) ([]claim.Claim, error)
}

// nth is true for every nth that asks.
func (w twin) nth(n int64) bool { return w.count.Add(1)%n == 0 }

func (w twin) Queue() dispatch.Queue { return twinQueue{w.Memory.Queue(), w} }
func (w twin) Desk() dispatch.Desk   { return twinDesk{w.Memory.Desk(), w} }
func (w twin) Claims() claim.Table   { return twinTable{w.Memory.Claims(), w} }

type twinQueue struct {
	dispatch.Queue
	twin
}

func (q twinQueue) Turn(ctx context.Context, t dispatch.Turn) (dispatch.Turned, error) {
	if q.turn == nil {
		return q.Queue.Turn(ctx, t)
	}
	return q.turn(q.twin, ctx, t)
}

type twinDesk struct {
	dispatch.Desk
	twin
}

func (d twinDesk) Add(ctx context.Context, batches []dispatch.Batch) ([]bool, error) {
	if d.add == nil {
		return d.Desk.Add(ctx, batches)
	}
	return d.add(d.twin, ctx, batches)
}

type twinTable struct {
	claim.Table
	twin
}

func (t twinTable) Take(ctx context.Context, w claim.Want) ([]claim.Claim, error) {
	if t.take == nil {
		return t.Table.Take(ctx, w)
	}
	return t.take(t.twin, ctx, w)
}

func twoInFlight(w twin, ctx context.Context, t dispatch.Turn) (dispatch.Turned, error) {
	t.Anew = true
	return w.Memory.Queue().Turn(ctx, t)
}

func believesOldTerms(w twin, ctx context.Context, t dispatch.Turn) (dispatch.Turned, error) {
	believed := map[int]bool{}
	for i, r := range t.Results {
		present := claimtest.Key{}
		_ = w.do(ctx, t.Queue, func(s step) error {
			if k := s.claim(r.Key); k != nil {
				present = *k
			}
			return nil
		})
		if present.Term == r.Term || present.Session == "" {
			continue
		}
		r.Term = present.Term
		out, err := w.Memory.Queue().Turn(ctx, dispatch.Turn{Queue: t.Queue, Session: present.Session, Results: []dispatch.Result{r}})
		believed[i] = err == nil && out.Settled[0].Accepted
	}
	out, err := w.Memory.Queue().Turn(ctx, t)
	for i := range out.Settled {
		out.Settled[i].Accepted = out.Settled[i].Accepted || believed[i]
	}
	return out, err
}

func dropsResults(w twin, ctx context.Context, t dispatch.Turn) (dispatch.Turned, error) {
	if len(t.Results) == 0 || !w.nth(20) {
		return w.Memory.Queue().Turn(ctx, t)
	}
	dropped := t.Results[0]
	t.Results = t.Results[1:]
	out, err := w.Memory.Queue().Turn(ctx, t)
	out.Settled = append([]dispatch.Settled{{Key: dropped.Key, Seq: dropped.Seq, Accepted: true}}, out.Settled...)
	return out, err
}

// tamper changes the keys whose head was passed in a turn, now and then.
func (w twin) tamper(ctx context.Context, t dispatch.Turn, change func(step, *line, *batch)) (dispatch.Turned, error) {
	out, err := w.Memory.Queue().Turn(ctx, t)
	for i, s := range out.Settled {
		if s.Accepted && t.Results[i].After == dispatch.Next && w.nth(10) {
			_ = w.do(ctx, t.Queue, func(x step) error {
				l := x.q.lines[s.Key]
				change(x, l, l.batches[s.Seq-1])
				return nil
			})
		}
	}
	return out, err
}

func deliversAgain(w twin, ctx context.Context, t dispatch.Turn) (dispatch.Turned, error) {
	return w.tamper(ctx, t, func(s step, l *line, b *batch) {
		b.over, b.State = false, dispatch.Queued
		s.Offer(s.space(), b.Key, s.Now)
	})
}

func passesOver(w twin, ctx context.Context, t dispatch.Turn) (dispatch.Turned, error) {
	return w.tamper(ctx, t, func(s step, l *line, _ *batch) {
		if b := l.head(); b != nil && s.state(b) == dispatch.Queued {
			b.over, b.State = true, dispatch.Committed
		}
	})
}

func lapsedBegins(w twin, ctx context.Context, t dispatch.Turn) (dispatch.Turned, error) {
	out, err := w.Memory.Queue().Turn(ctx, t)
	if err != nil {
		return out, err
	}
	err = w.do(ctx, t.Queue, func(s step) error {
		for _, c := range t.Begin {
			k := s.Held(s.space(), t.Session, c.Key, c.Term)
			if k == nil || s.Live(t.Session) || k.InStep {
				continue
			}
			if a := s.begin(k, t, false); a != nil {
				out.Begun = append(out.Begun, *a)
				out.Standing[c.Key] = dispatch.Held
			}
		}
		return nil
	})
	return out, err
}

func losesWakes(w twin, ctx context.Context, batches []dispatch.Batch) ([]bool, error) {
	added, err := w.Memory.Desk().Add(ctx, batches)
	if err == nil && w.nth(20) {
		_ = w.do(ctx, batches[0].Queue, func(s step) error {
			if k := s.claim(batches[0].Key); k.Session == "" {
				k.Idle = true
			}
			return nil
		})
	}
	return added, err
}

func reorders(w twin, ctx context.Context, batches []dispatch.Batch) ([]bool, error) {
	added, err := w.Memory.Desk().Add(ctx, batches)
	if err != nil {
		return added, err
	}
	_ = w.do(ctx, batches[0].Queue, func(s step) error {
		l := s.q.lines[batches[0].Key]
		n := len(l.batches)
		if n < 3 || l.batches[n-2].over || l.head() == l.batches[n-2] || !w.nth(10) {
			return nil
		}
		x, y := l.batches[n-2], l.batches[n-1]
		x.Seq, y.Seq = y.Seq, x.Seq
		l.batches[n-2], l.batches[n-1] = y, x
		return nil
	})
	return added, nil
}

func forgetsInterruptions(w twin, ctx context.Context, want claim.Want) ([]claim.Claim, error) {
	claims, err := w.Memory.Claims().Take(ctx, want)
	for i := range claims {
		claims[i].Interrupted = false
	}
	_ = w.Do(ctx, func(s *claimtest.Step) error {
		for _, c := range claims {
			s.Keys(want.Space)[c.Key].Interrupted = false
		}
		return nil
	})
	return claims, err
}

func ignoresWindows(w twin, ctx context.Context, want claim.Want) ([]claim.Claim, error) {
	_ = w.Do(ctx, func(s *claimtest.Step) error {
		for _, k := range s.Keys(want.Space) {
			if !s.Live(k.Session) {
				k.Until = s.Now
			}
		}
		return nil
	})
	return w.Memory.Claims().Take(ctx, want)
}
