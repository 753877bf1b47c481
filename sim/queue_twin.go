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
	// Store, Admin and Target break what the store does, what people do there, and
	// what an instance has for its target.
	Store  func(claim.KeyTable, dispatch.Queue) (claim.KeyTable, dispatch.Queue)
	Admin  func(dispatch.Admin) dispatch.Admin
	Target func(dispatch.Target) dispatch.Target
	// Need makes sure that a run has what the fault needs to show.
	Need func(*QueueSetup)
}

// QueueTwins returns every one that the simulation must catch.
func QueueTwins() []QueueTwin {
	return slices.Concat(claimTwins(), exchangeTwins(), adminTwins(), targetTwins())
}

// alone has a target that must not have a batch twice.
func alone(s *QueueSetup) {
	s.Target = dispatch.Semantics{HasStatus: true, StatusLimit: 1}
	s.Steps, s.Decides, s.Breaks, s.Wire.Late, s.Wire.Duplicate = false, 0, 0, 0, 0
}

func takes(f func(claim.KeyTable, claim.ClaimRequest, []claim.Claim) []claim.Claim) func(claim.KeyTable, dispatch.Queue) (claim.KeyTable, dispatch.Queue) {
	return func(t claim.KeyTable, q dispatch.Queue) (claim.KeyTable, dispatch.Queue) { return brokenTable{t, f}, q }
}

func claimTwins() []QueueTwin {
	return []QueueTwin{
		{Name: "a claim is torn from a session that lives", Caught: "was taken from a session that lives",
			Store: takes(func(t claim.KeyTable, w claim.ClaimRequest, got []claim.Claim) []claim.Claim {
				for _, r := range rows(t, w.Space) {
					if r.Session != "" && r.Session != w.Session && !r.InStep {
						_ = t.Release(context.Background(), w.Space, r.Session, []claim.Claim{{Key: r.Key, Term: r.Term}})
						more, _ := t.ClaimKeys(context.Background(), w)
						return append(got, more...)
					}
				}
				return got
			})},
		{Name: "two instances share a claim", Caught: "was taken under term",
			Store: takes(func(t claim.KeyTable, w claim.ClaimRequest, got []claim.Claim) []claim.Claim {
				for _, r := range rows(t, w.Space) {
					if r.Session != "" && r.Session != w.Session {
						return append(got, claim.Claim{Key: r.Key, Term: r.Term})
					}
				}
				return got
			})},
		{Name: "an interruption is not told of", Caught: "told: false", Need: alone,
			Store: takes(func(_ claim.KeyTable, _ claim.ClaimRequest, got []claim.Claim) []claim.Claim {
				for i := range got {
					got[i].Interrupted = false
				}
				return got
			})},
		{Name: "an interruption is forgotten", Caught: "interrupted: true", Need: alone,
			Store: takes(func(t claim.KeyTable, w claim.ClaimRequest, got []claim.Claim) []claim.Claim {
				for _, c := range got {
					if c.Interrupted {
						_, _ = t.StartSteps(context.Background(), w.Space, w.Session, 0, []claim.Claim{c})
						_, _ = t.FinishSteps(context.Background(), w.Space, w.Session, []claim.StepResult{{Key: c.Key, Term: c.Term}})
					}
				}
				return got
			})},
	}
}

func turns(f func(claim.KeyTable, dispatch.Queue, dispatch.Exchange) (dispatch.ExchangeResult, error)) func(claim.KeyTable, dispatch.Queue) (claim.KeyTable, dispatch.Queue) {
	return func(t claim.KeyTable, q dispatch.Queue) (claim.KeyTable, dispatch.Queue) {
		return t, brokenQueue{q, t, f}
	}
}

func exchangeTwins() []QueueTwin {
	return []QueueTwin{
		{Name: "an old term is accepted", Caught: "was accepted; its term is", Store: turns(oldTerm)},
		{Name: "a result is ignored", Caught: "the head is",
			Store: turns(func(_ claim.KeyTable, q dispatch.Queue, t dispatch.Exchange) (dispatch.ExchangeResult, error) {
				if len(t.Results) == 0 {
					return q.Exchange(context.Background(), t)
				}
				last := t.Results[len(t.Results)-1]
				t.Results = t.Results[:len(t.Results)-1]
				out, err := q.Exchange(context.Background(), t)
				out.Receipts = append(out.Receipts, dispatch.Receipt{Key: last.Key, Seq: last.Seq, Accepted: true})
				return out, err
			})},
		{Name: "a result is refused", Caught: "was not accepted",
			Store: turns(func(_ claim.KeyTable, q dispatch.Queue, t dispatch.Exchange) (dispatch.ExchangeResult, error) {
				out, err := q.Exchange(context.Background(), t)
				for i, r := range t.Results {
					if r.After == dispatch.Hold && out.Receipts[i].Accepted {
						out.Receipts[i].Accepted = false
					}
				}
				return out, err
			}),
			Need: func(s *QueueSetup) { s.Target.HasStatus, s.Decides = true, 1 }},
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
				if r.After == dispatch.RetryLater {
					r.State, r.After = dispatch.Failed, dispatch.Next
				}
			})},
		{Name: "the next does not wait for a decision", Caught: "the head is",
			Store: results(func(r *dispatch.Result) {
				if r.After == dispatch.Hold {
					r.State, r.After = dispatch.Committed, dispatch.Next
				}
			}),
			Need: func(s *QueueSetup) { s.Target.HasStatus, s.Decides = true, 1 }},
		{Name: "what waits is forgotten", Caught: "neither delivered nor shown",
			Store: results(func(r *dispatch.Result) {
				if r.After == dispatch.RetryLater {
					r.Wait += 24 * time.Hour
				}
			})},
		{Name: "a key goes on that waits for a person", Caught: "was taken while it waits for a person",
			Store: results(func(r *dispatch.Result) {
				if r.After == dispatch.Block {
					r.State, r.After = dispatch.Delayed, dispatch.RetryLater
				}
			}),
			Need: func(s *QueueSetup) { s.Dispatch.OnFailure, s.Invalid = dispatch.OnFailureBlock, 0.2 }},
		{Name: "attempts are not counted", Caught: "was sent more than",
			Store: results(func(r *dispatch.Result) { r.Attempt = 1 }),
			Need:  func(s *QueueSetup) { s.Target.Resend, s.Dispatch.Retry.Attempts, s.Breaks = true, 3, 0.3 }},
		{Name: "two are in flight", Caught: "is in a step", Store: turns(twoInFlight)},
	}
}

// twoInFlight starts each step twice, as if nothing kept a key from it.
func twoInFlight(_ claim.KeyTable, q dispatch.Queue, t dispatch.Exchange) (dispatch.ExchangeResult, error) {
	out, err := q.Exchange(context.Background(), t)
	if err == nil && len(out.Begun) > 0 {
		again, _ := q.Exchange(context.Background(), dispatch.Exchange{Queue: t.Queue, Session: t.Session, Window: t.Window, Begin: t.Begin, Restart: true})
		out.Begun = append(out.Begun, again.Begun...)
	}
	return out, err
}

// oldTerm has a result count under whatever term its key has by now.
func oldTerm(table claim.KeyTable, q dispatch.Queue, t dispatch.Exchange) (dispatch.ExchangeResult, error) {
	out, err := q.Exchange(context.Background(), t)
	for i, s := range out.Receipts {
		for _, r := range rows(table, dispatch.Space(t.Queue)) {
			if s.Accepted || r.Key != s.Key || r.Session == "" {
				continue
			}
			late := t.Results[i]
			late.Term = r.Term
			again, _ := q.Exchange(context.Background(), dispatch.Exchange{Queue: t.Queue, Session: r.Session, Results: []dispatch.Result{late}})
			out.Receipts[i].Accepted = len(again.Receipts) > 0 && again.Receipts[0].Accepted
		}
	}
	return out, err
}

func noWindow(_ claim.KeyTable, q dispatch.Queue, t dispatch.Exchange) (dispatch.ExchangeResult, error) {
	t.Window = 0
	return q.Exchange(context.Background(), t)
}

// results is a store that records something else than it was told.
func results(spoil func(*dispatch.Result)) func(claim.KeyTable, dispatch.Queue) (claim.KeyTable, dispatch.Queue) {
	return turns(func(_ claim.KeyTable, q dispatch.Queue, t dispatch.Exchange) (dispatch.ExchangeResult, error) {
		t.Results = slices.Clone(t.Results)
		for i := range t.Results {
			spoil(&t.Results[i])
		}
		return q.Exchange(context.Background(), t)
	})
}

func adminTwins() []QueueTwin {
	return []QueueTwin{
		{Name: "a batch is not stored", Caught: "the head is", Admin: func(d dispatch.Admin) dispatch.Admin { return &forgetful{Admin: d} }},
		{Name: "a scheduled message is sent at once", Caught: "before its time", Admin: func(d dispatch.Admin) dispatch.Admin { return unscheduling{d} }},
		{Name: "an id given twice is stored twice", Caught: "known true, added true", Admin: func(d dispatch.Admin) dispatch.Admin { return &renaming{Admin: d} }},
		{Name: "what was delivered is lost from sight", Caught: "is lost", Admin: func(d dispatch.Admin) dispatch.Admin { return hiding{d} },
			Need: func(s *QueueSetup) { s.Dispatch.KeepFor = -1 }},
		{Name: "a person is not shown what waits", Caught: "shown: false", Admin: func(d dispatch.Admin) dispatch.Admin { return hiding{d} },
			Need: func(s *QueueSetup) { s.Dispatch.OnFailure, s.Invalid = dispatch.OnFailureBlock, 0.2 }},
		{Name: "what is under way can be cancelled", Caught: "was cancelled, and took effect", Admin: func(d dispatch.Admin) dispatch.Admin { return cancelling{d} },
			Need: func(s *QueueSetup) {
				s.Target.Resend, s.Target.Deduplicates, s.Breaks, s.Dispatch.Retry.Initial = true, true, 0.3, s.Dispatch.Retry.Max
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
				if a.Outcome == dispatch.Uncertain {
					a.Outcome = dispatch.Done
				}
				return a
			})},
		{Name: "a refusal for now is taken for one for good", Caught: "is recorded as invalid, and was never refused",
			Target: answers(func(a dispatch.Answer) dispatch.Answer {
				if a.Outcome == dispatch.Busy {
					a.Outcome = dispatch.InvalidMessage
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
		{Name: "the last attempt is not asked about", Caught: "was not asked",
			Target: func(t dispatch.Target) dispatch.Target {
				s := t.Semantics()
				s.HasStatus = false
				return brokenTarget{Target: t, semantics: &s}
			},
			Need: func(s *QueueSetup) {
				s.Target, s.Decides = dispatch.Semantics{Resend: true, HasStatus: true, StatusLimit: 1}, 0
				s.Breaks, s.Dispatch.Retry.Attempts = 0.3, 1
			}},
		{Name: "silence is taken for a refusal for now", Caught: "took effect 2 times",
			Target: answers(func(a dispatch.Answer) dispatch.Answer {
				if a.Outcome == dispatch.Uncertain {
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
	claim.KeyTable
	spoil func(claim.KeyTable, claim.ClaimRequest, []claim.Claim) []claim.Claim
}

func (b brokenTable) ClaimKeys(ctx context.Context, w claim.ClaimRequest) ([]claim.Claim, error) {
	got, err := b.KeyTable.ClaimKeys(ctx, w)
	if err != nil {
		return nil, err
	}
	return b.spoil(b.KeyTable, w, got), nil
}

func rows(t claim.KeyTable, space string) []claim.Row {
	rows, err := t.List(context.Background(), claim.Query{Space: space})
	if err != nil {
		panic(err) // memory answers
	}
	return rows
}

// brokenQueue spoils turns.
type brokenQueue struct {
	dispatch.Queue
	table claim.KeyTable
	spoil func(claim.KeyTable, dispatch.Queue, dispatch.Exchange) (dispatch.ExchangeResult, error)
}

func (b brokenQueue) Exchange(_ context.Context, t dispatch.Exchange) (dispatch.ExchangeResult, error) {
	return b.spoil(b.table, b.Queue, t)
}

// forgetful stores all batches but each tenth.
type forgetful struct {
	dispatch.Admin
	n int
}

func (d *forgetful) Add(ctx context.Context, batches []dispatch.Message) ([]bool, error) {
	if d.n++; d.n%10 != 0 {
		return d.Admin.Add(ctx, batches)
	}
	added, err := d.Admin.Add(ctx, batches[1:])
	return append([]bool{true}, added...), err
}

// renaming stores a batch under another id when its own is taken.
type renaming struct {
	dispatch.Admin
}

func (d *renaming) Add(ctx context.Context, batches []dispatch.Message) ([]bool, error) {
	added, err := d.Admin.Add(ctx, batches)
	for i, b := range batches {
		if err == nil && !added[i] {
			b.ID += "'"
			var again []bool
			if again, err = d.Admin.Add(ctx, []dispatch.Message{b}); err == nil {
				added[i] = again[0]
			}
		}
	}
	return added, err
}

// hiding shows neither blocked keys nor, of each page, the first batch.
type hiding struct{ dispatch.Admin }

func (d hiding) Keys(context.Context, dispatch.KeyQuery) ([]dispatch.KeyRecord, error) {
	return nil, nil
}

func (d hiding) Messages(ctx context.Context, q dispatch.MessageQuery) ([]dispatch.Record, error) {
	out, err := d.Admin.Messages(ctx, q)
	return out[min(1, len(out)):], err
}

// cancelling takes out what may have been sent.
type cancelling struct{ dispatch.Admin }

func (d cancelling) Act(ctx context.Context, queue, id string, a dispatch.Action, who string) error {
	err := d.Admin.Act(ctx, queue, id, a, who)
	if a == dispatch.Cancel && errors.Is(err, dispatch.ErrState) {
		return d.Admin.Act(ctx, queue, id, dispatch.Skip, who)
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
