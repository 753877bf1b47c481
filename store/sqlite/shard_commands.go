package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// Commands are the queues that the store keeps for package shard.
func (s *Store) Commands() shard.Commands { return shard.ValidatedCommands(commands{s}) }

// commands is the [shard.Commands] of a Store.
type commands struct{ s *Store }

const (
	forgetCommands = "DELETE FROM understudy_shard_command WHERE node = ?1 AND (boot <> ?2 OR expires_us <= ?3)"

	putCommand = `
INSERT INTO understudy_shard_command (node, id, boot, expires_us, doc) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (node, id) DO NOTHING`

	cutCommands = `
DELETE FROM understudy_shard_command WHERE node = ?1
AND n <= (SELECT n FROM understudy_shard_command WHERE node = ?1 ORDER BY n DESC LIMIT 1 OFFSET ?2)`

	hasCommand = `
SELECT EXISTS (SELECT 1 FROM understudy_shard_command WHERE node = ?1 AND boot = ?2 AND expires_us > understudy_boot_us())`

	takeCommand = `
DELETE FROM understudy_shard_command
WHERE n = (SELECT n FROM understudy_shard_command WHERE node = ?1 ORDER BY n LIMIT 1) RETURNING doc`
)

// Send implements [shard.Commands].
func (c commands) Send(ctx context.Context, all ...shard.Command) error {
	return c.s.write(ctx, "sending commands", func(t *txn) error { return t.send(all) })
}

func (t *txn) send(all []shard.Command) error {
	for _, c := range all {
		doc, err := json.Marshal(c)
		if err != nil {
			return err
		}
		if _, err := t.exec(forgetCommands, c.Node, t.boot, t.now); err != nil {
			return err
		}
		if _, err := t.exec(putCommand, c.Node, c.ID, t.boot, t.now+c.Within.Microseconds(), string(doc)); err != nil {
			return err
		}
		if _, err := t.exec(cutCommands, c.Node, shard.MaxQueue); err != nil {
			return err
		}
	}
	return nil
}

// Next implements [shard.Commands]. It reads until there is something to take: an idle
// agent writes nothing.
func (c commands) Next(ctx context.Context, node string, wait time.Duration) (shard.Command, error) {
	const op = "waiting for a command"
	timer := time.NewTimer(wait)
	defer timer.Stop()
	tick := time.NewTicker(c.s.poll)
	defer tick.Stop()
	inner, cancel := c.s.untilClosed(ctx)
	defer cancel()
	for last := false; ; {
		var there bool
		err := c.s.readOne(inner, op, hasCommand, []any{node, c.s.clocks.boot}, &there)
		if err != nil {
			return shard.Command{}, err
		}
		if there {
			if got, err := c.take(inner, node); !errors.Is(err, shard.ErrNoCommand) {
				return got, err
			}
		}
		if last {
			return shard.Command{}, none(node)
		}
		select {
		case <-tick.C:
		case <-timer.C:
			last = true
		case <-inner.Done():
			return shard.Command{}, failed(op, context.Cause(inner))
		}
	}
}

func none(node string) error { return fmt.Errorf("%w for node %.8s", shard.ErrNoCommand, node) }

// take takes the oldest command that has not expired, if another has not taken it.
func (c commands) take(ctx context.Context, node string) (got shard.Command, err error) {
	err = c.s.write(ctx, "taking a command", func(t *txn) error {
		if _, err := t.exec(forgetCommands, node, t.boot, t.now); err != nil {
			return err
		}
		var doc string
		err := t.one(takeCommand, []any{node}, &doc)
		if errors.Is(err, sql.ErrNoRows) {
			return none(node)
		}
		if err != nil {
			return err
		}
		got = shard.Command{}
		return json.Unmarshal([]byte(doc), &got)
	})
	if err != nil {
		return shard.Command{}, err
	}
	return got, nil
}
