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
		asked := d.clock.Now()
		blocked, first, all, err := d.blockedKeys(ctx)
		if err != nil {
			continue // whatever is wrong with the store is logged by those who work with it
		}
		d.sendEvent(ctx, func(now time.Duration) {
			if len(blocked) > 0 {
				d.report.blocked.fail(now, "keys", len(blocked), "key", first.Key, "id", first.Head, "state", first.State, "detail", first.Reason)
			} else {
				d.report.blocked.succeed(now)
			}
			if all {
				d.m.dropUnblocked(blocked, asked)
			}
		})
	}
}

// blockedKeys returns the names of the keys that are blocked, and the first of them: of all, where this instance has a message that
// may be stuck, and of a page at least.
func (d *Dispatcher) blockedKeys(ctx context.Context) (blocked map[string]bool, first KeyRecord, all bool, err error) {
	blocked = map[string]bool{}
	for q := (KeyQuery{Queue: d.cfg.Name, Blocked: true, Limit: MaxPage}); ; {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		keys, err := d.cfg.Admin.Keys(call, q)
		cancel()
		if err != nil {
			return nil, first, false, err
		}
		if q.After == "" && len(keys) > 0 {
			first = keys[0]
		}
		for _, k := range keys {
			blocked[k.Key] = true
		}
		if all = len(keys) < MaxPage; all || d.Stats().Pending == 0 {
			return blocked, first, all, nil
		}
		q.After = keys[len(keys)-1].Key
	}
}

// dropUnblocked forgets stuck messages that operators have acted on: their keys are not this instance's any more. blocked
// are all keys that were so when they were asked for: those of messages that became stuck since are not among them.
func (m *machine) dropUnblocked(blocked map[string]bool, asked time.Duration) {
	for _, s := range m.slots {
		if s.stuckAt > 0 && s.stuckAt < asked && s.phase == atTarget && !s.polling && !blocked[s.key] {
			m.setPhase(s, gone)
		}
	}
}
