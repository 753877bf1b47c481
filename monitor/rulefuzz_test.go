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
func (b *fuzzedBytes) moment(now StoreTime) StoreTime {
	switch b.one() % 8 {
	case 0:
		return 0
	case 1:
		return now
	case 2:
		return Never
	case 3:
		return StoreTime(b.number())
	}
	return now + StoreTime(b.number()%int64(24*time.Hour/time.Microsecond))
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

func fuzzedEvent(b *fuzzedBytes) Check {
	e := Check{
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
		OnsetAt: b.moment(now), RecentOnsets: int(b.one()), WellSince: b.moment(now), ExpectedFrom: b.moment(now), PausedUntil: b.moment(now),
		RetiredAt: b.moment(now), RetireRequested: b.one()%8 == 0, LastBeat: b.moment(now), BlindAtBeat: b.duration(),
		Path: PathStatus{
			LastSeen: b.moment(now), TrustFor: b.duration(), MaxGap: b.duration(), BlindTotal: b.duration(), BlindUntil: b.moment(now),
		},
		Failing: b.one()%4 == 0, RunStarted: b.moment(now), CheckChanged: b.moment(now), Removed: b.one()%16 == 0,
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
		v := e.Evaluate(facts)
		if wrong := impossible(&e, facts, v); wrong != "" {
			t.Fatalf("%s\n%+v\n%+v\n%+v", wrong, e, facts, v)
		}
	})
}

// impossible reports what is wrong with a verdict by itself.
func impossible(e *Check, f Facts, v Evaluation) string {
	switch {
	case v.Transition == NoTransition && v.Due <= f.Now && f.Now != Never:
		return "it stays, and is due already"
	case v.Transition != NoTransition && v.At > f.Now && f.LastBeat <= f.Now:
		return "it turned in the future"
	case v.Transition == Onset && (f.Alarm != "" || f.State == Paused || f.State == Retired || e.Paused || v.Reason == ""):
		return "it cannot be raised"
	case v.Transition == Abated && f.Alarm == "":
		return "nothing ends"
	case v.Transition == Onset && v.Reason == Silent && f.Path.SeenUntil(f.Now) <= v.At:
		return "its path was not seen to work"
	case v.Transition == NoTransition && v.WellSince != 0 && (f.Alarm == "" || e.Flaps == 0):
		return "what does not flap need not be well"
	case f.Removed != (v.Transition == Forget):
		return "it is forgotten, or is not"
	}
	return ""
}

func TestImpossible(t *testing.T) {
	e := Check{Name: "e", Interval: time.Second}
	for want, v := range map[string]Evaluation{
		"it stays, and is due already":        {Due: start},
		"it turned in the future":             {Transition: Retire, At: start + 1},
		"it cannot be raised":                 {Transition: Onset},
		"nothing ends":                        {Transition: Abated},
		"its path was not seen to work":       {Transition: Onset, Reason: Silent, At: start},
		"what does not flap need not be well": {WellSince: 1, Due: Never},
		"it is forgotten, or is not":          {Transition: Forget},
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
	e := Check{Name: "e", Interval: 1 << 51, Missed: 1 << 13}
	if err := e.Validate(); err == nil {
		t.Error("a limit of 585 years is accepted")
	}
	if err := (Check{Name: "e", Schedule: "@yearly", Missed: MaxTimes + 1}).Validate(); err == nil {
		t.Error("a schedule of which 101 times may be missed is accepted")
	}
}
