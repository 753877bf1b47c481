package sim

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
)

// QueueTwin is a queue that is broken on purpose, in one way: see [Twin].
type QueueTwin struct {
	Name string
	// Caught is what the judge has to say of it.
	Caught string
	// Store, Desk and Target break what the store does, what people do there, and
	// what an instance has for its target.
	Store  func(claim.Table, dispatch.Queue) (claim.Table, dispatch.Queue)
	Desk   func(dispatch.Desk) dispatch.Desk
	Target func(dispatch.Target) dispatch.Target
	// Need makes sure that a run has what the fault needs to show.
	Need func(*QueueSetup)
}

// QueueTwins returns every one that the simulation must catch.
func QueueTwins() []QueueTwin {
	return slices.Concat(claimTwins(), turnTwins(), deskTwins(), targetTwins())
}

// alone has a target that must not have a batch twice.
func alone(s *QueueSetup) {
	s.Target = dispatch.Semantics{Asks: true, AskMany: 1}
	s.Steps, s.Decides, s.Breaks, s.Wire.Late, s.Wire.Duplicate = false, 0, 0, 0, 0
}

func takes(f func(claim.Table, claim.Want, []claim.Claim) []claim.Claim) func(claim.Table, dispatch.Queue) (claim.Table, dispatch.Queue) {
	return func(t claim.Table, q dispatch.Queue) (claim.Table, dispatch.Queue) { return brokenTable{t, f}, q }
}

func claimTwins() []QueueTwin {
	return []QueueTwin{
		{Name: "a claim is torn from a session that lives", Caught: "was taken from a session that lives",
			Store: takes(func(t claim.Table, w claim.Want, got []claim.Claim) []claim.Claim {
				for _, r := range rows(t, w.Space) {
					if r.Session != "" && r.Session != w.Session && !r.InStep {
						_ = t.Release(context.Background(), w.Space, r.Session, []claim.Claim{{Key: r.Key, Term: r.Term}})
						more, _ := t.Take(context.Background(), w)
						return append(got, more...)
					}
				}
				return got
			})},
		{Name: "two instances share a claim", Caught: "was taken under term",
			Store: takes(func(t claim.Table, w claim.Want, got []claim.Claim) []claim.Claim {
				for _, r := range rows(t, w.Space) {
					if r.Session != "" && r.Session != w.Session {
						return append(got, claim.Claim{Key: r.Key, Term: r.Term})
					}
				}
				return got
			})},
		{Name: "an interruption is not told of", Caught: "told: false", Need: alone,
			Store: takes(func(_ claim.Table, _ claim.Want, got []claim.Claim) []claim.Claim {
				for i := range got {
					got[i].Interrupted = false
				}
				return got
			})},
		{Name: "an interruption is forgotten", Caught: "interrupted: true", Need: alone,
			Store: takes(func(t claim.Table, w claim.Want, got []claim.Claim) []claim.Claim {
				for _, c := range got {
					if c.Interrupted {
						_, _ = t.Begin(context.Background(), w.Space, w.Session, 0, []claim.Claim{c})
						_, _ = t.Finish(context.Background(), w.Space, w.Session, []claim.Finished{{Key: c.Key, Term: c.Term}})
					}
				}
				return got
			})},
	}
}

func turns(f func(claim.Table, dispatch.Queue, dispatch.Turn) (dispatch.Turned, error)) func(claim.Table, dispatch.Queue) (claim.Table, dispatch.Queue) {
	return func(t claim.Table, q dispatch.Queue) (claim.Table, dispatch.Queue) { return t, brokenQueue{q, t, f} }
}

func turnTwins() []QueueTwin {
	return []QueueTwin{
		{Name: "an old term is accepted", Caught: "was accepted; its term is", Store: turns(oldTerm)},
		{Name: "a result is ignored", Caught: "the head is",
			Store: turns(func(_ claim.Table, q dispatch.Queue, t dispatch.Turn) (dispatch.Turned, error) {
				if len(t.Results) == 0 {
					return q.Turn(context.Background(), t)
				}
				last := t.Results[len(t.Results)-1]
				t.Results = t.Results[:len(t.Results)-1]
				out, err := q.Turn(context.Background(), t)
				out.Settled = append(out.Settled, dispatch.Settled{Key: last.Key, Seq: last.Seq, Accepted: true})
				return out, err
			})},
		{Name: "a result is refused", Caught: "was not accepted",
			Store: turns(func(_ claim.Table, q dispatch.Queue, t dispatch.Turn) (dispatch.Turned, error) {
				out, err := q.Turn(context.Background(), t)
				for i, r := range t.Results {
					if r.After == dispatch.Hold && out.Settled[i].Accepted {
						out.Settled[i].Accepted = false
					}
				}
				return out, err
			}),
			Need: func(s *QueueSetup) { s.Target.Asks, s.Decides = true, 1 }},
		{Name: "the second window is ignored", Caught: "before the end of the second window of a step", Need: alone, Store: turns(noWindow)},
		{Name: "… and the deposed sends on", Caught: "before the end of its second window, and", Store: turns(noWindow),
			Need: func(s *QueueSetup) { alone(s); s.Freezes = true }},
		{Name: "… and undoes the order", Caught: "took effect after", Store: turns(noWindow),
			Need: func(s *QueueSetup) {
				alone(s)
				s.Target, s.Freezes, s.Keys = dispatch.Semantics{Resend: true}, true, 1
				s.Dispatch.Windows.First, s.Dispatch.Windows.Second = 1200*time.Millisecond, 12*time.Second
			}},
		{Name: "the next overtakes one that waits", Caught: "the head is",
			Store: results(func(r *dispatch.Result) {
				if r.After == dispatch.Again {
					r.State, r.After = dispatch.Failed, dispatch.Next
				}
			})},
		{Name: "the next does not wait for a decision", Caught: "the head is",
			Store: results(func(r *dispatch.Result) {
				if r.After == dispatch.Hold {
					r.State, r.After = dispatch.Committed, dispatch.Next
				}
			}),
			Need: func(s *QueueSetup) { s.Target.Asks, s.Decides = true, 1 }},
		{Name: "what waits is forgotten", Caught: "neither delivered nor shown",
			Store: results(func(r *dispatch.Result) {
				if r.After == dispatch.Again {
					r.Wait += 24 * time.Hour
				}
			})},
		{Name: "a key goes on that waits for a person", Caught: "was taken while it waits for a person",
			Store: results(func(r *dispatch.Result) {
				if r.After == dispatch.Block {
					r.State, r.After = dispatch.Delayed, dispatch.Again
				}
			}),
			Need: func(s *QueueSetup) { s.Dispatch.OnFailure, s.Invalid = dispatch.OnFailureBlock, 0.2 }},
		{Name: "two are in flight", Caught: "is in a step",
			Store: turns(func(_ claim.Table, q dispatch.Queue, t dispatch.Turn) (dispatch.Turned, error) {
				out, err := q.Turn(context.Background(), t)
				if err == nil && len(out.Begun) > 0 {
					// As if there were nothing that keeps a key from being begun twice.
					again, _ := q.Turn(context.Background(), dispatch.Turn{Queue: t.Queue, Session: t.Session, Window: t.Window, Begin: t.Begin, Anew: true})
					out.Begun = append(out.Begun, again.Begun...)
				}
				return out, err
			})},
	}
}

// oldTerm has a result count under whatever term its key has by now.
func oldTerm(table claim.Table, q dispatch.Queue, t dispatch.Turn) (dispatch.Turned, error) {
	out, err := q.Turn(context.Background(), t)
	for i, s := range out.Settled {
		for _, r := range rows(table, dispatch.Space(t.Queue)) {
			if s.Accepted || r.Key != s.Key || r.Session == "" {
				continue
			}
			late := t.Results[i]
			late.Term = r.Term
			again, _ := q.Turn(context.Background(), dispatch.Turn{Queue: t.Queue, Session: r.Session, Results: []dispatch.Result{late}})
			out.Settled[i].Accepted = len(again.Settled) > 0 && again.Settled[0].Accepted
		}
	}
	return out, err
}

func noWindow(_ claim.Table, q dispatch.Queue, t dispatch.Turn) (dispatch.Turned, error) {
	t.Window = 0
	return q.Turn(context.Background(), t)
}

// results is a store that records something else than it was told.
func results(spoil func(*dispatch.Result)) func(claim.Table, dispatch.Queue) (claim.Table, dispatch.Queue) {
	return turns(func(_ claim.Table, q dispatch.Queue, t dispatch.Turn) (dispatch.Turned, error) {
		t.Results = slices.Clone(t.Results)
		for i := range t.Results {
			spoil(&t.Results[i])
		}
		return q.Turn(context.Background(), t)
	})
}

func deskTwins() []QueueTwin {
	return []QueueTwin{
		{Name: "a batch is not stored", Caught: "the head is", Desk: func(d dispatch.Desk) dispatch.Desk { return &forgetful{Desk: d} }},
		{Name: "an id given twice is stored twice", Caught: "known true, added true", Desk: func(d dispatch.Desk) dispatch.Desk { return &renaming{Desk: d} }},
		{Name: "what was delivered is lost from sight", Caught: "is lost", Desk: func(d dispatch.Desk) dispatch.Desk { return hiding{d} },
			Need: func(s *QueueSetup) { s.Dispatch.KeepFor = -1 }},
		{Name: "a person is not shown what waits", Caught: "shown: false", Desk: func(d dispatch.Desk) dispatch.Desk { return hiding{d} },
			Need: func(s *QueueSetup) { s.Dispatch.OnFailure, s.Invalid = dispatch.OnFailureBlock, 0.2 }},
		{Name: "what is under way can be cancelled", Caught: "was cancelled, and took effect", Desk: func(d dispatch.Desk) dispatch.Desk { return cancelling{d} },
			Need: func(s *QueueSetup) {
				s.Target.Resend, s.Target.Recognises, s.Breaks, s.Dispatch.Retry.First = true, true, 0.3, s.Dispatch.Retry.Most
			}},
	}
}

func answers(f func(dispatch.Answer) dispatch.Answer) func(dispatch.Target) dispatch.Target {
	return func(t dispatch.Target) dispatch.Target { return brokenTarget{Target: t, answer: f} }
}

func targetTwins() []QueueTwin {
	return []QueueTwin{
		{Name: "silence is taken for success", Caught: "is recorded as committed, and never took effect",
			Target: answers(func(a dispatch.Answer) dispatch.Answer {
				if a.Outcome == dispatch.Silent {
					a.Outcome = dispatch.Done
				}
				return a
			})},
		{Name: "a refusal for now is taken for one for good", Caught: "is recorded as invalid, and was never refused",
			Target: answers(func(a dispatch.Answer) dispatch.Answer {
				if a.Outcome == dispatch.Busy {
					a.Outcome = dispatch.Refused
				}
				return a
			})},
		{Name: "batches are sent again blindly", Caught: "was sent again, and nobody knew",
			Target: func(t dispatch.Target) dispatch.Target {
				s := t.Semantics()
				s.Resend = true
				return brokenTarget{Target: t, semantics: &s}
			},
			Need: func(s *QueueSetup) { s.Target, s.Decides, s.Wire.Lose = dispatch.Semantics{}, 0, 0.2 }},
		{Name: "silence is taken for a refusal for now", Caught: "took effect 2 times",
			Target: answers(func(a dispatch.Answer) dispatch.Answer {
				if a.Outcome == dispatch.Silent {
					a.Outcome = dispatch.Busy
				}
				return a
			}),
			Need: func(s *QueueSetup) { alone(s); s.Wire.Lose = 0.2 }},
		{Name: "each submission is made twice", Caught: "two submissions of",
			Target: func(t dispatch.Target) dispatch.Target { return brokenTarget{Target: t, twice: true} }},
		{Name: "… and once more when it is over", Caught: "was sent without a step",
			Target: func(t dispatch.Target) dispatch.Target { return brokenTarget{Target: t, later: true} }},
	}
}

// brokenTable spoils what Take returns.
type brokenTable struct {
	claim.Table
	spoil func(claim.Table, claim.Want, []claim.Claim) []claim.Claim
}

func (b brokenTable) Take(ctx context.Context, w claim.Want) ([]claim.Claim, error) {
	got, err := b.Table.Take(ctx, w)
	if err != nil {
		return nil, err
	}
	return b.spoil(b.Table, w, got), nil
}

func rows(t claim.Table, space string) []claim.Row {
	rows, err := t.List(context.Background(), claim.Query{Space: space})
	if err != nil {
		panic(err) // memory answers
	}
	return rows
}

// brokenQueue spoils turns.
type brokenQueue struct {
	dispatch.Queue
	table claim.Table
	spoil func(claim.Table, dispatch.Queue, dispatch.Turn) (dispatch.Turned, error)
}

func (b brokenQueue) Turn(_ context.Context, t dispatch.Turn) (dispatch.Turned, error) {
	return b.spoil(b.table, b.Queue, t)
}

// forgetful stores all batches but each tenth.
type forgetful struct {
	dispatch.Desk
	n int
}

func (d *forgetful) Add(ctx context.Context, batches []dispatch.Batch) ([]bool, error) {
	if d.n++; d.n%10 != 0 {
		return d.Desk.Add(ctx, batches)
	}
	added, err := d.Desk.Add(ctx, batches[1:])
	return append([]bool{true}, added...), err
}

// renaming stores a batch under another id when its own is taken.
type renaming struct {
	dispatch.Desk
}

func (d *renaming) Add(ctx context.Context, batches []dispatch.Batch) ([]bool, error) {
	added, err := d.Desk.Add(ctx, batches)
	for i, b := range batches {
		if err == nil && !added[i] {
			b.ID += "'"
			var again []bool
			if again, err = d.Desk.Add(ctx, []dispatch.Batch{b}); err == nil {
				added[i] = again[0]
			}
		}
	}
	return added, err
}

// hiding shows neither blocked keys nor, of each page, the first batch.
type hiding struct{ dispatch.Desk }

func (d hiding) Keys(context.Context, dispatch.KeyQuery) ([]dispatch.KeyRecord, error) {
	return nil, nil
}

func (d hiding) Batches(ctx context.Context, q dispatch.BatchQuery) ([]dispatch.Record, error) {
	out, err := d.Desk.Batches(ctx, q)
	return out[min(1, len(out)):], err
}

// cancelling takes out what may have been sent.
type cancelling struct{ dispatch.Desk }

func (d cancelling) Act(ctx context.Context, queue, id string, a dispatch.Action, who string) error {
	err := d.Desk.Act(ctx, queue, id, a, who)
	if a == dispatch.Cancel && errors.Is(err, dispatch.ErrState) {
		return d.Desk.Act(ctx, queue, id, dispatch.Skip, who)
	}
	return err
}

// brokenTarget is not what it says, or does not do what it is told.
type brokenTarget struct {
	dispatch.Target
	semantics *dispatch.Semantics
	answer    func(dispatch.Answer) dispatch.Answer
	twice     bool
	later     bool
}

func (b brokenTarget) Semantics() dispatch.Semantics {
	if b.semantics != nil {
		return *b.semantics
	}
	return b.Target.Semantics()
}

func (b brokenTarget) Submit(ctx context.Context, a dispatch.Assignment) dispatch.Answer {
	if b.twice {
		var other sync.WaitGroup
		defer other.Wait()
		other.Go(func() { b.Target.Submit(ctx, a) })
	}
	answer := b.Target.Submit(ctx, a)
	if b.later {
		time.AfterFunc(time.Second, func() {
			again, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			b.Target.Submit(again, a)
		})
	}
	if b.answer != nil {
		answer = b.answer(answer)
	}
	return answer
}
