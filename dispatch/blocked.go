package dispatch

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// watchBlocked has keys that stay blocked logged, whoever blocked them and also as [Stuck], and drops messages that were stuck and
// whose keys are no longer blocked.
func (d *Dispatcher) watchBlocked(ctx context.Context) {
	for lease.Sleep(ctx, d.clock, reportEvery) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		asked := d.clock.Now()
		keys, err := d.cfg.Admin.Keys(call, KeyQuery{Queue: d.cfg.Name, Blocked: true})
		cancel()
		if err != nil {
			continue // whatever is wrong with the store is logged by those who work with it
		}
		d.sendEvent(ctx, func(now time.Duration) {
			if len(keys) > 0 {
				d.report.blocked.fail(now, "keys", len(keys), "key", keys[0].Key, "id", keys[0].Head, "state", keys[0].State, "detail", keys[0].Reason)
			} else {
				d.report.blocked.succeed(now)
			}
			d.m.dropUnblocked(keys, asked)
		})
	}
}

// dropUnblocked forgets stuck messages that operators have acted on: their keys are not this instance's any more. keys
// are all that were blocked when they were asked for, unless there are too many: those of messages that became stuck since are
// not among them.
func (m *machine) dropUnblocked(keys []KeyRecord, asked time.Duration) {
	if len(keys) == MaxPage {
		return
	}
	blocked := make(map[string]bool, len(keys))
	for _, k := range keys {
		blocked[k.Key] = true
	}
	for _, s := range m.slots {
		if s.stuckAt > 0 && s.stuckAt < asked && s.phase == atTarget && !s.polling && !blocked[s.key] {
			m.setPhase(s, gone)
		}
	}
}
