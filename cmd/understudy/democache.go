package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/api/client"
)

// demoAskers is how many ask for a value at once.
const demoAskers = 50

// demoCache shows a slow value that is fetched once for all, whoever dies.
type demoCache struct{ d *demo }

func newDemoCache(d *demo) *demoCache {
	c := &demoCache{d: d}
	if !d.flags.auto {
		d.world.onAsk = func(key, by string) {
			d.voice.event("cache", "%s asks the source for %q, which takes %s", by, key, seconds(demoSlow))
		}
	}
	return c
}

func (c *demoCache) run(context.Context) {}
func (c *demoCache) ended(*demoProc)     {}

// settled: every peer is connected with all others, and votes.
func (c *demoCache) settled(ctx context.Context) bool {
	for _, peer := range append([]*client.Client{c.d.page}, c.d.fleet.clients...) {
		view, err := peer.CachePeers(ctx)
		if err != nil || view.Connected < len(c.d.peers) || view.Partitioned || view.Abstaining {
			return false
		}
	}
	return true
}

func (c *demoCache) try() []string {
	return []string{
		fmt.Sprintf("cache    for i in $(seq %d); do curl -s %s/v1/cache/price & done; wait", demoAskers, c.d.fleet.urls[len(demoNames)-1]),
		"         (the source takes " + seconds(demoSlow) + ", and is asked once for all)",
	}
}

// play lets many ask at once, and then again while the one that fetches dies.
func (c *demoCache) play(ctx context.Context) ([]demoOutcome, error) {
	d := c.d
	d.voice.event("cache", "%d askers at %d peers want a value at once that takes %s: it must be fetched once", demoAskers, len(d.fleet.urls), seconds(demoSlow))
	once := c.ask(ctx, "price")
	fetches := d.world.askers("price")
	once.what += fmt.Sprintf(", %d fetch", len(fetches))
	once.broken = once.broken || len(fetches) != 1
	d.voice.outcome(once)

	// The same while who fetches dies: its askers turn to the others.
	dying := make(chan error, 1)
	var back func()
	var victim *demoProc
	go func() {
		err := d.await(ctx, "somebody fetches", func() bool { return len(d.world.askers("stock")) > 0 })
		if err == nil {
			<-time.After(demoSlow / 2)
			victim = d.fleet.proc(d.world.askers("stock")[0])
			d.voice.event("cache", "kill -9 %d: %s fetches for %d askers; another must fetch", victim.running(), victim.name, demoAskers)
			_, back, err = victim.kill()
		}
		dying <- err
	}()
	again := c.ask(ctx, "stock")
	if err := <-dying; err != nil {
		return nil, err
	}
	defer back()
	fetches = d.world.askers("stock")
	again.what += fmt.Sprintf(" though %s died, %d fetches", victim.name, len(fetches))
	again.broken = again.broken || len(fetches) != 2 || !slices.Contains(fetches, victim.name)
	again.worst += demoSlow / 2
	d.voice.outcome(again)
	return []demoOutcome{once, again}, nil
}

// ask lets everybody ask at once, and tells how many got the same value.
func (c *demoCache) ask(ctx context.Context, key string) demoOutcome {
	values := make([]string, demoAskers)
	began := time.Now()
	var asked sync.WaitGroup
	for i := range values {
		asked.Go(func() {
			for n := range c.d.fleet.urls { // the next one if one does not answer
				url := c.d.fleet.urls[(i+n)%len(c.d.fleet.urls)]
				if v, err := demoGet(ctx, url+"/v1/cache/"+key+"?wait=30s", demoPatience); err == nil {
					values[i] = v
					return
				}
			}
		})
	}
	asked.Wait()
	same := 0
	for _, v := range values {
		if v != "" && v == values[0] {
			same++
		}
	}
	return demoOutcome{
		part: "cache", what: fmt.Sprintf("%d of %d had the value", same, demoAskers), broken: same != demoAskers,
		took: time.Since(began), worst: demoSlow + 2*time.Second, slack: c.d.flags.slack,
	}
}
