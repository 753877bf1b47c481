//go:build linux

package fault

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// JobChaos is a run of random troubles for the hosts of a job, most of them around the times at which it is due.
type JobChaos struct {
	Jobs *Jobs
	// Period of the job's schedule, which is counted from when it was added.
	Period time.Duration
	// Takes is how long a run takes.
	Takes time.Duration
	Hosts []string
	Seed  uint64
	For   time.Duration
	// Servers is how often the store's own server is struck.
	Servers int

	disturber
	count map[string]int
}

// Run makes trouble; then all is well, and the job runs again. It returns what it did.
func (c *JobChaos) Run(tb testing.TB) map[string]int {
	tb.Helper()
	c.random, c.count = rand.New(rand.NewPCG(c.Seed, 4)), map[string]int{}
	for _, name := range c.Hosts {
		c.Jobs.Start(name)
	}
	c.Jobs.Succeeds()
	at, now, err := c.Jobs.Job()
	if err != nil {
		tb.Fatal(err)
	}
	due := time.Now().Add(at.Next.Sub(now))
	for end := time.Now().Add(c.For); !tb.Failed() && time.Now().Before(end); {
		for due = due.Add(c.Period); due.Before(time.Now()); due = due.Add(c.Period) {
		}
		// Before the claim, between claim and start, while it runs, before its result is stored, after that.
		c.pass(tb, due.Add(-c.Takes/2+c.upTo(2*c.Takes)))
		if what := c.strike(tb); what != "" {
			c.count[what]++
		}
	}
	for len(c.undo) > 0 {
		c.pass(tb, time.Now().Add(10*time.Millisecond))
	}
	for _, name := range c.Hosts {
		if c.living(name) == nil {
			c.Jobs.Start(name)
		}
	}
	c.Jobs.Succeeds()
	c.Jobs.Succeeds()
	return c.count
}

// pass lets time pass, and ends troubles whose time has come.
func (c *JobChaos) pass(tb testing.TB, until time.Time) {
	for !tb.Failed() && time.Now().Before(until) {
		c.endOver()
		<-time.After(time.Millisecond)
	}
}

func (c *JobChaos) living(name string) *Node {
	for _, n := range c.Jobs.Living() {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// victim is a host: rather one that runs the job.
func (c *JobChaos) victim() *Node {
	living := c.Jobs.Living()
	for _, n := range living {
		if c.random.IntN(2) == 0 && len(n.Watchers()) > 0 {
			return n
		}
	}
	if len(living) == 0 {
		return nil
	}
	return living[c.random.IntN(len(living))]
}

// strike makes one random trouble.
func (c *JobChaos) strike(tb testing.TB) string {
	n, t := c.victim(), c.Jobs.Cluster.Timing.Timeout
	if n == nil {
		return ""
	}
	switch dice := c.random.IntN(10); {
	case dice < 2:
		n.Signal(syscall.SIGKILL)
		return c.restart(n, "guard killed")
	case dice < 4:
		n.KillHost()
		return c.restart(n, "host killed")
	case dice < 6:
		if stopOutsideWrites(n.PID(), n.Signal) {
			c.last(2*t, func() { n.Signal(syscall.SIGCONT) })
			return "guard paused"
		}
	case dice < 7:
		n.Signal(syscall.SIGTERM)
		return c.restart(n, "stopped")
	case dice < 9 && n.Link != nil:
		return c.spoil(n, t)
	case c.Jobs.Cluster.Database.Server != nil && c.count["server killed"]+c.count["server paused"] < c.Servers:
		return c.hurt(tb, t)
	}
	return ""
}

func (c *JobChaos) restart(n *Node, what string) string {
	c.last(c.Jobs.Cluster.Timing.Timeout, func() {
		n.Signal(syscall.SIGCONT)
		if n.Stop(patience); c.living(n.Name) == nil {
			c.Jobs.Start(n.Name)
		}
	})
	return what
}

func (c *JobChaos) spoil(n *Node, t time.Duration) string {
	switch c.random.IntN(4) {
	case 0:
		n.Link.Reset()
		return "link reset"
	case 1:
		n.Link.Set(Way{Swallow: true}, Way{})
	case 2:
		n.Link.Set(Way{}, Way{Hold: true})
	default:
		n.Link.Set(Way{Delay: c.upTo(100 * time.Millisecond)}, Way{Loss: 0.05, Again: 100 * time.Millisecond})
	}
	c.last(2*t, func() { n.Link.Set(Way{}, Way{}) })
	return "link spoilt"
}

func (c *JobChaos) hurt(tb testing.TB, t time.Duration) string {
	server := c.Jobs.Cluster.Database.Server
	if c.random.IntN(2) == 0 {
		server.Kill()
		server.Start(tb)
		return "server killed"
	}
	server.Pause()
	c.pass(tb, time.Now().Add(c.upTo(2*t)))
	server.Resume()
	return "server paused"
}
