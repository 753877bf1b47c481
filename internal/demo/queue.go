package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
)

const (
	keyCount  = 8
	pace      = 100 * time.Millisecond // between two batches, each of the next key
	hurryPace = 100 * time.Millisecond // the same, of all keys at once, while the act is played: more than can be done
	workTime  = 150 * time.Millisecond // for a batch, in the act
)

// queueAct shows batches that are delivered in order, whoever dies.
type queueAct struct {
	d     *demo
	hurry atomic.Bool // as fast as hurryPace
	stop  atomic.Bool // no more are added
	added atomic.Int64

	mu      sync.Mutex
	waits   map[string]string // keys by the one who died that delivered them, until someone does
	victims []string
	since   time.Time // the last of them died
	last    outcome
	rescues int
}

func newQueueAct(d *demo) *queueAct {
	q := &queueAct{d: d, waits: map[string]string{}}
	d.world.onBatch = q.recordDelivery
	d.record.addLanes("queue", names[:]...)
	return q
}

func (q *queueAct) part() string { return "queue" }

// run adds batches, key after key. One whose answer is lost is added again under its id.
func (q *queueAct) run(ctx context.Context) {
	for next := int64(0); ctx.Err() == nil; {
		pause, many := pace, int64(1)
		if q.hurry.Load() {
			pause, many = hurryPace, keyCount
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if q.stop.Load() {
			continue
		}
		var batches []apitype.NewMessage
		for n := next; n < next+many; n++ {
			key, number := fmt.Sprintf("customer-%d", n%keyCount+1), n/keyCount+1
			payload, _ := json.Marshal(batch{Run: q.d.run, Key: key, Number: number}) // strings and a number
			batches = append(batches, apitype.NewMessage{
				Key: key, ID: fmt.Sprintf("%s-%s-%d", q.d.run, key, number), ContentType: "application/json", Base64: payload,
			})
		}
		if _, err := q.d.page.Add(ctx, queueName, batches...); err == nil {
			q.added.Add(many)
			next += many
		}
	}
}

// failed notes which keys wait for another instance.
func (q *queueAct) failed(p *process) {
	if q.d.fleet.process(p.name) == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.waits)
	for _, key := range q.d.world.keysOf(p.name) {
		q.waits[key] = p.name
	}
	if len(q.waits) > n {
		q.victims, q.since = append(q.victims, p.name), p.failedAt()
	} else if !q.d.cfg.Auto {
		q.d.voice.event("queue", "%s was not the last to deliver for any key; the others go on", p.name)
	}
}

// settled: every key is delivered by someone who lives, and nothing lags behind.
func (q *queueAct) settled(context.Context) bool {
	q.mu.Lock()
	waiting := len(q.waits)
	q.mu.Unlock()
	return waiting == 0 && q.added.Load()-q.d.world.count().delivered <= 2*keyCount
}

// recordDelivery notes which keys continue.
func (q *queueAct) recordDelivery(key, by string) {
	q.d.record.saw("queue", by)
	q.mu.Lock()
	defer q.mu.Unlock()
	victim, waits := q.waits[key]
	if !waits || by == victim && !q.d.fleet.process(by).isServing() {
		return // sent before it died
	}
	if delete(q.waits, key); len(q.waits) > 0 {
		return
	}
	_, worst := q.d.windows().WorstTakeover()
	q.last = outcome{
		part: "queue", what: "the keys of " + strings.Join(q.victims, " and ") + " went on elsewhere", slack: q.d.cfg.Slack,
		took: time.Since(q.since), worst: worst,
	}
	q.victims = nil
	q.rescues++
	q.d.announce(q.last)
	if !q.d.cfg.Auto {
		q.d.voice.event("queue", "so far %v", q.d.world.count())
	}
}

func (q *queueAct) offers() []offer {
	name, keys := q.busiest()
	_, worst := q.d.windows().WorstTakeover()
	return []offer{q.d.kill(q.d.fleet.process(name), "deliverer", offer{
		ID: "queue-kill", Part: "queue", Text: fmt.Sprintf("%s delivers for %d of %d keys: they go on elsewhere, in order,", name, keys, keyCount),
	}, worst)}
}

// busiest is the instance that delivers the most keys.
func (q *queueAct) busiest() (name string, keys int) {
	for _, n := range names {
		if count := len(q.d.world.keysOf(n)); count > keys {
			name, keys = n, count
		}
	}
	return name, keys
}

// play kills who delivers most, and counts at the end.
func (q *queueAct) play(ctx context.Context) ([]outcome, error) {
	d := q.d
	q.hurry.Store(true)
	d.world.effort.Store(int64(workTime)) // so that every key has a batch under way
	before := d.world.count().delivered
	if err := d.await(ctx, "batches arrive", func() bool { return d.world.count().delivered >= before+10*keyCount }); err != nil {
		return nil, err
	}
	name, keys := q.busiest()
	p := d.fleet.process(name)
	if p == nil {
		return nil, fmt.Errorf("nobody delivers the queue %q", queueName)
	}
	d.voice.event("queue", "kill -9 %d: %s is at work for %d of %d keys, which must go on elsewhere, in order", p.running(), name, keys, keyCount)
	q.mu.Lock()
	rescues := q.rescues
	q.mu.Unlock()
	release, err := p.killAndHold()
	if err != nil {
		return nil, err
	}
	defer release()
	var last outcome
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
	total := outcome{part: "queue", what: sum.String(), broken: err != nil || sum.disordered+sum.twice > 0}
	d.announce(total)
	q.hurry.Store(false)
	q.stop.Store(false)
	return []outcome{last, total}, nil
}
