package main

import (
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/store"
)

// foresee tells what would happen.
func foresee(info store.Info, f doctorFlags) []finding {
	t := f.timing
	graceful := "within milliseconds"
	if !info.Notifies {
		graceful = fmt.Sprintf("within %v", t.Interval)
	}
	out := []finding{
		well("stop", "a primary that stops hands over %s", graceful),
		well("crash", "a primary that crashes is followed after %v, %v at worst", t.Timeout, t.WorstTakeover()),
		well("cut off", "a primary that loses the store begins to stop %v after its last renewal and is dead %v after it, %v before a successor can begin",
			t.Timeout-t.Interval-f.stopGrace, t.Timeout-t.Interval, t.Interval),
		well("clock step", "a step of the store's clock makes no second primary, and delays a takeover by %v at most", t.Timeout),
	}
	if f.config == nil {
		return out
	}
	for _, p := range f.config.parts() {
		if p.WorstMS == 0 {
			continue
		}
		out = append(out, well("crash: "+p.Part, "%s is taken over within %s: %s", p.Name, short(time.Duration(p.WorstMS)*time.Millisecond), p.Means))
	}
	return out
}
