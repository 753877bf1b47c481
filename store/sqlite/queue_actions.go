package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/history"
)

const (
	findBatch = "SELECT key, seq FROM understudy_batch WHERE id = ?1 AND queue = ?2"

	getLine = `
SELECT session, step <> 0, interrupted <> 0, ready_us, last, done, waiting, blocked
FROM understudy_claim WHERE space = ?1 AND key = ?2`

	setLine = `
UPDATE understudy_claim SET last = ?3, done = ?4, waiting = ?5, over = over + ?6, ready_us = ?7, blocked = ?8, interrupted = iif(?9, 0, interrupted),
  session = ?10, since_us = iif(session = ?10, since_us, understudy_wall_us())
WHERE space = ?1 AND key = ?2`

	moveBatch = "UPDATE understudy_batch SET seq = ?4, enqueued_us = ?5 WHERE queue = ?1 AND key = ?2 AND seq = ?3"
)

// queueAction is one Act under way.
type queueAction struct {
	*txn
	*progress
	action dispatch.Action
	head   bool // the message is the head of its key
	over   bool // it needs nothing more
	stuck  bool // the target has it, for too long
	shown  dispatch.State

	// Of its key.
	session             string
	inStep, interrupted bool
	blocked             bool
	ready               *int64
	last, done, waiting int64
}

// Act implements [dispatch.Admin].
func (s queueAdmin) Act(ctx context.Context, name, id string, action dispatch.Action, who string) error {
	return s.write(ctx, "acting on a message", func(t *txn) error {
		if err := t.requireQueue(name); err != nil {
			return err
		}
		joined, err := t.joinToCancel(name, id, action)
		if err != nil {
			return err
		}
		a, err := t.findMessage(name, id)
		if err != nil {
			return err
		}
		a.action = action
		if !a.isAllowed() {
			return fmt.Errorf("%s of message %q, which is %s: %w", action, id, a.shown, dispatch.ErrState)
		}
		if action == dispatch.Retry && (a.shown == dispatch.Unknown || a.stuck || a.over && dispatch.WasSkippedUnknown(a.steps())) {
			return dispatch.ErrUncertain
		}
		was := a.shown
		if joined {
			was = dispatch.Scheduled
		}
		return a.apply(who, was)
	})
}

// findMessage reads a message and its key.
func (t *txn) findMessage(queue, id string) (*queueAction, error) {
	var key string
	var seq int64
	err := t.one(findBatch, []any{id, queue}, &key, &seq)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("%q in queue %q: %w", id, queue, dispatch.ErrNoMessage)
	}
	a := &queueAction{txn: t}
	if err == nil {
		a.progress, err = t.progress(queue, key, seq)
	}
	if err == nil {
		err = t.one(getLine, []any{dispatch.Space(queue), key}, &a.session, &a.inStep, &a.interrupted,
			&a.ready, &a.last, &a.done, &a.waiting, &a.blocked)
	}
	if err != nil {
		return nil, err
	}
	var head int64
	if err := notThere(t.one(lookAtHead, []any{queue, key, a.done}, &head, new(string))); err != nil {
		return nil, err
	}
	a.head, a.over = head == seq, seq <= a.done || a.state == dispatch.Cancelled
	a.shown = a.state
	a.stuck = a.blocks && a.state.IsAtTarget()
	switch {
	case a.head && sends(a.state) && a.inStep:
		a.shown = dispatch.Submitting
	case a.head && sends(a.state) && a.interrupted:
		a.shown = dispatch.Unknown
	}
	return a, nil
}

// isAllowed is the table of what can be done in which state. A message that is being
// sent, or asked for, is left to who does it.
func (a *queueAction) isAllowed() bool {
	waits := a.blocks || a.head && !a.inStep && (a.shown == dispatch.Delayed || a.shown == dispatch.Unknown)
	switch a.action {
	case dispatch.Retry, dispatch.RetryUnknown:
		return waits || a.over && a.state != dispatch.Committed
	case dispatch.Skip:
		return waits
	case dispatch.Cancel:
		return a.shown == dispatch.Queued && a.begun == nil || a.stuck
	}
	return false
}

func (a *queueAction) apply(who string, was dispatch.State) error {
	trail := a.steps() // before the columns change that it may be made of
	event := history.Event{
		Part: "batch", Subject: a.queue + "/" + a.key, Term: a.term, Reason: dispatch.ActionReason(a.action, who, was, a.detail, a.id),
		Duration: time.UnixMicro(a.wall).Sub(trail[len(trail)-1].At),
	}
	if a.shown == dispatch.Unknown && a.state != dispatch.Unknown { // its instance was interrupted, and no exchange has said so yet
		trail = append(trail, dispatch.TrailEntry{At: time.UnixMicro(a.wall), State: dispatch.Unknown, Term: a.term, Attempt: a.attempts, Detail: interruption})
	}
	again := a.action.Retries()
	if again {
		a.state, a.attempts, a.code, a.detail, a.link, a.ended = dispatch.Queued, 0, 0, "", "", nil
	} else {
		a.state, a.ended = a.finalState(), &a.wall
	}
	a.blocks = false
	reached := a.reached(a.wall)
	reached.Detail, reached.Action = fmt.Sprintf("%s by %s", a.action, who), a.action
	if err := a.keep(append(trail, reached)); err != nil {
		return err
	}
	if err := a.save(a.progress); err != nil {
		return err
	}
	var err error
	switch {
	case !again:
		err = a.resumeKey(-1, 1)
	case a.over:
		a.last++
		if _, err = a.exec(moveBatch, a.queue, a.key, a.seq, a.last, a.wall); err == nil {
			err = a.resumeKey(1, -1)
		}
	default:
		err = a.resumeKey(0, 0)
	}
	if err != nil {
		return err
	}
	return a.record(event, changeTaken, "")
}

// finalState is the state in which a message is dead-lettered or cancelled.
func (a *queueAction) finalState() dispatch.State {
	switch {
	case a.action == dispatch.Cancel:
		return dispatch.Cancelled
	case a.state == dispatch.Invalid:
		return dispatch.Invalid
	}
	return dispatch.Failed
}

// resumeKey lets the key continue, at once if the message was its head or it had none, and
// wakes someone for it. What is told is how many more messages wait and have ended.
func (a *queueAction) resumeKey(waiting, over int64) error {
	space, ready := dispatch.Space(a.queue), false
	if a.stuck {
		a.session = "" // whoever polls the target for it is told at the next result
	}
	switch {
	case a.waiting+waiting == 0 && a.session == "":
		a.ready = nil
	case a.waiting+waiting > 0 && (a.head || a.waiting == 0):
		ready = a.session == ""
		if a.ready == nil || *a.ready > a.wall {
			a.ready = &a.wall
		}
	}
	if a.head {
		a.blocked = false
		if over > 0 {
			a.done = a.seq
		}
	}
	_, err := a.exec(setLine, space, a.key, a.last, a.done, a.waiting+waiting, over, a.ready, a.blocked, a.head, a.session)
	if err != nil || !ready {
		return err
	}
	return a.wake(space, 1)
}
