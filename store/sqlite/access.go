package sqlite

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/store"
)

var _ store.Tokens = (*Store)(nil)

// Tokens is what the store keeps for package access.
func (s *Store) Tokens() access.Tokens { return access.NewTokens(tokens{s}) }

// tokens is the [access.Table] of a Store.
type tokens struct{ s *Store }

const (
	allTokens = "SELECT id, name, scopes, sum, created_us, made_by, expires_us, revoked_us, revoked_by FROM understudy_token"

	putToken = `
INSERT INTO understudy_token (id, name, scopes, sum, created_us, made_by, expires_us, revoked_us, revoked_by)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (id) DO UPDATE SET revoked_us = ?8, revoked_by = ?9`

	dropToken = "DELETE FROM understudy_token WHERE id = ?1"
)

// Change implements [access.Table].
func (a tokens) Change(ctx context.Context, op string, decide access.Decision) (access.Token, error) {
	var c access.Change
	var refused error
	err := a.s.write(ctx, op, func(t *txn) error {
		all, err := list(t.call, allTokens, nil, scanToken)
		if err != nil {
			return err
		}
		if c, refused = decide(all, time.UnixMicro(t.wall)); refused != nil || c.Unchanged {
			return refused
		}
		for _, id := range c.Drop {
			if _, err := t.exec(dropToken, id); err != nil {
				return err
			}
		}
		k := c.Token
		_, err = t.exec(putToken, k.ID, k.Name, strings.Join(k.Scopes.Names(), " "), k.Sum[:], unixMicro(k.Created), k.By, unixMicro(k.Expires), unixMicro(k.Revoked), k.RevokedBy)
		if err != nil {
			return err
		}
		return t.record(c.Event, changeNoLease, "")
	})
	if refused != nil {
		return access.Token{}, refused
	}
	if err != nil {
		return access.Token{}, err
	}
	return c.Token, nil
}

// List implements [access.Table].
func (a tokens) List(ctx context.Context) (all []access.Token, now time.Time, err error) {
	all, err = readAll(ctx, a.s, "listing tokens", allTokens, nil, scanToken)
	if err != nil {
		return nil, time.Time{}, err
	}
	access.Sort(all)
	return all, time.UnixMicro(a.s.clocks.wallMicros()).UTC(), nil
}

func scanToken(scan scanner) (t access.Token, err error) {
	var scopes string
	var sum []byte
	var created, expires, revoked int64
	if err := scan(&t.ID, &t.Name, &scopes, &sum, &created, &t.By, &expires, &revoked, &t.RevokedBy); err != nil {
		return t, err
	}
	if copy(t.Sum[:], sum) != sha256.Size || len(sum) != sha256.Size {
		return t, fmt.Errorf("token %s has a sum of %d bytes: something else writes into its table", t.ID, len(sum))
	}
	for name := range strings.FieldsSeq(scopes) {
		t.Scopes = append(t.Scopes, access.Scope(name))
	}
	t.Created, t.Expires, t.Revoked = timeOf(created).UTC(), timeOf(expires).UTC(), timeOf(revoked).UTC()
	return t, nil
}
