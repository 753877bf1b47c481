package agent_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/shardtest"
)

// Faults at random: never do two nodes accept writes, and the shard always comes back.
func TestChaos(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { chaos(t, seed) })
		})
	}
}

func chaos(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	c := newCluster(t, 3, nil).up()
	for round := range 8 {
		var did []string
		for range 1 + r.IntN(2) {
			did = append(did, c.harm(r))
		}
		for range 40 + r.IntN(200) {
			time.Sleep(50 * time.Millisecond)
			var writers []string
			for _, h := range c.hosts {
				if c.writes(h) {
					writers = append(writers, h.name)
				}
			}
			if len(writers) > 1 {
				t.Fatalf("round %d, after %q: %q accept writes\n%s", round, did, writers, c.describe())
			}
		}
		c.heal()
		c.settles(fmt.Sprintf("round %d: the shard comes back after %q", round, did))
	}
}

// harm does something bad.
func (c *cluster) harm(r *rand.Rand) string {
	h := c.hosts[r.IntN(len(c.hosts))]
	switch r.IntN(7) {
	case 0:
		h.node.Kill()
		return "kill " + h.name
	case 1:
		h.node.Hang()
		return "hang " + h.name
	case 2:
		h.crash()
		return "crash the agent of " + h.name
	case 3:
		h.line.Set(shardtest.Failure(1 + r.IntN(2)))
		return "no store for " + h.name
	case 4:
		for _, o := range c.hosts {
			if o != h {
				c.world.Cut(h.address, o.address, true)
			}
		}
		return "cut off " + h.name
	case 5:
		for _, o := range c.hosts {
			o.line.Set(shardtest.Swallow)
		}
		return "no store for anybody"
	}
	desk := shard.Admin{Registry: c.store.Registry(), By: "test"}
	_, err := desk.Ask(c.t.Context(), "s", shard.Request{Kind: shard.Switchover}, "")
	return fmt.Sprint("switchover: ", err)
}

// heal ends all that is bad.
func (c *cluster) heal() {
	for i, h := range c.hosts {
		for _, o := range c.hosts[i+1:] {
			c.world.Cut(h.address, o.address, false)
		}
		h.node.Continue()
		h.node.Start(false)
		h.line.Set(shardtest.Well)
		if h.agent == nil {
			h.start()
		}
	}
}
