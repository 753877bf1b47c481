package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// Commands are the queues that the store keeps for package shard. Whoever waits is woken
// by a notification; all who wait in a process share one connection for that. Behind a pooler
// they look again and again, up to twice a second.
func (s *Store) Commands() shard.Commands { return shard.ValidatedCommands(commands{s}) }

// commands is the [shard.Commands] of a Store.
type commands struct{ db *Store }

// commandColumns are commands as the database takes them.
type commandColumns struct {
	nodes, ids, docs []string
	within           []int64
}

func commandColumnsOf(all []shard.Command) (q commandColumns, err error) {
	q = commandColumns{[]string{}, []string{}, []string{}, []int64{}}
	for _, c := range all {
		doc, err := json.Marshal(c)
		if err != nil {
			return q, fmt.Errorf("command %q: %w", c.ID, err)
		}
		q.nodes, q.ids, q.docs = append(q.nodes, c.Node), append(q.ids, c.ID), append(q.docs, string(doc))
		q.within = append(q.within, c.Within.Microseconds())
	}
	return q, nil
}

// Send implements [shard.Commands].
func (c commands) Send(ctx context.Context, all ...shard.Command) error {
	q, err := commandColumnsOf(all)
	if err != nil {
		return err
	}
	err = c.db.callReadCommitted(ctx, "SELECT {{rules}}.shard_send_commands($1, $2, $3, $4, $5, $6)", q.nodes, q.ids, q.within, q.docs, int64(shard.MaxQueue), lockTimeout{})
	return during(err, "sending commands")
}

// How often a queue is polled where no signal comes: at first soon again, for commands come
// one after another.
const (
	firstPoll   = 20 * time.Millisecond
	slowestPoll = 500 * time.Millisecond
)

// Next implements [shard.Commands].
func (c commands) Next(ctx context.Context, node string, wait time.Duration) (shard.Command, error) {
	over := time.NewTimer(wait)
	defer over.Stop()
	var signal <-chan struct{}
	if wait > 0 {
		var done func()
		signal, done = c.db.listener.listenFor(node)
		defer done()
	}
	polls := backoff.Backoff{First: firstPoll, Most: slowestPoll}
	for {
		got, err := c.takeOldest(ctx, node)
		if !errors.Is(err, shard.ErrNoCommand) || wait == 0 {
			return got, err
		}
		again := shard.MaxWait // a signal will come
		if !c.db.listener.isListening() {
			again = polls.Next()
		}
		next := time.NewTimer(again)
		select {
		case <-signal:
		case <-next.C:
		case <-over.C:
			next.Stop()
			if c.db.listener.isListening() { // a signal would have come; the next call looks anyway
				return shard.Command{}, fmt.Errorf("%w for node %.8s", shard.ErrNoCommand, node)
			}
			wait = 0 // one last poll
		case <-ctx.Done():
			next.Stop()
			return shard.Command{}, fmt.Errorf("waiting for a command to node %.8s: %w: %w", node, lease.ErrUnavailable, context.Cause(ctx))
		case <-c.db.pool.closing.Done():
			next.Stop()
			return shard.Command{}, fmt.Errorf("waiting for a command to node %.8s: %w: %w", node, lease.ErrUnavailable, errClosed)
		}
		next.Stop()
	}
}

// takeOldest takes the oldest command out of a queue, or returns [shard.ErrNoCommand].
func (c commands) takeOldest(ctx context.Context, node string) (got shard.Command, err error) {
	var doc *string
	err = c.db.rowReadCommitted(ctx, "SELECT {{rules}}.shard_next_command($1, $2)", func(row pgx.Row) error { return row.Scan(&doc) }, node, lockTimeout{})
	if err != nil {
		return got, fmt.Errorf("taking a command of node %.8s: %w", node, err)
	}
	if doc == nil {
		return got, fmt.Errorf("%w for node %.8s", shard.ErrNoCommand, node)
	}
	if err := json.Unmarshal([]byte(*doc), &got); err != nil {
		return got, fmt.Errorf("%w: a command of node %.8s cannot be read: %w", lease.ErrUnavailable, node, err)
	}
	return got, nil
}
