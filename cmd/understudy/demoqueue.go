package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/api/client"
)

const (
	demoKeys  = 8
	demoPace  = 250 * time.Millisecond // between two batches, each of the next key
	demoHurry = 100 * time.Millisecond // the same, of all keys at once, while the act is played: more than can be done
	demoWork  = 150 * time.Millisecond // for a batch, in the act
)

// demoQueue shows batches that are delivered in order, whoever dies.
type demoQueue struct {
	d     *demo
	hurry atomic.Bool // as fast as demoHurry
	stop  atomic.Bool // no more are added
	added atomic.Int64

	mu      sync.Mutex
	waits   map[string]string // keys by the one who died that delivered them, until somebody does
	victims []string
	since   time.Time // the last of them died
	last    demoOutcome
	rescues int
}

func newDemoQueue(d *demo) *demoQueue {
	q := &demoQueue{d: d, waits: map[string]string{}}
	d.world.onBatch = q.arrived
	return q
}

// run adds batches, key after key. One whose answer is lost is added again under its id.
func (q *demoQueue) run(ctx context.Context) {
	for next := int64(0); ctx.Err() == nil; {
		pause, many := demoPace, int64(1)
		if q.hurry.Load() {
			pause, many = demoHurry, demoKeys
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if q.stop.Load() {
			continue
		}
		var batches []client.NewBatch
		for n := next; n < next+many; n++ {
			key, number := fmt.Sprintf("customer-%d", n%demoKeys+1), n/demoKeys+1
			payload, _ := json.Marshal(demoBatch{Run: q.d.run, Key: key, Number: number}) // strings and a number
			batches = append(batches, client.NewBatch{
				Key: key, ID: fmt.Sprintf("%s-%s-%d", q.d.run, key, number), ContentType: "application/json", Payload: payload,
			})
		}
		if _, err := q.d.page.Add(ctx, demoQueueName, batches...); err == nil {
			q.added.Add(many)
			next += many
		}
	}
}

// ended notes which keys wait for another instance.
func (q *demoQueue) ended(p *demoProc) {
	if q.d.fleet.proc(p.name) == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.waits)
	for _, key := range q.d.world.keysOf(p.name) {
		q.waits[key] = p.name
	}
	if len(q.waits) > n {
		q.victims, q.since = append(q.victims, p.name), p.endedAt()
	} else if !q.d.flags.auto {
		q.d.voice.event("queue", "%s was not the last to deliver for any key; the others go on", p.name)
	}
}

// settled: every key is delivered by somebody who lives, and nothing lags behind.
func (q *demoQueue) settled(context.Context) bool {
	q.mu.Lock()
	waiting := len(q.waits)
	q.mu.Unlock()
	return waiting == 0 && q.added.Load()-q.d.world.count().delivered <= 2*demoKeys
}

// arrived notes which keys go on.
func (q *demoQueue) arrived(key, by string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	victim, waits := q.waits[key]
	if !waits || by == victim && q.d.fleet.proc(by).running() == 0 {
		return // sent before it died
	}
	if delete(q.waits, key); len(q.waits) > 0 {
		return
	}
	_, worst := q.d.windows().WorstTakeover()
	q.last = demoOutcome{
		part: "queue", what: "the keys of " + strings.Join(q.victims, " and ") + " went on elsewhere", slack: q.d.flags.slack,
		took: time.Since(q.since), worst: worst,
	}
	q.victims = nil
	q.rescues++
	q.d.voice.outcome(q.last)
	if !q.d.flags.auto {
		q.d.voice.event("queue", "so far %v", q.d.world.count())
	}
}

func (q *demoQueue) try() []string {
	name, _ := q.busiest()
	p := q.d.fleet.proc(name)
	if p == nil {
		return nil
	}
	_, worst := q.d.windows().WorstTakeover()
	return []string{
		fmt.Sprintf("queue    kill -9 %d    (%s, who delivers for some keys: they go on elsewhere, in order, within %s)", p.running(), name, seconds(worst)),
	}
}

// busiest is the instance that delivers the most keys.
func (q *demoQueue) busiest() (name string, keys int) {
	for _, n := range demoNames {
		if count := len(q.d.world.keysOf(n)); count > keys {
			name, keys = n, count
		}
	}
	return name, keys
}

// play kills who delivers most, and counts at the end.
func (q *demoQueue) play(ctx context.Context) ([]demoOutcome, error) {
	d := q.d
	q.hurry.Store(true)
	d.world.effort.Store(int64(demoWork)) // so that every key has a batch under way
	before := d.world.count().delivered
	if err := d.await(ctx, "batches arrive", func() bool { return d.world.count().delivered >= before+10*demoKeys }); err != nil {
		return nil, err
	}
	name, keys := q.busiest()
	p := d.fleet.proc(name)
	if p == nil {
		return nil, fmt.Errorf("nobody delivers the queue %q", demoQueueName)
	}
	d.voice.event("queue", "kill -9 %d: %s is at work for %d of %d keys, which must go on elsewhere, in order", p.running(), name, keys, demoKeys)
	q.mu.Lock()
	rescues := q.rescues
	q.mu.Unlock()
	_, back, err := p.kill()
	if err != nil {
		return nil, err
	}
	defer back()
	var last demoOutcome
	if err := d.await(ctx, "its keys go on", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		last = q.last
		return q.rescues > rescues
	}); err != nil {
		return nil, err
	}
	q.stop.Store(true)
	d.world.effort.Store(0)
	err = d.await(ctx, "everything is delivered", func() bool { return d.world.count().delivered >= q.added.Load() })
	sum := d.world.count()
	total := demoOutcome{part: "queue", what: sum.String(), broken: err != nil || sum.disordered+sum.twice > 0}
	d.voice.outcome(total)
	q.hurry.Store(false)
	q.stop.Store(false)
	return []demoOutcome{last, total}, nil
}
