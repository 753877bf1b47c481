package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
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

func newRoleAct(d *demo) *roleAct {
	d.record.addLanes("role", names[:]...)
	return &roleAct{d: d}
}

func (r *roleAct) part() string { return "role" }

// run looks who holds the role, and tells each change.
func (r *roleAct) run(ctx context.Context) {
	for ctx.Err() == nil {
		if who, err := r.d.page.Role(ctx, roleName); err == nil {
			r.recordHolder(ctx, who.Name, who.Term)
			if p := r.d.fleet.process(who.Name); p != nil && p.running() != 0 { // the store believes in one that died for a moment
				r.d.record.saw("role", who.Name)
			}
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
	case p != nil && p.failedAt().After(since): // it may be back already
		r.last = outcome{
			part: "role", what: fmt.Sprintf("%s took %q over from %s", name, roleName, before), slack: d.cfg.Slack,
			took: time.Since(p.failedAt()), worst: d.cfg.Timing.Timeout + d.cfg.Timing.Interval,
		}
		r.turns++
		d.announce(r.last)
	default:
		reason, gap := r.move(ctx, before, term)
		d.voice.event("role", "%q: %s → %s%s, term %d", roleName, before, name, reason, term)
		d.record.outcome(outcome{part: "role", what: fmt.Sprintf("%s gave %q to %s%s", before, roleName, name, reason), took: gap})
	}
	if p := d.fleet.process(name); p != nil && !d.cfg.Auto {
		d.voice.hint("to kill %s: kill -9 %d", name, p.running())
	}
}

// move is why someone who did not die holds the role no more, in brackets, and how long nobody did.
func (r *roleAct) move(ctx context.Context, before string, term int64) (reason string, gap time.Duration) {
	events, err := r.d.page.History(ctx, client.Query{Part: elect.Space, Subject: roleName, Limit: 5})
	if err != nil {
		return "", 0
	}
	for _, e := range events { // oldest first
		switch {
		case e.To == "" && strings.HasPrefix(e.From, before+"/"):
			reason = " (" + e.Reason + ")"
		case e.Term == term && e.To != "":
			gap = time.Duration(e.DurationMS) * time.Millisecond
		}
	}
	return reason, gap
}

func (r *roleAct) failed(*process) {}

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

func (r *roleAct) offers() []offer {
	d := r.d
	holder, _, _ := r.currentHolder()
	p := d.fleet.process(holder)
	worst := d.cfg.Timing.Timeout + d.cfg.Timing.Interval
	off := unserving(p, "primary")
	return []offer{d.kill(p, "primary", offer{
		ID: "role-kill", Part: "role", Text: fmt.Sprintf("%s holds %q: a standby takes over", holder, roleName),
	}, worst), {
		ID: "role-freeze", Part: "role", Title: "Freeze " + holder, Command: d.byPage("role-freeze"), Promised: worst.Milliseconds(), Off: off,
		Text: fmt.Sprintf("SIGSTOP for %v: %s still believes that it holds %q; its program is stopped, and a standby takes over", d.downTime(), holder, roleName),
		do:   func(context.Context) error { return p.freeze(d) },
	}, {
		ID: "role-resign", Part: "role", Title: "Ask " + holder + " to resign", Command: d.command("role", "resign", roleName), Off: off,
		Text: "a planned hand-over: its program is stopped, and a standby starts within milliseconds",
		do: func(ctx context.Context) error {
			d.record.mark(asked, "role", holder)
			_, err := d.page.Resign(ctx, roleName, apitype.ResignRequest{By: "the demonstration"})
			return err
		},
	}}
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
	release, err := p.killAndHold()
	if err != nil {
		return nil, err
	}
	defer release()
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
