package agent

import (
	"context"
	"errors"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// armer arms the fence of a primary once enough replicas acknowledge, and disarms it when they no longer do,
// which the store must know first.
type armer struct {
	*common
	probe  *nodeProbe
	lease  *shardLease
	fence  *fence
	report *reporter
	// reconcile may work on the node, or have paused its writes.
	reconcile *reconciler

	armed bool // as it is reported: a promise that holds until a report without it was accepted
	// rounds counts probes in a row with enough replicas; negative: without.
	rounds     int
	armedAt    time.Duration // when arming was last tried
	disarmedAt time.Duration // … and disarming
	limiter    logLimiter
}

// step arms or disarms the fence if there is reason to.
func (a *armer) step(now time.Duration) {
	if a.lease.held == nil || !a.fence.isOpen() || a.reconcile.isOccupied() || a.busy[workArmFence] || a.probe.state.Role != shard.Primary {
		return
	}
	need := max(1, a.cfg.MinReplicas)
	enough := a.acknowledging() >= need
	seen := a.probe.state.Fence
	switch {
	case a.armed && seen != shard.Armed && a.probe.isFenceCurrent():
		a.log.Warn("fence was disarmed by somebody else")
		a.setArmed(false)
	// Two rounds, so that a replica that comes and goes does not arm it. An operator's min-replicas is
	// armed in any case: that is what it promises.
	case (enough && a.rounds >= 2 || a.cfg.MinReplicas > 0) && !a.armed && seen != shard.Armed:
		if due := a.armedAt + a.cfg.Timing.Interval/4; a.armedAt != 0 && now < due {
			a.wakeBy(due)
			return
		}
		a.armedAt = now
		a.arm(need)
	// First the report: others must not count on a fence that is about to be disarmed.
	case a.armed && !enough && a.cfg.MinReplicas == 0 && a.rounds <= -2:
		a.setArmed(false)
	// Also one that needs another number, left by an agent with --min-replicas, say, which is seen as open.
	case !a.armed && !enough && (seen == shard.Armed || seen == shard.Open && a.probe.state.Needs != 0) && a.cfg.MinReplicas == 0:
		a.disarm(now)
	// The replicas are back before it was disarmed.
	case !a.armed && enough && seen == shard.Armed:
		a.setArmed(true)
	}
}

func (a *armer) setArmed(armed bool) { a.armed, a.report.urgent = armed, true }

func (a *armer) arm(need int) {
	a.background(workArmFence, a.cfg.nodeTimeout(), func(ctx context.Context) func() {
		err := a.fence.open(ctx, shard.Armed, need)
		return func() {
			a.rounds = 0
			switch {
			case err == nil:
				a.setArmed(true)
				a.probe.state.Fence = shard.Armed
				a.probe.probeSoon()
				a.limiter.end()
			case errors.Is(err, shard.ErrUnsupported):
				a.log.Debug("engine has no fence that could be armed")
			case a.limiter.shouldLog(kindOf(err), a.now()):
				a.log.Warn("fence could not be armed; trying again", "err", err)
			}
		}
	})
}

// disarm opens the fence, once a report that does not promise it was accepted.
func (a *armer) disarm(now time.Duration) {
	if now < a.disarmedAt+a.cfg.Timing.Interval {
		return
	}
	a.disarmedAt = now
	a.background(workArmFence, a.cfg.Timing.Timeout, func(ctx context.Context) func() {
		if err := a.report.waitAccepted(ctx); err != nil {
			return nil // it stays armed while the store is down
		}
		var still bool
		a.runInLoop(func() { still = !a.armed && a.lease.held != nil })
		if !still {
			return nil
		}
		err := a.fence.open(ctx, shard.Open, 0)
		return func() {
			if err == nil {
				a.probe.probeSoon()
				a.probe.state.Fence, a.probe.state.Needs, a.report.urgent = shard.Open, 0, true
				a.log.Warn("fence is disarmed: no replica acknowledges")
			}
		}
	})
}

// acknowledging counts the replicas that keep up.
func (a *armer) acknowledging() int {
	n := 0
	limit := max(2*a.cfg.Timing.Interval, 2*time.Second) // Redis replicas acknowledge once a second
	for _, f := range a.probe.state.Followers {
		if f.Online && f.Lag <= limit {
			n++
		}
	}
	return n
}

// countRound counts probes in a row with and without enough replicas.
func (a *armer) countRound() {
	if a.acknowledging() >= max(1, a.cfg.MinReplicas) {
		a.rounds = max(a.rounds, 0) + 1
	} else {
		a.rounds = min(a.rounds, 0) - 1
	}
}
