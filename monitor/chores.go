package monitor

import (
	"context"
	"slices"
	"time"
)

const (
	// sweepEvery is how often a sweep is made when nothing asks for one, and how
	// often groups of events that are not grouped any more are looked for.
	sweepEvery = time.Minute
	// soon is the pause between two parts of a chore.
	soon = 20 * time.Millisecond
)

// chores keep this instance known, and do what one instance alone does, if that is
// this one: sweep, and report groups. Two that do it for a moment do no harm, for
// the reason that two that judge do none.
type chores struct {
	w                     *Watcher
	enlist, sweep, groups *loop
	// enlisted is closed when the instance is known, with its sinks.
	enlisted chan<- struct{}
	shown    Member // what is known of it
	swept    int64  // the generation that was swept, -1 for none
	grouped  int64  // the generation by which groups were looked for
}

func (w *Watcher) chores(ctx context.Context, enlisted chan<- struct{}) {
	c := chores{
		w: w, enlist: w.loop("enlisting"), sweep: w.loop("sweeping"), groups: w.loop("reporting groups"),
		enlisted: enlisted, swept: -1,
	}
	for {
		live, err := w.cfg.Keeper.Session(ctx)
		if err != nil {
			return
		}
		at := c.round(ctx, live.ID())
		timer, stop := w.clock.Timer(at - w.clock.Now())
		select {
		case <-ctx.Done():
			stop()
			return
		case <-timer:
		case <-w.wakeChores:
		}
		stop()
	}
}

// round does what is due and tells when to come again.
func (c *chores) round(ctx context.Context, session string) time.Duration {
	w := c.w
	self, sweeper, b := w.self(session)
	if c.enlist.due() || c.enlist.tries == 0 && !same(self, c.shown) {
		c.shown = self
		err := w.request(ctx, func(ctx context.Context) error { return w.cfg.Table.Enlist(ctx, self) })
		c.enlist.again(err, w.cfg.Keeper.Timing().Interval)
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
		c.sweep.again(err, every)
	}
	if (c.groups.due() || c.groups.tries == 0 && c.grouped != c.swept) && c.swept >= 0 { // the store's time is known
		c.grouped = c.swept
		every, err := w.reportGroups(ctx)
		c.groups.again(err, every)
	}
	if c.swept < 0 {
		return min(c.enlist.at, c.sweep.at)
	}
	return min(c.enlist.at, c.sweep.at, c.groups.at)
}

// sweepOnce makes one part of a sweep and tells when to go on.
func (c *chores) sweepOnce(ctx context.Context) (every time.Duration, err error) {
	w := c.w
	var l Look
	err = w.request(ctx, func(ctx context.Context) (err error) {
		l, err = w.cfg.Table.Sweep(ctx, w.cfg.KeepAlarms, MaxSources)
		return err
	})
	if err != nil {
		return 0, err // the back-off is what counts
	}
	w.saw(l)
	c.swept = l.Generation
	for i := range l.Candidates {
		if c := &l.Candidates[i]; c.State == Retired {
			c.Removed = true // for long
		}
	}
	made, err := w.judge(ctx, l)
	switch {
	case err != nil:
		return 0, err
	case l.Next > l.Now:
		return sweepEvery, nil
	case made == 0 && len(l.Candidates) > 0:
		return time.Second, nil // what undid it may go on
	}
	return soon, nil
}

// self is this instance as others are shown it.
func (w *Watcher) self(session string) (self Member, sweeper bool, b book) {
	w.mu.Lock()
	defer w.mu.Unlock()
	self = w.cfg.Self
	self.Session, self.Instance = session, w.cfg.Keeper.Instance()
	self.Active, self.Partitions = w.active, len(w.parts)
	return self, w.sweeper, w.book
}

func same(a, b Member) bool {
	return a.Session == b.Session && a.Active == b.Active && a.Partitions == b.Partitions && slices.Equal(a.Sinks, b.Sinks)
}
