package sqlite

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/history"
)

// progress is what changes of a message.
type progress struct {
	queue, key   string
	seq          int64
	id           string
	state        dispatch.State
	blocks       bool
	attempts     int
	term         int64
	code         int
	detail, link string
	enqueued     int64
	begun, ended *int64
	trail        string
}

func (t *txn) progress(queue, key string, seq int64) (*progress, error) {
	p := &progress{queue: queue, key: key, seq: seq}
	err := t.one(getProgress, []any{queue, key, seq}, &p.id, &p.state, &p.blocks, &p.attempts, &p.term, &p.code,
		&p.detail, &p.link, &p.enqueued, &p.begun, &p.ended, &p.trail)
	return p, err
}

func (t *txn) save(p *progress) error {
	_, err := t.exec(setProgress, p.queue, p.key, p.seq, p.state, p.blocks, p.attempts, p.term, p.code,
		p.detail, p.link, p.begun, p.ended, p.trail)
	return err
}

// steps is the message's own history.
func (p *progress) steps() []dispatch.TrailEntry {
	var out []dispatch.TrailEntry
	if p.trail != "" {
		// What cannot be read is not worth failing for: the columns tell the rest.
		if err := json.Unmarshal([]byte(p.trail), &out); err == nil {
			return out
		}
	}
	out = []dispatch.TrailEntry{{At: time.UnixMicro(p.enqueued), State: dispatch.Queued}}
	if p.begun != nil {
		out = append(out, dispatch.TrailEntry{At: time.UnixMicro(*p.begun), State: dispatch.Submitting, Term: p.term, Attempt: p.attempts})
	}
	if p.ended != nil {
		out = append(out, dispatch.TrailEntry{At: time.UnixMicro(*p.ended), State: p.state, Term: p.term, Attempt: p.attempts, Code: p.code, Detail: p.detail})
	}
	return out
}

// keep writes the history down, as much of it as is kept.
func (p *progress) keep(steps []dispatch.TrailEntry) error {
	text, err := json.Marshal(dispatch.TruncateTrail(steps))
	p.trail = string(text)
	return err
}

// reached is the state that the message has reached.
func (p *progress) reached(wall int64) dispatch.TrailEntry {
	return dispatch.TrailEntry{At: time.UnixMicro(wall), State: p.state, Term: p.term, Attempt: p.attempts, Code: p.code, Detail: p.detail}
}

// recordProgress records a result in the message's row; false when it is over already.
func (n *exchange) recordProgress(k *exchangeKey, r dispatch.Result) (bool, error) {
	detail := dispatch.CutDetail(r.Detail)
	if r.State == dispatch.Committed && r.After == dispatch.Next && r.Attempt == 1 && k.step != 0 && k.interrupted == 0 {
		done, err := n.exec(commitFirst, n.Queue, k.key, r.Seq, r.Term, r.Code, detail, r.Link, k.begun, n.wall)
		if err != nil || done > 0 {
			return done > 0, err
		}
	}
	p, err := n.progress(n.Queue, k.key, r.Seq)
	if err != nil || p.state.IsFinal() {
		return false, notThere(err)
	}
	trail := p.steps() // before the columns change that it may be made of
	if k.step != 0 && sends(p.state) {
		trail = append(trail, dispatch.TrailEntry{At: time.UnixMicro(k.begun), State: dispatch.Submitting, Term: k.step, Attempt: p.attempts + 1})
		p.begun = &k.begun
	}
	p.state, p.blocks, p.attempts, p.term = r.State, r.Blocks(), r.Attempt, r.Term
	p.code, p.detail, p.link = r.Code, detail, cmp.Or(r.Link, p.link)
	if r.State.IsFinal() {
		p.ended = &n.wall
	}
	if err := p.keep(append(trail, p.reached(n.wall))); err != nil {
		return false, err
	}
	return true, n.save(p)
}

// sends tells that the step of a key whose head is in this state sends it.
func sends(s dispatch.State) bool { return s == dispatch.Queued || s == dispatch.Delayed }

// interruption is the detail of a message whose sender died.
const interruption = "its instance was interrupted"

// lost records that nobody knows what became of a message that was being sent.
func (n *exchange) lost(k *exchangeKey, seq int64) error {
	p, err := n.progress(n.Queue, k.key, seq)
	if err != nil {
		return err
	}
	begun := k.begun
	trail := p.steps()
	sent := dispatch.TrailEntry{At: time.UnixMicro(begun), State: dispatch.Submitting, Term: k.interrupted, Attempt: p.attempts + 1}
	p.state, p.attempts, p.term, p.code, p.detail = dispatch.Unknown, p.attempts+1, k.interrupted, 0, interruption
	p.begun = &begun
	if err := p.keep(append(trail, sent, p.reached(n.wall))); err != nil {
		return err
	}
	return n.save(p)
}

// recordBlocking records that a key waits for an operator, or no longer does.
func (n *exchange) recordBlocking(k *exchangeKey, r dispatch.Result, was bool) error {
	if !was && !k.blocked || was && r.After == dispatch.Stuck {
		return nil
	}
	holder := ""
	if n.me.Instance.ID != "" {
		holder = n.me.Instance.Label()
	}
	return n.record(history.Event{
		Part: "batch", Subject: n.Queue + "/" + k.key, From: holder, To: holder,
		Term: r.Term, Reason: r.BlockingReason(),
	}, changeTaken, "")
}
