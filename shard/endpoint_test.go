package shard

import (
	"errors"
	"testing"
	"time"
)

// TestUnreachablePrimary: while failover is paused no plan tells clients that the primary is gone; the agents' probes do.
func TestUnreachablePrimary(t *testing.T) {
	node := func(n byte, age time.Duration, op *Opinion) Record {
		return Record{ID: string(n), Address: string(n) + ":1", Age: age, Timeout: 5 * time.Second, Interval: time.Second, Condition: Up, Opinion: op}
	}
	of := func(r Reachability, age, silence time.Duration) *Opinion {
		return &Opinion{Of: "p", Reachability: r, Age: age, Silence: silence}
	}
	for name, c := range map[string]struct {
		age    time.Duration // of the primary's record
		a, b   *Opinion
		silent time.Duration // age of b's record
		none   bool
	}{
		"its agent lives":           {a: of(Refused, 0, 0), b: of(Refused, 0, 0)},
		"both are refused":          {age: time.Minute, a: of(Refused, 0, 0), b: of(Refused, 0, 0), none: true},
		"one has an answer":         {age: time.Minute, a: of(Refused, 0, 0), b: of(Reachable, 0, 0)},
		"nobody has tried":          {age: time.Minute},
		"one tried, long ago":       {age: time.Minute, a: of(Refused, time.Hour, 0)},
		"it is silent for a moment": {age: time.Minute, a: of(TimedOut, 0, time.Second)},
		"it is silent for T":        {age: time.Minute, a: of(TimedOut, 0, 5*time.Second), none: true},
		"who had an answer is gone": {age: time.Minute, a: of(Refused, 0, 0), b: of(Reachable, 0, 0), silent: time.Hour, none: true},
	} {
		v := View{Row: Row{Name: "s", Primary: "p", Paused: &Pause{}}, Nodes: []Record{node('p', c.age, nil), node('a', 0, c.a), node('b', c.silent, c.b)}}
		if _, err := v.PrimaryEndpoint(); errors.Is(err, ErrNoPrimary) != c.none {
			t.Errorf("%s: %v", name, err)
		}
	}
}
