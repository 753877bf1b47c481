package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// task is what the reconciler does with the node: one at a time.
type task struct {
	name       string
	command    *shard.Command   // nil: it follows from the assignment
	assignment shard.Assignment // when it started
	cancel     context.CancelCauseFunc
}

// isTaskRunning reports whether the reconciler works on the node.
func (r *reconciler) isTaskRunning() bool { return r.task != nil }

// isOccupied reports whether it does, or writes are paused.
func (r *reconciler) isOccupied() bool { return r.task != nil || r.pausedBy != 0 }

// runningCommand is the command that is being carried out, nil if there is none.
func (r *reconciler) runningCommand() *shard.Command {
	if r.task == nil {
		return nil
	}
	return r.task.command
}

// startTask starts a task, unless one is running.
func (r *reconciler) startTask(name string, c *shard.Command, within time.Duration, f func(ctx context.Context) error) {
	if r.task != nil {
		return
	}
	ctx, cancel := context.WithCancelCause(r.ctx)
	r.task = &task{name: name, command: c, assignment: r.decision.Assignment, cancel: cancel}
	started := r.now()
	r.log.Info("task started", "task", name)
	r.wg.Go(func() {
		err := func() error {
			ctx, stop := context.WithTimeout(ctx, within)
			defer stop()
			return f(ctx)
		}()
		cancel(nil)
		r.post(func() {
			r.task = nil
			took := r.now() - started
			if err != nil {
				r.log.Warn("task failed", "task", name, "took", took, "err", err)
			} else {
				r.log.Info("task finished", "task", name, "took", took)
			}
			r.finishTask(c, err, took)
		})
	})
}

// finishTask acknowledges a command, or sets when a task of the agent's own is tried again.
func (r *reconciler) finishTask(c *shard.Command, err error, took time.Duration) {
	r.report.reread = true
	if c != nil {
		r.inbox.acknowledge(*c, err, took)
		return
	}
	if err == nil {
		r.retry.Reset()
		r.retryAt, r.report.taskFailed = 0, ""
		return
	}
	r.report.taskFailed = err.Error()
	r.retryAt = r.now() + r.retry.Next()
}

// cancelTask ends the running task.
func (r *reconciler) cancelTask(why string) {
	if r.task != nil {
		r.task.cancel(errors.New(why))
	}
}

// onCommand ends a task that a command overtakes.
func (r *reconciler) onCommand(c shard.Command) {
	if t := r.task; t != nil && (t.command == nil || t.command.Epoch < c.Epoch) {
		r.cancelTask(fmt.Sprintf("a command of epoch %d came", c.Epoch))
	}
}

// cancelOutdatedTask ends a task for which there is no reason any more.
func (r *reconciler) cancelOutdatedTask() {
	t := r.task
	if t == nil {
		return
	}
	row := r.view.Row
	switch c := t.command; {
	case c == nil && t.assignment != shard.AssignFollow && r.decision.Assignment == shard.AssignFollow:
		r.cancelTask("another is the primary")
	case c == nil && (r.decision.Assignment == shard.AssignQuarantine || r.decision.Assignment == shard.AssignFence):
		r.cancelTask("the node has to be closed")
	case c == nil && len(r.inbox.queue) > 0:
		r.cancelTask("a command came") // commands go before the agent's own tasks
	case c != nil && c.Order == shard.OrderPromote && row.Primary == r.id && row.Epoch == c.Epoch:
		// The promotion is in the row, and the plan has moved on because of that: what is left is to open the node.
	case c != nil && row.Epoch > c.Epoch:
		r.cancelTask(fmt.Sprintf("epoch %d has begun", row.Epoch))
	case c != nil && r.hasPlanEnded(*c):
		r.cancelTask("the plan has ended")
	}
}

// hasPlanEnded reports whether the command's plan is known to have ended, so that nobody needs what it orders.
func (r *reconciler) hasPlanEnded(c shard.Command) bool {
	row := r.view.Row
	// Following may outlast its plan: copying takes long.
	return c.Order != shard.OrderFollow && row.Epoch >= c.Epoch && (row.Plan == nil || row.Plan.Epoch != c.Epoch)
}
