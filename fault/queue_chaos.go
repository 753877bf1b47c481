//go:build linux

package fault

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
)

// QueueChaos is a run of random troubles for a queue.
type QueueChaos struct {
	Fleet *Fleet
	Feed  *Feed
	// Workers is how many instances there are.
	Workers int
	Seed    uint64
	// For how long to make trouble, and at least until a worker has come to every gate.
	For time.Duration
	// Longest pause of a worker.
	Longest time.Duration

	disturber
	gates []string // that no worker has, and none has come to
	count map[string]int
	slots []*Worker
	// strikes at the store's server.
	strikes int
	// acts of an operator are not faults, and not counted with them.
	acts map[dispatch.Action]int
	// blocked are the batches that waited for a person when one looked last.
	blocked map[string]bool
	lookAt  time.Time
}

// Run makes trouble while users enqueue; then all is well, and what waits for a
// person is looked at by one. It returns what it did, and the judge's verdict.
func (c *QueueChaos) Run() (map[string]int, QueueVerdict) {
	tb := c.Fleet.tb
	tb.Helper()
	c.random, c.count, c.slots = rand.New(rand.NewPCG(c.Seed, 2)), map[string]int{}, make([]*Worker, c.Workers)
	c.acts = map[dispatch.Action]int{}
	for _, step := range c.Fleet.Target.steps() {
		c.gates = append(c.gates, step+":kill", step+":stop")
	}
	c.random.Shuffle(len(c.gates), func(i, j int) { c.gates[i], c.gates[j] = c.gates[j], c.gates[i] })
	// Those that stop come last: such a worker continues, and only a strike makes room for the next gate. The trouble waits for all.
	slices.SortStableFunc(c.gates, func(a, b string) int { return cmp.Compare(a[len(a)-4:], b[len(b)-4:]) })
	feeding, stop := context.WithCancel(context.Background())
	fed := make(chan []Sent, 1)
	go func() { fed <- c.Feed.Run(feeding) }()
	c.Fleet.Target.Misbehave(true)
	c.trouble()
	stop()
	sent := <-fed
	c.calm()
	// At worst, a poll for each batch of one key after the other.
	within := c.Fleet.Windows.First + c.Fleet.Windows.Second + 3*patience + time.Duration(len(sent))*300*time.Millisecond
	c.Fleet.Settled(within)
	for c.operate() > 0 {
		<-time.After(c.Fleet.Submit)
		c.Fleet.Settled(within)
	}
	c.Fleet.Stop(patience)
	tb.Logf("an operator: %v", c.acts)
	return c.count, JudgeQueue(QueueEvidence{Sent: sent, Records: c.Fleet.Records(), Arrivals: c.Fleet.Target.Arrivals(),
		Target: c.Fleet.Target.Semantics, Second: c.Fleet.Windows.Second})
}

// trouble lasts until its time has ended and a worker has come to every gate.
func (c *QueueChaos) trouble() {
	tb := c.Fleet.tb
	end, last := time.Now().Add(c.For), time.Now().Add(c.For+5*patience)
	next := time.Now().Add(time.Second)
	for tb.Failed() || time.Now().Before(end) || len(c.unreached()) > 0 && time.Now().Before(last) {
		if tb.Failed() {
			return
		}
		c.tend()
		if time.Now().After(c.lookAt) {
			c.operate()
		}
		if now := time.Now(); now.After(next) {
			next = now.Add(c.upTo(time.Second))
			if what := c.strike(); what != "" {
				c.count[what]++
			}
		}
		<-time.After(10 * time.Millisecond)
	}
	if gates := c.unreached(); len(gates) > 0 {
		tb.Errorf("never reached: %v", gates)
	}
}

// unreached are the gates that no worker has come to, whether one was started for them or not.
func (c *QueueChaos) unreached() []string {
	out := slices.Clone(c.gates)
	for _, w := range c.slots {
		if w != nil && w.Gate != "" {
			out = append(out, w.Gate)
		}
	}
	return out
}

// tend starts workers that have ended, lets continue those that were stopped for
// long enough, and ends troubles.
func (c *QueueChaos) tend() {
	now := time.Now()
	for i, w := range c.slots {
		switch {
		case w == nil || w.Exited():
			if w != nil && w.Gate != "" {
				c.ended(w)
			}
			c.slots[i] = c.start(fmt.Sprintf("w%d", i))
		case !w.paused.IsZero() && now.After(w.paused):
			w.Resume()
		case w.paused.IsZero() && w.stops():
			c.count[w.Gate]++
			w.Gate, w.paused = "", now.Add(c.upTo(c.Longest))
		}
	}
	c.endOver()
}

// ended counts the gate of a worker that has ended there. One that has ended otherwise leaves its gate to another.
func (c *QueueChaos) ended(w *Worker) {
	if strings.HasSuffix(w.Gate, ":kill") && w.killed() {
		c.count[w.Gate]++
	} else {
		c.gates = append(c.gates, w.Gate)
	}
	w.Gate = ""
}

// start starts a worker that will come to grief at the next of the gates.
func (c *QueueChaos) start(name string) *Worker {
	gate := ""
	if len(c.gates) > 0 {
		gate, c.gates = c.gates[0], c.gates[1:]
	}
	full := gate
	if gate != "" {
		full = fmt.Sprintf("%s:%d", gate, 1+c.random.IntN(5))
	}
	w := c.Fleet.Start(name, full)
	w.Gate = gate
	switch gate {
	case "arrived:kill":
		c.Fleet.Target.OnArrival(name, func() { w.Signal(syscall.SIGKILL) })
	case "arrived:stop":
		c.Fleet.Target.OnArrival(name, func() { w.Signal(syscall.SIGSTOP) })
	}
	return w
}

// strike makes one random trouble.
func (c *QueueChaos) strike() string {
	w := c.slots[c.random.IntN(len(c.slots))]
	switch n := c.random.IntN(10); {
	case n < 2 && w.Gate == "":
		w.Signal(syscall.SIGKILL)
		return "killed"
	case n < 4 && w.Gate == "" && w.paused.IsZero():
		if w.Pause(c.upTo(c.Longest)) {
			return "paused"
		}
	case n < 5 && w.Gate == "":
		w.Signal(syscall.SIGTERM)
		return "stopped"
	case n < 7 && w.Link != nil:
		return c.spoil(w)
	case n < 8 && c.Fleet.Database.Server != nil:
		return c.hurt()
	case n < 9:
		return c.Fleet.Target.Forget()
	}
	return ""
}

func (c *QueueChaos) spoil(w *Worker) string {
	switch c.random.IntN(4) {
	case 0:
		w.Link.Reset()
		return "link reset"
	case 1:
		w.Link.Set(Way{Swallow: true}, Way{})
	case 2:
		w.Link.Set(Way{}, Way{Hold: true})
	default:
		w.Link.Set(Way{Delay: c.upTo(100 * time.Millisecond)}, Way{Loss: 0.05, Again: 100 * time.Millisecond})
	}
	c.last(2*c.Fleet.Windows.First, func() { w.Link.Set(Way{}, Way{}) })
	return "link spoilt"
}

// hurt strikes the server itself, one trouble at a time.
func (c *QueueChaos) hurt() string {
	if c.strikes > int(c.For/(5*time.Second)) {
		return ""
	}
	server := c.Fleet.Database.Server
	c.strikes++
	switch c.random.IntN(3) {
	case 0:
		server.Kill()
		server.Start(c.Fleet.tb)
		return "server killed"
	case 1:
		server.Stop()
		server.Start(c.Fleet.tb)
		return "server restarted"
	}
	server.Pause()
	<-time.After(c.upTo(c.Fleet.Windows.First))
	server.Resume()
	return "server paused"
}

// calm ends all troubles.
func (c *QueueChaos) calm() {
	c.Fleet.Target.Misbehave(false)
	c.endAll()
	for i, w := range c.slots {
		c.Fleet.Target.OnArrival(w.Name, nil)
		if w.Gate != "" {
			w.Signal(syscall.SIGKILL) // before it comes to its gate
			<-w.done
		}
		if w.Resume(); w.Exited() {
			c.slots[i] = c.Fleet.Start(w.Name, "")
		}
	}
}

// operate does what a person would about what has waited for one for as long as a
// submission may be under way: after a look at the target, skip what took effect and
// send again what did not. It returns how many keys wait.
func (c *QueueChaos) operate() int {
	c.lookAt = time.Now().Add(c.Fleet.Submit * 3 / 2)
	keys, err := c.Fleet.Blocked()
	if err != nil {
		return 0 // the server is in trouble
	}
	before, stuck := c.blocked, false
	c.blocked = map[string]bool{}
	for _, k := range keys {
		if c.blocked[k.Head] = true; !before[k.Head] || stuck {
			continue
		}
		if k.Reason == "" {
			c.Fleet.tb.Errorf("%s is blocked by %s, and nobody is told why", k.Key, k.Head)
		}
		action := dispatch.RetryUnknown
		if c.Fleet.Target.Has(k.Head) {
			action = dispatch.Skip
		}
		// A worker that was stopped may have the file's lock, and is let continue by whoever
		// waits here: not for long.
		ctx, cancel := context.WithTimeout(context.Background(), 2*c.Fleet.Submit)
		err := c.Fleet.desk.Act(ctx, queueName, k.Head, action, "a person")
		stuck = ctx.Err() != nil
		cancel()
		if err == nil {
			c.acts[action]++
		}
	}
	return len(keys)
}
