package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/api/client"
)

// askerCount is how many ask for a value at once.
const askerCount = 50

// cacheAct shows a slow value that is fetched once for all, whoever dies.
type cacheAct struct {
	d     *demo
	asked chan bool // by people; true is to kill who fetches
	busy  atomic.Bool
	keys  atomic.Int64
}

func newCacheAct(d *demo) *cacheAct {
	c := &cacheAct{d: d, asked: make(chan bool, 1)}
	d.record.addLanes("cache", names[:]...)
	d.world.onAsk = func(key, by string) func() {
		if !d.cfg.Auto {
			d.voice.event("cache", "%s asks the source for %q, which takes %s", by, key, seconds(slowness))
		}
		d.record.start("cache", by)
		return func() { d.record.stop("cache", by) }
	}
	return c
}

func (c *cacheAct) part() string { return "cache" }

// run asks when people want it.
func (c *cacheAct) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case kill := <-c.asked:
			var err error
			if kill {
				_, err = c.askAndKill(ctx)
			} else {
				c.askTogether(ctx)
			}
			if err != nil && ctx.Err() == nil {
				c.d.voice.event("cache", "%v", err)
			}
			c.busy.Store(false)
		}
	}
}

func (c *cacheAct) failed(*process) {}

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

func (c *cacheAct) offers() []offer {
	d, off := c.d, ""
	for _, p := range d.fleet.procs { // with two away there is no majority, and no promise
		if off == "" {
			off = unserving(p, p.name)
		}
	}
	if c.busy.Load() {
		off = "the callers before have no answer yet"
	}
	do := func(kill bool) func(context.Context) error {
		return func(context.Context) error {
			if !c.busy.CompareAndSwap(false, true) {
				return errors.New("the callers before have no answer yet")
			}
			c.asked <- kill // it has a place: nobody else is busy
			return nil
		}
	}
	return []offer{{
		ID: "cache-kill", Part: "cache", Title: "Ask, and kill who fetches", Command: d.byPage("cache-kill"), do: do(true), Off: off, Promised: (worstFetch + slowness/2).Milliseconds(),
		Text: fmt.Sprintf("%d callers want a value that takes %s, and the peer that fetches it is killed: another fetches, and all have it", askerCount, seconds(slowness)),
	}, {
		ID: "cache-ask", Part: "cache", Title: fmt.Sprintf("Ask %d times at once", askerCount), Command: d.byPage("cache-ask"), do: do(false), Off: off, Promised: worstFetch.Milliseconds(),
		Text: fmt.Sprintf("%d callers want a value that takes %s: it is fetched once, and all have it", askerCount, seconds(slowness)),
	}}
}

// worstFetch is how long callers wait at most while nobody dies.
const worstFetch = slowness + 2*time.Second

// play lets many ask at once, and then again while the one that fetches dies.
func (c *cacheAct) play(ctx context.Context) ([]outcome, error) {
	c.d.voice.event("cache", "%d askers at %d peers want a value at once that takes %s: it must be fetched once", askerCount, len(c.d.fleet.urls), seconds(slowness))
	once := c.askTogether(ctx)
	again, err := c.askAndKill(ctx)
	if err != nil {
		return nil, err
	}
	return []outcome{once, again}, nil
}

// newKey is a key that nobody has asked for.
func (c *cacheAct) newKey() string { return fmt.Sprintf("price-%d", c.keys.Add(1)) }

// askTogether lets everyone ask at once.
func (c *cacheAct) askTogether(ctx context.Context) outcome {
	key, before := c.newKey(), c.d.failures.Load()
	once := c.askAll(ctx, key)
	fetches := c.d.world.callersOf(key)
	once.what += fmt.Sprintf(", %d fetch", len(fetches))
	once.broken = once.broken || len(fetches) != 1
	if c.d.failures.Load() > before {
		once.excuse()
	}
	c.d.announce(once)
	return once
}

// askAndKill does the same while who fetches dies: its askers turn to the others. It gets no value before, however late it is killed.
func (c *cacheAct) askAndKill(ctx context.Context) (outcome, error) {
	d, key, before := c.d, c.newKey(), c.d.failures.Load()
	d.world.delayFirst(key)
	dying := make(chan error, 1)
	release := func() {}
	var victim *process
	go func() {
		err := d.await(ctx, "somebody fetches", func() bool { return len(d.world.callersOf(key)) > 0 })
		if err == nil {
			<-time.After(slowness / 2)
			victim = d.fleet.process(d.world.callersOf(key)[0])
			d.voice.event("cache", "kill -9 %d: %s fetches for %d askers; another must fetch", victim.running(), victim.name, askerCount)
			release, err = victim.killAndHold()
		}
		dying <- err
	}()
	again := c.askAll(ctx, key)
	if err := <-dying; err != nil {
		return again, err
	}
	defer release()
	fetches := d.world.callersOf(key)
	again.what += fmt.Sprintf(" though %s died, %d fetches", victim.name, len(fetches))
	again.broken = again.broken || len(fetches) != 2 || !slices.Contains(fetches, victim.name)
	again.worst += slowness / 2
	if d.failures.Load() > before+1 {
		again.excuse()
	}
	d.announce(again)
	return again, nil
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
		took: time.Since(began), worst: worstFetch, slack: c.d.cfg.Slack,
	}
}
