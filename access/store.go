package access

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
)

// Part is that of the events, whose subject is the name of a token.
const Part = "access"

// Tokens is where a store keeps tokens. Every method is one atomic operation and safe to use from many
// goroutines. Input that is not acceptable is lease.ErrInvalid, and nothing is done.
type Tokens interface {
	// Add stores the token, created now, to expire after lasts, [MinLife] to [MaxLife], or never if that is
	// 0, and returns it as it stands. What was added already is returned, unchanged. [ErrTaken], [ErrFull].
	Add(ctx context.Context, t Token, lasts time.Duration) (Token, error)
	// List returns all tokens, the oldest first, those that are over too, and the store's clock.
	List(ctx context.Context) (all []Token, now time.Time, err error)
	// Revoke ends the token with that id, or else the one that lives and has that name, now, and returns it as it
	// stands. One that was revoked already is returned, unchanged. [ErrNotFound].
	Revoke(ctx context.Context, ref, by string) (Token, error)
}

// Decision tells what a store has to do, from all its tokens as they stand at one moment of its clock, in any
// order, which it does not alter. An error says why there is nothing to do; it wraps one of this package, or
// lease.ErrInvalid. It may be asked again, where others came in between.
type Decision func(all []Token, now time.Time) (Change, error)

// Table is the port of a store of tokens: [NewTokens] makes the rest of it.
type Table interface {
	// Change has decide say what to do, and does it, at one moment. doing is what its errors say was being done.
	Change(ctx context.Context, doing string, decide Decision) (Token, error)
	// List is that of [Tokens].
	List(ctx context.Context) (all []Token, now time.Time, err error)
}

// NewTokens are the tokens in a table.
func NewTokens(t Table) Tokens { return tokens{t} }

type tokens struct{ Table }

func (a tokens) Add(ctx context.Context, t Token, lasts time.Duration) (Token, error) {
	return a.Change(ctx, "adding a token", DecideAdd(t, lasts))
}

func (a tokens) Revoke(ctx context.Context, ref, by string) (Token, error) {
	return a.Change(ctx, "revoking a token", DecideRevoke(ref, by))
}

// Change is what a store has to do at one moment.
type Change struct {
	// Token as it stands afterwards.
	Token Token
	// Unchanged: it stands so already, and there is nothing to do.
	Unchanged bool
	// Drop are the ids of tokens to be forgotten.
	Drop []string
	// Event to be recorded.
	Event history.Event
}

// DecideAdd decides what adding a token means; see [Tokens.Add].
func DecideAdd(t Token, lasts time.Duration) Decision {
	return func(all []Token, now time.Time) (Change, error) { return add(all, t, lasts, storeTime(now)) }
}

// DecideRevoke decides what revoking a token means; see [Tokens.Revoke].
func DecideRevoke(ref, by string) Decision {
	return func(all []Token, now time.Time) (Change, error) { return revoke(all, ref, by, storeTime(now)) }
}

func add(all []Token, t Token, lasts time.Duration, now time.Time) (Change, error) {
	if err := t.Validate(); err != nil {
		return Change{}, err
	}
	if lasts != 0 && (lasts < MinLife || lasts > MaxLife) {
		return Change{}, fmt.Errorf("%w: a token that lasts %v; use %v to %v, or 0 for ever", lease.ErrInvalid, lasts, MinLife, MaxLife)
	}
	for _, old := range all {
		switch {
		case old.ID == t.ID && old.Sum == t.Sum:
			return Change{Token: old, Unchanged: true}, nil
		case old.ID == t.ID:
			return Change{}, fmt.Errorf("%w: another token has the id %s", ErrTaken, t.ID)
		case old.Name == t.Name && old.IsLive(now):
			return Change{}, fmt.Errorf("%w: token %s is called %q; revoke it, or take another name", ErrTaken, old.ID, t.Name)
		}
	}
	drop, err := tokensToDrop(all, now)
	if err != nil {
		return Change{}, err
	}
	t.Created, t.Expires, t.Revoked, t.RevokedBy = now, time.Time{}, time.Time{}, ""
	until := ""
	if lasts != 0 {
		t.Expires = storeTime(now.Add(lasts))
		until = ", until " + t.Expires.Format(time.RFC3339)
	}
	return Change{Token: t, Drop: drop, Event: history.Event{
		Part: Part, Subject: t.Name,
		Reason: lease.TruncateReason(fmt.Sprintf("token %s (%s%s) created by %s", t.ID, t.Scopes, until, t.By)),
	}}, nil
}

// tokensToDrop tells which tokens go before one more is added.
func tokensToDrop(all []Token, now time.Time) (drop []string, err error) {
	over := slices.DeleteFunc(slices.Clone(all), func(t Token) bool { return t.IsLive(now) })
	slices.SortFunc(over, func(a, b Token) int { return a.ended().Compare(b.ended()) })
	excess := len(all) + 1 - MaxTokens
	if excess > len(over) {
		return nil, fmt.Errorf("%w: %d tokens live; revoke those that nobody uses", ErrFull, len(all)-len(over))
	}
	for i, t := range over {
		if i < excess || now.Sub(t.ended()) > KeepEnded {
			drop = append(drop, t.ID)
		}
	}
	return drop, nil
}

func revoke(all []Token, ref, by string, now time.Time) (Change, error) {
	if err := lease.ValidateText("who revokes the token", by, 1, lease.MaxName); err != nil {
		return Change{}, err
	}
	if err := lease.ValidateText("token", ref, 1, lease.MaxName); err != nil {
		return Change{}, err
	}
	at := slices.IndexFunc(all, func(t Token) bool { return t.ID == ref })
	if at < 0 {
		at = slices.IndexFunc(all, func(t Token) bool { return t.Name == ref && t.IsLive(now) })
	}
	if at < 0 {
		return Change{}, fmt.Errorf("%w: %q", ErrNotFound, ref)
	}
	t := all[at]
	if !t.Revoked.IsZero() {
		return Change{Token: t, Unchanged: true}, nil
	}
	t.Revoked, t.RevokedBy = now, by
	return Change{Token: t, Event: history.Event{
		Part: Part, Subject: t.Name, Duration: max(0, now.Sub(t.Created)),
		Reason: lease.TruncateReason(fmt.Sprintf("token %s revoked by %s", t.ID, by)),
	}}, nil
}

// Sort puts tokens in the order of [Tokens.List].
func Sort(all []Token) {
	slices.SortFunc(all, func(a, b Token) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
}

// storeTime is a time as every store can keep it.
func storeTime(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }
