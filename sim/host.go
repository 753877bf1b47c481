package sim

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// dice is a source of chance that many goroutines may ask.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func newDice(seed, stream uint64) *dice {
	return &dice{rng: rand.New(rand.NewPCG(seed, stream))}
}

// upTo returns a duration from 0 to most.
func (d *dice) upTo(most time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Duration(d.rng.Int64N(int64(max(0, most)) + 1))
}

func (d *dice) between(least, most time.Duration) time.Duration {
	return least + d.upTo(most-least)
}

// hit reports whether something of this chance happens.
func (d *dice) hit(chance float64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.Float64() < chance
}

func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

// gate stops and continues a process, or a store: nothing of it passes while
// it is frozen.
type gate struct {
	dice *dice

	mu      sync.Mutex
	until   time.Time
	resumed chan struct{} // nil while it is not frozen
	queue   []func()
}

// freeze stops the process for d, or for longer if it is stopped already.
func (g *gate) freeze(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if end := time.Now().Add(d); end.After(g.until) {
		g.until = end
	}
	if g.resumed == nil {
		g.resumed = make(chan struct{})
		time.AfterFunc(d, g.resume)
	}
}

func (g *gate) resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.resumed == nil {
		return
	}
	if left := time.Until(g.until); left > 0 {
		time.AfterFunc(left, g.resume)
		return
	}
	close(g.resumed)
	g.resumed = nil
	for _, f := range g.queue {
		// What was due meanwhile comes late, in any order.
		time.AfterFunc(g.dice.upTo(50*time.Millisecond), f)
	}
	g.queue = nil
}

// thaw ends a freeze at once.
func (g *gate) thaw() {
	g.mu.Lock()
	g.until = time.Now()
	g.mu.Unlock()
	g.resume()
}

// wait returns when the process runs.
func (g *gate) wait() {
	for {
		g.mu.Lock()
		resumed := g.resumed
		g.mu.Unlock()
		if resumed == nil {
			return
		}
		<-resumed
	}
}

// run calls f now, or soon after the process continues.
func (g *gate) run(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.resumed != nil {
		g.queue = append(g.queue, f)
		return
	}
	go f()
}

// process is what may be frozen at some points of its way.
type process struct {
	dice *dice
	gate *gate
	// freezes reports whether that may happen now, for up to longest.
	freezes func() bool
	longest time.Duration
}

// stumble is such a point.
func (p *process) stumble() {
	if p.freezes() && p.dice.hit(0.003) {
		p.gate.freeze(p.dice.upTo(p.longest))
	}
	p.gate.wait()
}

// clock is a host's clock: off by some rate, unrelated to any other.
type clock struct {
	gate  *gate
	begin time.Time
	rate  float64 // how fast it runs

	mu     sync.Mutex
	offset time.Duration
	wall   time.Duration // how far the wall clock was stepped
}

var _ lease.Clock = (*clock)(nil)

func (c *clock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offset + c.elapsed()
}

func (c *clock) elapsed() time.Duration {
	return time.Duration(float64(time.Since(c.begin)) * c.rate)
}

func (c *clock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begin.Add(c.elapsed() + c.wall)
}

func (c *clock) Timer(d time.Duration) (<-chan time.Time, func() bool) {
	fired := make(chan time.Time, 1)
	// Rounded up: a timer is never early.
	t := time.AfterFunc(time.Duration(float64(d)/c.rate)+1, func() {
		c.gate.run(func() { fired <- time.Now() })
	})
	return fired, t.Stop
}

func (c *clock) stepWall(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall += by
}

// setBack makes the clock read less from now on, as no real one does.
func (c *clock) setBack(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset -= by
}
