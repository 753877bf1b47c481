package agent

import (
	"context"
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
	reconcile *reconciler

	savedAt time.Duration
	retryAt time.Duration // after a write that failed, on a full disk say
	logs    []logSample   // of this node as the primary, oldest first
	limiter logLimiter
}

func (s *saver) step(now time.Duration) {
	if s.busy[workSaveState] {
		return // the next turn saves what is new by then
	}
	if now < s.retryAt {
		s.wakeBy(s.retryAt)
		return
	}
	m := s.folder.state()
	epoch, led := s.view.Row.Epoch, int64(0)
	if s.view.isPrimary() {
		led = s.view.Row.PrimaryEpoch
	}
	if epoch > m.Epoch || led > m.Led {
		s.save(func() error { return s.folder.raise(epoch, led) })
		return
	}
	if m.Promised != 0 && m.Promised <= now {
		s.save(func() error {
			return s.folder.change(false, func(m *shard.SavedState) {
				if m.Promised <= now { // none was given meanwhile
					m.Promised = 0
				}
			})
		})
		return
	}
	n := s.probe.state
	if !s.probe.answered || s.probe.unclassified || s.view.isPrimary() && n.Role == shard.Replica {
		return // a primary that was restarted as a replica must be known as such until it continues
	}
	holding := s.lease.held != nil && s.fence.isOpen() && s.reconcile.isTrusted()
	next := m.Updated(n, holding)
	next.PrimaryLog = s.primaryLog(m.PrimaryLog, holding, now)
	before, after := m.PrimaryLog, next.PrimaryLog
	moved := before.Node != after.Node || before.Written.File != after.Written.File || m.Lineage.ID != next.Lineage.ID || m.Run != next.Run || m.Copying != next.Copying || (m.Keys == 0) != (next.Keys == 0)
	// Transaction ids move all the time: once a second is enough for them.
	if next == m || !moved && now-s.savedAt < max(time.Second, s.cfg.Timing.Interval) {
		return
	}
	s.savedAt = now
	s.save(func() error {
		return s.folder.change(false, func(m *shard.SavedState) {
			*m = m.Updated(n, holding)
			m.PrimaryLog = after
		})
	})
}

// save has the folder written, which waits for a disk that may hang, beside the loop.
func (s *saver) save(write func() error) {
	s.background(workSaveState, s.cfg.storeTimeout(), func(context.Context) func() {
		err := write()
		return func() {
			if err == nil {
				s.limiter.end()
				return
			}
			now := s.now()
			s.retryAt = now + s.cfg.Timing.Interval/4
			if s.limiter.shouldLog("data folder", now) {
				s.log.Error("data folder cannot be written", "err", err)
			}
		}
	})
}

// logSample is how far the node's log reached at a time.
type logSample struct {
	at  time.Duration
	log shard.AppendLog
}

// primaryLog is how far the log of the primary reaches: this node's while it leads, and otherwise what its own agent
// reports.
func (s *saver) primaryLog(known shard.PrimaryLog, holding bool, now time.Duration) shard.PrimaryLog {
	log := s.probe.state.AppendLog
	if s.probe.state.Role != shard.Primary || !holding {
		s.logs = nil
		if p, ok := s.view.Node(s.view.Row.Primary); ok && p.PrimaryLog.Node == p.ID && p.PrimaryLog.At > known.At {
			return p.PrimaryLog
		}
		return known
	}
	if log == (shard.AppendLog{}) {
		return known
	}
	const samples = 8
	if n := len(s.logs); n == 0 || now >= s.logs[n-1].at+shard.SyncTime/samples {
		s.logs = append(s.logs, logSample{now, log})
	}
	for len(s.logs) > 1 && now >= s.logs[1].at+shard.SyncTime {
		s.logs = s.logs[1:]
	}
	l := shard.PrimaryLog{Node: s.id, At: known.At, Boot: s.folder.boot, Written: log}
	switch {
	case now >= s.logs[0].at+shard.SyncTime:
		l.Synced = s.logs[0].log
	case known.Node == s.id && !log.Lacks(known.Synced):
		l.Synced = known.Synced
	}
	if l != known {
		l.At = max(s.view.Now.UnixMicro(), known.At+1) // the latest counts, also after the store's clock was stepped back
	}
	return l
}
