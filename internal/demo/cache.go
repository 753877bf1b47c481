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

// callerCount is how many ask for a value at once.
const callerCount = 50

// cacheAct shows a slow value that is fetched once for all, whoever dies.
type cacheAct struct {
	d     *demo
	asked chan bool // what is offered; true is to kill who fetches
	busy  atomic.Bool
	keys  int
}

func newCacheAct(d *demo) *cacheAct {
	c := &cacheAct{d: d, asked: make(chan bool, 1)}
	d.record.addLanes("cache", names[:]...)
	d.world.onFetch = func(key, by string) func() {
		d.voice.event("cache", "%s asks the origin for %q, which takes %s", by, key, seconds(slowness))
		d.record.start("cache", by)
		return func() { d.record.stop("cache", by) }
	}
	return c
}

func (c *cacheAct) part() string { return "cache" }

// run asks as it is offered.
func (c *cacheAct) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case kill := <-c.asked:
			c.ask(ctx, kill)
			c.busy.Store(false)
		}
	}
}

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
		return func(ctx context.Context) error {
			if !c.settled(ctx) { // without its vote there is no majority once another has died
				return errors.New("a peer has been back for a moment, and does not vote yet")
			}
			if !c.busy.CompareAndSwap(false, true) {
				return errors.New("the callers before have no answer yet")
			}
			c.asked <- kill // it has a place: nobody else is busy
			return nil
		}
	}
	return []offer{{
		ID: "cache-kill", Title: "Ask, and kill who fetches", Command: d.byPage("cache-kill"), do: do(true), Off: off, Promised: (worstFetch + slowness/2).Milliseconds(),
		Text: fmt.Sprintf("%d callers want a value that takes %s, and the peer that fetches it is killed: another fetches, and all have it", callerCount, seconds(slowness)),
	}, {
		ID: "cache-ask", Title: fmt.Sprintf("Ask %d times at once", callerCount), Command: d.byPage("cache-ask"), do: do(false), Off: off, Promised: worstFetch.Milliseconds(),
		Text: fmt.Sprintf("%d callers want a value that takes %s: it is fetched once, and all have it", callerCount, seconds(slowness)),
	}}
}

// worstFetch is how long callers wait at most while nobody dies.
const worstFetch = slowness + 2*time.Second

// ask lets everyone ask at once for a value that nobody has asked for, and measures. With kill, who fetches is killed meanwhile,
// and its callers turn to the others.
func (c *cacheAct) ask(ctx context.Context, kill bool) {
	c.keys++
	d, key, deaths := c.d, fmt.Sprintf("price-%d", c.keys), c.d.failures.Load()
	died := make(chan string, 1)
	if kill {
		d.world.delayFirst(key) // it gets no value before it is killed, however late that is
		go func() { died <- c.killFetcher(ctx, key) }()
	}
	o := c.askAll(ctx, key)
	if kill {
		victim, fetches := <-died, d.world.callersOf(key)
		o.what += fmt.Sprintf(" though %s died, %d fetches", victim, len(fetches))
		o.broken = o.broken || len(fetches) != 2 || !slices.Contains(fetches, victim)
		o.worst += slowness / 2
		deaths++
	} else {
		fetches := d.world.callersOf(key)
		o.what += fmt.Sprintf(", %d fetch", len(fetches))
		o.broken = o.broken || len(fetches) != 1
	}
	if d.failures.Load() > deaths {
		o.excuse()
	}
	if ctx.Err() == nil {
		d.announce(o)
	}
}

// killFetcher kills who fetches a value, in the middle of it, and returns its name.
func (c *cacheAct) killFetcher(ctx context.Context, key string) string {
	d := c.d
	if d.await(ctx, "an instance fetches", func() bool { return len(d.world.callersOf(key)) > 0 }) != nil {
		return "nobody"
	}
	pause(ctx, slowness/2)
	victim := d.fleet.process(d.world.callersOf(key)[0])
	d.voice.event("cache", "kill -9 %d: %s fetches for %d callers; another must fetch", victim.running(), victim.name, callerCount)
	_ = victim.kill() // the error is that it has died already
	return victim.name
}

// askAll lets everyone ask at once, and says how many got the same value.
func (c *cacheAct) askAll(ctx context.Context, key string) outcome {
	values := make([]string, callerCount)
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
		part: "cache", what: fmt.Sprintf("%d of %d had the value", same, callerCount), broken: same != callerCount,
		took: time.Since(began), worst: worstFetch,
	}
}
