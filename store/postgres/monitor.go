package postgres

import (
	"sync/atomic"

	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store"
)

var _ store.Monitors = (*Store)(nil)

// Monitor is what the store keeps for package monitor. The store times that one Store returns never go back, whatever becomes
// of the server's clock.
func (s *Store) Monitor() monitor.Store { return monitor.Validated(s.monitors) }

// monitors is the [monitor.Store] of a Store. latest is the latest store time that it has seen: each call passes it along, and the
// function monitor_now returns none before it.
type monitors struct {
	db     *Store
	latest atomic.Int64
}

// noteTime keeps the latest store time.
func (m *monitors) noteTime(at monitor.StoreTime) {
	for {
		latest := m.latest.Load()
		if int64(at) <= latest || m.latest.CompareAndSwap(latest, int64(at)) {
			return
		}
	}
}
