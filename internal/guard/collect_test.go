//go:build linux || darwin || freebsd || openbsd

package guard

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestWarnsOfDeadWatchers: a watcher that died is worth a warning, one that the other ended is not.
func TestWarnsOfDeadWatchers(t *testing.T) {
	ended := func(why Reason) watcherLog { return watcherLog{ended: &report{Kind: reportEnded, Reason: why}} }
	failed := watcherLog{failed: &report{Kind: reportFailed, Late: true}}
	dead := watcherLog{started: &report{Kind: reportStarted, Pid: 7}}
	for name, c := range map[string]struct {
		outer, inner watcherLog
		warnings     int
	}{
		"both did their work":         {ended(Exited), ended(Exited), 0},
		"the inner one was late":      {ended(Stopped), dead, 0},
		"late at the deadline":        {ended(Deadline), dead, 0},
		"the inner one never started": {failed, watcherLog{}, 0},
		"the inner one died":          {ended(Exited), dead, 1},
		"the outer one died":          {dead, ended(GuardGone), 1},
		"both died":                   {dead, dead, 2},
	} {
		var log bytes.Buffer
		p := &Process{log: slog.New(slog.NewTextHandler(&log, nil)), done: make(chan struct{})}
		p.finish([]watcherLog{c.outer, c.inner})
		if n := strings.Count(log.String(), "level=WARN"); n != c.warnings {
			t.Errorf("%s: %d warnings, want %d:\n%s", name, n, c.warnings, log.String())
		}
	}
}
