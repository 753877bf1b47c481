package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/understudy-ha/understudy/lease"
)

// quiet is how long a connection may say nothing before it is asked whether it
// lives, and then before it is given up.
const quiet = 2 * time.Second

// Watch implements [lease.Store]. It has a connection of its own.
func (s *Store) Watch(ctx context.Context, wake func(lease.Change)) error {
	return s.subscribe(ctx, func(message any) { s.deliver(message, wake) }, s.channel)
}

// subscribe passes on what comes, confirmations of subscriptions included, until ctx ends
// or the connection is dead.
func (s *Store) subscribe(ctx context.Context, deliver func(message any), channels ...string) error {
	sub := s.watches.Subscribe(ctx)
	defer sub.Close()
	// A read does not hear that ctx ended; the end of its connection it does.
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })()
	dial, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := sub.Subscribe(dial, channels...); err != nil {
		return ended(ctx, failure(err, false))
	}
	asked := false
	for {
		message, err := sub.ReceiveTimeout(ctx, quiet)
		var timeout net.Error
		switch {
		case err == nil:
			asked = false
			deliver(message)
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &timeout) && timeout.Timeout() && !asked:
			asked = true
			if err := sub.Ping(ctx); err != nil {
				return ended(ctx, failure(err, false))
			}
		default:
			return ended(ctx, failure(fmt.Errorf("the watch's connection is dead: %w", err), false))
		}
	}
}

func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// deliver passes a message on. A confirmed subscription, also one that the driver
// renewed behind our back, may have missed anything.
func (s *Store) deliver(message any, wake func(lease.Change)) {
	switch m := message.(type) {
	case *redis.Subscription:
		wake(lease.Change{})
	case *redis.Message:
		change, err := decode(m.Payload)
		if err != nil {
			s.log.Warn("a notification cannot be read: something else publishes under this prefix", "err", err)
		}
		wake(change)
	}
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
