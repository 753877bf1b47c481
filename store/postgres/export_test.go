package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/lease"
)

// InSQL puts this program's names into a test's SQL on the usual schema.
func InSQL(text string) string {
	rules, err := readRules()
	if err != nil {
		panic(err)
	}
	return renderer(DefaultSchema, rules).Replace(text)
}

// RuleSet is the hash of this program's rules.
func RuleSet() string { return InSQL("{{hash}}")[1:13] }

// OtherRuleSet is the hash of those of [OpenOther].
const OtherRuleSet = "0123456789ab"

// OpenOther opens a store as a program of another version does, whose rules have another hash.
func OpenOther(ctx context.Context, cfg Config) (*Store, error) {
	rules, err := readRules()
	if err != nil {
		return nil, err
	}
	rules.hash = OtherRuleSet
	return openWith(ctx, cfg, rules)
}

// Together is a store that renews each session as one of many that come at the same time.
type Together struct{ *Store }

// RenewSession implements [lease.Store].
func (t Together) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	t.renewals.mu.Lock()
	t.renewals.sentAt = time.Now()
	t.renewals.mu.Unlock()
	return t.Store.RenewSession(ctx, id)
}

// SendRenewals sends so many renewals in batches, of a store with so many connections, and gives send the size of each.
func SendRenewals(count, connections int, send func(size int)) {
	sendAll(make([]*renewal, count), connections, func(batch []*renewal) { send(len(batch)) })
}

// ClientTimeouts are the settings of an ordinary connection by which the server ends it when this end does not answer, and jit.
func ClientTimeouts(ctx context.Context, s *Store) (all string, err error) {
	err = s.pool.withConnection(ctx, ordinary, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT concat_ws(' ', current_setting('tcp_user_timeout'), current_setting('jit'), current_setting('tcp_keepalives_idle'),
			current_setting('tcp_keepalives_interval'), current_setting('tcp_keepalives_count'))`).Scan(&all)
	})
	return all, err
}

// LockShard locks a shard as a report does where a pooler hides the isolation level that connections ask for, and calls f before
// the COMMIT.
func LockShard(ctx context.Context, s *Store, shard string, f func()) error {
	s.pool.explicitIsolation.Store(true)
	return s.rowReadCommitted(ctx, "SELECT {{rules}}.shard_lock_shard($1, $2)", func(r pgx.Row) error {
		defer f()
		return r.Scan(nil)
	}, shard, lockTimeout{})
}
