package schedule

import (
	"fmt"
	"strings"
	"time"
)

// Schedule is when something comes. The zero Schedule never comes.
type Schedule struct {
	crontab crontab
	every   time.Duration
	anchor  time.Time
	once    time.Time
}

// maxText is more bytes than all values of all fields need.
const maxText = 500

// Bounds of a period.
const (
	MinEvery = time.Second
	MaxEvery = 366 * 24 * time.Hour
)

// Parse reads a schedule in one of three forms:
//
//	30 2 * * mon-fri     crontab: minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly, @monthly, @yearly
//	every 90m            a period, counted from an anchor: see [Schedule.Anchored]
//	2026-12-24 18:00     once: an ISO 8601 date, with or without a time of day and an offset from UTC
//
// with "TZ=Zone " before the first and the last where the zone is not UTC. Fields are lists of values, ranges and "*", the
// latter two with steps ("9-17/2"); months and days of the week have names; Sunday is 0 or 7. In the day of month, L is the
// last one; in the day of week, fri#2 is the second Friday of the month and friL the last. When neither day of month nor day
// of week begins with "*", one of them is enough. A crontab that never comes is an error.
func Parse(text string) (Schedule, error) {
	return parse(text, func(words []string, zone *time.Location) (Schedule, error) {
		switch {
		case len(words) > 0 && strings.EqualFold(words[0], "every"):
			return parseEvery(words[1:], zone)
		case len(words) > 0 && strings.EqualFold(words[0], "@every"): // as some libraries for crontabs have it
			s, err := parseEvery(words[1:], zone)
			if err == nil {
				err = fmt.Errorf("write it without the @, as in: every %s", words[1])
			}
			return s, err
		case len(words) > 0 && isDate(words[0]):
			return parseOnce(strings.Join(words, "T"), zone)
		}
		c, err := parseCrontab(words, zone)
		return Schedule{crontab: c}, err
	})
}

// ParseCrontab reads a schedule in the first form of [Parse] alone.
func ParseCrontab(text string) (Schedule, error) {
	return parse(text, func(words []string, zone *time.Location) (Schedule, error) {
		c, err := parseCrontab(words, zone)
		return Schedule{crontab: c}, err
	})
}

func parse(text string, of func([]string, *time.Location) (Schedule, error)) (Schedule, error) {
	words, z, err := cutZone(text)
	var s Schedule
	if err == nil {
		s, err = of(words, z)
	}
	if err != nil {
		return Schedule{}, fmt.Errorf("schedule %q: %w", text[:min(len(text), maxText)], err)
	}
	return s, nil
}

// cutZone is the words of a schedule, and the zone before them.
func cutZone(text string) (words []string, z *time.Location, err error) {
	if len(text) > maxText {
		return nil, nil, fmt.Errorf("%d bytes; use at most %d", len(text), maxText)
	}
	words, z = strings.Fields(text), time.UTC
	if len(words) == 0 {
		return words, z, nil
	}
	key, name, ok := strings.Cut(words[0], "=")
	if !ok {
		return words, z, nil
	}
	z, err = zone(key, name)
	return words[1:], z, err
}

func parseEvery(words []string, zone *time.Location) (s Schedule, err error) {
	if len(words) != 1 {
		return s, fmt.Errorf("write a period after every, as in: every 90m")
	}
	if zone != time.UTC {
		return s, fmt.Errorf("a period has no time zone: it is the same everywhere")
	}
	if s.every, err = time.ParseDuration(words[0]); err != nil {
		return s, fmt.Errorf("%q is not a period; write one like 90m or 24h", words[0])
	}
	if s.every < MinEvery || s.every > MaxEvery || s.every%time.Second != 0 {
		return s, fmt.Errorf("a period of %v; use whole seconds, 1s to 8784h", s.every)
	}
	return s, nil
}

func isDate(word string) bool {
	return len(word) >= len(time.DateOnly) && word[4] == '-' && word[7] == '-'
}

func parseOnce(text string, zone *time.Location) (s Schedule, err error) {
	if s.once, err = time.Parse(time.RFC3339, text); err == nil {
		return s, nil
	}
	for _, form := range []string{time.DateOnly, "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if local, err := time.Parse(form, text); err == nil {
			s.once = firstShown(local, zone)
			return s, nil
		}
	}
	return s, fmt.Errorf("%q is not a date; write one like 2026-12-24 18:00", text)
}

// Anchored is the schedule with its period, if it has one, counted from a time, in whole seconds. Without
// an anchor, it is counted from the beginning of 1970.
func (s Schedule) Anchored(at time.Time) Schedule {
	s.anchor = at.Truncate(time.Second)
	return s
}

// Next is the first time after t; zero when there is none.
func (s Schedule) Next(t time.Time) time.Time {
	switch {
	case s.every > 0:
		return s.nextPeriod(t)
	case s.once.After(t):
		return s.once
	default:
		return s.crontab.next(t)
	}
}

// nextPeriod counts in seconds: a [time.Duration] is too short for what lies between an anchor and any time.
func (s Schedule) nextPeriod(t time.Time) time.Time {
	var anchor int64
	if !s.anchor.IsZero() {
		anchor = s.anchor.Unix()
	}
	every := int64(s.every / time.Second)
	since := t.Unix() - anchor
	periods := since / every
	if since%every < 0 {
		periods--
	}
	return time.Unix(anchor+(periods+1)*every, 0).UTC()
}

// Last is the latest time after one and not after another; zero when there is none. It takes some tens of calls of
// Next, however many times lie between.
func (s Schedule) Last(after, until time.Time) time.Time {
	comesAfter := func(t time.Time) bool {
		next := s.Next(t)
		return !next.IsZero() && !next.After(until)
	}
	if !comesAfter(after) {
		return time.Time{}
	}
	// One comes after low, none after high. No two times are within a second.
	low, high := after, until
	for high.Sub(low) > time.Second {
		if middle := low.Add(high.Sub(low) / 2); comesAfter(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	at := s.Next(low)
	for comesAfter(at) {
		at = s.Next(at)
	}
	return at
}
