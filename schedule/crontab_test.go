package schedule

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the same zones on every machine
)

func TestScheduleNext(t *testing.T) {
	for _, c := range []struct{ text, after, want string }{
		{"30 2 * * *", "2026-11-21T22:36:00Z", "2026-11-22T02:30:00Z"},
		{"30 2 * * *", "2026-11-22T02:29:59.999999Z", "2026-11-22T02:30:00Z"},
		{"30 2 * * *", "2026-11-22T02:30:00Z", "2026-11-23T02:30:00Z"},
		{"*/15 9-17 * * mon-fri", "2026-11-20T17:45:00Z", "2026-11-23T09:00:00Z"},
		{"0 0 * * 7", "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z"},
		{"0 0 * * fri-sun", "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z"},
		{"0 0 * * 5-7", "2026-11-22T00:00:00Z", "2026-11-27T00:00:00Z"},
		{"0 0 * * SUN,Wed", "2026-11-22T00:00:00Z", "2026-11-25T00:00:00Z"},
		{"0 12 1-31/10 FEB *", "2026-11-22T00:00:00Z", "2027-02-01T12:00:00Z"},

		// Both days restricted: either. One starts with a star: both.
		{"0 0 13 * 5", "2026-11-21T00:00:00Z", "2026-11-27T00:00:00Z"},
		{"0 0 13 * 5", "2026-12-11T00:00:00Z", "2026-12-13T00:00:00Z"},
		{"0 0 */2 * 1", "2026-11-21T00:00:00Z", "2026-11-23T00:00:00Z"},
		{"0 0 */2 * 1", "2026-11-23T00:00:00Z", "2026-12-07T00:00:00Z"},

		{"@hourly", "2026-11-21T22:00:00Z", "2026-11-21T23:00:00Z"},
		{"@daily", "2026-11-21T22:00:00Z", "2026-11-22T00:00:00Z"},
		{"@weekly", "2026-11-21T22:00:00Z", "2026-11-22T00:00:00Z"},
		{"@monthly", "2026-11-21T22:00:00Z", "2026-12-01T00:00:00Z"},
		{"@yearly", "2026-11-21T22:00:00Z", "2027-01-01T00:00:00Z"},
		{"TZ=Asia/Kathmandu @daily", "2026-11-21T22:00:00Z", "2026-11-22T18:15:00Z"},
		{"CRON_TZ=America/New_York\t0  9 * * *", "2026-11-21T22:00:00Z", "2026-11-22T14:00:00Z"},

		// The rarest: leap days, over 2100, and those of one day of the week.
		{"0 0 29 2 *", "2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z"},
		{"0 0 29 2 */7", "2088-02-29T00:00:00Z", "2128-02-29T00:00:00Z"},

		// Berlin springs from 2:00 to 3:00 and falls from 3:00 to 2:00.
		{"TZ=Europe/Berlin 30 2 * * *", "2027-03-27T01:30:00Z", "2027-03-28T01:00:00Z"},
		{"TZ=Europe/Berlin 30 2 * * *", "2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"},
		{"TZ=Europe/Berlin 0,30 2,3 * * *", "2027-03-28T01:00:00Z", "2027-03-28T01:30:00Z"},
		{"TZ=Europe/Berlin 30 2 * * *", "2026-10-24T23:00:00Z", "2026-10-25T00:30:00Z"},
		{"TZ=Europe/Berlin 30 2 * * *", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		{"TZ=Europe/Berlin 0 1-23 * * *", "2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"},
		// What names no hours follows the clock.
		{"TZ=Europe/Berlin 0 * * * *", "2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z"},
		{"TZ=Europe/Berlin 30 * * * *", "2027-03-28T00:30:00Z", "2027-03-28T01:30:00Z"},
		// The last day, the last Friday and the second one.
		{"0 0 L * *", "2027-02-01T00:00:00Z", "2027-02-28T00:00:00Z"},
		{"0 0 15,l * *", "2028-02-15T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"0 0 * * friL", "2026-11-21T00:00:00Z", "2026-11-27T00:00:00Z"},
		{"0 0 * * 5#2", "2026-11-21T00:00:00Z", "2026-12-11T00:00:00Z"},
		{"0 0 * * mon,sun#5", "2026-11-28T00:00:00Z", "2026-11-29T00:00:00Z"},
		{"0 0 13 * 7L", "2026-11-28T00:00:00Z", "2026-11-29T00:00:00Z"},
		// The last day of a leap year, in years that only the zone's rule is known for.
		{"TZ=Europe/Berlin 30 2 * * *", "2040-12-30T02:30:00Z", "2040-12-31T01:30:00Z"},
		{"TZ=Europe/Berlin 30 2 * * *", "2040-12-31T01:30:00Z", "2041-01-01T01:30:00Z"},
		{"TZ=Europe/Berlin 30 * * * *", "2040-12-31T22:30:00Z", "2040-12-31T23:30:00Z"},
		// Samoa had no 30 December 2011.
		{"TZ=Pacific/Apia 0 12 30 12 *", "2011-12-29T00:00:00Z", "2011-12-30T10:00:00Z"},
	} {
		s, err := ParseCrontab(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		after, err := time.Parse(time.RFC3339Nano, c.after)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Next(after).UTC().Format(time.RFC3339Nano); got != c.want {
			t.Errorf("%s: after %s comes %s, want %s", c.text, c.after, got, c.want)
		}
	}
}

func TestScheduleRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "0 fields",
		"* * * *":                   "4 fields",
		"* * * * * *":               "6 fields",
		"@reboot":                   `"@reboot" is not known`,
		"60 * * * *":                `minute: "60": "60" is not a value from 0 to 59`,
		"* 24 * * *":                "hour:",
		"* * 0 * *":                 "from 1 to 31",
		"* * * 13 *":                "month:",
		"* * * mai *":               `"mai" is not a value`,
		"* * * * 8":                 "from 0 to 7",
		"-1 * * * *":                `"" is not a value`,
		"1- * * * *":                `"" is not a value`,
		"1,,2 * * * *":              `"" is not a value`,
		"+1 * * * *":                `"+1" is not`,
		"30-10 * * * *":             "ends before it begins",
		"5/15 * * * *":              "write 5-59/15",
		"*/0 * * * *":               "the step",
		"*/ * * * *":                "the step",
		"*/61 * * * *":              "from 1 to 60",
		"*-5 * * * *":               `"*" is not a value`,
		"0 0 30 2 *":                "it never comes",
		"0 0 30 2 *#":               "day of week",
		"0 0 * * fri#6":             "use 1 to 5",
		"0 0 * * fri#":              "use 1 to 5",
		"0 0 * * L":                 `"L" is not a value`,
		"0 0 * * maiL":              `"mai" is not a value`,
		"0 L * * *":                 `hour: "L"`,
		"every 5m":                  "2 fields",
		"0 0 31 4,6,9,11 *":         "it never comes",
		"TZ=Mars/Olympus * * * * *": "time zone: unknown",
		"TZ=../etc/hosts * * * * *": "time zone:",
		"TZ= * * * * *":             "is missing",
		"TZ=Local * * * * *":        "is missing",
		"HOME=/ * * * * *":          "only TZ=Zone",
		strings.Repeat("1,", 300):   "use at most",
	} {
		s, err := ParseCrontab(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if at := s.Next(time.Unix(0, 0)); !at.IsZero() {
			t.Errorf("%q was refused and comes at %v", text, at)
		}
	}
}

// fields is a schedule as sets of values, for an oracle that asks of each minute.
type fields struct {
	sets [5]map[int]bool
	star [5]bool
	zone *time.Location
}

func randomCrontab(r *rand.Rand, zone *time.Location) fields {
	c := fields{zone: zone}
	bounds := [5][2]int{{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}}
	for i, b := range bounds {
		c.sets[i] = map[int]bool{}
		// Days are mostly free, so that changes of the clock are met.
		if r.IntN(3) == 0 || i == 3 || i == 2 && r.IntN(2) == 0 {
			c.star[i] = true
			step := 1 + r.IntN(2)*r.IntN(3)
			if i == 3 {
				step = 1
			}
			for v := b[0]; v <= b[1]; v += step {
				c.sets[i][v] = true
			}
			continue
		}
		for range 1 + r.IntN(6) {
			c.sets[i][b[0]+r.IntN(b[1]-b[0]+1)] = true
		}
		if i == 1 { // those hours in which clocks change
			c.sets[i][r.IntN(4)] = true
		}
	}
	return c
}

func (c fields) String() string {
	var words []string
	for i, set := range c.sets {
		values := slices.Sorted(maps.Keys(set))
		if c.star[i] {
			step := 1
			if len(values) > 1 {
				step = values[1] - values[0]
			}
			words = append(words, "*/"+strconv.Itoa(step))
			continue
		}
		var texts []string
		for _, v := range values {
			texts = append(texts, strconv.Itoa(v))
		}
		words = append(words, strings.Join(texts, ","))
	}
	return "TZ=" + c.zone.String() + " " + strings.Join(words, " ")
}

func (c fields) matches(local time.Time) bool {
	day, weekday := c.sets[2][local.Day()], c.sets[4][int(local.Weekday())]
	days := day && weekday
	if !c.star[2] && !c.star[4] {
		days = day || weekday
	}
	return days && c.sets[0][local.Minute()] && c.sets[1][local.Hour()] && c.sets[3][int(local.Month())]
}

// TestScheduleOracle walks through changes of clocks minute by minute.
func TestScheduleOracle(t *testing.T) {
	transitions := []struct {
		zone string
		from string
		days int
	}{
		{"UTC", "2026-02-26", 5},
		{"Europe/Berlin", "2027-03-27", 3},
		{"Europe/Berlin", "2026-10-24", 3},
		{"America/New_York", "2026-03-07", 3},
		{"America/New_York", "2026-10-31", 3},
		{"America/Sao_Paulo", "2018-11-03", 3}, // at midnight
		{"America/Sao_Paulo", "2018-02-17", 3},
		{"Australia/Lord_Howe", "2026-10-03", 3}, // by half an hour
		{"Australia/Lord_Howe", "2027-04-03", 3},
		{"Pacific/Apia", "2011-12-28", 5}, // by a day
		{"Africa/Casablanca", "2026-02-14", 3},
		{"Asia/Kathmandu", "1985-12-31", 3}, // by a quarter of an hour
	}
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	for round := range 96 {
		tr := transitions[round%len(transitions)]
		zone, err := time.LoadLocation(tr.zone)
		if err != nil {
			t.Fatal(err)
		}
		c := randomCrontab(r, zone)
		s, err := ParseCrontab(c.String())
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		begin, err := time.Parse(time.DateOnly, tr.from)
		if err != nil {
			t.Fatal(err)
		}
		if wrong := c.compare(s, begin, tr.days*24*60); wrong != "" {
			t.Fatalf("seed %d: %s: %s", seed, c, wrong)
		}
	}
}

// compare asks both for every time of so many minutes.
func (c fields) compare(s Schedule, begin time.Time, minutes int) string {
	shows := func(at time.Time) time.Time {
		_, offset := at.In(c.zone).Zone()
		return at.Add(time.Duration(offset) * time.Second).UTC()
	}
	everyHour := len(c.sets[1]) == 24
	shown := map[time.Time]bool{}
	for m := -26 * 60; m < 0; m++ {
		shown[shows(begin.Add(time.Duration(m)*time.Minute))] = true
	}
	var want []time.Time
	for m := range minutes {
		at := begin.Add(time.Duration(m) * time.Minute)
		now, before := shows(at), shows(at.Add(-time.Minute))
		comes := (everyHour || !shown[now]) && c.matches(now)
		shown[now] = true
		for l := before.Add(time.Minute); l.Before(now); l = l.Add(time.Minute) {
			comes = comes || !everyHour && !shown[l] && c.matches(l)
		}
		if comes {
			want = append(want, at)
		}
	}
	at := begin.Add(-time.Nanosecond)
	for _, w := range want {
		if got := s.Next(at); !got.Equal(w) {
			return fmt.Sprintf("after %v comes %v, want %v", at.UTC(), got.UTC(), w.UTC())
		}
		at = w
	}
	if end := begin.Add(time.Duration(minutes) * time.Minute); s.Next(at).Before(end) {
		return fmt.Sprintf("after %v comes %v, want none before %v", at.UTC(), s.Next(at).UTC(), end)
	}
	return ""
}

// TestScheduleOracleCatches: schedules that are wrong about one thing are found.
func TestScheduleOracleCatches(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for name, break_ := range map[string]func(*Schedule){
		"both days":     func(s *Schedule) { s.crontab.either = !s.crontab.either },
		"zone ignored":  func(s *Schedule) { s.crontab.zone = time.UTC },
		"minute lost":   func(s *Schedule) { s.crontab.minute &= s.crontab.minute - 1 },
		"fixed offset":  func(s *Schedule) { s.crontab.zone = time.FixedZone("CET", 3600) },
		"sunday apart":  func(s *Schedule) { s.crontab.weekday &^= 1 },
		"month is zero": func(s *Schedule) { s.crontab.month >>= 1 },
	} {
		found := false
		for seed := range uint64(200) {
			c := randomCrontab(rand.New(rand.NewPCG(seed, 2)), zone)
			s, err := ParseCrontab(c.String())
			if err != nil {
				t.Fatal(err)
			}
			break_(&s)
			begin := time.Date(2026, 10, 24, 0, 0, 0, 0, time.UTC)
			if name == "month is zero" {
				begin = time.Date(2026, 12, 24, 0, 0, 0, 0, time.UTC)
			}
			if found = c.compare(s, begin, 3*24*60) != ""; found {
				break
			}
		}
		if !found {
			t.Errorf("%s: 200 seeds do not show it", name)
		}
	}
}

// FuzzSchedule: whatever is written, it is refused, or comes after every time.
func FuzzSchedule(f *testing.F) {
	for _, text := range []string{"*/5 1-5 * jan-mar,7 0", "TZ=Europe/Berlin 30 2 29 2 */7", "@weekly", "0 0 31 2 7", "CRON_TZ=Pacific/Apia * * * * *"} {
		f.Add(text, int64(1795223000), int64(0))
	}
	f.Fuzz(func(t *testing.T, text string, sec, nsec int64) {
		s, err := ParseCrontab(text)
		if err != nil {
			return
		}
		after := time.Unix(sec%(1<<36), nsec)
		for range 3 {
			next := s.Next(after)
			if !next.After(after) || next.Sub(after) > (horizon+1)*366*24*time.Hour {
				t.Fatalf("%q: after %v comes %v", text, after, next)
			}
			after = next
		}
	})
}

func BenchmarkSchedule(b *testing.B) {
	for _, text := range []string{"*/5 * * * *", "TZ=Europe/Berlin 30 2 * * mon-fri", "0 0 29 2 *"} {
		b.Run("parse "+text, func(b *testing.B) {
			for b.Loop() {
				_, _ = ParseCrontab(text)
			}
		})
		s, _ := ParseCrontab(text)
		at := time.Unix(1795223000, 0)
		b.Run("next "+text, func(b *testing.B) {
			for b.Loop() {
				s.Next(at)
			}
		})
	}
}
