package sim

import (
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease/leasetest"
)

// suffer lets faults befall the instances, the store and the target for the
// length of the run, and a person look in from time to time.
func (w *queueWorld) suffer() {
	c := w.setup.Dispatch
	end := time.Now().Add(w.setup.Length)
	faults := []func(){
		w.cut, w.cut, w.cutWire, w.kill, w.kill, w.stop, w.stop, w.freezeStore, w.sinkDown, w.cancel,
		func() { w.operate(0.5) },
	}
	if w.setup.Target.Forgets {
		faults = append(faults, w.sinkRestarts)
	}
	if w.setup.Freezes {
		faults = append(faults, w.freeze, w.freeze)
	}
	if w.setup.Steps {
		faults = append(faults, w.stepStore, w.stepStore)
	}
	for time.Now().Before(end) {
		pause(w.dice.between(c.Windows.First/10, c.Windows.First))
		faults[w.dice.n(len(faults))]()
	}
}

// enqueue is the users' transactions: several keys in one, and some batches twice.
func (w *queueWorld) enqueue() {
	d, scheduling := newDice(w.setup.Seed, 0x75736572), newDice(w.setup.Seed, 0x73636865)
	end := time.Now().Add(w.setup.Length)
	each := w.setup.Length / 30
	for n := 0; time.Now().Before(end); {
		pause(d.upTo(2 * each))
		var batches []dispatch.Message
		for range 1 + d.n(3) {
			id := fmt.Sprintf("b%d", n)
			if d.hit(w.setup.Invalid) {
				id += "!"
			}
			b := dispatch.Message{Queue: queueName, Key: fmt.Sprintf("k%d", d.n(w.setup.Keys)), ID: id, Payload: []byte(id)}
			batches = append(batches, w.schedule(scheduling, b))
			n++
		}
		w.judge.add(batches)
		if d.hit(0.1) {
			w.judge.add(batches)
		}
	}
}

func (w *queueWorld) anybody() (i int, n *queueNode) {
	i = w.dice.n(len(w.nodes))
	return i, w.nodes[i]
}

func (w *queueWorld) cut() {
	_, n := w.anybody()
	way := w.dice.n(3)
	n.link.Change(func(l *leasetest.Network) { l.CutRequests, l.CutAnswers = way != 1, way != 0 })
	w.healLater(n)
}

func (w *queueWorld) cutWire() {
	_, n := w.anybody()
	n.wire.Change(func(l *leasetest.Network) { l.CutAnswers, l.CutRequests = true, w.dice.hit(0.5) })
	w.healLater(n)
}

func (w *queueWorld) healLater(n *queueNode) {
	time.AfterFunc(w.dice.upTo(3*w.setup.Dispatch.Windows.First), func() {
		if !n.dead.Load() {
			n.heal()
		}
	})
}

func (w *queueWorld) kill() {
	i, n := w.anybody()
	n.kill()
	w.replace(i, n)
}

func (w *queueWorld) stop() {
	i, n := w.anybody()
	n.stop()
	w.replace(i, n)
}

// replace starts another run of the instance, after a while or at once.
func (w *queueWorld) replace(i int, n *queueNode) {
	w.past = append(w.past, n)
	if w.dice.hit(0.5) {
		pause(w.dice.upTo(w.setup.Dispatch.Windows.First))
	}
	w.launch(i)
}

func (w *queueWorld) freeze() {
	_, n := w.anybody()
	n.gate.freeze(w.dice.upTo(n.longest))
}

func (w *queueWorld) freezeStore() {
	w.server.gate.freeze(w.dice.upTo(w.setup.Dispatch.Windows.First * 3 / 2))
}

func (w *queueWorld) sinkDown() {
	w.judge.mu.Lock()
	defer w.judge.mu.Unlock()
	w.sink.down = time.Now().Add(w.dice.upTo(2 * w.setup.Dispatch.SubmitTimeout))
}

func (w *queueWorld) sinkRestarts() {
	w.judge.mu.Lock()
	defer w.judge.mu.Unlock()
	w.judge.trace("the target restarts")
	w.sink.restart()
}

// stepStore steps the store's clock. A step back makes what waits, and what has
// died, wait for as much longer.
func (w *queueWorld) stepStore() {
	by := w.dice.upTo(2 * w.setup.Dispatch.Windows.Second)
	if w.dice.hit(0.5) {
		w.back += by
		by = -by
	}
	w.judge.mu.Lock()
	defer w.judge.mu.Unlock()
	w.judge.trace("the store's clock steps by %v", by)
	w.stepped.Add(int64(by))
}
