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
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/store"
)

var (
	_ store.Tokens = (*Store)(nil)
	_ store.Tokens = (*plain)(nil)
)

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
	for retry := retries(); retry.Failures() < maxAttempts; {
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
func (s *plain) tokensKey() string { return s.root + "tokens" }

// tokenRow is a token as it is kept.
type tokenRow struct {
	access.Token
	Sum string `json:"sum"` // in hexadecimal
}

func tokenDoc(t access.Token) string { return document(tokenRow{t, hex.EncodeToString(t.Sum[:])}) }

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
			return nil, "", foreign(key, errors.New("a field is no token"))
		}
		copy(row.Token.Sum[:], sum)
		all = append(all, row.Token)
	}
	access.Sort(all)
	return all, rev, nil
}

// Tokens is what the store keeps for package access.
func (s *plain) Tokens() access.Tokens { return access.NewTokens(plainTokens{s}) }

// plainTokens is the [access.Table] of a store without scripts.
type plainTokens struct{ s *plain }

// Change implements [access.Table].
func (a plainTokens) Change(ctx context.Context, op string, decide access.Decision) (access.Token, error) {
	s, key := a.s, a.s.tokensKey()
	var c access.Change
	var refused error
	err := s.record(ctx, s.rest, func(t *tx) (*history.Event, error) {
		read := ask("HGETALL", key)
		if err := t.watch([]string{key}, read); err != nil {
			return nil, err
		}
		all, _, err := tokensOf(key, read.fields())
		if err != nil {
			return nil, err
		}
		if c, refused = decide(all, s.now()); refused != nil || c.Unchanged {
			return nil, nil
		}
		if len(c.Drop) > 0 {
			t.do(append([]string{"HDEL", key}, c.Drop...)...)
		}
		t.do("HSET", key, c.Token.ID, tokenDoc(c.Token)) // the key is watched: it needs no revision
		return &c.Event, nil
	})
	switch {
	case refused != nil:
		return access.Token{}, refused
	case err != nil:
		return access.Token{}, fmt.Errorf("%s: %w", op, err)
	}
	return c.Token, nil
}

// List implements [access.Table].
func (a plainTokens) List(ctx context.Context) (all []access.Token, now time.Time, err error) {
	read := ask("HGETALL", a.s.tokensKey())
	if err := a.s.look(ctx, read); err != nil {
		return nil, now, fmt.Errorf("listing tokens: %w", err)
	}
	if all, _, err = tokensOf(a.s.tokensKey(), read.fields()); err != nil {
		return nil, now, err
	}
	return all, a.s.now().UTC(), nil
}
