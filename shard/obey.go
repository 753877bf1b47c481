package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// take takes commands out of the node's queue and hands them to the loop.
func (a *Agent) take(ctx context.Context) {
	const wait = 5 * time.Second
	pause := a.cfg.Timing.Interval / 8
	for ctx.Err() == nil {
		c, err := func() (Command, error) {
			ctx, cancel := context.WithTimeout(ctx, wait+a.cfg.call())
			defer cancel()
			return a.cfg.Commands.Next(ctx, a.id, wait)
		}()
		switch {
		case err == nil:
			a.post(func() { a.heed(c) })
			pause = a.cfg.Timing.Interval / 8
			continue
		case errors.Is(err, ErrNone):
			continue
		}
		if !lease.Sleep(ctx, a.cfg.Clock, pause/2+a.cfg.Jitter(pause)) {
			return
		}
		pause = min(2*pause, a.cfg.Timing.Interval)
	}
}

// heed decides whether a command is to be carried out.
func (a *Agent) heed(c Command) {
	s := &a.s
	known := max(a.folder.memory().Epoch, s.view.Row.Epoch)
	if why, ok := c.Obey(a.cfg.Shard, a.id, known); !ok {
		a.log.Info("command dropped", "command", c.ID, "why", why)
		return
	}
	same := func(id string) bool { return id == c.ID }
	switch {
	case !s.registered || s.refused != "":
		return // whoever sent it sends it again
	case slices.ContainsFunc(s.results, func(r Result) bool { return same(r.ID) }):
		s.tell = true
		return
	case s.deed != nil && s.deed.command != nil && same(s.deed.command.ID):
		return
	case slices.ContainsFunc(s.queue, func(q Command) bool { return same(q.ID) }):
		return
	}
	// Of an epoch that is over nothing is left to do.
	s.queue = slices.DeleteFunc(s.queue, func(q Command) bool { return q.Epoch < c.Epoch })
	s.queue, s.heeded = append(s.queue, c), a.cfg.Clock.Now()
	if len(s.queue) > MaxQueue {
		s.queue = s.queue[1:]
	}
	if d := s.deed; d != nil && (d.command == nil || d.command.Epoch < c.Epoch) {
		a.cancelDeed(fmt.Sprintf("a command of epoch %d came", c.Epoch))
	}
}

// obeyNext begins to carry out the oldest command that waits.
func (a *Agent) obeyNext() {
	s := &a.s
	if s.deed != nil || len(s.queue) == 0 {
		return
	}
	c := s.queue[0]
	now := a.cfg.Clock.Now()
	if (c.Order == DoPromote || c.Order == DoCatch || c.Order == DoDetach && s.shunned != "") && s.view.Row.Epoch < c.Epoch {
		// The command was faster than the row, and what it asks depends on the plan there. If no
		// such row comes, whoever sent it sends it again, or has lost the decision.
		if now < s.heeded+a.cfg.Timing.Timeout {
			a.lookAgain(now, promptly)
		} else {
			s.queue = s.queue[1:]
		}
		return
	}
	if c.Order == DoPromote && now < s.promised {
		s.by(s.promised) // a plan that cannot wait for the end of the promise is replaced
		return
	}
	s.queue = s.queue[1:]
	known := max(a.folder.memory().Epoch, s.view.Row.Epoch)
	if _, ok := c.Obey(a.cfg.Shard, a.id, known); !ok {
		return
	}
	if why := a.unfit(c); why != "" {
		a.answer(c, errors.New(why), 0)
		return
	}
	within := max(2*a.cfg.Policy.Patience, a.cfg.Timing.Timeout)
	role, pause, next := s.node.Role, DefaultPause, ""
	var plan Plan
	if p := s.view.Row.Plan; p != nil {
		pause, plan = cmp.Or(p.Timeout, pause), *p
	}
	if r, ok := s.view.Node(c.To); ok {
		next = r.Instance
	}
	held := s.tenure != nil
	s.raised, s.raisedAt = max(s.raised, c.Epoch), now
	a.do(fmt.Sprintf("%s (epoch %d)", c.Order, c.Epoch), &c, within, func(ctx context.Context) error {
		if err := a.folder.raise(c.Epoch); err != nil {
			return err
		}
		switch c.Order {
		case DoFence:
			return a.fence(ctx)
		case DoDetach:
			if role == Primary {
				_, err := a.look(ctx) // one that was promoted before its plan was replaced
				return err
			}
			return a.follow(ctx, "", role, c.Epoch, "")
		case DoPause:
			return a.pauseWrites(ctx, c)
		case DoCatch:
			return a.catchUp(ctx, c, pause*2/3)
		case DoYield:
			return a.hand(ctx, next, held)
		case DoPromote:
			return a.promote(ctx, c, plan)
		case DoFollow:
			if c.Address == "" {
				return errors.New("it does not name an address")
			}
			return a.follow(ctx, c.Address, role, c.Epoch, c.To)
		}
		return fmt.Errorf("the order %q is not known to this version", c.Order)
	})
}

// answer acknowledges a command.
func (a *Agent) answer(c Command, err error, took time.Duration) {
	s := &a.s
	n := s.node
	r := Result{ID: c.ID, Epoch: c.Epoch, Order: c.Order, Txn: n.Txn, Lineage: n.Lineage, Before: n.Before, Took: took}
	if err != nil {
		r.Error = err.Error()
	}
	s.results = slices.DeleteFunc(s.results, func(r Result) bool { return r.Epoch < c.Epoch })
	s.results = append(s.results, r)
	s.results = s.results[max(0, len(s.results)-MaxResults):]
	s.tell = true
	s.stats.Commands++
}

// unfit is why a command is not carried out by a node that the agent shuns.
func (a *Agent) unfit(c Command) string {
	s := &a.s
	p := s.view.Row.Plan
	switch {
	case s.shunned == "" || c.Order != DoPromote && c.Order != DoFollow && c.Order != DoDetach:
		return ""
	case p != nil && p.Epoch == c.Epoch && p.Force && (c.Order == DoPromote || c.Order == DoDetach && p.Wanted == a.id):
		return ""
	}
	return s.shunned
}

// fence closes the fence. The lease stays.
func (a *Agent) fence(ctx context.Context) error {
	if err := a.gate.shut(ctx); err != nil {
		return err
	}
	_, err := a.look(ctx)
	return err
}

// pauseWrites lets writes wait. As a pause ends by itself, the fence is closed before it does,
// and in any case before the lease is given up; until then those who write wait and see no
// error.
func (a *Agent) pauseWrites(ctx context.Context, c Command) error {
	if c.For <= a.cfg.margin() {
		return fmt.Errorf("a pause of %v is too short to close the fence in", c.For)
	}
	until := a.cfg.Clock.Now() + c.For
	a.paused.Store(int64(until))
	if !a.ask(func() { a.s.pause.epoch, a.s.pause.until = c.Epoch, until }) {
		return errStopped
	}
	err := a.each(ctx, func(ctx context.Context) error { return a.node.Pause(ctx, c.For) })
	switch {
	case err == nil:
		a.gate.closeBy(until - a.cfg.margin())
	case !errors.Is(err, ErrUnsupported):
		return err
	default:
		if err := a.gate.shut(ctx); err != nil {
			return err
		}
	}
	n, err := a.look(ctx)
	if err == nil && n.Role != Primary {
		err = errors.New("the node is not a primary")
	}
	return err
}

// catchUp waits until the node has what its primary stood at when it was paused.
func (a *Agent) catchUp(ctx context.Context, c Command, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		var n State
		err := a.each(ctx, func(ctx context.Context) (err error) {
			n, err = a.node.Probe(ctx)
			return err
		})
		// Without its link it may stand at a number that is not the primary's.
		linked := n.Role == Replica && n.Synced && n.Link != nil && n.Link.Up && !n.Link.Syncing
		if err == nil && linked && n.Txn >= c.Txn {
			_, err = a.look(ctx)
			return err
		}
		if !lease.Sleep(ctx, a.cfg.Clock, time.Millisecond) {
			return fmt.Errorf("it is at %d, and has to reach %d (in touch with its primary: %v)", n.Txn, c.Txn, linked)
		}
	}
}

// hand gives the lease of a closed primary up for its successor.
func (a *Agent) hand(ctx context.Context, successor string, held bool) error {
	if err := a.gate.shut(ctx); err != nil {
		return err
	}
	if held {
		a.yield(ctx, successor, "switchover")
	}
	return nil
}
