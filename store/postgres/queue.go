package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/dispatch"
)

// Queue is what delivers messages.
func (s *Store) Queue() dispatch.Queue { return dispatch.Validated(queue{s}) }

type queue struct{ *Store }

// keyExchange is a key of an exchange, with its result and its claim if it has them.
type keyExchange struct {
	key    string
	result *dispatch.Result
	begin  *int64 // the claim's term
}

// mergeByKey lists the keys of an exchange in the order in which their rows are locked.
func mergeByKey(t dispatch.Exchange) []keyExchange {
	out := make([]keyExchange, 0, len(t.Results)+len(t.Begin))
	at := make(map[string]int, cap(out))
	for i := range t.Results {
		at[t.Results[i].Key] = len(out)
		out = append(out, keyExchange{key: t.Results[i].Key, result: &t.Results[i]})
	}
	for i := range t.Begin {
		b := &t.Begin[i]
		if n, ok := at[b.Key]; ok {
			out[n].begin = &b.Term
			continue
		}
		out = append(out, keyExchange{key: b.Key, begin: &b.Term})
	}
	slices.SortFunc(out, func(a, b keyExchange) int { return cmp.Compare(a.key, b.key) })
	return out
}

const exchangeSQL = `SELECT key, accepted, holding, work, seq, term, attempt, id, content_type, age, code, detail, link, payload, headers, retried, undecided
	FROM {{rules}}.exchange($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`

// exchangeArgs takes the keys apart into columns.
func exchangeArgs(t dispatch.Exchange, keys []keyExchange) []any {
	n := len(keys)
	names, begins, terms, seqs := make([]string, n), make([]*int64, n), make([]*int64, n), make([]int64, n)
	states, afters, waits := make([]string, n), make([]string, n), make([]int64, n)
	attempts, codes := make([]int32, n), make([]int32, n)
	details, links := make([]string, n), make([]string, n)
	for i, k := range keys {
		names[i], begins[i] = k.key, k.begin
		if r := k.result; r != nil {
			terms[i], seqs[i], states[i], afters[i], waits[i] = &r.Term, r.Seq, string(r.State), string(r.After), r.Wait.Microseconds()
			attempts[i], codes[i], details[i], links[i] = int32(r.Attempt), int32(r.Code), cleanDetail(r.Detail), cleanDetail(r.Link)
		}
	}
	return []any{t.Queue, t.Session, t.Restart, t.Window.Microseconds(), names, begins, terms, seqs,
		states, afters, waits, attempts, codes, details, links, lockTimeout{}}
}

// Exchange implements [dispatch.Queue].
func (q queue) Exchange(ctx context.Context, t dispatch.Exchange) (dispatch.ExchangeResult, error) {
	out := dispatch.ExchangeResult{Receipts: make([]dispatch.Receipt, len(t.Results)), Holdings: make(map[string]dispatch.Holding)}
	keys := mergeByKey(t)
	accepted := make(map[string]bool, len(keys))
	sql := q.sql(exchangeSQL)
	err := q.atReadCommitted(ctx, func(ctx context.Context, r runner) error {
		clear(accepted)
		clear(out.Holdings)
		out.Begun = make([]dispatch.Assignment, 0, len(t.Begin))
		found, err := r.Query(ctx, sql, withLockTimeout(ctx, exchangeArgs(t, keys))...)
		if err != nil {
			return err
		}
		defer found.Close()
		for found.Next() {
			if err := scanExchange(found, t.Queue, &out, accepted); err != nil {
				return err
			}
		}
		return found.Err()
	})
	if err != nil {
		return dispatch.ExchangeResult{}, fmt.Errorf("exchanging %d keys of %s: %w", len(keys), t.Queue, err)
	}
	for i, r := range t.Results {
		out.Receipts[i] = dispatch.Receipt{Key: r.Key, Seq: r.Seq, Accepted: accepted[r.Key]}
	}
	return out, nil
}

// scanExchange reads one row of an exchange's answer.
func scanExchange(r pgx.Rows, queue string, out *dispatch.ExchangeResult, accepted map[string]bool) error {
	var key, holding string
	var ok *bool
	var work, id, contentType, detail, link, headers *string
	var seq, term, age, undecided *int64
	var attempt, code *int32
	var payload []byte
	var retried bool
	if err := r.Scan(&key, &ok, &holding, &work, &seq, &term, &attempt, &id, &contentType, &age, &code, &detail, &link, &payload, &headers, &retried, &undecided); err != nil {
		return err
	}
	out.Holdings[key] = dispatch.Holding(holding)
	if ok != nil {
		accepted[key] = *ok
	}
	if work == nil {
		return nil
	}
	a := dispatch.Assignment{
		Message: dispatch.Message{Queue: queue, Key: key, ID: *id, ContentType: *contentType, Payload: payload, Headers: decodeHeaders(headers)},
		Work:    dispatch.Work(*work), Seq: *seq, Term: *term, Attempt: int(*attempt), Age: time.Duration(*age) * time.Microsecond, Code: int(*code), Detail: *detail, Link: *link, Retried: retried,
	}
	if a.Work == dispatch.Poll && undecided != nil {
		a.Undecided = time.Duration(*undecided) * time.Microsecond
	}
	out.Begun = append(out.Begun, a)
	return nil
}

func decodeHeaders(text *string) map[string]string {
	if text == nil {
		return nil
	}
	return dispatch.DecodeHeaders(*text)
}

// recordColumns are what operators are shown of a message b and the claim c of its key; scanRecord reads them. The
// other place that reads a message is the function exchange, for its delivery: exchangeSQL and scanExchange above.
const recordColumns = `b.queue, b.key, b.id, b.content_type, octet_length(b.payload), b.seq,
	{{rules}}.shown_state(b.state, b.hold, b.term, c.term, c.session), b.term, b.attempts, b.code, b.detail, b.link,
	b.enqueued, b.begun, b.ended, NOT b.over AND b.state <> 'queued' AND c.blocked IS NOT NULL, NULL::timestamptz`

func scanRecord(r pgx.Row, more ...any) (out dispatch.Record, err error) {
	var begun, ended, notBefore *time.Time
	var blocks *bool
	err = r.Scan(append([]any{&out.Queue, &out.Key, &out.ID, &out.ContentType, &out.Size, &out.Seq,
		&out.State, &out.Term, &out.Attempts, &out.Code, &out.Detail, &out.Link, &out.Enqueued, &begun, &ended, &blocks, &notBefore}, more...)...)
	out.Enqueued, out.Begun, out.Ended, out.NotBefore = out.Enqueued.UTC(), utc(begun), utc(ended), utc(notBefore)
	out.Blocks = blocks != nil && *blocks
	return out, err
}
