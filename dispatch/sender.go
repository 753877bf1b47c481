package dispatch

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// job is a batch for a sender.
type job struct {
	slot *slot
	a    Assignment
}

// sender carries out submissions, one after the other.
func (d *Dispatcher) sender(ctx context.Context) {
	for {
		var j job
		select {
		case <-ctx.Done():
			// What was handed over is certainly not sent.
			for {
				select {
				case j = <-d.jobs:
					d.events <- func(time.Duration) { d.m.unsent(j.slot, "the instance stopped before it was sent") }
				default:
					return
				}
			}
		case j = <-d.jobs:
		}
		a, answer, took := d.submit(ctx, j.a)
		d.events <- func(time.Duration) { d.m.answered(j.slot, a, answer, took) }
	}
}

// submit sends a batch, after asking about it where it is not known what became
// of it. All of it has one deadline.
func (d *Dispatcher) submit(ctx context.Context, a Assignment) (Assignment, Answer, time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.SubmitTimeout)
	defer cancel()
	began := d.clock.Now()
	rule := d.m.rule
	if a.Todo == Ask {
		if rule.Semantics.Asks {
			answer := d.ask(ctx, []Assignment{a})[0]
			if answer.Outcome != Missing || !rule.Sends(true) {
				return a, answer, d.clock.Now() - began
			}
		} else if !rule.Sends(false) {
			return a, Answer{Outcome: Silent, Detail: a.unresolved()}, 0
		}
		a.Todo = Send
		a.Doubtful = !rule.Semantics.Asks || rule.Semantics.Forgets
		a.Attempt++
	}
	answer := d.guarded(func() Answer { return d.cfg.Target.Submit(ctx, a) })
	return a, answer, d.clock.Now() - began
}

func (a Assignment) unresolved() string {
	return fmt.Sprintf("an instance died or lost its claim while attempt %d was under way; whether the target has it is not known", a.Attempt)
}

// ask returns one answer for each, whatever the target does.
func (d *Dispatcher) ask(ctx context.Context, as []Assignment) []Answer {
	var answers []Answer
	silent := d.guarded(func() Answer {
		answers = d.cfg.Target.Ask(ctx, as)
		return Answer{Outcome: Silent, Detail: "the target's answer does not name it"}
	})
	for len(answers) < len(as) {
		answers = append(answers, silent)
	}
	return answers[:len(as)]
}

// guarded keeps a target's panic from ending the process.
func (d *Dispatcher) guarded(f func() Answer) (answer Answer) {
	defer func() {
		if p := recover(); p != nil {
			d.log.Error("the target panicked", "target", d.cfg.Target.Name(), "panic", p, "stack", string(debug.Stack()))
			answer = Answer{Outcome: Silent, Detail: fmt.Sprintf("the target's code failed: %v", p)}
		}
	}()
	return f()
}

// inquire asks about batches that the target has.
func (d *Dispatcher) inquire(ctx context.Context, group []*slot, as []Assignment) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.SubmitTimeout)
	defer cancel()
	answers := d.ask(ctx, as)
	d.events <- func(now time.Duration) { d.m.told(now, group, answers) }
}
