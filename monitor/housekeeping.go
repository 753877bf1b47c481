package monitor

import (
	"context"
	"slices"
	"time"
)

const (
	// sweepEvery is how often a sweep runs when nothing asks for one, and how often groups of checks
	// that are no longer grouped are reported.
	sweepEvery = time.Minute
	// soon is the pause between two parts of one job.
	soon = 20 * time.Millisecond
)

// housekeeping registers this instance and runs the jobs of the single sweeper, if this instance holds
// [SweepKey]: sweeping, reporting groups, and reminding of alarms. Two sweepers for a moment do no harm: as with evaluations,
// the store's compare-and-set makes each change once.
type housekeeping struct {
	w                                  *Watcher
	register, sweep, groups, reminders *loop
	// registered is closed when the instance is registered, with its sinks.
	registered       chan<- struct{}
	shown            Member // what is known of it
	sweptGeneration  int64  // the generation that was swept, -1 for none
	groupsGeneration int64  // the generation by which groups were looked for, and alarms to remind of
}

func (w *Watcher) runHousekeeping(ctx context.Context, registered chan<- struct{}) {
	c := housekeeping{
		w: w, register: w.loop("registering"), sweep: w.loop("sweeping"), groups: w.loop("reporting groups"), reminders: w.loop("reminding of alarms"),
		registered: registered, sweptGeneration: -1,
	}
	for {
		live, err := w.cfg.Keeper.Session(ctx)
		if err != nil {
			return
		}
		at := c.runDue(ctx, live.ID())
		timer, stop := w.clock.Timer(at - w.clock.Now())
		select {
		case <-ctx.Done():
			stop()
			return
		case <-timer:
		case <-w.wakeHousekeeping:
		}
		stop()
	}
}

// runDue runs what is due and returns when to run again.
func (c *housekeeping) runDue(ctx context.Context, session string) time.Duration {
	w := c.w
	self, sweeper, b := w.self(session)
	if c.register.due() || c.register.tries == 0 && !sameMember(self, c.shown) {
		c.shown = self
		err := w.request(ctx, func(ctx context.Context) error { return w.cfg.Store.RegisterMember(ctx, self) })
		c.register.scheduleNext(err, w.cfg.Keeper.Timing().Interval)
		if err == nil && c.registered != nil {
			close(c.registered)
			c.registered = nil
		}
	}
	if !sweeper {
		c.sweptGeneration = -1
		return c.register.at
	}
	if c.sweep.due() || c.sweep.tries == 0 && c.sweptGeneration != b.generation {
		every, err := c.sweepOnce(ctx)
		c.sweep.scheduleNext(err, every)
	}
	if (c.groups.due() || c.groups.tries == 0 && c.groupsGeneration != c.sweptGeneration) && c.sweptGeneration >= 0 { // the store's time is known
		if c.groupsGeneration != c.sweptGeneration { // a check may remind more often now
			c.groupsGeneration, c.reminders.at = c.sweptGeneration, min(c.reminders.at, w.clock.Now())
		}
		every, err := w.reportGroups(ctx)
		c.groups.scheduleNext(err, every)
	}
	if c.reminders.due() && c.sweptGeneration >= 0 {
		every, err := w.remindOfAlarms(ctx)
		c.reminders.scheduleNext(err, every)
	}
	if c.sweptGeneration < 0 {
		return min(c.register.at, c.sweep.at)
	}
	return min(c.register.at, c.sweep.at, c.groups.at, c.reminders.at)
}

// sweepOnce runs one part of a sweep and returns when to continue.
func (c *housekeeping) sweepOnce(ctx context.Context) (every time.Duration, err error) {
	w := c.w
	scan, err := withinTimeout(ctx, func(ctx context.Context) (Scan, error) { return w.cfg.Store.Sweep(ctx, w.cfg.KeepAlarms, MaxSources) })
	if err != nil {
		return 0, err // the back-off is what counts
	}
	w.noteStoreTime(scan)
	c.sweptGeneration = scan.Generation
	for i := range scan.Candidates {
		scan.Candidates[i].Forget = true // a sweep returns no others
	}
	made, err := w.evaluateAndApply(ctx, scan)
	switch {
	case err != nil:
		return 0, err
	case scan.Next > scan.Now:
		return sweepEvery, nil
	case made == 0 && len(scan.Candidates) > 0:
		return time.Second, nil // what caused the conflict may continue
	}
	return soon, nil
}

// self is this instance as others are shown it.
func (w *Watcher) self(session string) (self Member, sweeper bool, s settingsCache) {
	w.mu.Lock()
	defer w.mu.Unlock()
	self = w.cfg.Self
	self.Session, self.Instance = session, w.cfg.Keeper.Instance()
	self.Active, self.Partitions = w.active, len(w.parts)
	return self, w.sweeper, w.settings
}

func sameMember(a, b Member) bool {
	return a.Session == b.Session && a.Active == b.Active && a.Partitions == b.Partitions && slices.Equal(a.Sinks, b.Sinks)
}
