//go:build linux

package fault_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/cache/client"
	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// cutLinks cuts the links among peers, each in a network of its own.
func cutLinks(t *testing.T, programs fault.Programs) {
	seed := givenSeed()
	n := fault.InNetwork(t, 5)
	if n == nil {
		return
	}
	peers := func(t *testing.T, count int, change func(*fault.PeersConfig)) *fault.Peers {
		cfg := fault.PeersConfig{Programs: programs, Origin: fault.NewOrigin(t, "10.99.0.1:0"), N: count, Address: n.Address, Wrap: n.Wrap}
		if change != nil {
			change(&cfg)
		}
		return fault.NewPeers(t, cfg)
	}
	t.Run("fetching peer cut off", func(t *testing.T) { cutOff(t, n, peers(t, 3, nil)) })
	t.Run("fetching peer cut off, its source does not heed", func(t *testing.T) {
		c := peers(t, 3, nil)
		for _, p := range c.All() {
			p.Worker, p.Options = true, []string{"-deaf"}
		}
		deafIsSeen(t, n, c)
	})
	t.Run("fetching peer hears nobody", func(t *testing.T) { oneWay(t, n, peers(t, 3, nil), true) })
	t.Run("nobody hears the fetching peer", func(t *testing.T) { oneWay(t, n, peers(t, 3, nil), false) })
	t.Run("voter restarted, fetching peer cut off", func(t *testing.T) { forgetfulVoter(t, n, peers(t, 3, nil)) })
	t.Run("one peer unplugged", func(t *testing.T) { unplugged(t, n, peers(t, 3, nil)) })
	t.Run("link between two cut", func(t *testing.T) { betweenTwo(t, n, peers(t, 3, nil)) })
	t.Run("peer on a narrow link", func(t *testing.T) { narrow(t, n, peers(t, 3, nil)) })
	t.Run("chaos", func(t *testing.T) {
		length, count := 10*time.Second, 3
		if prove {
			length, count = 3*time.Minute, 5
		}
		t.Logf("UNDERSTUDY_SEED=%d", seed)
		c := peers(t, count, func(cfg *fault.PeersConfig) {
			cfg.Announce, cfg.TTL, cfg.Fetch, cfg.Keep = time.Second, time.Second, 5*time.Second, true
		})
		chaos := fault.CacheChaos{Peers: c, Load: &fault.CacheLoad{Peers: c, Seed: seed, Removals: 300 * time.Millisecond}, Seed: seed,
			For: length, Troubles: slices.Repeat(cuts(n, count), 3)}
		did, v := chaos.Run()
		chaosJudged(t, c, did, v)
	})
}

// cuts are the troubles of links.
func cuts(n *fault.Network, count int) []fault.CacheTrouble {
	return []fault.CacheTrouble{
		func(random *rand.Rand) (string, func()) {
			at := 1 + random.IntN(count)
			n.CutOff(at)
			return "cut off", func() { n.HealAll(at) }
		},
		func(random *rand.Rand) (string, func()) {
			from := 1 + random.IntN(count)
			to := 1 + (from+random.IntN(count-1))%count
			n.Cut(from, to)
			return "cut one way", func() { n.Heal(from, to) }
		},
	}
}

// number of a peer in the network.
func number(p *fault.Peer) (n int) {
	_, _ = fmt.Sscanf(p.Name, "p%d", &n)
	return n
}

// cutOff cuts the fetching peer off from the others. It must have ended its call of
// the source before another starts one: the judge sees to that.
func cutOff(t *testing.T, n *fault.Network, c *fault.Peers) {
	c.Start()
	for _, key := range []string{"a", "b"} {
		var cut int
		second, after := handover(t, c, key, func(p *fault.Peer) time.Duration {
			cut = number(p)
			at := c.Now()
			n.CutOff(cut)
			return at
		})
		silentFor(t, c, after)
		first := c.Origin.Calls()[second.N-1]
		t.Logf("it had stopped %v before", second.Begun-first.Ended)
		n.HealAll(cut)
		healed(t, c, key)
	}
}

// healed waits until all have a new value again, and reach each other.
func healed(t *testing.T, c *fault.Peers, key string) {
	t.Helper()
	from := c.Now()
	wellAgain(t, c, key, key+"2")
	c.Ready()
	t.Logf("healed after %v", c.Now()-from)
	judge(t, fault.CacheEvidence{Calls: c.Origin.Calls()})
}

// deafIsSeen is the twin that the judge must catch.
func deafIsSeen(t *testing.T, n *fault.Network, c *fault.Peers) {
	c.Start()
	o := c.Origin
	o.Answer(func(fault.Call) fault.Plan { return fault.Plan{Hold: true} })
	for _, p := range c.All() {
		seek(t, p, "a")
	}
	first := o.Await(t, "a", 0, 2*patience)
	n.CutOff(number(c.Named(first.Peer)))
	defer n.HealAll(number(c.Named(first.Peer)))
	o.Await(t, "a", first.N+1, 2*patience)
	v := fault.JudgeCache(fault.CacheEvidence{Calls: awake(o)})
	if len(v.Violations) != 1 || v.Violations[0].Rule != fault.Overlap {
		t.Errorf("the judge sees %v", v.Violations)
	}
}

// oneWay cuts what the fetching peer hears, or says.
func oneWay(t *testing.T, n *fault.Network, c *fault.Peers, hears bool) {
	c.Start()
	c.Origin.Answer(func(fault.Call) fault.Plan { return fault.Plan{Delay: 6 * time.Second} })
	for _, p := range c.All() {
		seek(t, p, "a")
	}
	first := c.Origin.Await(t, "a", 0, 2*patience)
	at := number(c.Named(first.Peer))
	each := func(f func(from, to int)) {
		for _, other := range c.But(c.Named(first.Peer)) {
			if hears {
				f(number(other), at)
			} else {
				f(at, number(other))
			}
		}
	}
	c.Origin.Takes(10 * time.Millisecond)
	each(n.Cut)
	for _, p := range c.But(c.Named(first.Peer)) {
		a := got(t, seek(t, p, "a"))
		t.Logf("%s gave term %d after %v", p.Name, a.Term, a.Got-a.Asked)
	}
	each(n.Heal)
	healed(t, c, "a")
}

// forgetfulVoter has the only voter of a fetch start again, without its promise, and
// hear nothing of who fetches. It must vote for nobody else before that one has stopped.
func forgetfulVoter(t *testing.T, n *fault.Network, c *fault.Peers) {
	c.Start()
	p1, p2, p3 := c.Named("p1"), c.Named("p2"), c.Named("p3")
	c.Origin.Answer(func(fault.Call) fault.Plan { return fault.Plan{Hold: true} })
	n.Cut(1, 3)
	n.Cut(3, 1)
	seek(t, p1, "a")
	first := c.Origin.Await(t, "a", 0, 2*patience)
	if first.Peer != p1.Name {
		t.Fatalf("%v; nobody else was asked", first)
	}
	n.Cut(1, 2)
	n.Cut(2, 1)
	p2.Kill()
	p2.Start()
	seek(t, p3, "a")
	c.Origin.Await(t, "a", first.N+1, 2*patience)
	c.Origin.Takes(0)
	judge(t, fault.CacheEvidence{Calls: c.Origin.Calls()})
	for _, other := range []int{2, 3} {
		n.Heal(1, other)
		n.Heal(other, 1)
	}
	healed(t, c, "b")
}

// unplugged has a peer alone: it gives what it has, says that it lacks the rest, and
// comes back within seconds.
func unplugged(t *testing.T, n *fault.Network, c *fault.Peers) {
	c.Start()
	alone := c.Named("p2")
	old := got(t, seek(t, alone, "a"))
	n.CutOff(2)
	realserver.Eventually(t, 2*patience, "it says that it is partitioned", func() error {
		v, err := alone.Cluster()
		if err == nil && !v.Partitioned {
			err = fmt.Errorf("it says %+v", v)
		}
		return err
	})
	calls := len(c.Origin.Calls())
	if a := alone.Get("b", "", patience); fault.Status(a.Err) != 503 {
		t.Errorf("asked for what it lacks: %v; want 503", a.Err)
	}
	if a := alone.Get("a", "", patience); a.Err != nil || a.Term != old.Term {
		t.Errorf("asked for what it has: term %d, %v", a.Term, a.Err)
	}
	if more := c.Origin.Calls()[calls:]; slices.ContainsFunc(more, func(call fault.Call) bool { return call.Peer == "p2" }) {
		t.Error("it fetched")
	}
	n.HealAll(2)
	healed(t, c, "b")
	n.Unplug(2)
	got(t, seek(t, c.Named("p1"), "c"))
	n.Plug(2)
	healed(t, c, "d")
}

// betweenTwo cuts two peers off from each other; the third reaches both.
func betweenTwo(t *testing.T, n *fault.Network, c *fault.Peers) {
	c.Start()
	l := asking(t, c, 6)
	c.Pass(time.Second)
	n.Cut(1, 2)
	n.Cut(2, 1)
	c.Pass(5 * time.Second)
	n.Heal(1, 2)
	n.Heal(2, 1)
	healed(t, c, "k0")
	if v := judged(t, l); v.Answered < 100 {
		t.Errorf("only %d answers", v.Answered)
	}
}

// narrow has a peer that gets what the others say more slowly than they say it.
func narrow(t *testing.T, n *fault.Network, c *fault.Peers) {
	c.Start()
	c.Origin.Answer(func(fault.Call) fault.Plan { return fault.Plan{Size: 256 << 10} })
	n.Narrow(3, 512)
	from, asked := c.Now(), fault.NewCacheClient(t, c.Named("p1"))
	for i := range 40 {
		a := c.Named("p1").Ask(t.Context(), asked, fmt.Sprint("k", i), client.Options{}, patience)
		if a.Err != nil || len(a.Value) != 256<<10 {
			t.Fatalf("p1 gave %d bytes: %v", len(a.Value), a.Err)
		}
	}
	t.Logf("40 values beside a narrow link took %v; memory is %d MiB", c.Now()-from, c.Named("p1").Memory()>>20)
	for _, p := range c.All() {
		if m := p.Memory(); m > 300<<20 {
			t.Errorf("%s has %d MiB", p.Name, m>>20)
		}
	}
	n.Narrow(3, 0)
	c.Origin.Takes(0)
	healed(t, c, "z")
}
