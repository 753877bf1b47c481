package memory

import (
	"context"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

var _ store.Tokens = (*Store)(nil)

// Tokens is what the store keeps for package access.
func (s *Store) Tokens() access.Tokens { return access.NewTokens(tokens{s}) }

// TokenTable is what is under [Store.Tokens], for a store that keeps this one's state elsewhere.
func (s *Store) TokenTable() access.Table { return tokens{s} }

// tokens is the [access.Table] of a Store.
type tokens struct{ s *Store }

// Change implements [access.Table].
func (a tokens) Change(ctx context.Context, op string, decide access.Decision) (access.Token, error) {
	if err := a.s.begin(ctx, op); err != nil {
		return access.Token{}, err
	}
	defer a.s.mu.Unlock()
	now := a.s.now()
	c, err := decide(a.s.tokens, now)
	if err != nil || c.Unchanged {
		return c.Token, err
	}
	kept := slices.DeleteFunc(slices.Clone(a.s.tokens), func(t access.Token) bool {
		return t.ID == c.Token.ID || slices.Contains(c.Drop, t.ID)
	})
	a.s.tokens = append(kept, c.Token)
	access.Sort(a.s.tokens)
	a.s.record(now, c.Event, lease.Change{})
	return c.Token, nil
}

// List implements [access.Table].
func (a tokens) List(ctx context.Context) ([]access.Token, time.Time, error) {
	if err := a.s.begin(ctx, "listing tokens"); err != nil {
		return nil, time.Time{}, err
	}
	defer a.s.mu.Unlock()
	return slices.Clone(a.s.tokens), a.s.now(), nil
}
