package dispatch

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// sendTask is a started message for a sender.
type sendTask struct {
	slot *slot
	a    Assignment
	by   time.Duration // the last moment at which it may be sent
}

// runSender submits messages, one after the other.
func (d *Dispatcher) runSender(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			// What is still in the channel was certainly not sent.
			for {
				select {
				case unsent := <-d.sendTasks:
					d.events <- func(time.Duration) { d.m.recordUnsent(unsent.slot, "the instance stopped before it was sent") }
				default:
					return
				}
			}
		case task := <-d.sendTasks:
			a, answer, took, sent := d.submit(ctx, task)
			d.events <- func(now time.Duration) {
				if !sent {
					d.m.recordUnsent(task.slot, unsentInTime)
					return
				}
				if !d.m.stopping {
					d.report.answered(a, answer)
				}
				d.m.handleAnswer(now, task.slot, a, answer, took)
			}
		}
	}
}

// submit sends a message; one whose outcome is unknown only after the target was
// asked for it, or if sending again is safe. Query and submission share one
// deadline. It sends nothing if this process was paused for too long before it could.
func (d *Dispatcher) submit(ctx context.Context, task sendTask) (a Assignment, answer Answer, took time.Duration, sent bool) {
	a = task.a
	began := d.clock.Now()
	if began > task.by {
		return a, answer, 0, false
	}
	deadline := began + d.cfg.SubmitTimeout
	if d.m.rule.queriesFirst(a) {
		query, cancel, _ := d.contextUntil(ctx, deadline)
		answer = d.queryStatus(query, []Assignment{a})[0]
		cancel()
	}
	a, answer, send := d.m.rule.beforeSend(a, answer)
	if send {
		submission, cancel, left := d.contextUntil(ctx, deadline)
		defer cancel()
		if left <= 0 {
			return a, answer, 0, false
		}
		answer = d.recoverPanic(func() Answer { return d.cfg.Target.Submit(submission, a) })
	}
	return a, answer, d.clock.Now() - began, true
}

// contextUntil returns a context that ends at a reading of the clock, and how long that is from now.
func (d *Dispatcher) contextUntil(ctx context.Context, end time.Duration) (_ context.Context, cancel func(), left time.Duration) {
	at := time.Now() // before the reading: a pause between the two ends the context early, never late
	left = end - d.clock.Now()
	ctx, cancel = context.WithDeadline(ctx, at.Add(left))
	return ctx, cancel, left
}

// queryStatus returns one answer for each, even if the target returns fewer or panics.
func (d *Dispatcher) queryStatus(ctx context.Context, as []Assignment) []Answer {
	var answers []Answer
	silent := d.recoverPanic(func() Answer {
		answers = d.cfg.Target.Status(ctx, as)
		return Answer{Outcome: Uncertain, Detail: "the target's answer does not name it"}
	})
	for len(answers) < len(as) {
		answers = append(answers, silent)
	}
	return answers[:len(as)]
}

// recoverPanic keeps a target's panic from ending the process.
func (d *Dispatcher) recoverPanic(f func() Answer) (answer Answer) {
	defer func() {
		if p := recover(); p != nil {
			d.log.Error("the target panicked", "target", d.cfg.Target.Name(), "panic", p, "stack", string(debug.Stack()))
			answer = Answer{Outcome: Uncertain, Detail: fmt.Sprintf("the target's code failed: %v", p)}
		}
	}()
	return f()
}

// pollStatus polls messages that the target has.
func (d *Dispatcher) pollStatus(ctx context.Context, group []*slot, as []Assignment) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.SubmitTimeout)
	defer cancel()
	answers := d.queryStatus(ctx, as)
	d.events <- func(now time.Duration) {
		if !d.m.stopping {
			d.report.polled(answers)
		}
		d.m.handlePollAnswers(now, group, answers)
	}
}
