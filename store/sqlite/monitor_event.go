package sqlite

import (
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

const (
	eventColumns = "SELECT e.id, e.name, e.config, e.paused, e.rev, e.base_us, e.removed, e.every_us FROM understudy_monitor_event e "

	eventNamed  = eventColumns + "WHERE e.name = ?1"
	eventNumber = eventColumns + "WHERE e.id = ?1"
	allEvents   = eventColumns + "ORDER BY e.name"
)

// eventRow is an event as the store has it. Its Paused is what holds, and
// configured.Paused what was configured.
type eventRow struct {
	monitor.Expected
	configured monitor.Event
	base       int64
	every      int64 // µs that a bit of a source's recent intervals stands for
}

func (e *eventRow) scan(scan func(...any) error, more ...any) error {
	var config []byte
	var name string
	var paused bool
	dest := []any{&e.ID, &name, &config, &paused, &e.Rev, &e.base, &e.Removed, &e.every}
	if err := scan(append(dest, more...)...); err != nil {
		return err
	}
	if err := json.Unmarshal(config, &e.configured); err != nil {
		return err
	}
	e.Event = e.configured
	e.Paused = paused
	return nil
}

// event reads one; nil when there is none.
func event(r rowReader, text string, arg any) (*eventRow, error) {
	e := &eventRow{}
	err := e.scan(func(dest ...any) error { return r.row(text, []any{arg}, dest...) })
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

// eventCache reads each event once.
type eventCache struct {
	from   rowReader
	byName map[string]*eventRow
	byID   map[int64]*eventRow
}

func eventsOf(r rowReader) *eventCache {
	return &eventCache{from: r, byName: map[string]*eventRow{}, byID: map[int64]*eventRow{}}
}

// named returns a configured event, and nil for one that is not, or was removed.
func (c *eventCache) named(name string) (*eventRow, error) {
	e, known := c.byName[name]
	if known {
		return e, nil
	}
	e, err := event(c.from, eventNamed, name)
	if err != nil {
		return nil, err
	}
	if e != nil && e.Removed {
		e = nil
	}
	c.byName[name] = e
	return e, nil
}

func (c *eventCache) number(id int64) (*eventRow, error) {
	if e := c.byID[id]; e != nil {
		return e, nil
	}
	e, err := event(c.from, eventNumber, id)
	if e != nil {
		c.byID[id] = e
	}
	return e, err
}

// quiet is how long a source of an event with an interval may be quiet.
func quiet(e *monitor.Event) time.Duration {
	return e.Interval*time.Duration(e.Missed) + e.Grace
}

// firstDue is when somebody looks at a source that is expected from base on. Too
// soon does no harm: the rule then says when.
func firstDue(e *monitor.Event, base int64) int64 {
	return base + quiet(e).Microseconds()
}

// slot is what a bit of the recent intervals of a source stands for: with a
// schedule, the time between the next two of its times.
func slot(e *monitor.Event, now time.Time) int64 {
	every := e.Interval
	if e.Schedule != "" {
		every = time.Hour
		if s, err := monitor.ParseSchedule(e.Schedule); err == nil {
			if first := s.Next(now); !first.IsZero() {
				if second := s.Next(first); !second.IsZero() {
					every = second.Sub(first)
				}
			}
		}
	}
	return max(1, every.Microseconds())
}
