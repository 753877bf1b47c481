package agent_test

import (
	"errors"
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
		b.line.Set(shardtest.Refused)
		took := c.until("the agent that is cut off names no primary", 2*timeout, func() bool { return errors.Is(named(b), shard.ErrNoPrimary) })
		if took < timeout {
			t.Errorf("it forgot its primary after %v", took)
		}
		if err := named(a); err != nil {
			t.Error(err)
		}
		b.line.Set(shardtest.Well)
		c.until("it names the primary again", 2*timeout, func() bool { return named(b) == nil })
	})
}
