//go:build linux

package fault

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/cache/client"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// CacheChaos is a run of random troubles for the peers of a cache.
type CacheChaos struct {
	Peers *Peers
	Load  *CacheLoad
	Seed  uint64
	// For how long to make trouble.
	For time.Duration
	// Troubles beside those of the processes: each does something and tells what,
	// and how to undo it.
	Troubles []CacheTrouble

	disturber
	count map[string]int
}

// CacheTrouble is a fault with random details. It returns what it did, "" if
// nothing, and how to undo it; nil when there is nothing to undo.
type CacheTrouble func(random *rand.Rand) (what string, undo func())

// Run makes trouble while clients ask; then all is well, and every key must be
// given by everyone within a time. It returns what it did, and the judge's verdict.
func (c *CacheChaos) Run() (map[string]int, CacheVerdict) {
	tb := c.Peers.tb
	tb.Helper()
	c.random, c.count = rand.New(rand.NewPCG(c.Seed, 3)), map[string]int{}
	c.Peers.Origin.Answer(c.moody())
	c.Peers.Start()
	c.Load.Start()
	own := []CacheTrouble{c.killOne, c.killOne, c.killFetching, c.pauseOne, c.pauseOne, c.stopOne, c.killMany}
	troubles := slices.Concat(own, c.Troubles)
	for end := since() + c.For; since() < end && !tb.Failed(); {
		c.endOver()
		if what, undo := troubles[c.random.IntN(len(troubles))](c.random); what != "" {
			c.count[what]++
			if undo != nil {
				c.last(2*c.Peers.Announce, undo)
			}
		}
		<-time.After(c.upTo(c.Peers.Announce / 2))
	}
	c.calm()
	took := c.wellAgain()
	tb.Logf("all is given again %v after the last trouble", took.Round(time.Millisecond))
	c.Load.Stop()
	return c.count, c.Load.Judge()
}

// moody is a source that is mostly well.
func (c *CacheChaos) moody() func(Call) Plan {
	random := rand.New(rand.NewPCG(c.Seed, 4)) // used under the origin's lock
	return func(Call) Plan {
		p := Plan{Delay: time.Duration(random.Int64N(int64(c.Peers.TTL / 2)))}
		switch n := random.IntN(40); {
		case n == 0:
			p.Status = 500
		case n == 1:
			p.Delay = 3 * c.Peers.Announce
		case n == 2:
			p.Size = 1 << 20
		case n < 20:
			p.Delay /= 20
		}
		return p
	}
}

func (c *CacheChaos) calm() {
	c.endAll()
	c.Peers.Origin.Takes(10 * time.Millisecond)
	for _, p := range c.Peers.all {
		c.start(p)
	}
}

// wellAgain waits until every peer gives a fresh copy of every key, and returns how
// long that took.
func (c *CacheChaos) wellAgain() time.Duration {
	tb, from := c.Peers.tb, since()
	tb.Helper()
	for _, p := range c.Peers.all {
		asking := NewCacheClient(tb, p)
		for n := range c.Load.Keys {
			key := fmt.Sprint(c.Load.Prefix, n)
			realserver.Eventually(tb, 3*patience, p.Name+" gives "+key, func() error {
				a := p.Ask(tb.Context(), asking, key, client.Options{After: time.Now()}, patience)
				c.Load.note(a)
				return a.Err
			})
		}
	}
	return since() - from
}

// running is a peer that runs and is not paused; nil when there is none, or when
// it is needed for a majority, which the troubles respect most of the time.
func (c *CacheChaos) running() *Peer {
	well := 0
	for _, p := range c.Peers.all {
		if !p.Exited() && !p.held {
			well++
		}
	}
	if well <= len(c.Peers.all)/2+1 && c.random.IntN(8) > 0 {
		return nil
	}
	for _, i := range c.random.Perm(len(c.Peers.all)) {
		if p := c.Peers.all[i]; !p.Exited() && !p.held {
			return p
		}
	}
	return nil
}

func (c *CacheChaos) kill(p *Peer) func() {
	c.Peers.tb.Logf("%v SIGKILL to %s", p.Kill(), p.Name)
	return func() {
		c.start(p)
	}
}

// start starts the next life of a peer, unless it runs.
func (c *CacheChaos) start(p *Peer) {
	if p.Exited() {
		p.Start()
		c.Peers.tb.Logf("%v started %s", since(), p.Name)
	}
}

func (c *CacheChaos) killOne(*rand.Rand) (string, func()) {
	if p := c.running(); p != nil {
		return "killed", c.kill(p)
	}
	return "", nil
}

func (c *CacheChaos) killFetching(*rand.Rand) (string, func()) {
	for _, call := range c.Peers.Origin.Calls() {
		if p := c.Peers.Named(call.Peer); call.Ended == 0 && !p.Exited() && !p.held {
			return "killed while it fetched", c.kill(p)
		}
	}
	return "", nil
}

func (c *CacheChaos) killMany(*rand.Rand) (string, func()) {
	if c.random.IntN(8) > 0 {
		return "", nil
	}
	var undo []func()
	for _, p := range c.Peers.all {
		if !p.Exited() && !p.held && c.random.IntN(3) > 0 {
			undo = append(undo, c.kill(p))
		}
	}
	return []string{"", "killed", "several killed"}[min(len(undo), 2)], func() {
		for _, f := range undo {
			f()
		}
	}
}

func (c *CacheChaos) stopOne(*rand.Rand) (string, func()) {
	p := c.running()
	if p == nil {
		return "", nil
	}
	c.Peers.tb.Logf("%v SIGTERM to %s", p.Stopped(), p.Name)
	return "stopped in order", func() {
		c.start(p)
	}
}

func (c *CacheChaos) pauseOne(*rand.Rand) (string, func()) {
	p := c.running()
	if p == nil {
		return "", nil
	}
	c.Peers.tb.Logf("%v SIGSTOP to %s", p.Pause(), p.Name)
	return "paused", func() {
		c.Peers.tb.Logf("%v SIGCONT to %s", since(), p.Name)
		p.GoOn()
	}
}
