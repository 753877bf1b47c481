//go:build linux

package fault_test

import (
	"testing"
	"time"

	"github.com/understudy-ha/understudy/fault"
)

// links are the faults between the nodes and the store's server.
var links = []scenario{
	{name: "link held both ways", run: cut(fault.Way{Hold: true}, fault.Way{Hold: true})},
	{name: "link held upwards", run: cut(fault.Way{Hold: true}, fault.Way{})},
	{name: "link held downwards", run: cut(fault.Way{}, fault.Way{Hold: true})},
	{name: "link lost both ways", run: cut(fault.Way{Swallow: true}, fault.Way{Swallow: true})},
	{name: "link lost upwards", run: cut(fault.Way{Swallow: true}, fault.Way{})},
	{name: "link lost downwards", run: cut(fault.Way{}, fault.Way{Swallow: true})},
	{name: "all links held", run: allCut, outage: 10 * time.Second},
	{name: "links reset again and again", run: resets},
	{name: "links with loss", run: loss},
	{name: "slow links", run: slow, outage: 10 * time.Second},
}

var whole = fault.Way{}

// cut spoils the primary's link. What was held back is delivered later, when
// others have long taken over.
func cut(up, down fault.Way) func(*testing.T, *fault.Cluster) {
	return func(t *testing.T, c *fault.Cluster) {
		p, _ := c.Three()
		term := c.Last().Term
		p.Link.Set(up, down)
		c.AwaitPrimary(term)
		c.Pass(c.Timing.Timeout)
		p.Link.Set(whole, whole)
		c.Settled()
	}
}

func allCut(t *testing.T, c *fault.Cluster) {
	c.Three()
	term := c.Last().Term
	for _, n := range c.Living() {
		n.Link.Set(fault.Way{Hold: true}, fault.Way{Hold: true})
	}
	silent(c)
	for _, n := range c.Living() {
		n.Link.Set(whole, whole)
	}
	c.AwaitPrimary(term)
	c.Settled()
}

// silent lets twice the timeout pass, in which the role must fall silent because
// nobody reaches the store.
func silent(c *fault.Cluster) {
	from := c.Now()
	c.Pass(2 * c.Timing.Timeout)
	c.NoneAfter(from+c.Timing.Timeout+c.Timing.Timeout/2, "nobody reached the store")
}

func resets(t *testing.T, c *fault.Cluster) {
	c.Three()
	for range 20 {
		for _, n := range c.Living() {
			n.Link.Reset()
		}
		c.Pass(c.Timing.Interval)
	}
	c.AwaitPrimary(0)
	c.Settled()
}

func loss(t *testing.T, c *fault.Cluster) {
	c.Three()
	lossy := fault.Way{Loss: 0.1, Again: c.Timing.Interval}
	for _, n := range c.Living() {
		n.Link.Set(lossy, lossy)
	}
	c.Pass(3 * c.Timing.Timeout)
	c.AwaitPrimary(0)
	for _, n := range c.Living() {
		n.Link.Set(whole, whole)
	}
	c.Settled()
}

func slow(t *testing.T, c *fault.Cluster) {
	c.Three()
	delay := func(d time.Duration) {
		for _, n := range c.Living() {
			n.Link.Set(fault.Way{Delay: d / 2}, fault.Way{Delay: d / 2})
		}
	}
	delay(c.Timing.Interval * 3 / 4)
	c.Pass(2 * c.Timing.Timeout)
	c.AwaitPrimary(0)
	delay(c.Timing.Timeout + c.Timing.Interval)
	silent(c)
	delay(0)
	c.AwaitPrimary(c.Last().Term)
	c.Settled()
}
