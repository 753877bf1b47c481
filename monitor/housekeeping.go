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
	w                                *Watcher
	enlist, sweep, groups, reminders *loop
	// enlisted is closed when the instance is registered, with its sinks.
	enlisted chan<- struct{}
	shown    Member // what is known of it
	swept    int64  // the generation that was swept, -1 for none
	grouped  int64  // the generation by which groups were looked for, and alarms to remind of
}

func (w *Watcher) keepHouse(ctx context.Context, enlisted chan<- struct{}) {
	c := housekeeping{
		w: w, enlist: w.loop("registering"), sweep: w.loop("sweeping"), groups: w.loop("reporting groups"), reminders: w.loop("reminding of alarms"),
		enlisted: enlisted, swept: -1,
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
	if c.enlist.due() || c.enlist.tries == 0 && !sameMember(self, c.shown) {
		c.shown = self
		err := w.request(ctx, func(ctx context.Context) error { return w.cfg.Store.RegisterMember(ctx, self) })
		c.enlist.scheduleNext(err, w.cfg.Keeper.Timing().Interval)
		if err == nil && c.enlisted != nil {
			close(c.enlisted)
			c.enlisted = nil
		}
	}
	if !sweeper {
		c.swept = -1
		return c.enlist.at
	}
	if c.sweep.due() || c.sweep.tries == 0 && c.swept != b.generation {
		every, err := c.sweepOnce(ctx)
		c.sweep.scheduleNext(err, every)
	}
	if (c.groups.due() || c.groups.tries == 0 && c.grouped != c.swept) && c.swept >= 0 { // the store's time is known
		if c.grouped != c.swept { // a check may remind more often now
			c.grouped, c.reminders.at = c.swept, min(c.reminders.at, w.clock.Now())
		}
		every, err := w.reportGroups(ctx)
		c.groups.scheduleNext(err, every)
	}
	if c.reminders.due() && c.swept >= 0 {
		every, err := w.remindOfAlarms(ctx)
		c.reminders.scheduleNext(err, every)
	}
	if c.swept < 0 {
		return min(c.enlist.at, c.sweep.at)
	}
	return min(c.enlist.at, c.sweep.at, c.groups.at, c.reminders.at)
}

// sweepOnce runs one part of a sweep and returns when to continue.
func (c *housekeeping) sweepOnce(ctx context.Context) (every time.Duration, err error) {
	w := c.w
	l, err := withinTimeout(ctx, func(ctx context.Context) (Scan, error) { return w.cfg.Store.Sweep(ctx, w.cfg.KeepAlarms, MaxSources) })
	if err != nil {
		return 0, err // the back-off is what counts
	}
	w.noteStoreTime(l)
	c.swept = l.Generation
	for i := range l.Candidates {
		l.Candidates[i].Forget = true // a sweep returns no others
	}
	made, err := w.evaluate(ctx, l)
	switch {
	case err != nil:
		return 0, err
	case l.Next > l.Now:
		return sweepEvery, nil
	case made == 0 && len(l.Candidates) > 0:
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
