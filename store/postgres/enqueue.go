package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

// NoQueue is the SQLSTATE of a message that was enqueued to a queue that does not exist; raised by enqueue
// itself or at COMMIT.
const NoQueue = "US002"

const (
	enqueueSQL = "SELECT {{schema}}.enqueue_all($1, $2, $3, $4, $5, $6::text[]::jsonb[])"
	// enqueueOneSQL is for one message, and costs a quarter less.
	enqueueOneSQL = "SELECT {{schema}}.enqueue($1, $2, $3, $4, $5) IS NOT NULL"
	// insertOneSQL does the same without the function, whose call costs a tenth of the transaction. It says nothing
	// about a message that it does not insert.
	insertOneSQL = `INSERT INTO {{schema}}.message (queue, key, payload, id, content_type)
		SELECT q.name, $2, $3, $4, $5 FROM {{schema}}.queue q WHERE q.name = $1 ON CONFLICT DO NOTHING`
	mayInsertSQL = "SELECT coalesce(has_table_privilege(to_regclass('{{schema}}.message'), 'INSERT'), false)"
	// enqueueAtSQL is for messages some of which are to be scheduled, one after the other.
	enqueueAtSQL = `SELECT array_agg(added ORDER BY i) FROM (
		SELECT {{schema}}.enqueue_at(queue, key, payload, not_before, id, content_type, headers::jsonb) IS NOT NULL AS added, i
		FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::text[], $7::timestamptz[]) WITH ORDINALITY
			m (queue, key, id, content_type, payload, headers, not_before, i) OFFSET 0) one`
)

// Enqueue puts messages at the ends of their keys when the caller's transaction
// commits, and returns for each whether it is new: false when its queue has a message
// of that id. The transaction may be of any pool and isolation level on the
// store's database. An error that wraps [dispatch.ErrNoQueue] or lease.ErrInvalid
// says what is wrong with the messages, and what the server has to say comes as it
// is; as any failed statement, it leaves the transaction good for nothing but
// ROLLBACK, save for what is refused as lease.ErrInvalid before it is sent.
//
// Whether a message is accepted is decided by the functions in entry/enqueue.sql, and for INSERT and COPY by the trigger; order at
// COMMIT, by number_batches in entry/enqueue.sql and append_to_key in functions/enqueue.sql, which locks the end of a
// key from then until the commit is over. In SQL, from any language:
//
//	SELECT understudy.enqueue('orders', 'customer-7', payload);
//	SELECT understudy.enqueue(queue => 'orders', key => 'customer-7', payload => …, id => …, content_type => …);
//
// returns the id, a random one if none is given, or null if the queue has a message of this id
// already. enqueue_at has one more argument after the payload, before when it is not to be sent: until then the message is in
// understudy.scheduled, and costs dispatchers nothing. With six arguments, all of them given, the last is a jsonb object of headers. INSERT and COPY
// into understudy.batch (queue, key, id, payload, content_type) work too; there a duplicate is an error, and what is
// not valid is refused at COMMIT.
// Headers only go through the functions, which check them. A queue that does not exist is refused with SQLSTATE US002, by the
// function at once and otherwise at COMMIT.
//
// No key is locked before COMMIT (a second message of the same id in a queue waits for the first). Then a deferred trigger numbers all messages of the
// transaction: it locks the tails of their keys, in the order of the keys, so that others who enqueue
// to one of these keys wait for the end of this commit, and come after it. A key that was idle becomes
// ready, and one dispatcher that sleeps is notified; a busy one never is.
//
// At REPEATABLE READ and above a commit may fail with SQLSTATE 40001 when others have enqueued to
// the same key since the transaction started: try again; nothing is lost or out of order. SET
// CONSTRAINTS ALL IMMEDIATE, and a commit that waits for a standby, make others wait longer, as for
// [Store.RequireTerm]; the former also gives up the order of the keys, and may deadlock. The server may
// refuse PREPARE TRANSACTION because of the notification.
func Enqueue(ctx context.Context, tx pgx.Tx, messages ...dispatch.Message) (added []bool, err error) {
	return EnqueueIn(ctx, tx, DefaultSchema, messages...)
}

// EnqueueIn is [Enqueue] for a store in another schema.
func EnqueueIn(ctx context.Context, tx pgx.Tx, schema string, messages ...dispatch.Message) (added []bool, err error) {
	sql, args, err := enqueueCall(messages)
	if err == nil && !validSchema(schema) {
		err = fmt.Errorf("%w: schema %q", lease.ErrInvalid, schema)
	}
	if err == nil && len(messages) > 0 {
		s := Store{names: renderer(schema, ruleSet{})} // it calls entry points, and needs no set of its own
		if b := messages[0].WithDefaults(); len(messages) == 1 && len(b.Headers) == 0 && b.NotBefore.IsZero() {
			added = make([]bool, 1)
			added[0], err = s.enqueueOne(ctx, tx, b)
		} else {
			err = tx.QueryRow(ctx, s.sql(sql), args...).Scan(&added)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("enqueueing: %w", asRefusal(err))
	}
	return added, nil
}

// enqueueOne enqueues a valid message. The function is called where the schema is of a version before the view message, or
// hides it from this role, and for what the queue has already or where there is no queue.
func (s *Store) enqueueOne(ctx context.Context, tx pgx.Tx, b dispatch.Message) (added bool, err error) {
	args := []any{b.Queue, b.Key, payload(b), b.ID, b.ContentType}
	known := tx.Conn().PgConn().CustomData() // a look at the catalogue for each connection, not for each message
	sql := s.sql(insertOneSQL)
	may, ok := known[sql].(bool)
	if !ok {
		if err := tx.QueryRow(ctx, s.sql(mayInsertSQL)).Scan(&may); err != nil {
			return false, err
		}
		known[sql] = may
	}
	if may {
		done, err := tx.Exec(ctx, sql, args...)
		if code := pgCode(err); code == codeNoRights || code == codeNoTable {
			known[sql] = false // revoked or dropped meanwhile: this transaction has failed, the next ones call the function
		}
		if err != nil || done.RowsAffected() == 1 {
			return err == nil, err
		}
	}
	err = tx.QueryRow(ctx, s.sql(enqueueOneSQL), args...).Scan(&added)
	return added, err
}

// enqueueCall checks messages and takes them apart, for the statement that enqueues them.
func enqueueCall(messages []dispatch.Message) (sql string, args []any, err error) {
	n, scheduled := len(messages), false
	queues, keys, ids, types, payloads := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([][]byte, n)
	headers, notBefore := make([]*string, n), make([]*time.Time, n)
	for i, b := range messages {
		b = b.WithDefaults()
		if err := b.Validate(); err != nil {
			return "", nil, err
		}
		queues[i], keys[i], ids[i], types[i], payloads[i] = b.Queue, b.Key, b.ID, b.ContentType, payload(b)
		if text := dispatch.EncodeHeaders(b.Headers); text != "" {
			headers[i] = &text
		}
		if !b.NotBefore.IsZero() {
			scheduled, notBefore[i] = true, &b.NotBefore
		}
	}
	sql, args = enqueueSQL, []any{queues, keys, ids, types, payloads, headers}
	if scheduled {
		sql, args = enqueueAtSQL, append(args, notBefore)
	}
	return sql, args, nil
}
