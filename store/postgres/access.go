package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

var _ store.Tokens = (*Store)(nil)

// Tokens is what the store keeps for package access.
func (s *Store) Tokens() access.Tokens { return access.NewTokens(tokens{s}) }

// tokens is the [access.Table] of a Store.
type tokens struct{ db *Store }

const (
	// The server ends the transaction of a process that stops while it decides.
	lockTokens = "SELECT {{rules}}.configure_statement($1), {{rules}}.bound_transaction($1), pg_advisory_xact_lock(hashtext({{channel}} || ' access'), 0)"

	allTokens = "SELECT id, name, scopes, sum, created, made_by, expires, revoked, revoked_by FROM {{schema}}.token"

	putToken = `INSERT INTO {{schema}}.token AS t (id, name, scopes, sum, created, made_by, expires, revoked, revoked_by)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		ON CONFLICT (id) DO UPDATE SET revoked = excluded.revoked, revoked_by = excluded.revoked_by`

	dropTokens = "DELETE FROM {{schema}}.token WHERE id = ANY ($1)"
)

// errRefused ends a transaction that is not to do anything.
var errRefused = errors.New("refused")

// Change implements [access.Table].
func (a tokens) Change(ctx context.Context, op string, decide access.Decision) (access.Token, error) {
	var c access.Change
	var refused error
	err := a.db.pool.withConnection(ctx, ordinary, func(ctx context.Context, conn *pgx.Conn) error {
		err := pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, a.db.sql(lockTokens), withLockTimeout(ctx, []any{lockTimeout{}})...); err != nil {
				return err
			}
			all, now, err := a.all(ctx, tx)
			if err != nil {
				return err
			}
			if c, refused = decide(all, now); refused != nil || c.Unchanged {
				return errRefused
			}
			return a.apply(ctx, tx, c)
		})
		if errors.Is(err, errRefused) && !conn.IsClosed() {
			return nil
		}
		return err
	})
	switch {
	case refused != nil:
		return access.Token{}, refused
	case err != nil:
		return access.Token{}, fmt.Errorf("%s: %w", op, err)
	}
	return c.Token, nil
}

func (a tokens) apply(ctx context.Context, tx pgx.Tx, c access.Change) error {
	if len(c.Drop) > 0 {
		if _, err := tx.Exec(ctx, a.db.sql(dropTokens), c.Drop); err != nil {
			return err
		}
	}
	t := c.Token
	_, err := tx.Exec(ctx, a.db.sql(putToken), t.ID, t.Name, t.Scopes.Names(), t.Sum[:], t.Created, t.By, orNull(t.Expires), orNull(t.Revoked), t.RevokedBy)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, a.db.sql(insertEvent), clean(c.Event.Part), clean(c.Event.Subject), "", "", int64(0), clean(c.Event.Reason), c.Event.Duration.Nanoseconds())
	return err
}

// List implements [access.Table].
func (a tokens) List(ctx context.Context) (all []access.Token, now time.Time, err error) {
	err = a.db.pool.withConnection(ctx, ordinary, func(ctx context.Context, conn *pgx.Conn) (err error) {
		all, now, err = a.all(ctx, conn)
		return err
	})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("listing tokens: %w", err)
	}
	access.Sort(all)
	return all, now, nil
}

// all reads the tokens, and then the clock: nothing that was read is later.
func (a tokens) all(ctx context.Context, on runner) ([]access.Token, time.Time, error) {
	found, err := on.Query(ctx, a.db.sql(allTokens))
	if err != nil {
		return nil, time.Time{}, err
	}
	all, err := pgx.CollectRows(found, scanToken)
	if err != nil {
		return nil, time.Time{}, err
	}
	var now time.Time
	err = on.QueryRow(ctx, a.db.sql("SELECT {{schema}}.clock()")).Scan(&now)
	return all, now.UTC(), err
}

func scanToken(r pgx.CollectableRow) (t access.Token, err error) {
	var scopes []string
	var sum []byte
	var expires, revoked *time.Time
	if err := r.Scan(&t.ID, &t.Name, &scopes, &sum, &t.Created, &t.By, &expires, &revoked, &t.RevokedBy); err != nil {
		return t, err
	}
	if t.Scopes, err = access.ParseScopes(scopes); err != nil {
		return t, fmt.Errorf("%w: token %s: %w", lease.ErrUnavailable, t.ID, err)
	}
	copy(t.Sum[:], sum)
	t.Created, t.Expires, t.Revoked = t.Created.UTC(), utc(expires), utc(revoked)
	return t, nil
}
