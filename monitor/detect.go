package monitor

import (
	"context"
	"slices"
	"time"
)

// rereadEvery is how often an instance that scans nothing reads the configuration.
const rereadEvery = time.Second

// detect evaluates due sources until ctx ends.
//
// It polls, and does not sleep until the next source is due: a heartbeat of a watched source,
// a signal and an operator's action can make one due at any moment. A scan that finds nothing
// reads only the heads of some indexes.
func (w *Watcher) detect(ctx context.Context) {
	scans := w.loop("finding due sources")
	var reread time.Duration
	for next := w.clock.Now(); ctx.Err() == nil; {
		began := w.clock.Now()
		w.mu.Lock()
		parts := w.parts
		w.mu.Unlock()
		more, err := false, error(nil)
		if len(parts) > 0 {
			more, err = w.evaluateDue(ctx, parts)
		} else if began >= reread {
			// Scans keep the configuration up to date. An instance without sources makes none, but its intake goes by it.
			_, err = w.readSettings(ctx)
			reread = began + rereadEvery
		}
		pause := scans.delayAfter(err, w.cfg.Poll)
		if more {
			continue
		}
		// An early wake-up must not postpone the next scheduled scan, or a watcher that is woken again
		// and again would scan too rarely.
		next = max(min(next, began)+pause, began)
		if err != nil {
			next = w.clock.Now() + pause
		}
		timer, stop := w.clock.Timer(next - w.clock.Now())
		select {
		case <-ctx.Done():
		case <-timer:
		case <-w.wakeDetect:
		}
		stop()
	}
}

// evaluateDue evaluates one batch and reports whether there is more to do at once.
func (w *Watcher) evaluateDue(ctx context.Context, parts []int) (more bool, err error) {
	began := w.clock.Now()
	scan, err := withinTimeout(ctx, func(ctx context.Context) (Scan, error) { return w.cfg.Store.DueSources(ctx, parts, MaxSources) })
	if err != nil {
		return false, err
	}
	w.count(func(s *WatchStats) { s.Latency = w.clock.Now() - began })
	w.noteStoreTime(scan)
	made, err := w.evaluateAndApply(ctx, scan)
	// If no change was made, the rest waits for the next poll: what caused the conflicts may continue.
	return made > 0 && scan.Next <= scan.Now, err
}

// evaluateAndApply evaluates the candidates of a scan and makes the changes.
func (w *Watcher) evaluateAndApply(ctx context.Context, scan Scan) (made int, err error) {
	s, err := w.settingsOf(ctx, scan.Generation)
	if err != nil || len(scan.Candidates) == 0 {
		return 0, err
	}
	if err := w.readParents(ctx, scan, s); err != nil {
		return 0, err
	}
	builder := changeBuilder{scan: scan, links: w.links(s), id: newRequestID}
	changes := make([]SourceChange, 0, len(scan.Candidates))
	for i := range scan.Candidates {
		c := &scan.Candidates[i]
		// The store would refuse the change if the check has changed since it was read: the check is
		// re-read by the next scan.
		if check := s.checks[c.CheckID]; check != nil && check.Rev == c.CheckRev {
			changes = append(changes, builder.build(&check.Check, c))
		} else {
			w.invalidateSettings()
		}
	}
	if len(changes) == 0 {
		return 0, nil
	}
	done, err := withinTimeout(ctx, func(ctx context.Context) ([]bool, error) { return w.cfg.Store.ApplyChanges(ctx, changes) })
	if err != nil {
		// If the store made the changes nevertheless, nothing is lost: their notifications were stored with them.
		return 0, err
	}
	w.count(func(s *WatchStats) {
		s.Scans++
		s.Evaluated += int64(len(scan.Candidates))
		for i, ok := range done[:min(len(done), len(changes))] {
			c := &changes[i]
			if !ok {
				s.Conflicts++
				continue
			}
			made++
			if c.Transition != NoTransition {
				s.Transitions[c.Transition]++
			}
			if c.Transition == Onset {
				s.Delay += scan.Wall.Sub(c.At)
			}
		}
	})
	return made, nil
}

// maxParents is how many parents of a source are read, one above the other, each level with one request.
const maxParents = 8

// unreadParent is a parent that is to be read.
type unreadParent struct {
	ref   SourceRef
	into  **Parent
	below []SourceRef // those that depend on it, up to it
}

// readParents reads the parents of those candidates alone that would raise an alarm without one, and the parents above
// whose own alarms may be inhibited.
func (w *Watcher) readParents(ctx context.Context, scan Scan, s settingsCache) error {
	var unread []unreadParent
	for i := range scan.Candidates {
		c := &scan.Candidates[i]
		check := s.checks[c.CheckID]
		if check == nil || check.DependsOn == "" || check.Rev != c.CheckRev {
			continue
		}
		c.Now, c.Wall = scan.Now, scan.Wall
		if check.Evaluate(c.Facts).Transition == Onset {
			own := SourceRef{Check: check.Name, Source: c.Source}
			unread = append(unread, unreadParent{check.parentOf(c.Source, c.Labels), &c.Parent, []SourceRef{own}})
		}
	}
	for range maxParents {
		if len(unread) == 0 {
			return nil
		}
		refs := make([]SourceRef, len(unread))
		for i := range unread {
			refs[i] = unread[i].ref
		}
		found, err := withinTimeout(ctx, func(ctx context.Context) ([]Parent, error) { return w.cfg.Store.Parents(ctx, refs) })
		if err != nil {
			return err
		}
		var above []unreadParent
		for i := range found {
			p, u := &found[i], &unread[i]
			*u.into = p
			on := s.byName[u.ref.Check]
			if on == nil {
				continue
			}
			p.Check = &on.Check
			if p.State == Up && (on.Paused || on.inMaintenance(scan.Wall)) {
				p.State = Paused
			}
			if p.State != Up || p.Alarm || on.DependsOn == "" {
				continue
			}
			next, below := on.parentOf(u.ref.Source, p.Labels), append(u.below, u.ref)
			if !slices.Contains(below, next) { // they may depend on each other
				above = append(above, unreadParent{next, &p.Parent, below})
			}
		}
		unread = above
	}
	return nil
}
