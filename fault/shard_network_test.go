//go:build linux

package fault_test

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
)

// storeAt is where the store stands in the network of a shard of three.
const storeAt = 4

// shardCut is a fault of the network. long is that of a shardTest.
type shardCut struct {
	name   string
	run    func(t *testing.T, n *fault.Network, s *fault.Shard, load *fault.ShardLoad)
	timing lease.Timing
	long   bool
}

// TestFaultShardNetwork cuts links between hosts. Clients reach every node all the time: what a node
// accepts while it is cut off from the others is seen.
func TestFaultShardNetwork(t *testing.T) {
	t.Parallel()
	programs := fault.Build(t)
	for group, cuts := range map[string][]shardCut{
		"hosts": {
			{name: "primary's host cut off from everybody", run: hostCutOff},
			{name: "primary's host cut off, its agent dead", run: hostCutOffAlone},
			{name: "primary's host cut off, a replica's silent already", run: hostCutOffDegraded, timing: leisurely, long: true},
			{name: "orchestrator cut off from everybody", run: orchestratorCutOff},
			{name: "primary without agent cut off together with a replica", run: strandedTogether},
			{name: "primary and replica without agents cut off together", run: strandedWithoutAgents},
		},
		"links": {
			{name: "primary cut off from the store", run: primaryFromStore, timing: unhurried},
			{name: "primary cut off from its replicas", run: primaryFromReplicas, timing: unhurried},
			{name: "a replica cut off from everybody", run: replicaCutOff, timing: unhurried},
		},
		"ways": {
			{name: "primary sends, and hears nobody", run: primaryDeaf},
			{name: "primary hears, and nobody hears it", run: primaryDumb},
			{name: "primary refuses writes itself while its agent reaches the others", run: primaryRefuses},
		},
	} {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			n := fault.InNetwork(t, storeAt)
			for _, c := range cuts {
				if n != nil && !t.Failed() {
					t.Run(c.name, func(t *testing.T) { c.try(t, programs, n) })
				}
			}
		})
	}
}

func (c shardCut) try(t *testing.T, programs fault.Programs, n *fault.Network) {
	skipLong(t, c.long)
	s := fault.NewShard(t, fault.ShardConfig{Programs: programs, Database: fault.RedisIn(t, n, storeAt), Network: n, Seed: 1, Timing: c.timing})
	load := &fault.ShardLoad{Shard: s}
	load.Start()
	realserver.Eventually(t, time.Minute, "the primary is armed", func() error {
		if !s.Primary().Record().Armed {
			return errors.New("it is not")
		}
		return nil
	})
	c.run(t, n, s, load)
	if !t.Failed() && !load.Stopped() {
		judgedShard(t, s, load)
	}
}

// closesBeforeAnotherOpens waits until another takes over from p, which accepts no write after that.
func closesBeforeAnotherOpens(t *testing.T, s *fault.Shard, load *fault.ShardLoad, p *fault.ShardNode) {
	t.Helper()
	from := now()
	s.Moved(p)
	moved := now()
	t.Logf("moved after %v", moved-from)
	s.Pass(s.Timing.Timeout)
	if w := load.Writes(p, moved); len(w) > 0 {
		t.Errorf("%d writes to the old primary after another took over", len(w))
	}
}

// hostCutOff: the others replace it, and it has closed before.
func hostCutOff(t *testing.T, n *fault.Network, s *fault.Shard, load *fault.ShardLoad) {
	p := s.Primary()
	n.CutOff(p.At())
	closesBeforeAnotherOpens(t, s, load, p)
	n.HealAll(p.At())
	s.Settled()
}

// hostCutOffAlone: nobody but the armed fence closes it.
func hostCutOffAlone(t *testing.T, n *fault.Network, s *fault.Shard, load *fault.ShardLoad) {
	p := s.Primary()
	p.KillAgent()
	n.CutOff(p.At())
	from := now()
	s.Moved(p)
	t.Logf("moved after %v", now()-from)
	s.Pass(s.Timing.Timeout)
	healed := now()
	n.HealAll(p.At())
	p.Start()
	s.Settled()
	evidence := load.Stop(s.Settled())
	const armed = 4 * time.Second // three by its own arithmetic, from its last acknowledgement
	evidence.Excused = func(w fault.ShardWrite, _ time.Duration) bool {
		// What a replica had acknowledged before it left counts when it arrives, after the cut.
		return w.Node == p.Addr && (w.Acked < from+armed || w.Sent > healed && w.Acked < healed+armed)
	}
	v := fault.JudgeShard(evidence)
	t.Logf("%d writes, %d lost, %d slipped", v.Writes, v.Lost, v.Slipped)
	for _, violation := range v.Violations {
		t.Errorf("VIOLATION %s", violation)
	}
}

// hostCutOffDegraded: who was silent already has been silent since then, and is not waited for again.
func hostCutOffDegraded(t *testing.T, n *fault.Network, s *fault.Shard, _ *fault.ShardLoad) {
	p, r := s.Primary(), s.Replicas()[0]
	n.CutOff(r.At())
	s.Pass(2 * s.Timing.Timeout)
	n.CutOff(p.At())
	from := now()
	s.Moved(p)
	took := now() - from
	t.Logf("moved after %v", took)
	if took > 7*s.Timing.Timeout/4 {
		t.Errorf("moved after %v, with a timeout of %v", took, s.Timing.Timeout)
	}
	n.HealAll(p.At())
	n.HealAll(r.At())
	s.Settled()
}

// strand kills the primary's agent, and cuts its node and a replica off from the store and the other replica.
func strand(n *fault.Network, s *fault.Shard, bothAgents bool) (p, with, other *fault.ShardNode, heal func()) {
	p = s.Primary()
	with, other = s.Replicas()[0], s.Replicas()[1]
	p.KillAgent()
	if bothAgents {
		with.KillAgent()
	}
	s.Pass(s.Timing.Timeout / 2)
	both := func(do func(from, to int)) {
		for _, here := range []*fault.ShardNode{p, with} {
			for _, there := range []int{storeAt, other.At()} {
				do(here.At(), there)
				do(there, here.At())
			}
		}
	}
	both(n.Cut)
	return p, with, other, func() { both(n.Heal) }
}

// strandedTogether: the replica's acknowledgements would keep the primary's armed fence open for as long as the cut
// lasts. Its agent has it leave the primary, which closes, and nobody is promoted who cannot know that.
func strandedTogether(t *testing.T, n *fault.Network, s *fault.Shard, load *fault.ShardLoad) {
	p, with, other, heal := strand(n, s, false)
	const armed = 4 * time.Second // three by its own arithmetic, from its last acknowledgement
	s.Pass(s.Timing.Timeout + armed)
	late := now()
	s.Pass(2 * s.Timing.Timeout)
	if w := load.Writes(p, late); len(w) > 0 {
		t.Errorf("%d writes to the primary after %s should have left it: %v", len(w), with.Name, with.Must("INFO", "replication"))
	}
	if w := load.Writes(other, 0); len(w) > 0 {
		t.Errorf("%d writes to %s, which cannot know that the primary is closed", len(w), other.Name)
	}
	heal()
	p.Start()
	s.Settled()
}

// strandedWithoutAgents: nobody can have the replica leave, so the primary stays the only one.
func strandedWithoutAgents(t *testing.T, n *fault.Network, s *fault.Shard, load *fault.ShardLoad) {
	p, with, other, heal := strand(n, s, true)
	s.Pass(5 * s.Timing.Timeout)
	if w := load.Writes(other, 0); len(w) > 0 {
		t.Errorf("%d writes to %s beside the primary", len(w), other.Name)
	}
	heal()
	p.Start()
	with.Start()
	s.Settled()
}

// primaryFromStore: it is not replaced, and continues by promises.
func primaryFromStore(t *testing.T, n *fault.Network, s *fault.Shard, load *fault.ShardLoad) {
	p, before := s.Primary(), s.View()
	n.Cut(p.At(), storeAt)
	n.Cut(storeAt, p.At())
	s.Pass(3 * s.Timing.Timeout)
	late := now()
	s.Pass(s.Timing.Timeout)
	unmoved(t, s, before, "it is cut off from the store alone")
	t.Logf("%d writes by promises", len(load.Writes(p, late)))
	n.Heal(p.At(), storeAt)
	n.Heal(storeAt, p.At())
	if s.Settled() != p {
		t.Error("it was replaced afterwards")
	}
}

// primaryFromReplicas: its agent holds the lease, so it stays; the replicas come back.
func primaryFromReplicas(t *testing.T, n *fault.Network, s *fault.Shard, _ *fault.ShardLoad) {
	p, before := s.Primary(), s.View()
	for _, r := range s.Replicas() {
		n.Cut(p.At(), r.At())
		n.Cut(r.At(), p.At())
	}
	s.Pass(4 * s.Timing.Timeout)
	unmoved(t, s, before, "its agent holds the lease")
	realserver.Eventually(t, time.Minute, "it takes writes without replicas", func() error {
		_, err := p.Do("SET", "x", "1")
		return err
	})
	for _, r := range s.Nodes {
		if r != p {
			n.Heal(p.At(), r.At())
			n.Heal(r.At(), p.At())
		}
	}
	s.Settled()
}

// primaryDeaf: what others send does not arrive; TCP needs both ways.
func primaryDeaf(t *testing.T, n *fault.Network, s *fault.Shard, load *fault.ShardLoad) {
	oneWayCut(t, s, load, func(p, other int) { n.Cut(other, p) }, func(p, other int) { n.Heal(other, p) })
}

func primaryDumb(t *testing.T, n *fault.Network, s *fault.Shard, load *fault.ShardLoad) {
	oneWayCut(t, s, load, n.Cut, n.Heal)
}

func oneWayCut(t *testing.T, s *fault.Shard, load *fault.ShardLoad, cut, heal func(p, other int)) {
	p := s.Primary()
	others := []int{storeAt}
	for _, r := range s.Replicas() {
		others = append(others, r.At())
	}
	for _, o := range others {
		cut(p.At(), o)
	}
	s.Moved(p)
	moved := now()
	s.Pass(s.Timing.Timeout)
	if w := load.Writes(p, moved); len(w) > 0 {
		t.Errorf("%d writes to the old primary after another took over", len(w))
	}
	for _, o := range others {
		heal(p.At(), o)
	}
	s.Settled()
}

// primaryRefuses: it is cut off from the store and from its replicas, and its agent still reaches theirs. No client can write,
// so nobody has a use for promises that keep the shard as it is.
func primaryRefuses(t *testing.T, n *fault.Network, s *fault.Shard, load *fault.ShardLoad) {
	p := s.Primary()
	_, port, _ := net.SplitHostPort(p.Addr)
	heals := []func(){n.Lose(p.At(), storeAt, ""), n.Lose(storeAt, p.At(), "")}
	for _, r := range s.Replicas() {
		heals = append(heals, n.Lose(r.At(), p.At(), "dport "+port), n.Lose(p.At(), r.At(), "sport "+port))
	}
	closesBeforeAnotherOpens(t, s, load, p)
	for _, heal := range heals {
		heal()
	}
	s.Settled()
}

func replicaCutOff(t *testing.T, n *fault.Network, s *fault.Shard, _ *fault.ShardLoad) {
	p, before := s.Primary(), s.View()
	r := s.Replicas()[0]
	n.CutOff(r.At())
	s.Pass(3 * s.Timing.Timeout)
	unmoved(t, s, before, "a replica was cut off")
	if _, err := p.Do("SET", "x", "1"); err != nil {
		t.Errorf("no writes without one replica: %v", err)
	}
	n.HealAll(r.At())
	s.Settled()
}

// orchestratorCutOff cuts off whoever carries out a plan, or has just done so; the other one does.
func orchestratorCutOff(t *testing.T, n *fault.Network, s *fault.Shard, _ *fault.ShardLoad) {
	p, primary := s.Primary(), s.View().Row.Primary
	p.KillHost()
	var by *fault.ShardNode
	realserver.Eventually(t, time.Minute, "a plan", func() error {
		v, err := s.Look()
		plan := v.Row.Plan
		if plan == nil && v.Row.Primary != primary {
			plan = v.Row.Last // it took less than the time between two looks
		}
		switch {
		case err != nil:
			return err
		case plan == nil:
			return fmt.Errorf("none yet")
		}
		r, _ := v.Node(plan.ByNode)
		for _, node := range s.Nodes {
			if node.Addr == r.Address {
				by = node
			}
		}
		return nil
	})
	n.CutOff(by.At())
	s.Pass(2 * s.Timing.Timeout)
	p.Start()
	s.Pass(s.Timing.Timeout)
	n.HealAll(by.At())
	s.Settled()
}
