package api

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

const (
	// tokensFresh is how old what is known of the store's tokens may be, and tokensMissed when somebody shows
	// one that is not among them: it may have been made since.
	tokensFresh  = time.Second
	tokensMissed = 200 * time.Millisecond
	// tokensMost bounds one reading of them.
	tokensMost = time.Second
)

// tokenBook is what this server knows of the store's tokens. It reads them while somebody shows one, and keeps
// what it knows while the store is away: who could ask before still can.
type tokenBook struct {
	tokens access.Tokens
	seen   *look[tokensSeen]
	// ended are those that were revoked through this server, whatever the last look found.
	ended *lru[string, struct{}]
}

// tokensSeen is what a look at the tokens found.
type tokensSeen struct {
	byID map[string]access.Token // nil: nothing was found out yet
	now  time.Time               // of the store's clock, not before …
	read time.Time               // … this moment of ours: a token may end early, but not late
}

// newTokenBook returns nil for a store that keeps no tokens.
func newTokenBook(st store.Store, running context.Context) *tokenBook {
	t, ok := st.(store.Tokens)
	if !ok {
		return nil
	}
	b := &tokenBook{tokens: t.Tokens(), ended: newLRU[string, struct{}](access.MaxTokens)}
	b.seen = &look[tokensSeen]{of: "the tokens", running: running, ask: b.ask}
	return b
}

func (b *tokenBook) ask(ctx context.Context) (tokensSeen, error) {
	ctx, cancel := context.WithTimeout(ctx, tokensMost)
	defer cancel()
	asked := time.Now()
	all, now, err := b.tokens.List(ctx)
	if err != nil {
		return tokensSeen{}, err
	}
	out := tokensSeen{byID: make(map[string]access.Token, len(all)), now: now, read: asked}
	for _, t := range all {
		out.byID[t.ID] = t
	}
	return out, nil
}

// find returns the token with that id and that secret, if it lives. It fails only while nothing at all is
// known of the tokens.
func (b *tokenBook) find(ctx context.Context, id string, sum [sha256.Size]byte) (t access.Token, found bool, err error) {
	seen, err := b.seen.known(ctx, tokensFresh)
	t, there := seen.byID[id]
	if !there {
		seen, err = b.seen.known(ctx, tokensMissed)
		t = seen.byID[id]
	}
	switch {
	case seen.byID == nil && err != nil:
		return t, false, err
	case seen.byID == nil:
		return t, false, fmt.Errorf("%w: the tokens have not been read yet", lease.ErrUnavailable)
	}
	return t, t.Shown(sum) && b.live(seen, t), nil
}

// revoke ends a token in the store, and here at once.
func (b *tokenBook) revoke(ctx context.Context, ref, by string) (access.Token, error) {
	t, err := b.tokens.Revoke(ctx, ref, by)
	if err != nil {
		return t, err
	}
	b.ended.getOrAdd(t.ID, func() struct{} { return struct{}{} })
	b.seen.forget()
	return t, nil
}

// live tells whether a token is, as far as is known.
func (b *tokenBook) live(s tokensSeen, t access.Token) bool {
	_, ended := b.ended.get(t.ID)
	return !ended && t.Live(s.now.Add(time.Since(s.read)))
}

// follow ends what a token began soon after the token has: stop is called then, or never, until ctx ends.
func (b *tokenBook) follow(ctx context.Context, id string, stop func()) {
	tick := time.NewTicker(tokensFresh)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		seen, _ := b.seen.known(ctx, tokensFresh)
		if t, there := seen.byID[id]; !there || !b.live(seen, t) {
			stop()
			return
		}
	}
}
