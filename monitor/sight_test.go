package monitor

import (
	"testing"
	"time"
)

// TestD24BlindIsNotTrusted: a path that has not been proven for longer than its gap
// was blind since its last proof, however long it is trusted otherwise: the store's clock has
// stepped forward, or everything stood still, and the next proof is still to come.
func TestD24BlindIsNotTrusted(t *testing.T) {
	const second = Moment(time.Second / time.Microsecond)
	e := Event{Name: "e", Interval: 10 * time.Second, Missed: 1}.WithDefaults()
	for _, c := range []struct {
		name string
		now  Moment
		gap  time.Duration
		want Turn
	}{
		{"trusted past the limit", 21 * second, 2 * time.Second, Onset},
		{"not for longer than the gap", 3600 * second, 2 * time.Second, Stay},
		{"a longer gap", 23 * second, 5 * time.Second, Onset},
		{"and beyond", 25 * second, 5 * time.Second, Stay},
		{"a gap that is shorter than the trust", 21 * second, time.Second, Onset},
	} {
		f := Facts{
			Now: c.now, State: Up, Beat: 10 * second, Base: second,
			Path: Path{Name: "p", Proof: 20*second - second/2, Trust: 2 * time.Second, Gap: c.gap},
		}
		if v := e.Judge(f); v.Turn != c.want {
			t.Errorf("%s: %+v; want %q", c.name, v, c.want)
		}
	}
}
