package demo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/api/client"
)

// askerCount is how many ask for a value at once.
const askerCount = 50

// cacheAct shows a slow value that is fetched once for all, whoever dies.
type cacheAct struct{ d *demo }

func newCacheAct(d *demo) *cacheAct {
	c := &cacheAct{d: d}
	if !d.cfg.Auto {
		d.world.onAsk = func(key, by string) {
			d.voice.event("cache", "%s asks the source for %q, which takes %s", by, key, seconds(slowness))
		}
	}
	return c
}

func (c *cacheAct) run(context.Context) {}
func (c *cacheAct) ended(*process)      {}

// settled: every peer is connected with all others, and votes.
func (c *cacheAct) settled(ctx context.Context) bool {
	for _, peer := range append([]*client.Client{c.d.page}, c.d.fleet.clients...) {
		view, err := peer.CachePeers(ctx)
		if err != nil || view.Connected < len(c.d.peers) || view.Partitioned || view.Abstaining {
			return false
		}
	}
	return true
}

func (c *cacheAct) try() []string {
	return []string{
		fmt.Sprintf("cache    for i in $(seq %d); do curl -s %s/v1/cache/price & done; wait", askerCount, c.d.fleet.urls[len(names)-1]),
		"         (the source takes " + seconds(slowness) + ", and is asked once for all)",
	}
}

// play lets many ask at once, and then again while the one that fetches dies.
func (c *cacheAct) play(ctx context.Context) ([]outcome, error) {
	d := c.d
	d.voice.event("cache", "%d askers at %d peers want a value at once that takes %s: it must be fetched once", askerCount, len(d.fleet.urls), seconds(slowness))
	once := c.askAll(ctx, "price")
	fetches := d.world.callersOf("price")
	once.what += fmt.Sprintf(", %d fetch", len(fetches))
	once.broken = once.broken || len(fetches) != 1
	d.voice.outcome(once)

	// The same while who fetches dies: its askers turn to the others. It gets no value before, however late it is killed.
	d.world.delayFirst("stock")
	dying := make(chan error, 1)
	var back func()
	var victim *process
	go func() {
		err := d.await(ctx, "somebody fetches", func() bool { return len(d.world.callersOf("stock")) > 0 })
		if err == nil {
			<-time.After(slowness / 2)
			victim = d.fleet.process(d.world.callersOf("stock")[0])
			d.voice.event("cache", "kill -9 %d: %s fetches for %d askers; another must fetch", victim.running(), victim.name, askerCount)
			_, back, err = victim.kill()
		}
		dying <- err
	}()
	again := c.askAll(ctx, "stock")
	if err := <-dying; err != nil {
		return nil, err
	}
	defer back()
	fetches = d.world.callersOf("stock")
	again.what += fmt.Sprintf(" though %s died, %d fetches", victim.name, len(fetches))
	again.broken = again.broken || len(fetches) != 2 || !slices.Contains(fetches, victim.name)
	again.worst += slowness / 2
	d.voice.outcome(again)
	return []outcome{once, again}, nil
}

// askAll lets everyone ask at once, and tells how many got the same value.
func (c *cacheAct) askAll(ctx context.Context, key string) outcome {
	values := make([]string, askerCount)
	began := time.Now()
	var asked sync.WaitGroup
	for i := range values {
		asked.Go(func() {
			for n := range c.d.fleet.urls { // the next one if one does not answer
				url := c.d.fleet.urls[(i+n)%len(c.d.fleet.urls)]
				if v, err := get(ctx, url+"/v1/cache/"+key+"?wait=30s", patience); err == nil {
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
	return outcome{
		part: "cache", what: fmt.Sprintf("%d of %d had the value", same, askerCount), broken: same != askerCount,
		took: time.Since(began), worst: slowness + 2*time.Second, slack: c.d.cfg.Slack,
	}
}
