package shard

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// deed is what is being done with the node: one at a time.
type deed struct {
	name    string
	command *Command // nil: by its own stance
	stance  Stance   // when it began
	cancel  context.CancelCauseFunc
}

// do begins a deed, unless one is under way.
func (a *Agent) do(name string, c *Command, within time.Duration, f func(ctx context.Context) error) {
	s := &a.s
	if s.deed != nil {
		return
	}
	ctx, cancel := context.WithCancelCause(a.ctx)
	d := &deed{name: name, command: c, stance: s.bearing.Stance, cancel: cancel}
	s.deed = d
	began := a.cfg.Clock.Now()
	a.log.Info("begins: " + name)
	a.wg.Go(func() {
		err := func() error {
			ctx, stop := context.WithTimeout(ctx, within)
			defer stop()
			return f(ctx)
		}()
		cancel(nil)
		a.post(func() {
			s.deed = nil
			took := a.cfg.Clock.Now() - began
			if err != nil {
				a.log.Warn("failed: "+name, "took", took, "err", err)
			} else {
				a.log.Info("done: "+name, "took", took)
			}
			a.done(c, err, took)
		})
	})
}

// done takes in how a deed ended.
func (a *Agent) done(c *Command, err error, took time.Duration) {
	s := &a.s
	now := a.cfg.Clock.Now()
	s.look = true
	if c != nil {
		a.answer(*c, err, took)
		return
	}
	if err == nil {
		s.backoff, s.retry = 0, 0
		return
	}
	if s.trouble == "" {
		s.trouble = err.Error()
	}
	i := a.cfg.Timing.Interval
	s.backoff = min(max(2*s.backoff, i/4), 5*i)
	s.retry = now + s.backoff/2 + a.cfg.Jitter(s.backoff)
}

// cancelDeed ends what is under way.
func (a *Agent) cancelDeed(why string) {
	if d := a.s.deed; d != nil {
		d.cancel(errors.New(why))
	}
}

// stand carries out what the agent has to do about its node as long as no command says otherwise.
func (a *Agent) stand(now time.Duration) {
	s := &a.s
	if !s.answered || s.condition == Down || s.viewAt == 0 {
		return
	}
	if why := a.stranger(); why != "" {
		s.trouble = why
		return
	}
	if s.raised > s.view.Row.Epoch && s.viewAt < s.raisedAt+a.cfg.Timing.Timeout {
		// What the row said before the command that was obeyed counts no more, unless the store
		// goes on saying so.
		a.lookAgain(now, promptly)
		a.drop()
		a.obeyNext()
		return
	}
	b := Stand(s.view, a.self(now))
	if b.Stance != s.bearing.Stance {
		a.log.Info("stands: "+string(b.Stance), "why", b.Why)
		s.tell = true
	}
	s.bearing = b
	s.trouble = ""
	a.first(b)
	a.drop()
	a.obeyNext()
	if s.deed != nil && s.deed.command != nil {
		return // the command decides
	}
	if s.view.Row.Primary != a.id {
		s.ill = ""
	}
	if b.Stance != Shun && s.ill == "" {
		s.shun("")
	}
	switch b.Stance {
	case Hold, Found, Resume:
		a.rule(b, now)
	case Trail:
		a.stepDown("another is the primary")
		a.trail(b, now)
	case Stay:
		if s.view.Row.Rev == 0 {
			s.trouble = b.Why // otherwise a plan says what goes on
		}
	case Close:
		s.trouble = b.Why
		a.stepDown(b.Why)
		a.keepClosed()
	case Shun:
		s.trouble = b.Why
		s.shun(b.Why)
		a.stepDown(b.Why)
		a.keepClosed()
	}
}

func (s *state) shun(why string) {
	if s.shunned != why {
		s.shunned, s.tell = why, true
	}
	switch {
	case why != "":
		s.condition = Refused
	case s.condition == Refused:
		s.condition = Up
	}
}

// stranger tells why the node is not what it was said to be; nothing is done with it then.
func (a *Agent) stranger() string {
	s := &a.s
	for _, r := range s.view.Nodes {
		same := s.node.Run != "" && r.ID != a.id && r.Run == s.node.Run && r.Live() && (r.Condition == Up || r.Condition == Loading)
		if same && !s.view.Row.rightful(a.id, r.ID) {
			return fmt.Sprintf("%s is the same node as that of %s; check the addresses", a.cfg.Node, r.Label())
		}
	}
	return ""
}

// rightful tells which of two agents beside one node goes on: the member's, of two members the one
// that was admitted first, and of none that with the lower id.
func (r Row) rightful(me, other string) bool {
	m, mine := r.Member(me)
	o, others := r.Member(other)
	if mine && others && !m.Since.Equal(o.Since) {
		return m.Since.Before(o.Since)
	}
	return mine && !others || mine == others && me < other
}

// first is the first contact with a node that came, or came back: it is closed, unless
// the row names it and nobody has made it a new one.
func (a *Agent) first(b Bearing) {
	s := &a.s
	if !s.fresh {
		return
	}
	s.fresh = false
	m := a.folder.memory()
	named := s.view.Row.Primary == a.id && s.node.Role == Primary && (b.Stance == Hold || b.Stance == Stay) && m.Run == s.node.Run
	switch {
	case named && s.node.Fence == Armed:
		s.armed, s.tell = true, true
	case named:
	default:
		a.gate.close()
	}
}

// drop ends a deed for which there is no reason any more.
func (a *Agent) drop() {
	s := &a.s
	d := s.deed
	if d == nil {
		return
	}
	row := s.view.Row
	switch c := d.command; {
	case c == nil && d.stance != Trail && s.bearing.Stance == Trail:
		a.cancelDeed("another is the primary")
	case c == nil && (s.bearing.Stance == Shun || s.bearing.Stance == Close):
		a.cancelDeed("the node has to be closed")
	case c == nil && len(s.queue) > 0:
		a.cancelDeed("a command came")
	case c != nil && c.Order == DoPromote && row.Primary == a.id && row.Epoch == c.Epoch:
		// It is in the row; what is left is to open it.
	case c != nil && row.Epoch > c.Epoch:
		a.cancelDeed(fmt.Sprintf("epoch %d has begun", row.Epoch))
	case c != nil && c.Order != DoFollow && (row.Plan == nil || row.Plan.Epoch != c.Epoch) && row.Epoch >= c.Epoch:
		a.cancelDeed("the plan is over")
	}
}

// stepDown closes the fence, and then gives the lease up.
func (a *Agent) stepDown(why string) {
	s := &a.s
	if s.tenure == nil && a.seated() == nil || s.busy["yield"] {
		return
	}
	if d := s.deed; d != nil && d.command != nil {
		return // it does so itself
	}
	a.gate.close()
	s.armed = false
	a.job("yield", 2*a.cfg.Timing.Timeout, func(ctx context.Context) func() {
		if err := a.gate.shut(ctx); err != nil {
			return nil // the session lapses by itself
		}
		a.yield(ctx, "", why)
		return func() { s.look = true }
	})
}

// keepClosed closes the fence of a node that is found open.
func (a *Agent) keepClosed() {
	s := &a.s
	seenOpen := s.node.Fence != Closed && a.gate.seen(s.probedAt)
	if a.gate.closing() || !a.gate.isOpen() && (!seenOpen || s.deed != nil) {
		return
	}
	a.gate.close()
}

// trail follows the primary, and keeps the node closed, so that it is when it is promoted.
func (a *Agent) trail(b Bearing, now time.Duration) {
	s := &a.s
	a.keepClosed()
	follows := s.node.Role == Replica && s.node.Link != nil && s.node.Link.Address == b.Address
	if follows || s.deed != nil || now < s.retry || now < s.promised {
		return
	}
	was := s.node.Role
	epoch, primary := s.view.Row.PrimaryEpoch, s.view.Row.Primary
	a.do("follow "+b.Address, nil, 4*a.cfg.Timing.Timeout, func(ctx context.Context) error {
		if was == Primary {
			if err := a.reconsider(ctx); err != nil {
				return err
			}
		}
		return a.follow(ctx, b.Address, was, epoch, primary)
	})
}

// reconsider looks again at a primary that is to lose what it has, now that it is closed: it may
// have taken a write since it was found to have nothing.
func (a *Agent) reconsider(ctx context.Context) error {
	if err := a.gate.shut(ctx); err != nil {
		return err
	}
	if _, err := a.look(ctx); err != nil {
		return err
	}
	v, err := a.looked(ctx)
	if err != nil {
		return err
	}
	if b := Stand(v, a.selfNow()); b.Stance != Trail {
		return fmt.Errorf("it is not to follow any more: %s", b.Why)
	}
	return nil
}

// follow makes the node a replica of the one at the address; of nobody if that is "".
func (a *Agent) follow(ctx context.Context, address string, was Role, epoch int64, primary string) error {
	if address != "" && (address == a.cfg.Private || address == a.cfg.Node) {
		return fmt.Errorf("%s is its own address", address)
	}
	if was == Primary {
		if err := a.gate.shut(ctx); err != nil {
			return err
		}
		a.yield(ctx, "", "the node becomes a replica")
	}
	err := a.each(ctx, func(ctx context.Context) error { return a.node.Follow(ctx, address) })
	if err != nil {
		return err
	}
	a.ask(func() { a.s.led = a.cfg.Clock.Now() })
	if _, err := a.look(ctx); err != nil {
		return err
	}
	if was == Primary {
		a.demoted(epoch, primary)
	}
	return nil
}

// each bounds one exchange with the node.
func (a *Agent) each(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, max(a.cfg.exchange(), a.cfg.Timing.Interval))
	defer cancel()
	return f(ctx)
}

// look probes the node, and tells the loop.
func (a *Agent) look(ctx context.Context) (State, error) {
	asked := a.cfg.Clock.Now()
	var n State
	err := a.each(ctx, func(ctx context.Context) (err error) {
		n, err = a.node.Probe(ctx)
		return err
	})
	if err != nil {
		return State{}, err
	}
	if !a.ask(func() { a.probed(n, asked, nil); a.s.probeAt = asked }) {
		return State{}, errStopped
	}
	return n, nil
}
