package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// plainCommands are the queues of a store without scripts: "<NODE_ID>_queue" is pushed
// to with LPUSH and taken from with BRPOP. A command lives as long as a key of its own.
type plainCommands struct{ s *plain }

// waitingCommand is an entry of a queue.
type waitingCommand struct {
	shard.Command
	// Life is the end of the key that lives as long as the command may wait.
	Life string `json:"life"`
}

// queueLooks are the queues of the nodes that are sent something, as they stand.
type queueLooks struct {
	s     *plain
	nodes []string
	lists map[string]*command
	empty map[string]bool
}

func (s *plain) queues(all []shard.Command) queueLooks {
	q := queueLooks{s: s, lists: map[string]*command{}, empty: map[string]bool{}}
	for _, c := range all {
		if q.lists[c.Node] == nil {
			q.nodes = append(q.nodes, c.Node)
			q.lists[c.Node] = ask("LRANGE", s.nodeQueueKey(c.Node), "0", "-1")
		}
	}
	return q
}

func (q queueLooks) keys() (out []string) {
	for _, n := range q.nodes {
		out = append(out, q.s.nodeQueueKey(n))
	}
	return out
}

func (q queueLooks) reads() (out []*command) {
	for _, n := range q.nodes {
		out = append(out, q.lists[n])
	}
	return out
}

// emptied: the queue is deleted before anything is sent.
func (q queueLooks) emptied(node string) { q.empty[node] = true }

func (s *plain) lifeKey(node, life string) string { return s.nodeQueueKey(node) + ":" + life }

// send queues the commands, but for those that wait already, and cuts off what has
// expired or is too much.
func (q queueLooks) send(t *tx, all []shard.Command) error {
	for _, node := range q.nodes {
		waits, err := q.waiting(t, node)
		if err != nil {
			return err
		}
		for _, c := range all {
			if c.Node != node || slices.Contains(waits, c.ID) {
				continue
			}
			waits = append(waits, c.ID)
			w := waitingCommand{Command: c, Life: lease.NewID()}
			t.do("LPUSH", q.s.nodeQueueKey(node), document(w))
			t.do("SET", q.s.lifeKey(node, w.Life), "1", "EX", seconds(c.Within))
		}
		if len(waits) > shard.MaxQueue {
			t.do("LTRIM", q.s.nodeQueueKey(node), "0", strconv.Itoa(shard.MaxQueue-1))
		}
	}
	return nil
}

// waiting are the ids that wait in a queue; what has expired is queued to be
// deleted.
func (q queueLooks) waiting(t *tx, node string) (ids []string, err error) {
	texts := q.lists[node].texts()
	if q.empty[node] || len(texts) == 0 {
		return nil, nil
	}
	alive := ask("MGET")
	entries := make([]waitingCommand, len(texts))
	for i, text := range texts {
		if err := json.Unmarshal([]byte(text), &entries[i]); err != nil {
			return nil, foreign(q.s.nodeQueueKey(node), err)
		}
		alive.args = append(alive.args, q.s.lifeKey(node, entries[i].Life))
	}
	if err := t.read(alive); err != nil {
		return nil, err
	}
	for i, mark := range alive.texts() {
		if mark != "" {
			ids = append(ids, entries[i].ID)
		} else {
			t.do("LREM", q.s.nodeQueueKey(node), "0", texts[i])
		}
	}
	return ids, nil
}

// Send implements [shard.Commands].
func (c plainCommands) Send(ctx context.Context, all ...shard.Command) error {
	for _, one := range all {
		if err := one.Validate(); err != nil {
			return err
		}
	}
	if len(all) == 0 {
		return nil
	}
	return c.s.transact(ctx, c.s.rest, writes, func(t *tx) error {
		q := c.s.queues(all)
		if err := t.watch(q.keys(), q.reads()...); err != nil {
			return err
		}
		return q.send(t, all)
	})
}

// Next implements [shard.Commands]. It has a connection of its own while it waits.
func (c plainCommands) Next(ctx context.Context, node string, wait time.Duration) (shard.Command, error) {
	if err := shard.ValidateNodeID(node); err != nil {
		return shard.Command{}, err
	}
	wait = min(max(wait, 0), shard.MaxWait)
	call, cancel := context.WithTimeout(ctx, wait+quiet)
	defer cancel()
	var got *shard.Command
	asked := false
	end := time.Now().Add(wait)
	err := c.s.blocks.use(call, func(w *connection) error {
		for {
			asked = true
			text, err := c.pop(w, node, time.Until(end))
			if err != nil || text == "" {
				asked = err != nil && w.broken != nil
				return err
			}
			if got, err = c.alive(w, node, text); got != nil || err != nil {
				return err
			}
		}
	})
	switch {
	case err != nil:
		return shard.Command{}, failure(err, asked)
	case got == nil:
		return shard.Command{}, fmt.Errorf("%w for node %.8s", shard.ErrNoCommand, node)
	}
	return *got, nil
}

// pop takes the oldest entry, "" if none came. To wait for 0 would be for ever.
func (c plainCommands) pop(w *connection, node string, wait time.Duration) (string, error) {
	wait = max(wait, 2*time.Millisecond)
	popped := ask("BRPOP", c.s.nodeQueueKey(node), strconv.FormatFloat(wait.Seconds(), 'f', 3, 64))
	if err := (&tx{w: w}).read(popped); err != nil {
		return "", err
	}
	pair := popped.texts()
	if popped.nothing() || len(pair) != 2 {
		return "", nil
	}
	return pair[1], nil
}

// alive reads an entry, and is nil if it has expired.
func (c plainCommands) alive(w *connection, node, text string) (*shard.Command, error) {
	var e waitingCommand
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		c.s.log.Warn("a command cannot be read: something else writes into the queue", "node", node, "err", err)
		return nil, nil
	}
	life := ask("GETDEL", c.s.lifeKey(node, e.Life))
	if err := (&tx{w: w}).read(life); err != nil {
		return nil, errors.Join(err, errors.New("a command was taken and not read"))
	}
	if life.nothing() {
		return nil, nil
	}
	return &e.Command, nil
}
