package api

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/store/memory"
)

// lateTokens answer a list some time after they read the store's clock.
type lateTokens struct {
	access.Tokens
	late time.Duration
}

func (t lateTokens) List(ctx context.Context) ([]access.Token, time.Time, error) {
	all, now, err := t.Tokens.List(ctx)
	time.Sleep(t.late)
	return all, now, err
}

type lateStore struct {
	*memory.Store
	late time.Duration
}

func (s lateStore) Tokens() access.Tokens { return lateTokens{s.Store.Tokens(), s.late} }

// TestTokenEndsInTime: a list that was long under way does not prolong a token.
func TestTokenEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const late = maxLatestWait - 100*time.Millisecond
		lasts := late + restFactor*late - 50*time.Millisecond // it ends just before the next look
		b := newTokenCache(lateStore{memory.New(nil), late}, t.Context())
		one, secret, err := access.NewToken("brief", access.Scopes{access.Read}, "alice")
		if err == nil {
			_, err = b.tokens.Add(t.Context(), one, lasts)
		}
		if err != nil {
			t.Fatal(err)
		}
		made := time.Now()
		id, sum, _ := access.Parse(secret)
		lives := func() bool {
			t.Helper()
			_, found, err := b.find(t.Context(), id, sum)
			if err != nil {
				t.Fatal(err)
			}
			return found
		}
		if !lives() {
			t.Error("it does not live when it was made")
		}
		time.Sleep(time.Until(made.Add(lasts - time.Millisecond)))
		if !lives() {
			t.Error("it ended too early")
		}
		time.Sleep(time.Until(made.Add(lasts)))
		if lives() {
			t.Error("it lives on after it expired")
		}
	})
}
