package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

// noQueue is how the trigger of the view understudy_enqueue speaks of a queue
// that was not made.
const noQueue = "understudy: no such queue"

const (
	enqueueOne = `
INSERT INTO understudy_enqueue (queue, key, id, payload, content_type, enqueued_us, headers, not_before_us)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)`

	// rowsWritten counts the rows that this connection has written since it was
	// opened, also those that triggers wrote. It reads no table, so that a
	// transaction that starts with it has read nothing yet.
	rowsWritten = "SELECT total_changes()"
)

// Enqueue stores messages in the caller's own transaction: they exist when it
// commits, in the order of commits, and never otherwise. It tells for each
// whether it is new: false when the queue has a message of that id.
//
// The transaction is one on the store's file, or on a file of the user's to
// which the store's is attached, opened with a driver as for [Guard]. Enqueue takes the
// store's write lock, which holds up everyone until the commit: call it last,
// and commit at once. Two files that are committed together may be parted by a
// crash in between: where that matters, keep the user's tables in the store's
// file.
//
// A queue that was not made is [dispatch.ErrNoQueue], and what [dispatch.Message]
// does not allow is [lease.ErrInvalid]; the transaction can continue then, with some of
// the messages stored.
func Enqueue(ctx context.Context, tx *sql.Tx, messages ...dispatch.Message) (added []bool, err error) {
	messages, err = withDefaults(messages)
	if err != nil {
		return nil, err
	}
	return enqueue(messages, time.Now().UnixMicro(),
		func(args ...any) error { _, err := tx.ExecContext(ctx, enqueueOne, args...); return err },
		func(n *int64) error { return tx.QueryRowContext(ctx, rowsWritten).Scan(n) })
}

// withDefaults returns the messages with their defaults, if all are as they must be.
func withDefaults(messages []dispatch.Message) ([]dispatch.Message, error) {
	out := make([]dispatch.Message, len(messages))
	for i, b := range messages {
		out[i] = b.WithDefaults()
		if err := out[i].Validate(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func enqueue(messages []dispatch.Message, now int64, insert func(...any) error, written func(*int64) error) (added []bool, err error) {
	added = make([]bool, len(messages))
	var before, after int64
	if err := written(&before); err != nil {
		return nil, fmt.Errorf("sqlite: enqueueing: %w", err)
	}
	for i, b := range messages {
		payload := b.Payload
		if payload == nil {
			payload = []byte{}
		}
		var notBefore any
		if !b.NotBefore.IsZero() {
			notBefore = max(0, b.NotBefore.UnixMicro())
		}
		err := insert(b.Queue, b.Key, b.ID, payload, b.ContentType, now, dispatch.EncodeHeaders(b.Headers), notBefore)
		if err == nil {
			err = written(&after)
		}
		switch {
		case err != nil && strings.Contains(err.Error(), noQueue):
			return nil, fmt.Errorf("queue %q: %w", b.Queue, dispatch.ErrNoQueue)
		case err != nil:
			return nil, fmt.Errorf("sqlite: enqueueing: %w", err)
		}
		added[i] = after > before
		before = after
	}
	return added, nil
}

// Add implements [dispatch.Admin].
func (s queueAdmin) Add(ctx context.Context, messages []dispatch.Message) (added []bool, err error) {
	if len(messages) > claim.MaxKeys {
		return nil, fmt.Errorf("sqlite: %w: %d messages at once; at most %d are allowed", lease.ErrInvalid, len(messages), claim.MaxKeys)
	}
	messages, err = withDefaults(messages)
	if err != nil {
		return nil, err
	}
	err = s.write(ctx, "enqueueing", func(t *txn) error {
		added, err = enqueue(messages, t.wall,
			func(args ...any) error { _, err := t.exec(enqueueOne, args...); return err },
			func(n *int64) error { return t.one(rowsWritten, nil, n) })
		return err
	})
	if err != nil {
		return nil, err
	}
	return added, nil
}
