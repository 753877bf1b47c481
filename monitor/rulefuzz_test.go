package monitor

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"
)

// fuzzedBytes makes values from what a fuzzer writes; zero when that is used up.
type fuzzedBytes []byte

func (b *fuzzedBytes) number() int64 {
	var raw [8]byte
	*b = (*b)[copy(raw[:], *b):]
	return int64(binary.LittleEndian.Uint64(raw[:]))
}

func (b *fuzzedBytes) one() byte {
	if len(*b) == 0 {
		return 0
	}
	c := (*b)[0]
	*b = (*b)[1:]
	return c
}

// moment is near now, or at an edge.
func (b *fuzzedBytes) moment(now Moment) Moment {
	switch b.one() % 8 {
	case 0:
		return 0
	case 1:
		return now
	case 2:
		return Never
	case 3:
		return Moment(b.number())
	}
	return now + Moment(b.number()%int64(24*time.Hour/time.Microsecond))
}

func (b *fuzzedBytes) duration() time.Duration {
	switch b.one() % 4 {
	case 0:
		return 0
	case 1:
		return time.Duration(b.number())
	}
	return time.Duration(b.number()) % time.Hour
}

func fuzzedEvent(b *fuzzedBytes) Event {
	e := Event{
		Name: "e", Interval: b.duration(), Missed: int(b.one()), Grace: b.duration(), MaxRun: b.duration(),
		RetireAfter: b.duration(), Flaps: int(b.one() % 4), FlapWindow: b.duration(), Steady: b.duration(), Paused: b.one()%4 == 0,
	}
	if s := b.one() % 8; s < 3 {
		e.Interval, e.Schedule = 0, []string{"*/5 * * * *", "@yearly", "TZ=Europe/Berlin 30 2 29 2 */7"}[s]
	}
	return e.WithDefaults()
}

func fuzzedFacts(b *fuzzedBytes) Facts {
	now := start
	if b.one()%8 == 0 {
		now = b.moment(start)
	}
	f := Facts{
		Now: now, Wall: time.UnixMicro(int64(b.moment(now))),
		State: []State{Up, Down, Paused, Retired}[b.one()%4], Reason: []Reason{"", Silent, Failed, Overrun}[b.one()%4],
		Onset: b.moment(now), Onsets: int(b.one()), Well: b.moment(now), Base: b.moment(now), Until: b.moment(now),
		Ended: b.moment(now), Asked: b.one()%8 == 0, Beat: b.moment(now), BlindThen: b.duration(),
		Path: Path{
			Proof: b.moment(now), Trust: b.duration(), Gap: b.duration(), Blind: b.duration(), Resumed: b.moment(now),
		},
		Failing: b.one()%4 == 0, Run: b.moment(now), EventBase: b.moment(now), Removed: b.one()%16 == 0,
	}
	if b.one()%2 == 0 {
		f.Alarm = "a"
	}
	return f
}

// FuzzJudge: whatever the facts are, the rule says something that can be done, and
// never to look again at once for nothing.
func FuzzJudge(f *testing.F) {
	f.Add([]byte{})
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		data := make([]byte, 300)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b := fuzzedBytes(data)
		e := fuzzedEvent(&b)
		if e.Validate() != nil {
			return
		}
		facts := fuzzedFacts(&b)
		v := e.Judge(facts)
		if wrong := impossible(&e, facts, v); wrong != "" {
			t.Fatalf("%s\n%+v\n%+v\n%+v", wrong, e, facts, v)
		}
	})
}

// impossible tells what is wrong with a verdict by itself.
func impossible(e *Event, f Facts, v Verdict) string {
	switch {
	case v.Turn == Stay && v.Due <= f.Now && f.Now != Never:
		return "it stays, and is due already"
	case v.Turn != Stay && v.At > f.Now && f.Beat <= f.Now:
		return "it turned in the future"
	case v.Turn == Onset && (f.Alarm != "" || f.State == Paused || f.State == Retired || e.Paused || v.Reason == ""):
		return "it cannot be raised"
	case v.Turn == Abated && f.Alarm == "":
		return "nothing ends"
	case v.Turn == Onset && v.Reason == Silent && f.Path.Sight(f.Now) <= v.At:
		return "its path was not seen to work"
	case v.Turn == Stay && v.Well != 0 && (f.Alarm == "" || e.Flaps == 0):
		return "what does not flap need not be well"
	case f.Removed != (v.Turn == Forget):
		return "it is forgotten, or is not"
	}
	return ""
}

func TestImpossible(t *testing.T) {
	e := Event{Name: "e", Interval: time.Second}
	for want, v := range map[string]Verdict{
		"it stays, and is due already":        {Due: start},
		"it turned in the future":             {Turn: Retire, At: start + 1},
		"it cannot be raised":                 {Turn: Onset},
		"nothing ends":                        {Turn: Abated},
		"its path was not seen to work":       {Turn: Onset, Reason: Silent, At: start},
		"what does not flap need not be well": {Well: 1, Due: Never},
		"it is forgotten, or is not":          {Turn: Forget},
	} {
		if got := impossible(&e, Facts{Now: start}, v); got != want {
			t.Errorf("%+v: %q, want %q", v, got, want)
		}
	}
}

// TestLimits: numbers that are too large stay so.
func TestLimits(t *testing.T) {
	if got := Never.Add(-time.Hour); got != Never {
		t.Errorf("an hour before never is %d", got)
	}
	if got := (Never - 1).Add(time.Hour); got != Never {
		t.Errorf("an hour after the last moment is %d", got)
	}
	if got := Never.Sub(start); got <= 0 {
		t.Errorf("never is %v after now", got)
	}
	if got := start.Sub(Never); got >= 0 {
		t.Errorf("now is %v after never", got)
	}
	// Their product is 2^64 nanoseconds, and would be none at all.
	e := Event{Name: "e", Interval: 1 << 51, Missed: 1 << 13}
	if err := e.Validate(); err == nil {
		t.Error("a limit of 585 years is accepted")
	}
	if err := (Event{Name: "e", Schedule: "@yearly", Missed: MaxTimes + 1}).Validate(); err == nil {
		t.Error("a schedule of which 101 times may be missed is accepted")
	}
}
