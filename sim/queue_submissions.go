package sim

import (
	"time"

	"github.com/understudy-ha/understudy/dispatch"
)

// submission is a call of Target.Submit.
type submission struct {
	node  *queueNode
	key   string
	term  int64
	apart bool
}

// sends notes that an instance is about to submit.
func (j *queueJudge) sends(n *queueNode, a dispatch.Assignment) *submission {
	j.mu.Lock()
	defer j.mu.Unlock()
	k := j.key(a.Key)
	c := &submission{node: n, key: a.Key, term: a.Term, apart: a.Term < k.term}
	j.result.Submitted++
	for other := range k.calls {
		if other.term == a.Term {
			j.breach("two submissions of %s are under way under term %d", a.Key, a.Term)
		}
	}
	k.calls[c] = true
	b := j.batches[a.ID]
	switch {
	case b == nil:
		j.breach("%s was sent, which nobody enqueued", a.ID)
		return c
	case c.apart:
		return c
	case k.step == nil || k.step.seq != a.Seq:
		j.breach("%s (%d) of %s was sent without a step", a.ID, a.Seq, a.Key)
	case b.doubt && !j.world.setup.Target.Resend:
		j.breach("%s was sent again, and nobody knew what had become of it", a.ID)
	}
	if d := j.world.setup.Dispatch; d.OnFailure != dispatch.OnFailureRetry && d.Retry.Attempts > 0 && b.sent >= d.Retry.Attempts {
		j.breach("%s was sent more than %d times", a.ID, d.Retry.Attempts)
	}
	b.doubt, b.sent, b.last, b.unasked = true, b.sent+1, a, false
	return c
}

func (j *queueJudge) sent(c *submission) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.key(c.key).calls, c)
}

// dies ends what a node that was killed had under way.
func (j *queueJudge) dies(n *queueNode) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.trace("%s is killed", n.name)
	for _, k := range j.keys {
		for c := range k.calls {
			if c.node == n {
				delete(k.calls, c)
			}
		}
	}
}

// arrived notes a request at the target, and reports whether it is one of a sender
// past its time, whose effects nobody can prevent.
func (j *queueJudge) arrived(n *queueNode, a dispatch.Assignment) (apart bool) {
	k := j.key(a.Key)
	if k.granted[a.Term] == "" {
		j.breach("%s was sent under term %d, which nobody was given", a.ID, a.Term)
	}
	left := time.Until(k.begun[a.Term].at.Add(j.world.setup.Dispatch.Windows.Second))
	switch {
	case j.world.setup.Target.Deduplicates:
		apart = j.batches[a.ID].over // it stepped aside, and others went on
	case a.Term == k.term:
	case left > 0:
		j.breach("%s arrived under term %d, %v before the end of its second window, and %s is under term %d already", a.ID, a.Term, left, a.Key, k.term)
	default:
		apart = true
	}
	if apart {
		j.result.Apart++
	}
	return apart
}

// told notes what the target said about a batch.
func (j *queueJudge) told(a dispatch.Assignment, said dispatch.Outcome) {
	if b := j.batches[a.ID]; b != nil {
		b.unasked, b.asked = false, a.Term
		b.doubt = b.doubt && (said != dispatch.NotFound || j.world.setup.Target.Forgets)
	}
}
