package monitor

import (
	"context"
	"errors"
)

// ErrNotConfigured: the store has no check yet. Until it has one, intake takes nothing, so that nothing is thrown
// away: senders try again, and a topic keeps its messages.
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
