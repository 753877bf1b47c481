package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

const (
	// waitLines is how many calls of Next can wait at a time.
	waitLines = 8
	// late is how long after its time an answer may come.
	late = 2 * time.Second
)

// Commands are the queues that the store keeps for package shard. Up to eight calls of
// Next wait at a time, each on a connection of its own; more wait for one of them.
func (s *Store) Commands() shard.Commands { return shard.ValidatedCommands(commands{s}) }

// commands is the [shard.Commands] of a Store.
type commands struct{ s *Store }

// Send implements [shard.Commands].
func (c commands) Send(ctx context.Context, all ...shard.Command) error {
	args, err := commandArgs(all)
	if err != nil {
		return err
	}
	if _, err := c.s.run(ctx, c.s.rest, writes, "shard_send", []string{c.s.nodeQueueKey(all[0].Node)}, args...); err != nil {
		return fmt.Errorf("sending commands: %w", err)
	}
	return nil
}

func commandArgs(all []shard.Command) ([]any, error) {
	var args []any
	for _, one := range all {
		text, err := commandText(one)
		if err != nil {
			return nil, err
		}
		args = append(args, one.Node, text, one.Within.Microseconds())
	}
	return args, nil
}

// Next implements [shard.Commands].
func (c commands) Next(ctx context.Context, node string, wait time.Duration) (shard.Command, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+late)
	defer cancel()
	for until := time.Now().Add(wait); ; {
		text, at, err := c.pop(ctx, c.s.nodeQueueKey(node), time.Until(until))
		if err != nil {
			return shard.Command{}, fmt.Errorf("waiting for a command to node %.8s: %w", node, err)
		}
		if text == "" {
			return shard.Command{}, fmt.Errorf("%w for node %.8s", shard.ErrNoCommand, node)
		}
		var got queuedCommand
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.Validate() != nil {
			c.s.log.Warn("an entry of a node's queue is not a valid command: something else writes under this prefix", "node", node)
			continue
		}
		if at < got.Expires {
			return got.Command, nil
		}
	}
}

// shortest is what is not worth waiting for, and BRPOP takes for ever when it is rounded
// to nothing.
const shortest = 2 * time.Millisecond

// pop takes the oldest entry of a queue and reads the clock after it.
func (c commands) pop(ctx context.Context, key string, wait time.Duration) (text string, at int64, err error) {
	sent := false
	err = c.s.waits.use(ctx, func(conn *connection) error {
		popped, clock := ask("RPOP", key), ask("TIME")
		if wait >= shortest {
			popped = ask("BRPOP", key, strconv.FormatFloat(wait.Seconds(), 'f', 3, 64))
		}
		sent = true
		if err := conn.exchange(popped, clock); err != nil {
			return err
		}
		switch v := popped.reply.(type) {
		case refusal:
			return v
		case string:
			text = v
		case []any:
			text, _ = v[len(v)-1].(string)
		}
		if r, ok := clock.reply.(refusal); ok {
			return r
		}
		now, err := serverTime(clock.reply)
		at = now.Add(c.s.skew()).UnixMicro()
		return err
	})
	if err != nil {
		return "", 0, failure(err, sent)
	}
	return text, at, nil
}
