package schedule

import (
	"errors"
	"fmt"
	"time"
)

func zone(key, name string) (*time.Location, error) {
	if key != "TZ" && key != "CRON_TZ" {
		return nil, fmt.Errorf("%q before the fields; only TZ=Zone can be there", key+"=")
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

// wall is what the zone's clock shows at a time, written as a time in UTC.
func wall(at time.Time) time.Time {
	_, offset := at.Zone()
	return at.Add(time.Duration(offset) * time.Second).UTC()
}

// firstShown is when the zone's clock shows a local time first, or jumps over it.
func firstShown(local time.Time, zone *time.Location) time.Time {
	// No zone is a day from UTC: the time cannot have come yet.
	z := local.Add(-24 * time.Hour).In(zone)
	for {
		_, offset := z.Zone()
		start, _ := z.ZoneBounds()
		end := offsetEnd(z)
		at := local.Add(-time.Duration(offset) * time.Second).In(zone)
		switch {
		case !start.IsZero() && at.Before(start):
			return start
		case end.IsZero() || at.Before(end):
			return at
		}
		z = end
	}
}

// offsetEnd is when the offset of the zone ends that holds at z, or some time before; zero when it does not end. It is
// after z, as the end that ZoneBounds returns is not on the last day of a leap year, in years that only a rule is known for.
func offsetEnd(z time.Time) time.Time {
	_, end := z.ZoneBounds()
	if !end.IsZero() && !end.After(z) {
		_, end = z.Add(24 * time.Hour).ZoneBounds()
	}
	return end
}
