package schedule

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// crontab is the five fields of crontab(5) in a time zone. The zero crontab never
// comes.
type crontab struct {
	minute, hour, day, month, weekday uint64 // one bit per value
	// lastDay: the last day of the month, too.
	lastDay bool
	// nth has a bit for each occurrence of a weekday in its month: 1 to 5, and lastOne.
	nth [7]uint8
	// either: day and weekday are both restricted, and one of them is enough.
	either bool
	zone   *time.Location
}

// lastOne is the bit of crontab.nth for the last such weekday of a month.
const lastOne = 6

// everyHour is the hours of a schedule that leaves none out.
const everyHour = 1<<24 - 1

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

func parseCrontab(words []string, zone *time.Location) (s crontab, err error) {
	s.zone = zone
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
		into    *uint64
		special func(string) (bool, error)
	}{
		{field{"minute", 0, 59, "", 0}, &s.minute, nil},
		{field{"hour", 0, 23, "", 0}, &s.hour, nil},
		{field{"day of month", 1, 31, "", 0}, &s.day, s.parseLastDay},
		{field{"month", 1, 12, "jan feb mar apr may jun jul aug sep oct nov dec", 0}, &s.month, nil},
		{weekdays, &s.weekday, s.parseNth},
	} {
		if *f.into, err = f.parse(words[i], f.special); err != nil {
			return s, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	s.weekday |= s.weekday >> 7 & 1
	s.either = words[2][0] != '*' && words[4][0] != '*'
	if s.next(time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return s, errors.New("it never comes: no such day is in its months")
	}
	return s, nil
}

var weekdays = field{"day of week", 0, 6, "sun mon tue wed thu fri sat", 7}

// parseLastDay reads "L", the last day of the month.
func (s *crontab) parseLastDay(text string) (bool, error) {
	is := strings.EqualFold(text, "L")
	s.lastDay = s.lastDay || is
	return is, nil
}

// parseNth reads "fri#2", the second Friday of the month, and "friL", the last one.
func (s *crontab) parseNth(text string) (bool, error) {
	day, number, numbered := strings.Cut(text, "#")
	n := lastOne
	switch {
	case numbered:
		var err error
		if n, err = strconv.Atoi(number); err != nil || n < 1 || n > 5 {
			return true, fmt.Errorf("%q is not the number of a weekday in its month; use 1 to 5", number)
		}
	case len(text) > 1 && strings.EqualFold(text[len(text)-1:], "L"):
		day = text[:len(text)-1]
	default:
		return false, nil
	}
	v, err := weekdays.value(day)
	if err != nil {
		return true, err
	}
	s.nth[v%7] |= 1 << n
	return true, nil
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

// parse reads a list; special reads what only this field has, and reports whether it did.
func (f field) parse(text string, special func(string) (bool, error)) (set uint64, err error) {
	for part := range strings.SplitSeq(text, ",") {
		if special != nil {
			done, err := special(part)
			if err != nil {
				return 0, fmt.Errorf("%q: %w", text, err)
			}
			if done {
				continue
			}
		}
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

// next is the first time after t; zero when there is none.
func (s crontab) next(t time.Time) time.Time {
	if s.zone == nil {
		return time.Time{}
	}
	if s.hour == everyHour {
		return s.nextShown(t)
	}
	local := wall(t.In(s.zone)).Truncate(time.Minute)
	for end := local.AddDate(horizon, 0, 0); ; local = local.Add(time.Minute) {
		if local = s.match(local, end); local.IsZero() {
			return time.Time{}
		}
		if at := firstShown(local, s.zone); at.After(t) {
			return at
		}
	}
}

// nextShown is next for a schedule of every hour: it comes as often as the zone's clock shows its minutes,
// twice in an hour that comes twice. It misses nothing in an hour that is skipped, because the one after has the same minutes.
func (s crontab) nextShown(t time.Time) time.Time {
	horizon := t.AddDate(horizon, 0, 0)
	for z := t.In(s.zone); z.Before(horizon); {
		end := offsetEnd(z)
		last := horizon
		if !end.IsZero() && end.Before(last) {
			last = end
		}
		_, offset := z.Zone()
		ahead := time.Duration(offset) * time.Second
		for local := wall(z).Truncate(time.Minute); ; local = local.Add(time.Minute) {
			if local = s.match(local, last.UTC().Add(ahead)); local.IsZero() {
				break
			}
			if at := local.Add(-ahead); at.After(t) && !at.Before(z) {
				return at.In(s.zone)
			}
		}
		z = last.In(s.zone)
	}
	return time.Time{}
}

// match is the first local time of the schedule from this one on.
func (s crontab) match(local, end time.Time) time.Time {
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
		if !s.on(local) || hour > 23 {
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

func (s crontab) on(local time.Time) bool {
	day, w := local.Day(), local.Weekday()
	left := time.Date(local.Year(), local.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day() - day // days of the month after this one
	d := s.day>>day&1 == 1 || s.lastDay && left == 0
	nth := s.nth[w]
	wd := s.weekday>>w&1 == 1 || nth>>((day-1)/7+1)&1 == 1 || nth>>lastOne&1 == 1 && left < 7
	if s.either {
		return d || wd
	}
	return d && wd
}
