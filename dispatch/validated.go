package dispatch

import (
	"context"
	"fmt"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/lease"
)

// Validated returns a queue that refuses what is not acceptable before the store sees it.
func Validated(q Queue) Queue { return validatedQueue{q} }

type validatedQueue struct{ Queue }

func (q validatedQueue) Exchange(ctx context.Context, x Exchange) (ExchangeResult, error) {
	if err := x.validate(); err != nil {
		return ExchangeResult{}, err
	}
	return q.Queue.Exchange(ctx, x)
}

func (x Exchange) validate() error {
	if n := len(x.Results) + len(x.Begin); n > claim.MaxKeys {
		return fmt.Errorf("%w: %d entries in an exchange; at most %d are allowed", lease.ErrInvalid, n, claim.MaxKeys)
	}
	if err := x.validateKeys(); err != nil {
		return err
	}
	for _, r := range x.Results {
		ok := false
		switch r.State {
		case Committed, Invalid, Failed:
			ok = r.After == Next || r.After == Block
		case Pending, Valid, Delayed, Unknown:
			ok = r.After == RetryLater || r.After == Hold || r.After == Block || r.After == Stuck && r.State.IsAtTarget()
		}
		if !ok {
			return fmt.Errorf("%w: a result with state %q cannot be followed by %q", lease.ErrInvalid, r.State, r.After)
		}
	}
	return nil
}

// validateKeys refuses a key that is in one of the lists twice, or in the two under different terms: a store answers for a key once.
func (x Exchange) validateKeys() error {
	terms, begun := make(map[string]int64, len(x.Results)), make(map[string]bool, len(x.Begin))
	for _, r := range x.Results {
		if _, twice := terms[r.Key]; twice {
			return fmt.Errorf("%w: key %q has two results in an exchange", lease.ErrInvalid, r.Key)
		}
		terms[r.Key] = r.Term
	}
	for _, c := range x.Begin {
		if begun[c.Key] {
			return fmt.Errorf("%w: key %q is to start twice in an exchange", lease.ErrInvalid, c.Key)
		}
		begun[c.Key] = true
		if term, ok := terms[c.Key]; ok && term != c.Term {
			return fmt.Errorf("%w: key %q is in an exchange under the terms %d and %d", lease.ErrInvalid, c.Key, term, c.Term)
		}
	}
	return nil
}
