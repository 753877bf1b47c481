package intake

import (
	"log/slog"
	"sync"
	"time"
)

// ignoredEvery is how often a line says that heartbeats of unknown checks come.
const ignoredEvery = time.Minute

// IgnoredStats are VES events that are valid, and that no check counts.
type IgnoredStats struct {
	OtherDomain int64 // of another domain than heartbeat
	Unknown     int64 // of a check that is not configured
}

// ignored counts what no check counts, and says so once a minute.
type ignored struct {
	log  *slog.Logger
	path string

	mu     sync.Mutex
	stats  IgnoredStats
	logged int64 // of stats.Unknown
	at     time.Time
}

func (i *ignored) snapshot() IgnoredStats {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.stats
}

// add counts events. The line has no names: what senders wrote is in no log, but the unknown ones are rejected inputs.
func (i *ignored) add(other, unknown int) {
	if other+unknown == 0 {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stats.OtherDomain += int64(other)
	i.stats.Unknown += int64(unknown)
	if unknown == 0 || !i.at.IsZero() && time.Since(i.at) < ignoredEvery {
		return
	}
	i.log.Warn("heartbeats of checks that are not configured; GET /v1/monitor/rejected shows them", "path", i.path, "count", i.stats.Unknown-i.logged)
	i.logged, i.at = i.stats.Unknown, time.Now()
}
