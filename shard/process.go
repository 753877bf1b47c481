package shard

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// supervise keeps the node's process running.
func (a *Agent) supervise(ctx context.Context) {
	const first, most = time.Second, 30 * time.Second
	pause := first
	for ctx.Err() == nil {
		began := a.cfg.Clock.Now()
		if err := a.cfg.Process.Start(ctx); err != nil {
			a.log.Error("the node could not be started; trying again", "err", err)
		} else {
			a.post(func() { a.started() })
			done := a.cfg.Process.Done()
			select {
			case <-ctx.Done():
				return
			case <-done:
			}
			now := a.cfg.Clock.Now()
			a.log.Warn("the node's process ended")
			a.post(func() { a.ended(now) })
			if now-began > most {
				pause = first
			}
		}
		if !lease.Sleep(ctx, a.cfg.Clock, pause/2+a.cfg.Jitter(pause)) {
			return
		}
		pause = min(2*pause, most)
	}
}

// started: a process of the node runs that nothing is known of.
func (a *Agent) started() {
	s := &a.s
	s.fresh, s.probeAt = true, 0
}

// ended: the node's process is over, proved.
func (a *Agent) ended(now time.Duration) {
	s := &a.s
	s.answered = false
	if s.gone == 0 {
		s.gone = now
	}
}

// running tells that the node's process is known to run, so that a refused connection
// does not prove its death.
func (a *Agent) running() bool {
	switch {
	case a.cfg.Process != nil:
		return a.cfg.Process.Running()
	case a.s.adopted != nil:
		return a.s.adopted.Running()
	}
	return false
}

// process is the node's, nil if it is not known.
func (a *Agent) process() Process {
	if a.cfg.Process != nil {
		return a.cfg.Process
	}
	return a.s.adopted
}

// find looks for the process of a node on this host that somebody else started.
func (a *Agent) find(pid int) {
	s := &a.s
	if a.cfg.Process != nil || a.cfg.Adopt == nil || pid == 0 || !a.cfg.Local(a.cfg.Node) {
		return
	}
	if s.adopted != nil && s.adopted.PID() == pid && s.adopted.Running() {
		return
	}
	p, err := a.cfg.Adopt(pid)
	if err != nil {
		if why := err.Error(); why != s.unwatched {
			s.unwatched = why
			a.log.Warn("the node's process cannot be watched: its end is seen later, and it is not killed when it hangs", "pid", pid, "err", err)
		}
		return
	}
	s.adopted, s.unwatched = p, ""
	a.wg.Go(func() {
		select {
		case <-a.ctx.Done():
		case <-p.Done():
			now := a.cfg.Clock.Now()
			a.post(func() {
				if s.adopted == p {
					s.adopted = nil
					a.log.Warn("the node's process ended", "pid", pid)
					a.ended(now)
				}
			})
		}
	})
}

// checkDeath tells the death of the node once it has had its time to be back: it is
// reported, and the lease is given up.
func (a *Agent) checkDeath(now time.Duration) {
	s := &a.s
	if s.gone == 0 {
		return
	}
	if told := s.gone + a.cfg.RestartGrace; now < told {
		s.by(told)
		return
	}
	if s.condition == Down && s.tenure == nil {
		return
	}
	if s.condition != Down {
		s.condition, s.tell, s.fresh, s.armed = Down, true, true, false
		s.stats.Deaths++
	}
	a.gate.ended()
	if s.tenure != nil || a.seated() != nil {
		a.cancelDeed("the node's process ended")
		a.job("yield", a.cfg.Timing.Timeout, func(ctx context.Context) func() {
			a.yield(ctx, "", "the node's process ended")
			return nil
		})
	}
}

// orphaned closes an open primary beside which this agent was started, once neither the session of the
// agent before it nor a record of its own can keep others from replacing the node any more.
func (a *Agent) orphaned(now time.Duration) {
	s := &a.s
	if s.tenure != nil || a.gate.isOpen() || a.gate.closing() || !s.answered || s.node.Role != Primary || s.node.Fence == Closed {
		return
	}
	t := a.cfg.Timing
	if due := max(s.began, s.heard) + t.Timeout - t.Interval; now < due {
		s.by(due)
		return
	}
	a.log.Warn("the store does not answer, and the node is open without a lease; closing its fence")
	a.gate.close()
}

// hung: the node did not answer until trust in the session was over, and may be
// open. Its process is killed, so that nothing which it has received is done later.
func (a *Agent) hung() {
	s := &a.s
	p := a.process()
	if !a.cfg.KillHung || p == nil || !p.Running() || !a.cfg.Local(a.cfg.Node) || s.busy["kill"] || !a.gate.isOpen() {
		return
	}
	a.log.Error("the node does not answer, and its fence has to be closed: killing its process", "pid", p.PID())
	s.stats.Kills++
	a.job("kill", a.cfg.Timing.Timeout, func(ctx context.Context) func() {
		err := p.Kill()
		if err == nil {
			select {
			case <-p.Done():
				now := a.cfg.Clock.Now()
				return func() { a.ended(now) }
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		return func() { a.log.Error("the node's process could not be killed", "err", err) }
	})
}

// lost: trust in the session has ended, and the gate closes.
func (a *Agent) lost() {
	a.s.cut, a.s.tell = true, true
	a.s.steady = a.cfg.Clock.Now()
	a.s.stats.Fenced++
}
