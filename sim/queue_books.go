package sim

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
)

// add enqueues in a transaction of the user's.
func (j *queueJudge) add(batches []dispatch.Message) {
	j.mu.Lock()
	defer j.mu.Unlock()
	added, err := j.world.desk.Add(context.Background(), batches)
	if err != nil {
		j.breach("enqueueing: %v", err)
		return
	}
	for i, b := range batches {
		if known := j.batches[b.ID] != nil; known == added[i] {
			j.breach("enqueueing %s: known %t, added %t", b.ID, known, added[i])
		}
		if added[i] {
			j.result.Messages++
			j.batches[b.ID] = &batchBook{id: b.ID, state: dispatch.Queued}
			if b.NotBefore.After(j.storeNow()) {
				j.scheduled = append(j.scheduled, scheduledBook{b, j.batches[b.ID]})
			} else {
				j.lines(b.Key, j.batches[b.ID])
			}
		}
	}
}

// lines puts a batch at the end of its key.
func (j *queueJudge) lines(key string, b *batchBook) {
	k := j.key(key)
	b.seq = 1
	for _, other := range k.line {
		b.seq = max(b.seq, other.seq+1)
	}
	k.line = append(slices.DeleteFunc(k.line, func(o *batchBook) bool { return o == b }), b)
}

// act is a person's, who may be too late.
func (j *queueJudge) act(key, id string, a dispatch.Action) bool {
	err := j.world.desk.Act(context.Background(), queueName, id, a, "a person")
	j.trace("%s %s: %v", a, id, err)
	if err != nil {
		return false
	}
	k, b := j.key(key), j.batches[id]
	head := k.head() == b
	b.doubt = false
	if a.Retries() {
		b.sent = 0
	}
	switch {
	case a.Retries() && b.over:
		b.over, b.state = false, dispatch.Queued
		j.lines(key, b)
	case a.Retries():
		b.state = dispatch.Queued
	default:
		b.over = true
		switch {
		case a == dispatch.Cancel:
			b.state = dispatch.Cancelled
		case b.state != dispatch.Invalid:
			b.state = dispatch.Failed
		}
	}
	if head {
		k.blocked, k.interrupted = time.Time{}, false
	}
	return true
}

// operate lets a person do something about keys that have waited for long enough:
// after a look at the target, skip what it has and send again what it has not. It
// returns how many keys wait.
func (w *queueWorld) operate(chance float64) (waiting int) {
	j := w.judge
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(j.keys)) {
		k := j.keys[name]
		if k.blocked.IsZero() {
			continue
		}
		waiting++
		// What was sent is still under way for as long as a submission may take.
		if time.Since(k.blocked) < w.setup.Dispatch.SubmitTimeout || !w.dice.hit(chance) {
			continue
		}
		h := k.head()
		if h == nil {
			continue // broken, and said to be
		}
		if sunk := w.sink.batches[h.id]; sunk != nil && (sunk.effects > 0 || sunk.status == dispatch.InvalidMessage) {
			j.act(name, h.id, dispatch.Skip)
		} else if sunk == nil || len(sunk.waiting) == 0 {
			j.act(name, h.id, dispatch.RetryUnknown)
		} else {
			w.sink.tells(h.id)
		}
	}
	return waiting
}

// cancel takes out a batch that was never sent, if there is one.
func (w *queueWorld) cancel() {
	j := w.judge
	j.mu.Lock()
	defer j.mu.Unlock()
	k := j.keys[fmt.Sprintf("k%d", w.dice.n(w.setup.Keys))]
	if k == nil || len(k.line) == 0 {
		return
	}
	b := k.line[w.dice.n(len(k.line))]
	if h := k.head(); h != nil && w.dice.hit(0.5) {
		b = h
	}
	if sunk := w.sink.batches[b.id]; j.act(k.name, b.id, dispatch.Cancel) && sunk != nil && sunk.effects > 0 {
		j.breach("%s was cancelled, and took effect", b.id)
	}
}

// waiting is how many batches are not over.
func (j *queueJudge) waiting() (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, b := range j.batches {
		if !b.over {
			n++
		}
	}
	return n
}

// unsettled tells of a key that has something to do and does not wait for a
// person. Where something is broken already, nothing is waited for.
func (j *queueJudge) unsettled() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.result.Broken) > 0 {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(j.keys)) {
		k := j.keys[name]
		if h := k.head(); h != nil && k.blocked.IsZero() {
			return fmt.Sprintf("%s of %s is %s, neither delivered nor shown to a person", h.id, name, h.state)
		}
	}
	if len(j.scheduled) > 0 {
		return fmt.Sprintf("%s is still scheduled", j.scheduled[0].book.id)
	}
	return ""
}

// shown checks that a person sees every key that waits for one, and why.
func (j *queueJudge) shown() {
	j.mu.Lock()
	defer j.mu.Unlock()
	ctx := context.Background()
	rows, err := j.world.desk.Keys(ctx, dispatch.KeyQuery{Queue: queueName, Blocked: true})
	if err != nil {
		j.breach("listing what is blocked: %v", err)
	}
	reasons := map[string]string{}
	for _, r := range rows {
		reasons[r.Key] = r.Reason
	}
	for name, k := range j.keys {
		if reason, blocked := reasons[name]; blocked != !k.blocked.IsZero() || blocked && reason == "" {
			j.breach("%s waits for a person: %t; shown: %t, because %q", name, !k.blocked.IsZero(), blocked, reason)
		}
	}
}

// complete checks that the store shows every batch that was enqueued as what it
// came to: nothing is lost.
func (j *queueJudge) complete() {
	j.mu.Lock()
	defer j.mu.Unlock()
	shown := map[string]dispatch.Record{}
	for q := (dispatch.MessageQuery{Queue: queueName}); ; {
		page, err := j.world.desk.Messages(context.Background(), q)
		if err != nil {
			j.breach("listing the batches: %v", err)
			return
		}
		for _, r := range page {
			shown[r.ID] = r
			q.AfterKey, q.AfterSeq = r.Key, r.Seq
		}
		if len(page) < dispatch.MaxPage {
			break
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(j.batches), cmp.Compare) {
		b := j.batches[id]
		switch r, ok := shown[id]; {
		case !ok && (j.world.setup.Dispatch.KeepFor < 0 || !b.over):
			j.breach("%s is lost", id)
		case ok && (r.State != b.state || r.Seq != b.seq || !r.State.IsFinal() || r.Ended.IsZero()):
			j.breach("%s is shown as %s, %d, ended %v; it is %s, %d", id, r.State, r.Seq, r.Ended, b.state, b.seq)
		}
	}
}
