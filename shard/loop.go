package shard

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// turn goes round once: it starts what is due, and thinks about what is known.
func (a *Agent) turn(now time.Duration) {
	s := &a.s
	if s.began == 0 {
		s.began, s.wellSince = now, now
	}
	s.next = now + a.cfg.Timing.Interval
	if due := s.probeAt + s.every(a); !s.busy["probe"] && (s.probeAt == 0 || now >= due) {
		a.probe(now)
	} else if !s.busy["probe"] {
		s.by(due)
	}
	a.checkDeath(now)
	a.orphaned(now)
	a.think(now)
	a.exchange(now)
}

// watched is how long a replica that was led to another primary is looked at more often: a plan waits
// for its link.
const watched = 10 * time.Second

// every is the interval of this round, a little different each time.
func (s *state) every(a *Agent) time.Duration {
	i := a.cfg.Timing.Interval
	if s.refused != "" || s.access != "" {
		i = max(i, a.cfg.Timing.Timeout/2)
	}
	led := s.led != 0 && a.cfg.Clock.Now() < s.led+watched
	if l := s.node.Link; l != nil && (l.Syncing || led && !l.Up) {
		i = min(i, 100*time.Millisecond) // also so that the end of a copy is not missed
	}
	return i
}

// probe asks the own node about itself, and then reports it.
func (a *Agent) probe(now time.Duration) {
	s := &a.s
	i := a.cfg.Timing.Interval
	s.probeAt = now - i/20 + a.cfg.Jitter(i/10)
	within := max(i, a.cfg.exchange())
	a.job("probe", within, func(ctx context.Context) func() {
		asked := a.cfg.Clock.Now()
		n, err := a.node.Probe(ctx)
		return func() {
			a.probed(n, asked, err)
			a.countReady()
			s.report = true
		}
	})
}

// probed takes in what the node said of itself, asked at the given time.
func (a *Agent) probed(n State, asked time.Duration, err error) {
	s := &a.s
	before := s.condition
	if asked < s.probedAt {
		return // overtaken
	}
	s.probedAt = asked
	switch {
	case err == nil:
		switch {
		case s.known && s.node.Run != n.Run:
			a.reborn()
		case !s.known:
			a.met(n)
		}
		role, fence, synced := s.node.Role, s.node.Fence, s.node.Synced
		if n.Fence == Armed && n.Needs != 0 && n.Needs != max(1, a.cfg.MinReplicas) {
			n.Fence = Open // somebody else's condition: it is not what we promise
		}
		s.node, s.answered, s.known, s.gone, s.access = n, true, true, 0, ""
		s.answeredAt = asked
		s.condition = Up
		if n.Loading {
			s.condition = Loading
		}
		if s.shunned != "" {
			s.condition = Refused
		}
		s.tell = s.tell || role != n.Role || fence != n.Fence || synced != n.Synced
		if n.Fence != Closed || !a.gate.isOpen() && s.deed == nil {
			s.willOpen = ""
		}
		a.find(n.PID)
	case errors.Is(err, ErrNodeAccess):
		s.answered, s.access = false, err.Error()
		s.condition = Silent
	case errors.Is(err, ErrNodeGone) && a.cfg.Local(a.cfg.Node) && !a.running():
		s.answered = false
		if s.gone == 0 {
			s.gone = asked
		}
	default:
		s.answered = false
		if s.condition != Down {
			s.condition = Silent
		}
	}
	if s.condition != before {
		s.tell = true
	}
}

// met is the first look at a node. An open primary that was restarted while nobody looked after it
// is closed before anything else: another may have taken its place.
func (a *Agent) met(n State) {
	m := a.folder.memory()
	if m.Epoch > 0 && n.Role == Primary && n.Fence != Closed && n.Run != "" && n.Run != m.Run {
		a.log.Warn("the node was restarted while it had no agent")
		a.gate.close()
	}
}

// reborn: the node's process is another one than before. What it has may be less.
func (a *Agent) reborn() {
	a.log.Warn("the node was restarted")
	a.s.fresh, a.s.armed, a.s.rebornAt = true, false, a.cfg.Clock.Now()
	a.s.results = nil // they tell of what the other process had; whoever needs them asks again
	if a.s.tenure != nil || a.gate.isOpen() {
		a.gate.close()
	}
}

// exchange reports, or reads the view, if there is reason to; one of them at a time.
func (a *Agent) exchange(now time.Duration) {
	s := &a.s
	if s.busy["store"] || !s.report && !s.tell && !s.look {
		return
	}
	if s.refused != "" && !s.report {
		s.look = false
		return
	}
	if now < s.notBefore {
		s.by(s.notBefore)
		return
	}
	report, tell := s.report || s.tell, s.tell
	s.report, s.tell, s.look = false, false, false
	var r Record
	if report {
		s.begun++
		r = a.record(now)
	}
	a.job("store", a.cfg.call(), func(ctx context.Context) func() {
		var v View
		var err error
		asked := a.cfg.Clock.Now()
		if report {
			v, err = a.cfg.Registry.Report(ctx, r, tell)
		} else {
			v, err = a.cfg.Registry.Look(ctx, a.cfg.Shard)
		}
		return func() {
			if report && (err == nil || errors.Is(err, ErrTaken)) {
				s.heard = asked
			}
			a.exchanged(r, v, report, err)
			if err != nil && tell {
				s.tell = !errors.Is(err, ErrTaken)
			}
		}
	})
}

// promptly is the pause between looks at a row that is about to change.
const promptly = 20 * time.Millisecond

// lookAgain has the view read when the last one is that old.
func (a *Agent) lookAgain(now, age time.Duration) {
	if due := a.s.viewAt + age; now >= due {
		a.s.look = true
	} else {
		a.s.by(due)
	}
}

func (a *Agent) exchanged(r Record, v View, report bool, err error) {
	s := &a.s
	now := a.cfg.Clock.Now()
	switch {
	case err == nil:
		if s.failing != 0 {
			a.log.Info("the store answers again", "after", now-s.failing)
		}
		if s.failing != 0 || s.steady == 0 {
			s.steady = now
		}
		s.failing, s.lull = 0, 0
		if report {
			s.registered, s.refused, s.told = true, "", r
			s.waiters = slices.DeleteFunc(s.waiters, func(w waiter) bool {
				if w.after < s.begun {
					close(w.done)
				}
				return w.after < s.begun
			})
		}
		a.takeView(v, now)
	case errors.Is(err, ErrTaken) || errors.Is(err, lease.ErrInvalid):
		if s.refused == "" {
			a.log.Error("the node cannot be registered; nothing is done with it", "err", err)
		}
		s.refused = err.Error()
		a.publish(now)
	case errors.Is(err, ErrNotFound):
		s.failing, s.notBefore = 0, now+promptly
	default:
		if s.failing == 0 {
			s.failing = now
			a.log.Warn("the store does not answer", "err", err)
		}
		// Soon again, so that a store that comes and goes hears of the node in between.
		i := a.cfg.Timing.Interval
		s.lull = min(max(2*s.lull, i/8), i/3)
		s.notBefore, s.report = now+s.lull/2+a.cfg.Jitter(s.lull), true
	}
}

// reported returns when a report that began after the call was accepted.
func (a *Agent) reported(ctx context.Context) error {
	done := make(chan struct{})
	ok := a.ask(func() {
		a.s.waiters = append(a.s.waiters, waiter{after: a.s.begun, done: done})
		a.s.tell = true
	})
	if !ok {
		return errStopped
	}
	select {
	case <-done:
		return nil
	case <-a.over:
		return errStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// looked returns a view that was read after the call.
func (a *Agent) looked(ctx context.Context) (View, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.call())
	defer cancel()
	v, err := a.cfg.Registry.Look(ctx, a.cfg.Shard)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return View{}, err
	}
	now := a.cfg.Clock.Now()
	if err == nil && !a.ask(func() { a.takeView(v, now) }) {
		return View{}, errStopped
	}
	return v, nil
}

// think draws the conclusions from what is known now.
func (a *Agent) think(now time.Duration) {
	s := &a.s
	if s.tenure != nil {
		select {
		case <-s.tenure.live.Done():
			s.tenure = nil
			a.log.Warn("the session with the shard's lease is over")
		default:
		}
	}
	s.judgeLease(now)
	a.askPromises(now)
	if !s.registered || s.refused != "" {
		return
	}
	a.knock(now)
	a.stand(now)
	a.arm(now)
	a.upkeep(now)
	a.orchestrate(now)
	a.remember(now)
	a.publish(now)
}

// self is the agent and its node for [Stand].
func (a *Agent) self(now time.Duration) Self {
	m := a.folder.memory()
	if m.Lineage.ID == "" {
		m = Memory{} // nothing is known of what the node had
	}
	return Self{ID: a.id, State: a.s.node, Memory: m, Holding: a.holding(), Address: a.cfg.Private, Without: now - a.s.without,
		For: now - max(a.s.began, a.s.rebornAt), Discard: a.cfg.Discard}
}

// knock asks whether the primary answers, if that is another node: once per interval, and at once
// when its session is first believed to be over.
func (a *Agent) knock(now time.Duration) {
	s := &a.s
	of := s.view.Row.Primary
	address := s.addressOf(of)
	if of == "" || of == a.id || address == "" {
		s.opinion, s.mute, s.shut = Opinion{}, 0, 0
		return
	}
	stale := s.opinion.Of != of || s.over && s.knocked < s.overSince
	if s.busy["knock"] || !stale && now < s.knocked+a.cfg.Timing.Interval {
		return
	}
	within := min(max(a.cfg.Timing.Timeout/4, 100*time.Millisecond), 500*time.Millisecond)
	if s.mute != 0 && s.opinion.Of == of {
		within = max(within/2, 100*time.Millisecond) // it did not answer the last time either
	}
	own, known := s.view.Node(of)
	left := s.over && known && !own.Live()
	a.job("knock", within, func(ctx context.Context) func() {
		asked := a.cfg.Clock.Now()
		verdict := a.cfg.Engines.Knock(ctx, address)
		shut := left && verdict == Answers && a.foundClosed(ctx, address)
		return func() {
			if s.opinion.Of != of || s.opinion.Verdict != verdict || s.over && s.knocked < s.overSince {
				s.tell = s.tell || s.over
			}
			switch {
			case verdict == Answers:
				s.mute = 0
			case s.mute == 0 || s.opinion.Of != of:
				s.mute = asked
			}
			opinion := Opinion{Of: of, Verdict: verdict}
			switch {
			case !shut:
				s.shut = 0
			case s.shut == 0 || s.opinion.Of != of:
				s.shut = asked
			default:
				opinion.Closed = asked - s.shut
			}
			s.opinion, s.knocked = opinion, asked
		}
	})
}

// foundClosed tells that a node whose agent is silent has its fence closed.
func (a *Agent) foundClosed(ctx context.Context, address string) bool {
	node := a.cfg.Engines.At(address)
	defer func() { _ = node.Close() }()
	n, err := node.Probe(ctx)
	return err == nil && n.Fence == Closed
}
