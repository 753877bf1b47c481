package sim

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
)

// scheduledBook is a message that is not to be sent yet.
type scheduledBook struct {
	message dispatch.Message
	book    *batchBook
}

// longestSchedule is how far ahead a message is scheduled.
const longestSchedule = 8 * time.Second

// schedule has some messages wait for a time. Its dice are its own: a seed draws all else as it would without.
func (w *queueWorld) schedule(d *dice, m dispatch.Message) dispatch.Message {
	if d.hit(0.2) {
		m.NotBefore = w.judge.storeNow().Add(d.upTo(longestSchedule)).Truncate(100 * time.Millisecond)
	}
	return m
}

func (v queueView) EnqueueDue(ctx context.Context, queue string, limit int) (int, error) {
	return carried(ctx, v.node, func(ctx context.Context) (int, error) { return v.node.world.judge.enqueueDue(ctx, queue, limit) })
}

// enqueueDue: what joins its key is due, and what is due longest joins first.
func (j *queueJudge) enqueueDue(ctx context.Context, queue string, limit int) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n, err := j.queue.EnqueueDue(ctx, queue, limit)
	if err != nil {
		return n, err
	}
	now := j.storeNow()
	slices.SortStableFunc(j.scheduled, func(a, b scheduledBook) int { return a.message.NotBefore.Compare(b.message.NotBefore) })
	due := 0
	for due < len(j.scheduled) && !j.scheduled[due].message.NotBefore.After(now) {
		due++
	}
	if n != min(due, limit) {
		j.breach("%d scheduled messages were let in; %d are due", n, due)
	}
	for _, s := range j.scheduled[:min(n, due)] {
		j.trace("%s joins %s", s.book.id, s.message.Key)
		j.lines(s.message.Key, s.book)
	}
	j.scheduled = slices.Delete(j.scheduled, 0, min(n, due))
	j.result.Scheduled += min(n, due)
	return n, nil
}

// early reports how long before its time a message is handled.
func (j *queueJudge) early(id string) time.Duration {
	for _, s := range j.scheduled {
		if s.book.id == id {
			return cmp.Or(s.message.NotBefore.Sub(j.storeNow()), 1)
		}
	}
	return 0
}

// unscheduling forgets that a message is not to be sent yet.
type unscheduling struct{ dispatch.Admin }

func (d unscheduling) Add(ctx context.Context, messages []dispatch.Message) ([]bool, error) {
	messages = slices.Clone(messages)
	for i := range messages {
		messages[i].NotBefore = time.Time{}
	}
	return d.Admin.Add(ctx, messages)
}
