package monitor

import (
	"testing"
	"time"
)

// TestD24BlindIsNotTrusted: a path that has not been proven for longer than its gap
// was blind since its last proof, however long it is trusted otherwise: the store's clock has
// stepped forward, or everything stood still, and the next proof is still to come.
func TestD24BlindIsNotTrusted(t *testing.T) {
	const second = StoreTime(time.Second / time.Microsecond)
	e := Check{Name: "e", Interval: 10 * time.Second, Missed: 1}.WithDefaults()
	for _, c := range []struct {
		name string
		now  StoreTime
		gap  time.Duration
		want Transition
	}{
		{"trusted past the limit", 21 * second, 2 * time.Second, Onset},
		{"not for longer than the gap", 3600 * second, 2 * time.Second, NoTransition},
		{"a longer gap", 23 * second, 5 * time.Second, Onset},
		{"and beyond", 25 * second, 5 * time.Second, NoTransition},
		{"a gap that is shorter than the trust", 21 * second, time.Second, Onset},
	} {
		f := Facts{
			Now: c.now, State: Up, LastBeat: 10 * second, ExpectedFrom: second,
			Path: PathStatus{Name: "p", LastSeen: 20*second - second/2, TrustFor: 2 * time.Second, MaxGap: c.gap},
		}
		if v := e.Evaluate(f); v.Transition != c.want {
			t.Errorf("%s: %+v; want %q", c.name, v, c.want)
		}
	}
}

// TestRecordProbe: what a probe makes of the time since the one before.
func TestRecordProbe(t *testing.T) {
	const second = StoreTime(time.Second / time.Microsecond)
	seen := PathStatus{LastSeen: 100 * second, MaxGap: 2 * time.Second, BlindTotal: time.Minute, BlindUntil: 50 * second}
	for _, c := range []struct {
		name    string
		before  PathStatus
		now     StoreTime
		gap     time.Duration
		skipped bool
		blind   time.Duration
		until   StoreTime
	}{
		{"the first one", PathStatus{}, 100 * second, time.Second, false, 0, 100 * second},
		{"within the gap", seen, 102 * second, 2 * time.Second, false, time.Minute, 50 * second},
		{"beyond the gap", seen, 103 * second, 2 * time.Second, false, time.Minute + 3*time.Second, 103 * second},
		{"the gap of this one counts", seen, 103 * second, 5 * time.Second, false, time.Minute, 50 * second},
		{"a shorter gap", seen, 102 * second, time.Second, false, time.Minute + 2*time.Second, 102 * second},
		{"within the gap, but skipped", seen, 101 * second, 2 * time.Second, true, time.Minute + time.Second, 101 * second},
		{"the first one after a skip", PathStatus{}, 100 * second, time.Second, true, 0, 100 * second},
	} {
		p := c.before
		p.RecordProbe(c.now, Probe{TrustFor: time.Second, MaxGap: c.gap}, c.skipped)
		want := PathStatus{LastSeen: c.now, TrustFor: time.Second, MaxGap: c.gap, BlindTotal: c.blind, BlindUntil: c.until}
		if p != want {
			t.Errorf("%s: %+v; want %+v", c.name, p, want)
		}
	}
}

// TestSkippedTime: when no path at all was probed for too long, every path was blind.
func TestSkippedTime(t *testing.T) {
	const second = StoreTime(time.Second / time.Microsecond)
	probe := func(gap time.Duration) Probe { return Probe{Path: "p", MaxGap: gap} }
	for _, c := range []struct {
		name      string
		last, now StoreTime
		probes    []Probe
		want      bool
	}{
		{"no probe yet", 0, 100 * second, []Probe{probe(time.Second)}, false},
		{"within the gap", 98 * second, 100 * second, []Probe{probe(2 * time.Second)}, false},
		{"beyond it", 97 * second, 100 * second, []Probe{probe(2 * time.Second)}, true},
		{"one of several is enough", 97 * second, 100 * second, []Probe{probe(time.Hour), probe(2 * time.Second)}, true},
		{"names only", 97 * second, 100 * second, []Probe{{Path: "p", MaxGap: time.Second, NameOnly: true}}, false},
		{"nothing comes", 97 * second, 100 * second, nil, false},
	} {
		if got := SkippedTime(c.last, c.now, c.probes); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestBlindBy: what of a path's blind time was before a heartbeat.
func TestBlindBy(t *testing.T) {
	const second = StoreTime(time.Second / time.Microsecond)
	p := PathStatus{BlindTotal: time.Minute, BlindUntil: 100 * second}
	for _, c := range []struct {
		name     string
		at       StoreTime
		samePath bool
		want     time.Duration
	}{
		{"after it was blind", 100 * second, true, time.Minute},
		{"before its end, by the same path", 99 * second, true, 7 * time.Second},
		{"by another path", 80 * second, false, 40 * time.Second},
		{"by another path, long before", 10 * second, false, 0},
	} {
		if got := p.BlindBy(c.at, 7*time.Second, c.samePath); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
