package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Prune implements [dispatch.Queue].
func (q queue) Prune(ctx context.Context, name string, keep time.Duration, limit int) (deleted int, through bool, err error) {
	err = q.rowReadCommitted(ctx, "SELECT deleted, through FROM {{rules}}.prune($1, $2, $3, $4)",
		func(r pgx.Row) error { return r.Scan(&deleted, &through) }, name, keep.Microseconds(), int64(limit), lockTimeout{})
	if err != nil {
		return 0, false, fmt.Errorf("pruning %s: %w", name, err)
	}
	return deleted, through, nil
}
