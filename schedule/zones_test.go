package schedule

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"
	"time"
)

// zoneNames are those of the zone database.
//
//go:embed testdata/zones.txt
var zoneNames string

// clockChange is one change of a zone's clock: at the given time it goes from one offset to another, in minutes.
type clockChange struct {
	at       time.Time
	from, to int
}

// changesOf are the changes of a zone from 2020 to 2040.
func changesOf(zone *time.Location) (all []clockChange) {
	end := time.Date(2041, 1, 1, 0, 0, 0, 0, time.UTC)
	for z := time.Date(2020, 1, 1, 0, 0, 0, 0, zone); ; {
		next := offsetEnd(z)
		if next.IsZero() || next.After(end) {
			return all
		}
		_, from := z.Zone()
		_, to := next.In(zone).Zone()
		if from != to {
			all = append(all, clockChange{next.UTC(), from / 60, to / 60})
		}
		z = next.In(zone)
	}
}

// TestEveryClockChange asks about every minute around every change of a clock in the zone database from 2020 to 2040. With
// -short, it is each zone's last two.
func TestEveryClockChange(t *testing.T) {
	seen, tried := map[string]bool{}, 0
	for name := range strings.FieldsSeq(zoneNames) {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		changes := changesOf(zone)
		signature := fmt.Sprint(changes)
		if seen[signature] {
			continue // another name of the same zone, as far as these years go
		}
		seen[signature] = true
		if testing.Short() {
			changes = changes[max(0, len(changes)-2):]
		}
		for _, c := range changes {
			tried++
			if wrong := c.compare(zone, Schedule.Next); wrong != "" {
				t.Fatalf("%s: the change of %v: %s", name, c.at, wrong)
			}
		}
	}
	if tried < 80 {
		t.Errorf("only %d changes of clocks were tried", tried)
	}
	t.Logf("%d changes of clocks in %d zones", tried, len(seen))
}

// TestClockChangesCatch: schedules that are wrong about a change of clocks are found.
func TestClockChangesCatch(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	changes := changesOf(zone)[:2]
	if changes[0].compare(zone, Schedule.Next) != "" || changes[1].compare(zone, Schedule.Next) != "" {
		t.Fatal("the schedule itself does not pass")
	}
	for name, c := range map[string]struct {
		change clockChange
		next   func(Schedule, time.Time) time.Time
	}{
		"the gap counted out": {changes[0], func(s Schedule, at time.Time) time.Time {
			next := s.Next(at)
			for !next.IsZero() && !s.crontab.match(wall(next), wall(next).Add(time.Minute)).Equal(wall(next)) {
				next = s.Next(next)
			}
			return next
		}},
		"the missed window counted twice": {changes[1], func(s Schedule, at time.Time) time.Time {
			s.crontab.zone = zone
			return s.crontab.nextShown(at)
		}},
		"fixed offset": {changes[0], func(s Schedule, at time.Time) time.Time {
			s.crontab.zone = time.FixedZone("CET", 3600)
			return s.Next(at)
		}},
	} {
		if c.change.compare(zone, c.next) == "" {
			t.Errorf("%s: not found", name)
		}
	}
}

// around is how many minutes before and after a change are asked about.
const around = 5 * 60

// compare asks about all minutes around the change, of schedules at every hour and at certain ones. The oracle
// knows only what the clock shows in each minute.
func (c clockChange) compare(zone *time.Location, next func(Schedule, time.Time) time.Time) string {
	change := int(c.at.Unix() / 60)
	shows := func(minute int) int { // minutes since 1970, as the zone's clock shows them
		if minute < change {
			return minute + c.from
		}
		return minute + c.to
	}
	for _, every := range []int{1, 17, 60, 7 * 60} {
		text := fmt.Sprintf("%d-59/%d * * * *", 3, every)
		certain := every == 7*60
		hour := (shows(change-1) / 60) % 24
		if c.to > c.from {
			hour = (shows(change) - 1) / 60 % 24 // the last one that is skipped
		}
		if certain {
			text = fmt.Sprintf("3-59/17 %d * * *", hour)
		} else if every > 17 {
			text = "30 * * * *"
		}
		s, err := Parse("TZ=" + zone.String() + " " + text)
		if err != nil {
			return err.Error()
		}
		matches := func(shown int) bool {
			minute := shown % 60
			switch {
			case certain:
				return shown/60%24 == hour && minute >= 3 && (minute-3)%17 == 0
			case every > 17:
				return minute == 30
			}
			return minute >= 3 && (minute-3)%every == 0
		}
		at := time.Unix(int64(change-around)*60-1, 0)
		for minute := change - around; minute < change+around; minute++ {
			now := shows(minute)
			comes := matches(now)
			if certain {
				// Once: at its first showing, or when the clock jumps over it.
				comes = comes && (minute < change || now >= change+c.from)
				if minute == change {
					for skipped := change + c.from; skipped < now; skipped++ {
						comes = comes || matches(skipped)
					}
				}
			}
			if !comes {
				continue
			}
			want := time.Unix(int64(minute)*60, 0)
			if got := next(s, at); !got.Equal(want) {
				return fmt.Sprintf("%s: after %v comes %v, want %v", text, at.UTC(), got.UTC(), want.UTC())
			}
			at = want
		}
		if got, end := next(s, at), time.Unix(int64(change+around)*60, 0); !got.IsZero() && got.Before(end) {
			return fmt.Sprintf("%s: after %v comes %v, want none before %v", text, at.UTC(), got.UTC(), end.UTC())
		}
	}
	return ""
}
