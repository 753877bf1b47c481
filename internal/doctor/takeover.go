package doctor

import (
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/internal/termtext"
)

// Takeover is what a server's file promises: after which time, at worst, someone else does the work of a part.
type Takeover struct {
	Part, Name string
	Worst      time.Duration
	Means      string // when that is
}

// predictTakeovers tells what would happen; notifies says whether the store wakes standbys.
func predictTakeovers(notifies bool, c Config) []Finding {
	t := c.Timing
	graceful := "within milliseconds"
	if !notifies {
		graceful = fmt.Sprintf("within %v", t.Interval)
	}
	out := []Finding{
		well("stop", "a primary that stops hands over %s", graceful),
		well("crash", "a primary that crashes is followed after %v, %v at worst", t.Timeout, t.WorstTakeover()),
		well("cut off", "a primary that loses the store begins to stop %v after its last renewal and is dead %v after it, %v before a successor can begin",
			t.Timeout-t.Interval-c.StopGrace, t.Timeout-t.Interval, t.Interval),
		well("clock step", "a step of the store's clock makes no second primary, and delays a takeover by %v at most", t.Timeout),
	}
	for _, p := range c.Takeovers {
		out = append(out, well("crash: "+p.Part, "%s is taken over within %s: %s", p.Name, termtext.Duration(p.Worst), p.Means))
	}
	return out
}
