package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/lease"
)

// TermNotCurrent is the SQLSTATE with which a guarded transaction is refused,
// by require_term itself or at COMMIT.
const TermNotCurrent = "US001"

// RequireTerm lets the caller's transaction commit only if the lease is still
// held under this term when it does. It does not prove who the caller is: the
// term is the token. The refusal comes here if the term has already ended, and
// otherwise from tx.Commit: call [Refused] with both errors.
//
// Nothing is locked before the commit, so that an open transaction may be paused
// for long and holds up neither renewals nor a takeover. The package's
// documentation names what moves the lock forward.
func (s *Store) RequireTerm(ctx context.Context, tx pgx.Tx, id lease.ID, term int64) error {
	_, err := tx.Exec(ctx, s.sql("SELECT {{schema}}.require_term($1, $2, $3)"), id.Space, id.Key, term)
	return during(err, "requiring term %d of %s", term, id)
}

// Refused reports whether an error means that a guarded transaction was refused because the
// term has ended; another holder may be active.
func Refused(err error) bool { return pgCode(err) == TermNotCurrent }
