package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/elect"
)

// roleAct shows a role that changes hands.
type roleAct struct {
	d *demo

	mu     sync.Mutex
	holder string
	term   int64
	since  time.Time // when that was seen
	last   outcome
	turns  int // how often someone took over
}

func newRoleAct(d *demo) *roleAct { return &roleAct{d: d} }

// run looks who holds the role, and tells each change.
func (r *roleAct) run(ctx context.Context) {
	for ctx.Err() == nil {
		if who, err := r.d.page.Role(ctx, roleName); err == nil {
			r.recordHolder(ctx, who.Name, who.Term)
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (r *roleAct) recordHolder(ctx context.Context, name string, term int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if term == r.term {
		return
	}
	before, since := r.holder, r.since
	r.holder, r.term, r.since = name, term, time.Now()
	d := r.d
	p := d.fleet.process(before)
	switch {
	case before == "":
		d.voice.event("role", "%s holds %q, term %d", name, roleName, term)
	case p != nil && p.endedAt().After(since): // it may be back already
		r.last = outcome{
			part: "role", what: fmt.Sprintf("%s took %q over from %s", name, roleName, before), slack: d.cfg.Slack,
			took: time.Since(p.endedAt()), worst: d.cfg.Timing.Timeout + d.cfg.Timing.Interval,
		}
		r.turns++
		d.voice.outcome(r.last)
	default:
		d.voice.event("role", "%q: %s → %s%s, term %d", roleName, before, name, r.moveReason(ctx, before), term)
	}
	if p := d.fleet.process(name); p != nil && !d.cfg.Auto {
		d.voice.hint("to kill %s: kill -9 %d", name, p.running())
	}
}

// moveReason someone who did not die holds the role no more, in brackets.
func (r *roleAct) moveReason(ctx context.Context, before string) string {
	events, err := r.d.page.History(ctx, client.Query{Part: elect.Space, Subject: roleName, Limit: 5})
	if err != nil {
		return ""
	}
	for _, e := range slices.Backward(events) {
		if e.To == "" && strings.HasPrefix(e.From, before+"/") {
			return " (" + e.Reason + ")"
		}
	}
	return ""
}

func (r *roleAct) ended(*process) {}

func (r *roleAct) settled(ctx context.Context) bool {
	role, err := r.d.page.Role(ctx, roleName)
	holder, _, _ := r.currentHolder()
	return err == nil && role.Name == holder && len(role.Standbys) == len(names)-1
}

func (r *roleAct) currentHolder() (holder string, turns int, last outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holder, r.turns, r.last
}

func (r *roleAct) try() []string {
	holder, _, _ := r.currentHolder()
	p := r.d.fleet.process(holder)
	if p == nil {
		return nil
	}
	return []string{
		fmt.Sprintf("role     kill -9 %d    (%s, who holds %q: a standby takes over within %s)", p.running(), holder, roleName, seconds(r.d.cfg.Timing.Timeout+r.d.cfg.Timing.Interval)),
		fmt.Sprintf("         %s    (within milliseconds)", r.d.command("role", "resign", roleName)),
	}
}

// play kills the holder. On a machine that is too busy the role can change hands at the same
// moment without that; then it kills the next.
func (r *roleAct) play(ctx context.Context) (out []outcome, err error) {
	for range 3 {
		if out, err = r.kill(ctx); err != nil || len(out) > 0 {
			return out, err
		}
	}
	return nil, errors.New("the role changes hands again and again, though nobody dies; is the machine very busy?")
}

func (r *roleAct) kill(ctx context.Context) ([]outcome, error) {
	d := r.d
	holder, turns, _ := r.currentHolder()
	p := d.fleet.process(holder)
	if p == nil {
		return nil, fmt.Errorf("nobody holds %q", roleName)
	}
	d.voice.event("role", "kill -9 %d: %s holds %q, and a standby must take it over", p.running(), holder, roleName)
	_, back, err := p.kill()
	if err != nil {
		return nil, err
	}
	defer back()
	var n int
	var last outcome
	if err := d.await(ctx, "somebody takes the role over", func() bool {
		var now string
		now, n, last = r.currentHolder()
		return n > turns || now != holder
	}); err != nil || n == turns {
		return nil, err
	}
	return []outcome{last}, nil
}
