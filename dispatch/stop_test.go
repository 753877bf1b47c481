package dispatch_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
)

// hungTable answers no release: whoever calls waits until its context ends.
type hungTable struct{ claim.KeyTable }

func (hungTable) Release(ctx context.Context, _, _ string, _ []claim.Claim) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestStopsWithoutTheStore: a store that hangs holds up the end of a process no longer than StopGrace and five seconds.
func TestStopsWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPlace(t), newTarget()
		g.takes = 3 * time.Second
		p.add("k", 9)
		i := p.start("a", g, func(c *dispatch.Config) { c.Claims, c.StopGrace = hungTable{c.Claims}, 4*time.Second })
		time.Sleep(time.Second)
		began := time.Now()
		i.stop()
		if took := time.Since(began); took > 9*time.Second+time.Millisecond {
			t.Errorf("it stopped after %v", took)
		}
	})
}
