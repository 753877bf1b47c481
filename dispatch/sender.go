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
			a, answer, took := d.submit(ctx, task.a)
			d.events <- func(now time.Duration) {
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
// deadline.
func (d *Dispatcher) submit(ctx context.Context, a Assignment) (Assignment, Answer, time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.SubmitTimeout)
	defer cancel()
	began := d.clock.Now()
	var answer Answer
	if d.m.rule.queriesFirst(a) {
		answer = d.queryStatus(ctx, []Assignment{a})[0]
	}
	a, answer, send := d.m.rule.beforeSend(a, answer)
	if send {
		answer = d.recoverPanic(func() Answer { return d.cfg.Target.Submit(ctx, a) })
	}
	return a, answer, d.clock.Now() - began
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
