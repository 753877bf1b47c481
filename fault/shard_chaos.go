//go:build linux

package fault

import (
	"context"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// ShardChaos is a run of random faults, one after the other, each from a shard that is settled to
// one that is again.
type ShardChaos struct {
	Shard *Shard
	Load  *ShardLoad
	Seed  uint64
	// Faults is how many.
	Faults int

	random *rand.Rand
	did    string // what the fault that was meant came to; "" for nothing
}

// shardTrouble is a fault. It returns when it is healed, or can heal by itself.
type shardTrouble struct {
	name string
	run  func(c *ShardChaos, p *ShardNode, other *ShardNode)
	// keeps: the primary and its replicas are well all the time, so that it must stay.
	keeps bool
	// server: the store's server is hurt.
	server bool
}

func shardTroubles() []shardTrouble {
	return []shardTrouble{
		{name: "primary's node killed", run: func(c *ShardChaos, p, _ *ShardNode) { p.KillNode() }},
		{name: "primary's host killed", run: func(c *ShardChaos, p, _ *ShardNode) { p.KillHost(); c.Shard.Moved(p); c.pass(); p.Start() }},
		{name: "primary's host restarts at once", run: func(c *ShardChaos, p, _ *ShardNode) { p.KillHost(); p.Start() }},
		{name: "primary's data lost", run: func(c *ShardChaos, p, _ *ShardNode) { p.KillHost(); p.Empty(); c.Shard.Moved(p); p.Start() }},
		{name: "primary's node hangs", run: (*ShardChaos).hang},
		{name: "primary's agent killed", run: func(c *ShardChaos, p, _ *ShardNode) { p.KillAgent(); c.pass(); p.Start() }, keeps: true},
		{name: "primary's agent stopped", run: func(c *ShardChaos, p, _ *ShardNode) {
			p.SignalAgent(syscall.SIGSTOP)
			c.pass()
			p.SignalAgent(syscall.SIGCONT)
		}, keeps: true},
		{name: "primary handed over", run: func(c *ShardChaos, p, _ *ShardNode) { p.Stop(); p.Start() }},
		{name: "primary cut off from the store", run: func(c *ShardChaos, p, _ *ShardNode) { c.cut(p) }, keeps: true, server: true},
		{name: "replica's node killed", run: func(c *ShardChaos, _, o *ShardNode) { o.KillNode() }, keeps: true},
		{name: "replica's node hangs", run: func(c *ShardChaos, _, o *ShardNode) {
			o.SignalNode(syscall.SIGSTOP)
			from := lease.BootClock().Now()
			c.pass()
			o.SignalNode(syscall.SIGCONT)
			c.Load.Hung(o, from)
		}, keeps: true},
		{name: "replica's host killed", run: func(c *ShardChaos, _, o *ShardNode) { o.KillHost(); c.pass(); o.Start() }, keeps: true},
		{name: "replica's data lost", run: func(c *ShardChaos, _, o *ShardNode) { o.KillHost(); o.Empty(); o.Start() }, keeps: true},
		{name: "replica cut off from the store", run: func(c *ShardChaos, _, o *ShardNode) { c.cut(o) }, keeps: true, server: true},
		{name: "replica led astray", run: func(c *ShardChaos, _, o *ShardNode) { _, _ = o.Do("REPLICAOF", "NO", "ONE") }, keeps: true},
		{name: "primary's node and a replica's agent killed", run: func(c *ShardChaos, p, o *ShardNode) { p.KillNode(); o.KillAgent(); c.pass(); o.Start() }},
		{name: "orchestrator killed", run: (*ShardChaos).orchestrator},
		{name: "switchover", run: (*ShardChaos).switchover},
		{name: "everything killed", run: func(c *ShardChaos, p, _ *ShardNode) {
			for _, n := range c.Shard.Nodes {
				n.KillHost()
			}
			for _, i := range c.random.Perm(len(c.Shard.Nodes)) {
				c.Shard.Nodes[i].Start()
			}
		}},
		{name: "store restarted", run: func(c *ShardChaos, _, _ *ShardNode) { c.store().Stop(); c.pass(); c.store().Start(c.Shard.tb) }, keeps: true, server: true},
		{name: "store killed", run: func(c *ShardChaos, _, _ *ShardNode) { c.store().Kill(); c.store().Start(c.Shard.tb) }, keeps: true, server: true},
		{name: "store paused", run: func(c *ShardChaos, _, _ *ShardNode) { c.store().Pause(); c.pass(); c.store().Resume() }, keeps: true, server: true},
		{name: "store killed with the primary's node", run: func(c *ShardChaos, p, _ *ShardNode) {
			c.store().Kill()
			p.KillNode()
			c.pass()
			c.store().Start(c.Shard.tb)
		}, server: true},
	}
}

func (c *ShardChaos) store() Server { return c.Shard.Database.Server }

// Run makes the faults, and returns how often each was made.
func (c *ShardChaos) Run() map[string]int {
	tb := c.Shard.tb
	tb.Helper()
	c.random = rand.New(rand.NewPCG(c.Seed, 4))
	count := map[string]int{}
	var deck []shardTrouble
	for i := range c.Faults {
		primary := c.Shard.Settled()
		if tb.Failed() {
			return count
		}
		c.forgive()
		for len(deck) == 0 || deck[0].server && c.store() == nil {
			if len(deck) == 0 {
				deck = shardTroubles()
				c.random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
				continue
			}
			deck = deck[1:]
		}
		trouble := deck[0]
		deck = deck[1:]
		others := c.Shard.Replicas()
		began := time.Now()
		c.did = trouble.name
		trouble.run(c, primary, others[c.random.IntN(len(others))])
		after := c.Shard.Settled()
		if c.did != "" {
			count[c.did]++
		}
		tb.Logf("%3d %-44s %6v  %s → %s", i, trouble.name, time.Since(began).Round(time.Millisecond), primary.Name, after.Name)
		if trouble.keeps && after != primary {
			tb.Errorf("%s: %s was well, and is not the primary any more: %+v", trouble.name, primary.Name, c.Shard.View().Row.Last)
		}
	}
	return count
}

// pass lets up to three timeouts pass.
func (c *ShardChaos) pass() {
	c.Shard.Pass(time.Duration(c.random.Int64N(int64(3 * c.Shard.Timing.Timeout))))
}

// forgive lets the shard forget its failovers, as if the time had passed in which they count.
func (c *ShardChaos) forgive() { c.Shard.Forgive() }

// Forgive lets the shard forget its failovers, as if the time had passed in which they count.
func (s *Shard) Forgive() {
	s.tb.Helper()
	realserver.Eventually(s.tb, patience, "the failovers are forgotten", func() error {
		v, err := s.Look()
		if err != nil {
			return err
		}
		row := v.Row.Copy()
		row.Failovers = nil
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err = s.Shards().Registry().UpdateRow(ctx, shard.RowUpdate{Row: row})
		return err
	})
}

func (c *ShardChaos) hang(p, _ *ShardNode) {
	p.SignalNode(syscall.SIGSTOP)
	from := lease.BootClock().Now()
	c.pass()
	p.SignalNode(syscall.SIGCONT)
	c.Load.Hung(p, from)
}

func (c *ShardChaos) cut(n *ShardNode) {
	ways := []Way{{Swallow: true}, {}, {Hold: true}}
	n.Link.Set(ways[c.random.IntN(2)*2], ways[c.random.IntN(3)])
	c.pass()
	n.Link.Set(Way{}, Way{})
	n.Link.Reset()
}

// orchestrator kills the agent that carries a plan out, wherever it is with it. If it is faster, only the node is killed.
func (c *ShardChaos) orchestrator(p, _ *ShardNode) {
	meant := c.did
	p.KillNode()
	c.did = "primary's node killed"
	until := time.Now().Add(2 * c.Shard.Timing.Timeout)
	phases := []shard.Phase{shard.Detaching, shard.Promoting, shard.Following}
	wanted := phases[c.random.IntN(len(phases))]
	for time.Now().Before(until) {
		v, err := c.Shard.Look()
		if err != nil || v.Row.Plan == nil || v.Row.Plan.Phase != wanted {
			continue
		}
		r, _ := v.Node(v.Row.Plan.ByNode)
		if n := c.Shard.at(r.Address); n != nil {
			n.KillAgent()
			c.did = meant
			c.pass()
			n.Start()
		}
		return
	}
}

func (c *ShardChaos) switchover(_, o *ShardNode) {
	if out, err := c.Shard.Understudy("shard", "switchover", shardName, "--to", o.Addr); err != nil {
		c.Shard.tb.Logf("switchover: %v: %s", err, out)
		c.did = ""
	}
}
