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
// In SQL:
//
//	SELECT understudy.require_term('role', 'billing', 1767323045000);
//
// from any client, at any isolation level, best as the last statement before COMMIT. At COMMIT a deferred
// trigger locks the lease's row and refuses the commit with SQLSTATE US001 unless that is the
// lease's last term and it has not been freed: a holder that has lapsed passes until another has taken the lease, or its end
// is recorded. Until then nothing is locked: an open transaction delays neither a renewal
// (which never touches that row) nor a takeover. At REPEATABLE READ and above the transaction must
// have started after the lease was taken, and a takeover since then is reported as SQLSTATE 40001;
// when it is tried again it gets US001.
//
// Three things move the lock to before the end of the commit, so that a takeover has to wait; none
// makes two primaries. SET CONSTRAINTS ALL IMMEDIATE after the call takes it at once. PREPARE
// TRANSACTION keeps it until COMMIT PREPARED. A commit that waits for a synchronous standby keeps it
// that long.
func (s *Store) RequireTerm(ctx context.Context, tx pgx.Tx, id lease.ID, term int64) error {
	_, err := tx.Exec(ctx, s.sql("SELECT {{schema}}.require_term($1, $2, $3)"), id.Space, id.Key, term)
	return during(err, "requiring term %d of %s", term, id)
}

// Refused reports whether an error means that a guarded transaction was refused because the
// term has ended; another holder may be active.
func Refused(err error) bool { return pgCode(err) == TermNotCurrent }
