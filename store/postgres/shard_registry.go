package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/store"
)

var _ store.Shards = (*Store)(nil)

// Registry is what the store keeps for package shard.
func (s *Store) Registry() shard.Registry { return shard.Validated(registry{s, &answeredReports{}}) }

// registry is the [shard.Registry] of a Store.
type registry struct {
	db       *Store
	answered *answeredReports
}

// Report implements [shard.Registry].
func (r registry) Report(ctx context.Context, n shard.Record, urgent bool) (v shard.View, err error) {
	doc, err := json.Marshal(n)
	if err != nil {
		return v, fmt.Errorf("reporting node %.8s: %w", n.ID, err)
	}
	sum, err := digestOf(n)
	if err != nil {
		return v, fmt.Errorf("reporting node %.8s: %w", n.ID, err)
	}
	light := r.answered.forget(n.ID, sum) && !urgent
	var got string
	err = r.db.rowReadCommitted(ctx, `SELECT {{rules}}.shard_report($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		func(row pgx.Row) error { return row.Scan(&got) },
		n.Shard, n.ID, n.Address, []byte(n.Instance), n.Timeout.Microseconds(), string(doc), sum[:], light, urgent, lockTimeout{})
	if err != nil {
		return v, fmt.Errorf("reporting node %.8s: %w", n.ID, err)
	}
	if refusal, refused := strings.CutPrefix(got, separator); refused {
		why, rest, _ := strings.Cut(refusal, separator)
		who, what, _ := strings.Cut(rest, separator)
		return v, n.TakenError(why, who, what)
	}
	r.answered.remember(n.ID, sum)
	if v, err = viewOf(got); err != nil {
		return v, fmt.Errorf("reporting node %.8s: %w", n.ID, err)
	}
	return v, nil
}

// ReadView implements [shard.Registry].
func (r registry) ReadView(ctx context.Context, name string) (v shard.View, err error) {
	err = r.db.queryRow(ctx, ordinary, `SELECT {{rules}}.shard_read_view($1, $2)`, func(row pgx.Row) (err error) {
		v, err = scanView(row)
		return err
	}, name, lockTimeout{})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return shard.View{}, fmt.Errorf("%w: no shard %q", shard.ErrNotFound, name)
	case err != nil:
		return shard.View{}, fmt.Errorf("looking at shard %q: %w", name, err)
	}
	return v, nil
}

// List implements [shard.Registry].
func (r registry) List(ctx context.Context, after string, limit int) ([]shard.View, error) {
	out, err := rows(ctx, r.db, `SELECT {{rules}}.shard_list($1, $2, $3)`,
		func(row pgx.CollectableRow) (shard.View, error) { return scanView(row) }, clean(after), int64(limit), lockTimeout{})
	return out, during(err, "listing shards")
}

// UpdateRow implements [shard.Registry].
func (r registry) UpdateRow(ctx context.Context, d shard.RowUpdate) (rev int64, err error) {
	doc, err := json.Marshal(d.Row)
	if err != nil {
		return 0, fmt.Errorf("deciding about shard %q: %w", d.Row.Name, err)
	}
	q, err := commandColumnsOf(d.Commands)
	if err != nil {
		return 0, err
	}
	var e history.Event
	if d.Event != nil {
		e = *d.Event
	}
	var decided bool
	err = r.db.rowReadCommitted(ctx, `SELECT decided, rev FROM {{rules}}.shard_update_row($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)`,
		func(row pgx.Row) error { return row.Scan(&decided, &rev) },
		d.Row.Name, d.Row.Rev, d.Remove, d.Row.Primary, string(doc), append([]string{}, d.Drop...),
		q.nodes, q.ids, q.within, q.docs, int64(shard.MaxQueue),
		d.Event != nil, clean(e.Part), clean(e.Subject), clean(e.From), clean(e.To), e.Term, clean(e.Reason), e.Duration.Nanoseconds(), lockTimeout{})
	switch {
	case err != nil:
		return 0, fmt.Errorf("deciding about shard %q: %w", d.Row.Name, err)
	case !decided:
		return 0, fmt.Errorf("%w: shard %q is at %d, not at %d", shard.ErrChanged, d.Row.Name, rev, d.Row.Rev)
	}
	return rev, nil
}

// Lock implements [shard.Registry].
func (r registry) Lock(ctx context.Context, l shard.Lock) error {
	var held *string
	err := r.db.rowReadCommitted(ctx, `SELECT {{rules}}.shard_acquire_lock($1, $2, $3, $4, $5, $6)`,
		func(row pgx.Row) error { return row.Scan(&held) },
		l.Primary, l.Shard, l.Value, clean(l.Instead), shard.LockTime.Microseconds(), lockTimeout{})
	switch {
	case err != nil:
		return fmt.Errorf("taking the failover lock of primary %.8s: %w", l.Primary, err)
	case held != nil:
		return fmt.Errorf("%w: of primary %.8s, with the value %q", shard.ErrLocked, l.Primary, *held)
	}
	return nil
}

// Unlock implements [shard.Registry].
func (r registry) Unlock(ctx context.Context, l shard.Lock) error {
	err := r.db.callReadCommitted(ctx, `SELECT {{rules}}.shard_release_lock($1, $2, $3, $4)`, l.Primary, l.Shard, clean(l.Instead), lockTimeout{})
	return during(err, "giving the failover lock of primary %.8s up", l.Primary)
}

// scanView reads what shard_show returns.
func scanView(r pgx.Row) (v shard.View, err error) {
	var text string
	if err := r.Scan(&text); err != nil {
		return v, err
	}
	return viewOf(text)
}

// separator separates the columns of what shard_show returns.
const separator = "\x1f"

// viewOf is the view that shard_show returned.
func viewOf(text string) (v shard.View, err error) {
	const columns, leases = 4, 12
	texts := strings.Split(text, separator)
	if len(texts) < columns+leases || (len(texts)-columns-leases)%2 != 0 {
		return v, fmt.Errorf("%w: %d columns are not a valid shard", lease.ErrUnavailable, len(texts))
	}
	var name, doc string
	var rev int64
	if err := textRow(texts[:columns]).Scan(&name, &rev, &doc, &v.Lock); err != nil {
		return v, err
	}
	if rev != 0 {
		if err := json.Unmarshal([]byte(doc), &v.Row); err != nil {
			return v, fmt.Errorf("%w: the row of shard %q cannot be read: %w", lease.ErrUnavailable, name, err)
		}
	}
	v.Row.Name, v.Row.Rev = name, rev
	if v.Lease, v.Now, err = leaseOf(name, texts[columns:columns+leases]); err != nil {
		return v, err
	}
	for pair := range slices.Chunk(texts[columns+leases:], 2) {
		var n shard.Record
		var text string
		var updated int64
		if err := textRow(pair).Scan(&text, &updated); err != nil {
			return v, err
		}
		if err := json.Unmarshal([]byte(text), &n); err != nil {
			return v, fmt.Errorf("%w: a record of shard %q cannot be read: %w", lease.ErrUnavailable, name, err)
		}
		n.Updated, n.Age = updated, shard.AgeAt(v.Now, time.UnixMicro(updated), n.Timeout)
		v.Nodes = append(v.Nodes, n)
	}
	slices.SortFunc(v.Nodes, func(a, b shard.Record) int { return cmp.Compare(a.ID, b.ID) })
	return v, nil
}

// leaseOf is the lease that shard_show returned, and the clock.
func leaseOf(name string, texts textRow) (l lease.Lease, now time.Time, err error) {
	var words [6]string
	if err := json.Unmarshal([]byte(texts[0]), &words); err != nil {
		return l, now, fmt.Errorf("%w: the lease of shard %q cannot be read: %w", lease.ErrUnavailable, name, err)
	}
	// In the order of the type shown_lease.
	t := texts[1:]
	shown := textRow{
		shard.Space, name, t[0], words[0], words[1], words[2], words[3], t[1], t[2], t[3], t[4], t[5], t[6],
		words[4], t[7], t[8], words[5], "0", t[9], t[10], // there is one primary: no number of places was said
	}
	l, err = scanLeaseAt(shown, &now)
	return l, now, err
}

// textRow is a row whose columns came as texts, with times in microseconds.
type textRow []string

// Scan implements [pgx.Row].
func (r textRow) Scan(dest ...any) error {
	if len(dest) != len(r) {
		return fmt.Errorf("%w: %d columns for %d", lease.ErrUnavailable, len(r), len(dest))
	}
	for i, text := range r {
		var err error
		switch to := dest[i].(type) {
		case *string:
			*to = text
		case *bool:
			*to, err = strconv.ParseBool(text)
		case *int64:
			*to, err = strconv.ParseInt(text, 10, 64)
		case *int:
			*to, err = strconv.Atoi(text)
		case *time.Time:
			var us int64
			us, err = strconv.ParseInt(text, 10, 64)
			*to = time.UnixMicro(us).UTC()
		default:
			err = fmt.Errorf("no column can be read into a %T", to)
		}
		if err != nil {
			return fmt.Errorf("%w: column %d: %w", lease.ErrUnavailable, i+1, err)
		}
	}
	return nil
}
