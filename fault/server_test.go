//go:build linux

package fault_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/fault"
)

// servers are the faults of the store's server and of its clock.
var servers = []scenario{
	{name: "server restarted", server: true, run: restarted},
	{name: "server stopped for long", server: true, run: serverStopped, outage: 10 * time.Second},
	{name: "server paused for long", server: true, run: serverPaused, outage: 10 * time.Second},
	{name: "server's clock an hour ahead", server: true, steps: true, run: stepped(time.Hour)},
	{name: "server's clock an hour back", server: true, steps: true, run: stepped(-time.Hour)},
}

func restarted(t *testing.T, c *fault.Cluster) {
	c.Three()
	c.Database.Server.Stop()
	c.Database.Server.Start(t)
	c.Settled()
	c.Database.Server.Kill()
	c.Database.Server.Start(t)
	c.AwaitPrimary(0)
	c.Settled()
}

func serverStopped(t *testing.T, c *fault.Cluster) {
	c.Three()
	term := c.Last().Term
	c.Database.Server.Stop()
	silent(c)
	c.Database.Server.Start(t)
	c.AwaitPrimary(term)
	c.Settled()
}

// A paused server applies what it was sent when it continues, long after those who
// sent it gave it up.
func serverPaused(t *testing.T, c *fault.Cluster) {
	c.Three()
	term := c.Last().Term
	c.Database.Server.Pause()
	defer c.Database.Server.Resume()
	silent(c)
	c.Database.Server.Resume()
	c.AwaitPrimary(term)
	c.Settled()
}

// stepped steps the clock under a healthy primary, and again, back to the truth,
// in the moment in which the primary dies: a takeover is delayed by at most one T.
func stepped(by time.Duration) func(*testing.T, *fault.Cluster) {
	return func(t *testing.T, c *fault.Cluster) {
		c.Three()
		c.Database.Server.Step(t, by)
		c.Pass(2*c.Timing.Timeout + c.Timing.Interval)
		c.AwaitPrimaryWithin(0, c.Bound()+c.Timing.Timeout)
		p, _ := c.Settled()
		c.Pass(2 * c.Timing.Timeout)
		term := c.Last().Term
		p.Signal(syscall.SIGKILL)
		c.Database.Server.Step(t, 0)
		c.AwaitPrimaryWithin(term, c.Bound()+c.Timing.Timeout)
		c.Settled()
	}
}
