package demo

import (
	"context"
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
}

// freezeID is the offer that freezes the primary.
const freezeID = "role-freeze"

// worstRole is how long a role has no holder at worst when one failed.
func (d *demo) worstRole() time.Duration { return d.cfg.Timing.Timeout + d.cfg.Timing.Interval }

func newRoleAct(d *demo) *roleAct {
	d.record.addLanes("role", names[:]...)
	return &roleAct{d: d}
}

func (r *roleAct) part() string { return "role" }

// run looks who holds the role, and notes each change.
func (r *roleAct) run(ctx context.Context) {
	for ctx.Err() == nil {
		if who, err := r.d.page.Role(ctx, roleName); err == nil {
			r.recordHolder(ctx, who.Name, who.Term)
			if p := r.d.fleet.process(who.Name); p != nil && p.running() != 0 { // the store believes in one that died for a moment
				r.d.record.saw("role", who.Name)
			}
		}
		pause(ctx, 50*time.Millisecond)
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
		d.announce(outcome{part: "role", what: fmt.Sprintf("%s took %q over from %s", name, roleName, before), took: time.Since(p.failedAt()), worst: d.worstRole()})
	default:
		reason, gap := r.move(ctx, before, term)
		d.announce(outcome{part: "role", what: fmt.Sprintf("%s gave %q to %s%s, term %d", before, roleName, name, reason, term), took: gap})
	}
	if p := d.fleet.process(name); p != nil {
		d.killHint(p)
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

func (r *roleAct) settled(ctx context.Context) bool {
	role, err := r.d.page.Role(ctx, roleName)
	return err == nil && role.Name == r.currentHolder() && len(role.Standbys) == len(names)-1
}

func (r *roleAct) currentHolder() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holder
}

func (r *roleAct) offers() []offer {
	d, holder := r.d, r.currentHolder()
	frozen := d.worstRole()
	if strings.HasPrefix(d.cfg.StoreURL, "sqlite:") {
		frozen = 0 // in the middle of a transaction it keeps the lock from everyone until it goes on
	}
	p := d.fleet.process(holder)
	off := unserving(p, "primary")
	return []offer{d.kill(p, "primary", offer{
		ID: "role-kill", Text: fmt.Sprintf("%s holds %q: a standby takes over", holder, roleName),
	}, d.worstRole()), {
		ID: freezeID, Title: "Freeze " + holder, Command: d.byPage(freezeID), Promised: frozen.Milliseconds(), Off: off,
		Text: fmt.Sprintf("SIGSTOP for %v: %s still believes that it holds %q; its program is stopped, and a standby takes over", d.downTime(), holder, roleName),
		do:   func(context.Context) error { return p.freeze(d) },
	}, {
		ID: "role-resign", Title: "Ask " + holder + " to resign", Command: d.command("role", "resign", roleName), Off: off,
		Text: "a planned hand-over: its program is stopped, and a standby starts within milliseconds",
		do: func(ctx context.Context) error {
			d.record.mark(asked, "role", holder)
			_, err := d.page.Resign(ctx, roleName, apitype.ResignRequest{By: "the demonstration"})
			return err
		},
	}}
}
