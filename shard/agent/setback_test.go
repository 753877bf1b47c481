package agent_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestStoreLosesAFailover: a store that goes back to before a failover, as one does that itself fails over to a copy behind it, makes no agent promote
// another node than the one that leads, or overwrite it; and it is not asked without a pause for what it has lost.
func TestStoreLosesAFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil).up()
		a := c.hosts[0]
		var reads atomic.Int64
		for _, h := range c.hosts {
			h.line.Intercept(func(call string) error {
				if call == "look" {
					reads.Add(1)
					time.Sleep(time.Millisecond)
				}
				return nil
			})
		}
		before := c.store.Snapshot()
		c.world.Cut(c.hosts[1].address, c.hosts[2].address, true) // the other replica does not get what the new primary accepts
		a.node.Kill()
		a.crash()
		b, _ := c.next(a, 4*timeout)
		for range 5 {
			if _, err := b.node.Write(); err != nil {
				t.Fatal(err)
			}
		}
		acknowledged := b.node.Data()
		c.store.Restore(before)
		reads.Store(0)
		time.Sleep(timeout)
		if n, most := reads.Load(), int64(3*timeout/(15*time.Millisecond)); n > most {
			t.Errorf("the store was read %d times in %v, want at most %d", n, timeout, most)
		}
		a.node.Start(false)
		a.start()
		time.Sleep(10 * timeout)
		for _, h := range c.hosts {
			if c.writes(h) {
				t.Errorf("%s accepts writes, and nobody has chosen it", h.name)
			}
		}
		if v := c.view(); v.Row.Plan != nil || v.Row.Primary != a.id() {
			t.Errorf("unasked, the row became %+v", v.Row)
		}
		if kept := b.node.Data(); len(kept) != len(acknowledged) {
			t.Errorf("the primary that the store has forgotten had %d writes, and has %d", len(acknowledged), len(kept))
		}
	})
}
