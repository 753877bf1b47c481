package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/history"
)

const insertEvent = `INSERT INTO {{schema}}.event (at, part, subject, from_label, to_label, term, reason, duration_ns)
	VALUES ({{schema}}.clock(), $1, $2, $3, $4, $5, $6, $7)`

// Append implements [history.Log].
func (s *Store) Append(ctx context.Context, e history.Event) error {
	_, err := s.exec(ctx, insertEvent, e.Part, e.Subject, e.From, e.To, e.Term, e.Reason, e.Duration.Nanoseconds())
	return during(err, "recording an event")
}

// Read implements [history.Log]. Events of statements that ran at the same time
// may become visible in another order than that of their ids; history.Feed
// allows for it.
func (s *Store) Read(ctx context.Context, q history.Query) ([]history.Event, error) {
	var where []string
	var args []any
	add := func(condition string, value any) {
		args = append(args, value)
		where = append(where, fmt.Sprintf("%s $%d", condition, len(args)))
	}
	add("id >", q.After)
	if q.Before != 0 {
		add("id <", q.Before)
	}
	if q.Part != "" {
		add("part =", q.Part)
	}
	if q.Subject != "" {
		add("subject =", q.Subject)
	}
	args = append(args, int64(q.PageSize()))
	order := "id"
	if q.Newest {
		order = "id DESC"
	}
	out, err := rows(ctx, s, fmt.Sprintf(`SELECT id, at, part, subject, from_label, to_label, term, reason, duration_ns
		FROM {{schema}}.event WHERE %s ORDER BY %s LIMIT $%d`, strings.Join(where, " AND "), order, len(args)), scanEvent, args...)
	if err != nil {
		return nil, fmt.Errorf("reading the history: %w", err)
	}
	if q.Newest {
		slices.Reverse(out)
	}
	return out, nil
}

func scanEvent(r pgx.CollectableRow) (history.Event, error) {
	var e history.Event
	var duration int64
	err := r.Scan(&e.ID, &e.At, &e.Part, &e.Subject, &e.From, &e.To, &e.Term, &e.Reason, &duration)
	e.At, e.Duration = e.At.UTC(), time.Duration(duration)
	return e, err
}

const (
	newestToGo = "SELECT coalesce((SELECT id FROM {{schema}}.event ORDER BY id DESC OFFSET $1 LIMIT 1), 0)"

	// least leaves out the NULL of a subquery without a row: there are fewer. The range begins behind what was deleted before: a
	// transaction that is still open would have the index searched through all of it again.
	trimSome = `WITH gone AS (
		DELETE FROM {{schema}}.event
		WHERE id > $1 AND id <= least($2, (SELECT id FROM {{schema}}.event WHERE id > $1 ORDER BY id OFFSET 9999 LIMIT 1)) RETURNING id)
		SELECT count(*), coalesce(max(id), 0) FROM gone`
)

// Trim implements [history.Log]. It deletes in portions: where nothing has trimmed for long, one statement for all could never
// end in its caller's time.
func (s *Store) Trim(ctx context.Context, keep int) (deleted int64, err error) {
	var last, at int64
	err = s.queryRow(ctx, ordinary, newestToGo, func(r pgx.Row) error { return r.Scan(&last) }, int64(max(0, keep)))
	for err == nil && at < last {
		var n int64
		err = s.queryRow(ctx, ordinary, trimSome, func(r pgx.Row) error { return r.Scan(&n, &at) }, at, last)
		if err != nil || n == 0 {
			break
		}
		deleted += n
	}
	return deleted, during(err, "trimming the history")
}
