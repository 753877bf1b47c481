package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrRefused: an agent does not give a promise; the text says why.
var ErrRefused = errors.New("shard: promise refused")

// Give promises another's agent neither to orchestrate nor to obey a promotion for as long
// as p says, and returns the authentication of that answer. The promise is on disk when Give
// returns. Errors wrap [ErrRefused].
func (a *Agent) Give(p Promise, mac string) (answer string, err error) {
	var secret, why string
	var until time.Duration
	ok := a.ask(func() {
		s := &a.s
		row := s.view.Row
		known := max(a.folder.memory().Epoch, row.Epoch)
		secret = row.Secret
		var fine bool
		if why, fine = p.Check(row, a.id, known); !fine {
			return
		}
		switch {
		case !p.Verify(secret, "ask", mac):
			why = "its authentication is wrong"
		case a.folder.memory().answered(p):
			why = "it was asked before"
		case s.busy["decide"] || s.busy["lock"] && row.Plan != nil:
			why = "a decision is under way"
		case s.deed != nil && s.deed.command != nil && s.deed.command.Order == DoPromote || slices.ContainsFunc(s.queue, func(c Command) bool { return c.Order == DoPromote }):
			why = "a promotion is under way"
		default:
			until = a.cfg.Clock.Now() + p.For
			s.promised = max(s.promised, until)
			s.lock.mine, s.lock.try = "", ""
		}
	})
	switch {
	case !ok:
		return "", fmt.Errorf("%w: the agent has stopped", ErrRefused)
	case why != "":
		return "", fmt.Errorf("%w: %s", ErrRefused, why)
	}
	err = a.folder.change(true, func(m *Memory) {
		m.Promised, m.Boot = max(m.Promised, until), a.cfg.Boot
		m.Asked, m.AskedEpoch = p.Seq, p.Epoch
	})
	if err != nil {
		return "", fmt.Errorf("%w: it could not be kept: %v", ErrRefused, err)
	}
	return p.Sign(secret, "give"), nil
}

// answered tells that the question, or a later one, was answered before.
func (m Memory) answered(p Promise) bool { return m.AskedEpoch == p.Epoch && p.Seq <= m.Asked }

// askPromises asks all other members not to replace this primary while the store is down,
// every interval, from when trust in the session has come to half its time.
func (a *Agent) askPromises(now time.Duration) {
	s := &a.s
	t := a.cfg.Timing
	if !a.gate.isOpen() || s.viewAt == 0 || s.view.Row.Primary != a.id || s.condition == Down {
		return
	}
	var left time.Duration
	if s.tenure != nil {
		left = s.tenure.live.Remaining()
	}
	if half := (t.Timeout - t.Interval) / 2; left > half {
		s.by(now + left - half)
		return
	}
	if s.busy["promises"] {
		return
	}
	if due := s.asked + t.Interval; s.asked != 0 && now < due {
		s.by(due)
		return
	}
	s.asked = now
	lasts := min(t.Timeout, MaxPromise)
	members := a.others()
	row := s.view.Row
	a.job("promises", max(t.Interval, t.Timeout/4), func(ctx context.Context) func() {
		sent := a.cfg.Clock.Now()
		err := a.allPromise(ctx, members, row, lasts)
		return func() {
			if err != nil {
				s.trouble = err.Error()
				if s.alone.due("no promise", a.cfg.Clock.Now()) {
					a.log.Warn("the session is not renewed, and not all others promise to leave the primary as it is", "err", err)
				}
				return
			}
			s.alone.over()
			s.stats.Promised++
			a.trust.set(func(t *trust) { t.promised = max(t.promised, sent+lasts-a.cfg.Timing.Interval) })
		}
	})
}

// others are all who might replace this primary: the members, and those whose admission was decided
// without an answer.
func (a *Agent) others() []Member {
	s := &a.s
	all := append(slices.Clone(s.view.Row.Members), s.pendings...)
	slices.SortStableFunc(all, func(x, y Member) int {
		if x.ID < y.ID {
			return -1
		}
		if x.ID > y.ID {
			return 1
		}
		return 0
	})
	all = slices.CompactFunc(all, func(x, y Member) bool { return x.ID == y.ID })
	return slices.DeleteFunc(all, func(m Member) bool { return m.ID == a.id })
}

// allPromise returns nil when the node answers and all members have promised.
func (a *Agent) allPromise(ctx context.Context, members []Member, row Row, lasts time.Duration) error {
	err := a.each(ctx, func(ctx context.Context) error { return a.tryWrite(ctx, a.node) })
	if err != nil && !errors.Is(err, ErrNodeRefused) && !errors.Is(err, ErrNodeUnwell) {
		return fmt.Errorf("the node does not answer: %w", err)
	}
	err = nil // a node that refuses writes answers
	errs := make(chan error, len(members))
	for _, m := range members {
		a.wg.Go(func() { errs <- a.onePromise(ctx, m, row, lasts) })
	}
	for range members {
		err = errors.Join(err, <-errs)
	}
	return err
}

func (a *Agent) onePromise(ctx context.Context, m Member, row Row, lasts time.Duration) error {
	switch {
	case a.cfg.Promisers == nil:
		return errors.New("this agent cannot reach others without the store")
	case m.Agent == "":
		return fmt.Errorf("the agent of node %.8s has no address", m.ID)
	}
	p := Promise{Shard: row.Name, From: a.id, To: m.ID, Epoch: row.PrimaryEpoch, For: lasts, Seq: int64(a.cfg.Clock.Now())}
	answer, err := a.cfg.Promisers.Ask(ctx, m.Agent, p, p.Sign(row.Secret, "ask"))
	if err != nil {
		return fmt.Errorf("the agent of node %.8s at %s: %w", m.ID, m.Agent, err)
	}
	if !p.Verify(row.Secret, "give", answer) {
		return fmt.Errorf("the answer of the agent of node %.8s at %s is not authentic", m.ID, m.Agent)
	}
	return nil
}
