package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
)

const (
	keyCount = 8
	pace     = 100 * time.Millisecond // between two messages, each of the next key
	// workTime is how long the receiver works on a message: most keys have one under way whenever an instance is killed.
	workTime = 600 * time.Millisecond
	// mostBehind is how many messages of a key may wait: a machine that is too busy for all is given fewer.
	mostBehind = 2
)

// queueAct shows messages that are delivered in order, whoever dies.
type queueAct struct {
	d *demo

	mu      sync.Mutex
	waits   map[string]string // keys by the one who died that delivered them, until someone does
	victims []string
	since   time.Time // the last of them died
}

func newQueueAct(d *demo) *queueAct {
	q := &queueAct{d: d, waits: map[string]string{}}
	d.world.workTime, d.world.onMessage, d.onFailure = workTime, q.recordDelivery, q.recordFailure
	d.record.addLanes("queue", names[:]...)
	return q
}

func (q *queueAct) part() string { return "queue" }

// run adds messages, key after key. One whose answer is lost is added again under its ID.
func (q *queueAct) run(ctx context.Context) {
	added := map[string]int64{} // the number of each key's latest
	for turn := 0; ctx.Err() == nil; turn++ {
		pause(ctx, pace)
		key := fmt.Sprintf("customer-%d", turn%keyCount+1)
		number := added[key] + 1
		if number > q.d.world.numberOf(key)+mostBehind {
			continue
		}
		text, _ := json.Marshal(payload{Run: q.d.run, Key: key, Number: number}) // strings and a number
		m := apitype.NewMessage{Key: key, ID: fmt.Sprintf("%s-%s-%d", q.d.run, key, number), ContentType: "application/json", Base64: text}
		if _, err := q.d.page.Add(ctx, queueName, m); err == nil {
			added[key] = number
		}
	}
}

// recordFailure notes which keys wait for another instance.
func (q *queueAct) recordFailure(p *process) {
	if q.d.fleet.process(p.name) == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	keys := q.d.world.keysOf(p.name)
	if len(keys) == 0 {
		q.d.voice.event("queue", "%s was not the last to deliver for any key; the others go on", p.name)
		return
	}
	for _, key := range keys {
		q.waits[key] = p.name
	}
	if q.since = p.failedAt(); !slices.Contains(q.victims, p.name) {
		q.victims = append(q.victims, p.name)
	}
}

// settled: no key waits for another instance.
func (q *queueAct) settled(context.Context) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waits) == 0
}

// recordDelivery notes which keys continue; at is when the message came.
func (q *queueAct) recordDelivery(key, by string, at time.Time) {
	q.d.record.saw("queue", by)
	q.mu.Lock()
	defer q.mu.Unlock()
	victim, waits := q.waits[key]
	if !waits || at.Before(q.since) || by == victim && !q.d.fleet.process(by).isServing() {
		return // sent before it died
	}
	if delete(q.waits, key); len(q.waits) > 0 {
		return
	}
	_, worst := q.d.windows().WorstTakeover()
	sum := q.d.world.count()
	q.d.announce(outcome{
		part: "queue", what: "the keys of " + strings.Join(q.victims, " and ") + " went on elsewhere", took: at.Sub(q.since), worst: worst,
		counted: sum.String(), broken: sum.disordered+sum.twice > 0,
	})
	q.victims = nil
}

func (q *queueAct) offers() []offer {
	name, keys := q.busiest()
	_, worst := q.d.windows().WorstTakeover()
	return []offer{q.d.kill(q.d.fleet.process(name), "deliverer", offer{
		ID: "queue-kill", Text: fmt.Sprintf("%s delivers for %d of %d keys: they go on elsewhere in order", name, keys, keyCount),
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
