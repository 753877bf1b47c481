package agent_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/shardtest"
)

// An agent that is cut off from the store names no primary after T, unless it is asked for promises: another may be it.
func TestAgentWithoutStoreNamesNoPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil).up()
		a, b := c.hosts[0], c.hosts[1]
		named := func(h *host) error {
			v, ok := h.agent.Shard("s")
			if !ok {
				t.Fatal("the agent knows no shard")
			}
			_, err := v.PrimaryEndpoint()
			return err
		}
		for _, h := range c.hosts {
			h.line.Set(shardtest.Refused)
		}
		for end := time.Now().Add(4 * timeout); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if err := errors.Join(named(a), named(b)); err != nil {
				t.Fatal("all promise, and the primary is not named any more:", err)
			}
		}
		for _, h := range c.hosts {
			h.line.Set(shardtest.Well)
		}
		c.settled(a)
		// T counts from the last contact, which may be up to an interval before the cut.
		var contact atomic.Int64
		b.line.Intercept(func(call string) error {
			if call == "report" || call == "look" {
				contact.Store(time.Now().UnixNano())
			}
			return nil
		})
		c.until("it reports", 2*timeout, func() bool { return contact.Load() != 0 })
		b.line.Intercept(nil)
		b.line.Set(shardtest.Refused)
		c.until("the agent that is cut off names no primary", 2*timeout, func() bool { return errors.Is(named(b), shard.ErrNoPrimary) })
		if took := time.Since(time.Unix(0, contact.Load())); took < timeout {
			t.Errorf("it forgot its primary %v after it had last heard of the store", took)
		}
		if err := named(a); err != nil {
			t.Error(err)
		}
		b.line.Set(shardtest.Well)
		c.until("it names the primary again", 2*timeout, func() bool { return named(b) == nil })
	})
}
