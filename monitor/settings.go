package monitor

import (
	"context"
	"errors"
	"time"
)

// settingsCache is the configuration that this instance uses.
type settingsCache struct {
	generation int64
	read       bool
	checks     map[int64]*StoredCheck
	byName     map[string]*StoredCheck
	secret     []byte
	// shortestGroupWait is the shortest group wait, 0 when no check is grouped.
	shortestGroupWait time.Duration
}

// settingsOf returns the configuration of a generation, or the one that the store has now if this instance does not have that.
func (w *Watcher) settingsOf(ctx context.Context, generation int64) (settingsCache, error) {
	w.mu.Lock()
	s := w.settings
	w.mu.Unlock()
	if s.read && s.generation == generation {
		return s, nil
	}
	return w.readSettings(ctx)
}

func (w *Watcher) readSettings(ctx context.Context) (settingsCache, error) {
	stored, err := withinTimeout(ctx, w.cfg.Store.Settings)
	if err != nil {
		return settingsCache{}, err
	}
	s := settingsCache{generation: stored.Generation, read: true, checks: map[int64]*StoredCheck{}, byName: map[string]*StoredCheck{}, secret: stored.Secret}
	for i := range stored.Checks {
		c := &stored.Checks[i]
		s.checks[c.ID] = c
		if old := s.byName[c.Name]; old == nil || old.Removed {
			s.byName[c.Name] = c
		}
		if c.GroupBy != "" && (s.shortestGroupWait == 0 || c.GroupWait < s.shortestGroupWait) {
			s.shortestGroupWait = c.GroupWait
		}
	}
	w.mu.Lock()
	changed := s.generation != w.settings.generation
	w.settings = s
	if len(s.checks) > 0 && !w.hasChecks {
		w.hasChecks = true
		close(w.configured)
	}
	w.mu.Unlock()
	if changed {
		wake(w.wakeHousekeeping)
	}
	return s, nil
}

// invalidateSettings makes the next scan re-read the configuration.
func (w *Watcher) invalidateSettings() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settings.read = false
}

// nowAndSettings are the store's wall clock, counted on since it was read last, and the settings, which are read if they are not known.
func (w *Watcher) nowAndSettings(ctx context.Context) (now time.Time, s settingsCache, err error) {
	w.mu.Lock()
	now, s = w.seen.Add(w.clock.Now()-w.seenAt), w.settings
	w.mu.Unlock()
	if !s.read {
		s, err = w.readSettings(ctx)
	}
	return now, s, err
}

// noteStoreTime records what time it is in the store.
func (w *Watcher) noteStoreTime(scan Scan) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen, w.seenAt = scan.Wall, w.clock.Now()
}

// ErrNotConfigured: this instance has never seen a check in the store. Until it has, intake takes nothing, so that nothing is
// thrown away: senders try again, and a topic keeps its messages. A store that is emptied later is no reason: its sources
// are unknown then, and what they send is lost.
var ErrNotConfigured = errors.New("monitor: no check is configured yet")

// Configured is closed when this instance has seen a first check. It stays closed when all checks are removed.
func (w *Watcher) Configured() <-chan struct{} { return w.configured }

// AnyDomain reports whether VES events of every domain count as heartbeats of a check.
func (w *Watcher) AnyDomain(check string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.settings.byName[check]
	return c != nil && !c.Removed && c.AnyDomain
}

// Refresh reads the configuration now, and not with the next scan.
func (w *Watcher) Refresh(ctx context.Context) error {
	_, err := w.readSettings(ctx)
	return err
}
