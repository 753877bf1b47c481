package monitor

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Schedule is when something is expected: the five fields of crontab(5) in a time
// zone.
//
// A local time that the zone skips counts as the moment at which its clock jumps;
// one that comes twice counts once, the first time. The zero Schedule never comes.
type Schedule struct {
	minute, hour, day, month, weekday uint64 // one bit per value
	// either: day and weekday are both restricted, and one of them is enough.
	either bool
	zone   *time.Location
}

// maxSchedule is more bytes than all values of all fields need.
const maxSchedule = 500

// horizon in years is longer than between two times of any schedule that has any:
// a 29 February that is a Sunday comes every 28 years, or 40 around most centuries.
const horizon = 45

// field is one of the five.
type field struct {
	name        string
	first, last int
	values      string // names of values, from first on
	also        int    // another name of the first value, 0 without one
}

// ParseSchedule reads "minute hour day-of-month month day-of-week", or @hourly,
// @daily, @weekly, @monthly or @yearly, with "TZ=Zone " or "CRON_TZ=Zone " before
// it where the zone is not UTC. Fields are lists of values, ranges and "*", the
// latter two with steps ("9-17/2"); months and days of the week have names; Sunday
// is 0 or 7. When neither day-of-month nor day-of-week begins with "*", one of them
// is enough. A schedule that never comes is an error.
func ParseSchedule(text string) (Schedule, error) {
	s, err := parseSchedule(text)
	if err != nil {
		return Schedule{}, fmt.Errorf("schedule %q: %w", text[:min(len(text), maxSchedule)], err)
	}
	return s, nil
}

func parseSchedule(text string) (s Schedule, err error) {
	if len(text) > maxSchedule {
		return s, fmt.Errorf("%d bytes; use at most %d", len(text), maxSchedule)
	}
	words := strings.Fields(text)
	s.zone = time.UTC
	if len(words) > 0 {
		if key, name, ok := strings.Cut(words[0], "="); ok {
			if s.zone, err = zone(key, name); err != nil {
				return s, err
			}
			words = words[1:]
		}
	}
	if len(words) == 1 {
		if words, err = macro(words[0]); err != nil {
			return s, err
		}
	}
	if len(words) != 5 {
		return s, fmt.Errorf("%d fields; write minute, hour, day of month, month and day of week", len(words))
	}
	for i, f := range []struct {
		field
		into *uint64
	}{
		{field{"minute", 0, 59, "", 0}, &s.minute},
		{field{"hour", 0, 23, "", 0}, &s.hour},
		{field{"day of month", 1, 31, "", 0}, &s.day},
		{field{"month", 1, 12, "jan feb mar apr may jun jul aug sep oct nov dec", 0}, &s.month},
		{field{"day of week", 0, 6, "sun mon tue wed thu fri sat", 7}, &s.weekday},
	} {
		if *f.into, err = f.parse(words[i]); err != nil {
			return s, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	s.weekday |= s.weekday >> 7 & 1
	s.either = words[2][0] != '*' && words[4][0] != '*'
	if s.Next(time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return s, errors.New("it never comes: no such day is in its months")
	}
	return s, nil
}

func zone(key, name string) (*time.Location, error) {
	if key != "TZ" && key != "CRON_TZ" {
		return nil, fmt.Errorf("%q before the fields; only TZ=Zone can stand there", key+"=")
	}
	if name == "" || name == "Local" {
		return nil, errors.New(`a time zone is missing; write one like TZ=Europe/Berlin`)
	}
	z, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("time zone: %w", err)
	}
	return z, nil
}

func macro(word string) ([]string, error) {
	switch strings.ToLower(word) {
	case "@hourly":
		return strings.Fields("0 * * * *"), nil
	case "@daily", "@midnight":
		return strings.Fields("0 0 * * *"), nil
	case "@weekly":
		return strings.Fields("0 0 * * 0"), nil
	case "@monthly":
		return strings.Fields("0 0 1 * *"), nil
	case "@yearly", "@annually":
		return strings.Fields("0 0 1 1 *"), nil
	}
	if strings.HasPrefix(word, "@") {
		return nil, fmt.Errorf("%q is not known; use @hourly, @daily, @weekly, @monthly or @yearly", word)
	}
	return []string{word}, nil
}

// parse reads a list.
func (f field) parse(text string) (set uint64, err error) {
	for part := range strings.SplitSeq(text, ",") {
		more, err := f.part(part)
		if err != nil {
			return 0, fmt.Errorf("%q: %w", text, err)
		}
		set |= more
	}
	return set, nil
}

// part reads a value, a range or "*", and a step.
func (f field) part(text string) (set uint64, err error) {
	text, stepText, stepped := strings.Cut(text, "/")
	from, to, ranged := strings.Cut(text, "-")
	first, last, step := f.first, f.last, 1
	switch {
	case text == "*":
	case ranged:
		if first, err = f.value(from); err == nil {
			last, err = f.value(to)
		}
	default:
		first, err = f.value(from)
		last = first
	}
	if err != nil {
		return 0, err
	}
	if last == 0 && first > 0 {
		last = f.also // "fri-sun"
	}
	if last < first {
		return 0, fmt.Errorf("the range %s ends before it begins", text)
	}
	if stepped {
		if text != "*" && !ranged {
			return 0, fmt.Errorf("a step needs a range: write %s-%d/%s", text, f.last, stepText)
		}
		most := f.last - f.first + 1
		step, err = strconv.Atoi(stepText)
		if err != nil || step < 1 || step > most {
			return 0, fmt.Errorf("the step %q is not a number from 1 to %d", stepText, most)
		}
	}
	for v := first; v <= last; v += step {
		set |= 1 << v
	}
	return set, nil
}

func (f field) value(text string) (int, error) {
	for i, name := range strings.Fields(f.values) {
		if strings.EqualFold(name, text) {
			return f.first + i, nil
		}
	}
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil || int(n) < f.first || int(n) > max(f.last, f.also) {
		return 0, fmt.Errorf("%q is not a value from %d to %d", text, f.first, max(f.last, f.also))
	}
	return int(n), nil
}

// Next is the first time after t; zero when there is none.
func (s Schedule) Next(t time.Time) time.Time {
	if s.zone == nil {
		return time.Time{}
	}
	// local is what a clock on the wall shows, written as a time in UTC.
	_, offset := t.In(s.zone).Zone()
	local := t.Add(time.Duration(offset) * time.Second).UTC().Truncate(time.Minute)
	for end := local.AddDate(horizon, 0, 0); ; local = local.Add(time.Minute) {
		if local = s.match(local, end); local.IsZero() {
			return time.Time{}
		}
		if at := s.at(local); at.After(t) {
			return at
		}
	}
}

// match is the first local time of the schedule from this one on.
func (s Schedule) match(local, end time.Time) time.Time {
	for local.Before(end) {
		y, m, d := local.Date()
		if s.month>>m&1 == 0 {
			local = time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC)
			continue
		}
		minute := local.Minute()
		hour := from(s.hour, local.Hour())
		if hour > local.Hour() {
			minute = 0
		}
		if !s.on(d, local.Weekday()) || hour > 23 {
			local = time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC)
			continue
		}
		if minute = from(s.minute, minute); minute > 59 {
			local = time.Date(y, m, d, hour+1, 0, 0, 0, time.UTC)
			continue
		}
		return time.Date(y, m, d, hour, minute, 0, 0, time.UTC)
	}
	return time.Time{}
}

// from is the first value of a set that is no less than v; 64 when there is none.
func from(set uint64, v int) int { return bits.TrailingZeros64(set >> v << v) }

func (s Schedule) on(day int, w time.Weekday) bool {
	d, wd := s.day>>day&1 == 1, s.weekday>>w&1 == 1
	if s.either {
		return d || wd
	}
	return d && wd
}

// at is when the zone's clock shows a local time first, or jumps over it.
func (s Schedule) at(local time.Time) time.Time {
	// No zone is a day from UTC: the time cannot have come yet.
	z := local.Add(-24 * time.Hour).In(s.zone)
	for {
		_, offset := z.Zone()
		start, end := z.ZoneBounds()
		at := local.Add(-time.Duration(offset) * time.Second).In(s.zone)
		switch {
		case !start.IsZero() && at.Before(start):
			return start
		case end.IsZero() || at.Before(end):
			return at
		}
		z = end
	}
}
