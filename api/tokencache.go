package api

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/internal/lru"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

const (
	// tokensFresh is how old the read tokens may be: a token revoked on another server works that much longer. With an
	// unknown token the limit is tokensMissed, because it may be new; it is not 0, so that guesses do not load the store.
	tokensFresh  = time.Second
	tokensMissed = 200 * time.Millisecond
	// tokensTimeout bounds one read of them.
	tokensTimeout = time.Second
)

// tokenCache holds the store's tokens. It reads them while requests carry some, and keeps them while the store does not answer:
// a caller that was valid before an outage stays valid during it.
type tokenCache struct {
	tokens   access.Tokens
	snapshot *sharedRead[tokenSnapshot]
	// ended are those revoked through this server: a read that started before the revocation must not bring one back.
	ended *lru.Cache[string, struct{}]
}

// tokenSnapshot is the result of one read.
type tokenSnapshot struct {
	byID map[string]access.Token // nil: nothing was found out yet
	now  time.Time               // of the store's clock, not before …
	read time.Time               // … this moment of ours: a token may end early, but not late
}

// newTokenCache returns nil for a store that keeps no tokens.
func newTokenCache(st store.Store, running context.Context) *tokenCache {
	t, ok := st.(store.Tokens)
	if !ok {
		return nil
	}
	b := &tokenCache{tokens: t.Tokens(), ended: lru.New[string, struct{}](access.MaxTokens)}
	b.snapshot = &sharedRead[tokenSnapshot]{subject: "the tokens", running: running, load: b.read}
	return b
}

func (b *tokenCache) read(ctx context.Context) (tokenSnapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, tokensTimeout)
	defer cancel()
	asked := time.Now()
	all, now, err := b.tokens.List(ctx)
	if err != nil {
		return tokenSnapshot{}, err
	}
	out := tokenSnapshot{byID: make(map[string]access.Token, len(all)), now: now, read: asked}
	for _, t := range all {
		out.byID[t.ID] = t
	}
	return out, nil
}

// find returns the live token with that id and secret. It fails only before the first successful read.
func (b *tokenCache) find(ctx context.Context, id string, sum [sha256.Size]byte) (t access.Token, found bool, err error) {
	seen, err := b.snapshot.latest(ctx, tokensFresh)
	t, there := seen.byID[id]
	if !there {
		seen, err = b.snapshot.latest(ctx, tokensMissed)
		t = seen.byID[id]
	}
	switch {
	case seen.byID == nil && err != nil:
		return t, false, err
	case seen.byID == nil:
		return t, false, fmt.Errorf("%w: the tokens have not been read yet", lease.ErrUnavailable)
	}
	return t, t.HasSum(sum) && b.isLive(seen, t), nil
}

// revoke ends a token in the store, and here at once.
func (b *tokenCache) revoke(ctx context.Context, ref, by string) (access.Token, error) {
	t, err := b.tokens.Revoke(ctx, ref, by)
	if err != nil {
		return t, err
	}
	b.ended.GetOrAdd(t.ID, func() struct{} { return struct{}{} })
	b.snapshot.invalidate()
	return t, nil
}

// isLive reports whether a token is live, as far as this server knows.
func (b *tokenCache) isLive(s tokenSnapshot, t access.Token) bool {
	_, ended := b.ended.Get(t.ID)
	return !ended && t.IsLive(s.now.Add(time.Since(s.read)))
}

// stopWhenRevoked calls stop soon after the token has ended, or returns when ctx ends.
func (b *tokenCache) stopWhenRevoked(ctx context.Context, id string, stop func()) {
	tick := time.NewTicker(tokensFresh)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		seen, _ := b.snapshot.latest(ctx, tokensFresh)
		if t, there := seen.byID[id]; !there || !b.isLive(seen, t) {
			stop()
			return
		}
	}
}
