//go:build linux

package fault

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"
)

// Chaos is a run of random troubles.
type Chaos struct {
	Cluster *Cluster
	// Seed of all that is random, save the moments in which things happen.
	Seed uint64
	// For how long to make trouble.
	For time.Duration

	disturber
	stepped time.Duration // when the server's clock was last stepped
	count   map[string]int
}

// trouble is a fault with random details. It returns what it did, "" if nothing,
// and how to undo it; nil when that is not to be done or not possible.
type trouble func(c *Chaos) (what string, undo func())

// Run makes one or two troubles at a time, lets them last, undoes them, starts
// what has ended, and from time to time waits until all is well: within the
// bound someone has to be primary then. It returns how often it did what.
func (c *Chaos) Run() map[string]int {
	tb, timing := c.Cluster.tb, c.Cluster.Timing
	tb.Helper()
	c.random, c.count = rand.New(rand.NewPCG(c.Seed, 1)), map[string]int{}
	c.Cluster.Three()
	troubles := []trouble{killGuard, pauseGuard, hurtWatcher, killProgram, stopGuard, resign}
	if c.Cluster.Database.Addr != "" {
		troubles = append(troubles, cutLink, cutLink, resetLinks, spoilLinks)
	}
	if c.Cluster.Database.Server != nil {
		troubles = append(troubles, killServer, pauseServer, stepServer)
	}
	end := c.Cluster.now() + c.For
	for round := 0; c.Cluster.now() < end && !tb.Failed(); round++ {
		var undo []func()
		for _, i := range c.random.Perm(len(troubles))[:1+c.random.IntN(2)] {
			what, back := troubles[i](c)
			if what != "" {
				c.count[what]++
				tb.Logf("%v %s", (c.For - end + c.Cluster.now()).Round(time.Millisecond), what)
			}
			if back != nil {
				undo = append(undo, back)
			}
		}
		c.Cluster.Pass(timing.Interval + c.upTo(timing.Timeout*3/2))
		for _, back := range undo {
			back()
		}
		if c.Cluster.Pass(timing.Interval); c.random.IntN(3) == 0 {
			c.startMissing()
			c.Cluster.AwaitPrimaryWithin(0, c.Cluster.Bound()+timing.Timeout)
		}
	}
	c.startMissing()
	c.Cluster.Settled()
	return c.count
}

// some is any living node, the primary half of the time.
func (c *Chaos) some() *Node {
	if p := c.Cluster.Node(c.Cluster.Last().Holder); p != nil && c.random.IntN(2) == 0 {
		return p
	}
	living := c.Cluster.Living()
	if len(living) == 0 {
		return nil
	}
	return living[c.random.IntN(len(living))]
}

func (c *Chaos) startMissing() {
	for _, name := range []string{"a", "b", "c"} {
		if c.Cluster.Node(name) == nil {
			c.Cluster.Start(name)
		}
	}
}

func killGuard(c *Chaos) (string, func()) {
	n := c.some()
	if n == nil {
		return "", nil
	}
	n.Signal(syscall.SIGKILL)
	return "guard killed", func() { c.startMissing() }
}

func stopGuard(c *Chaos) (string, func()) {
	n := c.some()
	if n == nil {
		return "", nil
	}
	n.Signal(syscall.SIGTERM)
	return "guard stopped", nil
}

func pauseGuard(c *Chaos) (string, func()) {
	n := c.some()
	if n == nil || !stopOutsideWrites(n.PID(), n.Signal) {
		return "", nil
	}
	return "guard paused", func() { n.Signal(syscall.SIGCONT) }
}

// hurtWatcher kills or pauses one of the two: both at once is not promised.
func hurtWatcher(c *Chaos) (string, func()) {
	n := c.Cluster.Node(c.Cluster.Last().Holder)
	if n == nil {
		return "", nil
	}
	pids := n.Watchers()
	if len(pids) != 2 {
		return "", nil
	}
	which := c.random.IntN(2)
	name := []string{"outer", "inner"}[which]
	if c.random.IntN(2) == 0 {
		_ = syscall.Kill(pids[which], syscall.SIGKILL)
		return name + " watcher killed", nil
	}
	_ = syscall.Kill(pids[which], syscall.SIGSTOP)
	return name + " watcher paused", func() { _ = syscall.Kill(pids[which], syscall.SIGCONT) }
}

func killProgram(c *Chaos) (string, func()) {
	n := c.Cluster.Node(c.Cluster.Last().Holder)
	if n == nil {
		return "", nil
	}
	pid := n.Program()
	if pid == 0 {
		return "", nil
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	return "program killed", nil
}

func resign(c *Chaos) (string, func()) {
	if c.Cluster.tryUnderstudy("role", "resign", c.Cluster.Role) != nil {
		return "", nil // vacant, or the server is in trouble too
	}
	return "asked to resign", nil
}

func cutLink(c *Chaos) (string, func()) {
	n := c.some()
	if n == nil {
		return "", nil
	}
	way, how := Way{Hold: true}, "held"
	if c.random.IntN(2) == 0 {
		way, how = Way{Swallow: true}, "lost"
	}
	where := "both ways"
	switch c.random.IntN(3) {
	case 0:
		n.Link.Set(way, Way{})
		where = "upwards"
	case 1:
		n.Link.Set(Way{}, way)
		where = "downwards"
	default:
		n.Link.Set(way, way)
	}
	return fmt.Sprintf("link %s %s", how, where), func() { n.Link.Set(Way{}, Way{}) }
}

func resetLinks(c *Chaos) (string, func()) {
	for _, link := range c.Cluster.links {
		link.Reset()
	}
	return "links reset", nil
}

func spoilLinks(c *Chaos) (string, func()) {
	way, how := Way{Loss: 0.1, Again: c.Cluster.Timing.Interval}, "links with loss"
	if c.random.IntN(2) == 0 {
		way, how = Way{Delay: c.upTo(c.Cluster.Timing.Timeout)}, "slow links"
	}
	for _, link := range c.Cluster.links {
		link.Set(way, way)
	}
	return how, func() {
		for _, link := range c.Cluster.links {
			link.Set(Way{}, Way{})
		}
	}
}

func killServer(c *Chaos) (string, func()) {
	c.Cluster.Database.Server.Kill()
	return "server killed", func() { c.Cluster.Database.Server.Start(c.Cluster.tb) }
}

func pauseServer(c *Chaos) (string, func()) {
	c.Cluster.Database.Server.Pause()
	return "server paused", c.Cluster.Database.Server.Resume
}

// stepServer steps the clock by up to an hour. Steps that follow each other
// sooner than 2·T are beyond what the kernel promises.
func stepServer(c *Chaos) (string, func()) {
	now := c.Cluster.now()
	if c.stepped > 0 && now < c.stepped+3*c.Cluster.Timing.Timeout {
		return "", nil
	}
	c.stepped = now
	by := c.upTo(2*time.Hour) - time.Hour
	if c.random.IntN(2) == 0 {
		by = c.upTo(3*c.Cluster.Timing.Timeout) - c.Cluster.Timing.Timeout*3/2
	}
	c.Cluster.Database.Server.Step(c.Cluster.tb, by)
	return "server's clock stepped", nil
}
