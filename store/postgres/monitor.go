package postgres

import (
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store"
)

var _ store.Monitors = (*Store)(nil)

// Monitor is what the store keeps for package monitor. Moments never go back as one
// Store tells them, whatever becomes of the server's clock.
func (s *Store) Monitor() monitor.Store { return s.monitors }

// monitors is the table, and the latest moment that was read from it.
type monitors struct {
	db    *Store
	floor atomic.Int64
}

// raiseFloor raises the floor below which no later call may find the clock.
func (m *monitors) raiseFloor(at monitor.StoreTime) {
	for {
		floor := m.floor.Load()
		if int64(at) <= floor || m.floor.CompareAndSwap(floor, int64(at)) {
			return
		}
	}
}

// micros is a time as the database takes it: microseconds since 1970, 0 for none.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// fromMicros is the reverse.
func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

func micro(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// isStorable reports whether the database can hold these texts, and so can have anything by them.
func isStorable(texts ...string) bool {
	for _, t := range texts {
		if !utf8.ValidString(t) || strings.Contains(t, "\x00") {
			return false
		}
	}
	return true
}

// clean is a text for people as the database takes it.
func clean(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
}
