package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/internal/resp"
	"github.com/understudy-ha/understudy/lease"
)

// quiet is how long a connection may say nothing before it is asked whether it
// lives, and then before it is given up.
const quiet = 2 * time.Second

// Watch implements [lease.Store]. It has a connection of its own.
func (s *Store) Watch(ctx context.Context, wake func(lease.Change)) error {
	return s.subscribe(ctx, func(n notification) { s.deliver(n, wake) }, s.channel)
}

// notification is what comes on a subscribed connection: a confirmed subscription has no payload.
type notification struct {
	subscribed       bool
	channel, payload string
}

// subscribe passes on what comes, confirmations of subscriptions included, until ctx ends
// or the connection is dead.
func (s *Store) subscribe(ctx context.Context, deliver func(notification), channels ...string) error {
	c, err := s.connect(ctx)
	if err != nil {
		return ended(ctx, failure(err, false))
	}
	defer c.conn.Close()
	// A read does not hear that ctx ended; the end of its connection it does.
	defer context.AfterFunc(ctx, func() { _ = c.conn.Close() })()
	if err := c.send(append([]string{"SUBSCRIBE"}, channels...)); err != nil {
		return ended(ctx, failure(err, false))
	}
	asked := false
	for {
		n, err := c.notification()
		var timeout net.Error
		switch {
		case err == nil:
			asked = false
			if n.channel != "" {
				deliver(n)
			}
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &timeout) && timeout.Timeout() && !asked:
			asked = true
			if err := c.send([]string{"PING"}); err != nil {
				return ended(ctx, failure(err, false))
			}
		default:
			return ended(ctx, failure(fmt.Errorf("the watch's connection is dead: %w", err), false))
		}
	}
}

// send writes one request, whose answer comes among the notifications.
func (w *connection) send(words []string) error {
	_ = w.conn.SetWriteDeadline(time.Now().Add(callTimeout))
	_, err := w.conn.Write(resp.AppendCommand(nil, words))
	return err
}

// notification waits for the next one, and for quiet at most until it starts. The answer to PING has no channel.
func (w *connection) notification() (n notification, err error) {
	_ = w.conn.SetReadDeadline(time.Now().Add(quiet))
	if _, err := w.in.Peek(1); err != nil {
		return n, err // nothing was consumed: the next read starts at a notification again
	}
	_ = w.conn.SetReadDeadline(time.Now().Add(callTimeout))
	value, err := w.read()
	if err != nil {
		return n, fmt.Errorf("%w: %s", errAnswer, err) // not a timeout to the caller: half of it was consumed
	}
	if r, ok := value.(refusal); ok {
		return n, r
	}
	fields, _ := value.([]any)
	if len(fields) != 3 {
		return n, nil
	}
	n.channel, _ = fields[1].(string)
	n.payload, _ = fields[2].(string)
	n.subscribed = fields[0] == "subscribe"
	return n, nil
}

func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// deliver passes a notification on. Before a confirmed subscription anything may have been missed.
func (s *Store) deliver(n notification, wake func(lease.Change)) {
	if n.subscribed {
		wake(lease.Change{})
		return
	}
	change, err := decode(n.payload)
	if err != nil {
		s.log.Warn("a notification cannot be read: something else publishes under this prefix", "err", err)
	}
	wake(change)
}

// decode reads what record in rows.lua publishes: space, key, term, "free" or "",
// and successor. The term is text because cjson would round a large number.
func decode(payload string) (lease.Change, error) {
	var f [5]string
	if err := json.Unmarshal([]byte(payload), &f); err != nil {
		return lease.Change{}, err
	}
	term, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil {
		return lease.Change{}, err
	}
	return lease.Change{Lease: lease.ID{Space: f[0], Key: f[1]}, Term: term, Free: f[3] != "", Successor: f[4]}, nil
}
