package agent

import (
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// saver saves what the node has in the data folder, so that it is known again after a restart.
type saver struct {
	*common
	probe     *nodeProbe
	view      *viewCache
	lease     *shardLease
	fence     *fence
	isTrusted func() bool

	savedAt time.Duration
	limiter logLimiter
}

func (s *saver) step(now time.Duration) {
	m := s.folder.state()
	if epoch := max(m.Epoch, s.view.Row.Epoch); epoch > m.Epoch {
		if err := s.folder.raise(epoch); err != nil {
			s.logFailure(err, now)
			return
		}
	}
	n := s.probe.state
	if !s.probe.answered || s.probe.unexamined || s.view.isPrimary() && n.Role == shard.Replica {
		return // a primary that was restarted as a replica must be known as such until it continues
	}
	holding := s.lease.held != nil && s.fence.isOpen() && s.isTrusted()
	next := m.Updated(n, holding)
	moved := m.Lineage.ID != next.Lineage.ID || m.Run != next.Run || m.Copying != next.Copying || (m.Keys == 0) != (next.Keys == 0)
	// Transaction ids move all the time: once a second is enough for them.
	if next == m || !moved && now-s.savedAt < max(time.Second, s.cfg.Timing.Interval) {
		return
	}
	s.savedAt = now
	err := s.folder.change(false, func(m *shard.SavedState) { *m = m.Updated(n, holding) })
	if err != nil {
		s.logFailure(err, now)
		return
	}
	s.limiter.end()
}

func (s *saver) logFailure(err error, now time.Duration) {
	if s.limiter.shouldLog("data folder", now) {
		s.log.Error("data folder cannot be written", "err", err)
	}
}
