package redis

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

var _ store.Tokens = (*Store)(nil)

// maxAttempts is how often a change is tried when others come in between.
const maxAttempts = 100

// Tokens are fields of one hash, by id; the field "rev", which is no id, grows with each change, so that
// one is decided from what stands there.

// Tokens is what the store keeps for package access.
func (s *Store) Tokens() access.Tokens { return access.NewTokens(tokens{s}) }

// tokens is the [access.Table] of a Store.
type tokens struct{ s *Store }

// Change implements [access.Table].
func (a tokens) Change(ctx context.Context, op string, decide access.Decision) (access.Token, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	for retry := (backoff.Backoff{First: time.Millisecond, Most: 32 * time.Millisecond}); retry.Failures() < maxAttempts; {
		all, rev, now, err := a.read(ctx)
		if err != nil {
			return access.Token{}, fmt.Errorf("%s: %w", op, err)
		}
		c, err := decide(all, now)
		if err != nil || c.Unchanged {
			return c.Token, err
		}
		e := c.Event
		args := []any{rev, c.Token.ID, tokenDoc(c.Token), e.Part, e.Subject, e.Reason, e.Duration.Microseconds(), a.s.keep, a.s.channel}
		for _, id := range c.Drop {
			args = append(args, id)
		}
		answer, err := a.s.run(ctx, a.s.rest, writes, "tokens_change", []string{a.s.tokensKey()}, args...)
		if err != nil {
			return access.Token{}, fmt.Errorf("%s: %w", op, err)
		}
		if answer.text() == "ok" {
			return c.Token, nil
		}
		if err := answer.err(); err != nil {
			return access.Token{}, err
		}
		if !retry.Wait(ctx) {
			break
		}
	}
	return access.Token{}, failure(fmt.Errorf("%s: others came in between each time", op), false)
}

// List implements [access.Table].
func (a tokens) List(ctx context.Context) ([]access.Token, time.Time, error) {
	all, _, now, err := a.read(ctx)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("listing tokens: %w", err)
	}
	return all, now, nil
}

func (a tokens) read(ctx context.Context) (all []access.Token, rev string, now time.Time, err error) {
	answer, err := a.s.run(ctx, a.s.rest, reads, "tokens_list", []string{a.s.tokensKey()})
	if err != nil {
		return nil, "", now, err
	}
	now = answer.time().UTC()
	fields := map[string]string{}
	for f := answer.row(); f.more(); {
		id := f.text()
		fields[id] = f.text()
	}
	if err := answer.err(); err != nil {
		return nil, "", now, err
	}
	all, rev, err = tokensOf(a.s.tokensKey(), fields)
	return all, rev, now, err
}

func (s *Store) tokensKey() string { return s.root + "tokens" }

// tokenRow is a token as it is kept.
type tokenRow struct {
	access.Token
	Sum string `json:"sum"` // in hexadecimal
}

func tokenDoc(t access.Token) string {
	text, err := json.Marshal(tokenRow{t, hex.EncodeToString(t.Sum[:])})
	if err != nil {
		panic(fmt.Sprintf("redis: a token that cannot be written: %v", err))
	}
	return string(text)
}

// foreign: something that this store did not write.
func foreign(key string, err error) error {
	return fmt.Errorf("%w: %q cannot be read, something else writes under this prefix: %w", lease.ErrUnavailable, key, err)
}

// tokensOf reads the hash; rev is "0" before the first change.
func tokensOf(key string, fields map[string]string) (all []access.Token, rev string, err error) {
	rev = "0"
	for id, text := range fields {
		if id == "rev" {
			rev = text
			continue
		}
		var row tokenRow
		if err := json.Unmarshal([]byte(text), &row); err != nil {
			return nil, "", foreign(key, err)
		}
		sum, err := hex.DecodeString(row.Sum)
		if err != nil || len(sum) != sha256.Size || row.ID != id {
			return nil, "", foreign(key, errors.New("a field is not a valid token"))
		}
		copy(row.Token.Sum[:], sum)
		all = append(all, row.Token)
	}
	access.Sort(all)
	return all, rev, nil
}
