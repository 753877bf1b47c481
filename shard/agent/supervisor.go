package agent

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// supervisor knows the node's process: it starts one that belongs to the agent again, watches one that
// somebody else started, and kills one that hangs.
type supervisor struct {
	*common
	probe *nodeProbe
	fence *fence

	goneSince    time.Duration // since when the process is known to have ended; 0: it is not
	adopted      shard.Process // of a node that someone else started
	adoptProblem string        // why it could not be adopted, as it was logged last
	adoptTriedAt time.Duration // when a process was last looked for by its port
}

// run keeps the process of a node that the agent starts running.
func (s *supervisor) run(ctx context.Context) {
	const first, most = time.Second, 30 * time.Second
	retry := s.cfg.retry(first, most)
	for ctx.Err() == nil {
		started := s.now()
		if err := s.cfg.Process.Start(ctx); err != nil {
			s.log.Error("node could not be started; trying again", "err", err)
		} else {
			s.post(s.probe.processStarted)
			done := s.cfg.Process.Done()
			select {
			case <-ctx.Done():
				return
			case <-done:
			}
			now := s.now()
			s.log.Warn("node's process ended")
			s.post(func() { s.probe.processEnded(now) })
			if now-started > most {
				retry.Reset()
			}
		}
		if !lease.Sleep(ctx, s.clock, retry.Next()) {
			return
		}
	}
}

// recordEnd records when the process ended, if it was not known to have.
func (s *supervisor) recordEnd(at time.Duration) {
	if s.goneSince == 0 {
		s.goneSince = at
	}
}

// process is the node's, nil if it is not known.
func (s *supervisor) process() shard.Process {
	if s.cfg.Process != nil {
		return s.cfg.Process
	}
	return s.adopted
}

// isRunning reports whether the process is known to run: a refused connection does not prove its death then.
func (s *supervisor) isRunning() bool {
	p := s.process()
	return p != nil && p.Running()
}

// adopt looks for the process of a node on this host that someone else started, and watches it. pid is 0 if the node
// does not tell it: it is found by its port then.
func (s *supervisor) adopt(pid int) {
	if s.cfg.Process != nil || s.cfg.Adopt == nil || !s.cfg.Local(s.cfg.Node) {
		return
	}
	if s.adopted != nil && (pid == 0 || s.adopted.PID() == pid) && s.adopted.Running() {
		return
	}
	if pid == 0 {
		if s.adoptProblem != "" && s.now() < s.adoptTriedAt+s.cfg.Timing.Timeout {
			return // it means looking at every process of the host
		}
		s.adoptTriedAt = s.now()
	}
	p, err := s.cfg.Adopt(pid)
	if err != nil {
		if why := err.Error(); why != s.adoptProblem {
			s.adoptProblem = why
			s.log.Warn("node's process cannot be watched: its end is seen later, and it is not killed when it hangs", "pid", pid, "err", err)
		}
		return
	}
	s.adopted, s.adoptProblem = p, ""
	s.wg.Go(func() {
		select {
		case <-s.ctx.Done():
		case <-p.Done():
			now := s.now()
			s.post(func() {
				if s.adopted == p {
					s.adopted = nil
					s.log.Warn("node's process ended", "pid", pid)
					s.probe.processEnded(now)
				}
			})
		}
	})
}

// trouble is what an operator should know about a primary whose process cannot be watched, although nothing else closes
// it when it hangs: its engine has no armed fence.
func (s *supervisor) trouble() string {
	if s.adoptProblem == "" || s.cfg.Policy.FenceDelay != 0 || s.probe.state.Role != shard.Primary {
		return ""
	}
	return "if it hangs, it stays so: " + s.adoptProblem + "; run the agent as the node's user on its host, or let it start the node"
}

// killHung kills the process of a node that did not answer until trust had ended and may be open, so that
// nothing it has received is executed later.
func (s *supervisor) killHung() {
	p := s.process()
	if !s.cfg.KillHung || p == nil || !p.Running() || !s.cfg.Local(s.cfg.Node) || s.busy[workKillHung] || !s.fence.isOpen() {
		return
	}
	s.log.Error("node does not answer, and its fence must be closed: killing its process", "pid", p.PID())
	s.stats.Kills++
	s.background(workKillHung, s.cfg.Timing.Timeout, func(ctx context.Context) func() {
		err := p.Kill()
		if err == nil {
			select {
			case <-p.Done():
				now := s.now()
				return func() { s.probe.processEnded(now) }
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		return func() { s.log.Error("node's process could not be killed", "err", err) }
	})
}
