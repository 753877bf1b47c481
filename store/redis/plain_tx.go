package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/lease"
)

// maxAttempts is how often a transaction is tried that others come in between
// of.
const maxAttempts = 100

// errAgain: what was read first is not what stood there a moment later.
var errAgain = errors.New("redis: read again")

// tx is one attempt at an atomic operation: it reads what tells which keys it
// needs, watches all of them at once (a second WATCH replaces the first on
// SableDB), reads them, and queues what is to be done if none has changed.
type tx struct {
	w       *connection
	watched []string
	queued  []*command
	sent    bool // the queue has been sent, and so may have been carried out
}

// read asks and waits for the answers. An error answer is an error.
func (t *tx) read(all ...*command) error {
	if len(all) == 0 {
		return nil
	}
	if err := t.w.exchange(all...); err != nil {
		return err
	}
	return refused(all)
}

func refused(all []*command) error {
	for _, c := range all {
		if r, ok := c.reply.(refusal); ok {
			return fmt.Errorf("%s: %w", c.args[0], r)
		}
	}
	return nil
}

// watch makes the queue depend on the keys, and reads.
func (t *tx) watch(keys []string, reads ...*command) error {
	t.watched = keys
	return t.read(append([]*command{ask(append([]string{"WATCH"}, keys...)...)}, reads...)...)
}

// queue adds to what is done at the end, all at one moment.
func (t *tx) queue(all ...*command) {
	t.queued = append(t.queued, all...)
}

func (t *tx) do(args ...string) *command {
	c := ask(args...)
	t.queue(c)
	return c
}

// commit carries the queue out. ok is false when somebody came in between. Without a queue
// it makes sure that what was read stood so at one moment.
func (t *tx) commit() (ok bool, err error) {
	switch {
	case len(t.queued) == 0 && t.watched == nil:
		return true, nil
	case len(t.queued) == 0:
		t.do("TTL", t.watched[0])
	}
	exec := ask("EXEC")
	all := append([]*command{ask("MULTI")}, t.queued...)
	answers := make([]*command, len(all))
	for i, c := range all {
		answers[i] = ask(c.args...) // "QUEUED" is not the answer
	}
	t.sent = true
	if err := t.w.exchange(append(answers, exec)...); err != nil {
		return false, err
	}
	if err := refused(answers); err != nil {
		t.sent = false // the server has dropped the queue
		if _, aborted := exec.reply.(refusal); aborted {
			return false, err
		}
		return false, fmt.Errorf("%w; and then it carried out the rest: %w", errAnswer, err)
	}
	switch v := exec.reply.(type) {
	case nil:
		t.sent = false
		return false, nil
	case refusal:
		t.sent = false
		return false, fmt.Errorf("EXEC: %w", v)
	case []any:
		if len(v) != len(t.queued) {
			return false, errAnswer
		}
		for i, c := range t.queued {
			c.reply = v[i]
		}
		return true, refused(t.queued)
	}
	return false, errAnswer
}

// transact runs one atomic operation, as often as it takes. f may be called
// several times. A refusal by f of its own (an error that is one of the port's) is
// returned as it is, and then nothing that it queued is done.
func (s *plain) transact(ctx context.Context, p *pool, e effect, f func(t *tx) error) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var own error
	sent := false
	err := p.use(ctx, func(w *connection) error {
		for retry := retries(); retry.Failures() < maxAttempts; {
			t := &tx{w: w}
			own = f(t)
			again := errors.Is(own, errAgain)
			if w.broken != nil || own != nil && !again && !outcome(own) {
				err := own
				own = nil
				if w.broken == nil && t.watched != nil {
					_ = t.read(ask("UNWATCH"))
				}
				return err
			}
			if own != nil {
				t.queued = nil
			}
			ok, err := t.commit()
			if err != nil {
				sent = t.sent
				return err
			}
			if ok && !again {
				return nil
			}
			if !retry.Wait(ctx) {
				return context.Cause(ctx)
			}
		}
		return errors.New("others came in between each time")
	})
	if err != nil {
		return failure(err, sent && e == writes)
	}
	return own
}

// outcome tells an error with which an operation ends from one because of which
// it could not be tried.
func outcome(err error) bool {
	var r refusal
	return !errors.As(err, &r) && !errors.Is(err, errAnswer)
}

// retries are the pauses of those who come in each other's way.
func retries() backoff.Backoff {
	return backoff.Backoff{First: time.Millisecond, Most: 32 * time.Millisecond}
}

// look asks without changing anything.
func (s *plain) look(ctx context.Context, all ...*command) error {
	return s.transact(ctx, s.rest, reads, func(t *tx) error { return t.read(all...) })
}

// foreign: something that this store did not write.
func foreign(key string, err error) error {
	return fmt.Errorf("%w: %q cannot be read, something else writes under this prefix: %w", lease.ErrUnavailable, key, err)
}
