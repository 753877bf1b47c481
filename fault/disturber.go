//go:build linux

package fault

import (
	"math/rand/v2"
	"slices"
	"time"
)

// disturber draws what happens, from a seed, and ends what lasts.
type disturber struct {
	random *rand.Rand
	undo   []lasting
}

// lasting is a trouble that ends.
type lasting struct {
	until time.Time
	undo  func()
}

func (d *disturber) upTo(most time.Duration) time.Duration {
	return time.Duration(d.random.Int64N(int64(most) + 1))
}

// last has a trouble last for a while.
func (d *disturber) last(most time.Duration, undo func()) {
	d.undo = append(d.undo, lasting{time.Now().Add(d.upTo(most)), undo})
}

// endOver ends the troubles whose time has ended.
func (d *disturber) endOver() {
	now := time.Now()
	d.undo = slices.DeleteFunc(d.undo, func(l lasting) bool {
		over := now.After(l.until)
		if over {
			l.undo()
		}
		return over
	})
}

// endAll ends them all.
func (d *disturber) endAll() {
	for _, l := range d.undo {
		l.undo()
	}
	d.undo = nil
}
