package sim

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease/leasetest"
)

// suffer lets faults befall the cluster for the length of the run.
func (w *world) suffer() {
	end := time.Now().Add(w.setup.Length)
	faults := []func(){w.cut, w.cut, w.cutPrimary, w.cutPrimary, w.kill, w.stop, w.resign, w.stepWall, w.freezeStore}
	if w.setup.Fenced {
		faults = append(faults, w.freeze, w.freeze, w.freezePrimary)
	}
	if w.setup.Steps {
		faults = append(faults, w.stepStore, w.stepStore, w.stepStore)
	}
	if w.setup.Restores {
		faults = append(faults, w.backUp, w.backUp, w.restore)
	}
	for time.Now().Before(end) {
		pause(w.dice.between(w.setup.Timing.Interval/4, w.setup.Timing.Timeout))
		faults[w.dice.n(len(faults))]()
	}
	if w.setup.Withdraws {
		w.withdraw()
	}
}

// withdraw has a node hear of nothing while it may acquire the role, and end its campaign then. Its process runs on, and
// with it the session, which must not keep what nobody works for.
func (w *world) withdraw() {
	_, n := w.anybody()
	if n == nil {
		return
	}
	n.link.Change(func(l *leasetest.Network) { *l = leasetest.Network{CutAnswers: true} })
	w.resign()
	pause(w.dice.upTo(w.setup.Timing.CallTimeout() + w.setup.Timing.Interval))
	w.judge.trace("%s withdraws", n.name)
	n.leave()
	pause(w.dice.upTo(w.setup.Timing.Interval))
}

// anybody returns the place of a node that runs, or none.
func (w *world) anybody() (i int, n *node) {
	i = w.dice.n(len(w.nodes))
	return i, w.nodes[i]
}

// primaryNode returns the place of the node whose work continues, or none.
func (w *world) primaryNode() (i int, n *node) {
	for i, n := range w.nodes {
		if n != nil && n.office.Load() != nil {
			return i, n
		}
	}
	return w.anybody()
}

func (w *world) cut()        { _, n := w.anybody(); w.cutOff(n) }
func (w *world) cutPrimary() { _, n := w.primaryNode(); w.cutOff(n) }

func (w *world) cutOff(n *node) {
	if n == nil {
		return
	}
	way := w.dice.n(3)
	n.link.Change(func(l *leasetest.Network) { l.CutRequests, l.CutAnswers = way != 1, way != 0 })
	time.AfterFunc(w.dice.upTo(3*w.setup.Timing.Timeout), func() {
		if !n.dead.Load() {
			n.link.Change(func(l *leasetest.Network) { *l = w.network() })
		}
	})
}

func (w *world) kill() {
	i, n := w.primaryNode()
	if n != nil {
		n.kill()
		w.replace(i, n)
	}
}

func (w *world) stop() {
	i, n := w.primaryNode()
	if n != nil {
		n.cancel()
		w.replace(i, n)
	}
}

// replace starts another run of the instance, after a while or at once.
func (w *world) replace(i int, n *node) {
	w.past = append(w.past, n)
	w.nodes[i] = nil
	if w.dice.hit(0.5) {
		pause(w.dice.upTo(w.setup.Timing.Timeout))
	}
	w.launch(i)
}

func (w *world) resign() {
	to := ""
	if _, n := w.anybody(); n != nil && w.dice.hit(0.5) {
		to = n.name
	}
	// Nobody may hold the role, or the successor may not wait: that is refused.
	_, _ = elect.Resign(context.Background(), w.store, elect.ResignRequest{Role: roleName, Successor: to, By: "operator"})
}

func (w *world) stepWall() {
	if _, n := w.anybody(); n != nil {
		n.clock.stepWall(w.anyStep())
	}
}

func (w *world) freeze() {
	if _, n := w.anybody(); n != nil {
		n.gate.freeze(w.dice.upTo(4 * w.setup.Timing.Timeout))
	}
}

func (w *world) freezePrimary() {
	if _, n := w.primaryNode(); n != nil {
		n.gate.freeze(w.dice.upTo(4 * w.setup.Timing.Timeout))
	}
}

func (w *world) freezeStore() { w.server.gate.freeze(w.dice.upTo(w.setup.Timing.Timeout * 3 / 2)) }

// stepStore steps the store's clock: by an hour, or by as little as could pass
// for nothing. Two steps that undo each other between two looks of a contender
// are more than it can tell; they stay apart.
func (w *world) stepStore() {
	if !w.lastStep.IsZero() && time.Since(w.lastStep) < 3*w.setup.Timing.Timeout {
		return
	}
	w.lastStep = time.Now()
	by := w.anyStep()
	w.judge.trace("the store's clock steps by %v", by)
	w.stepped.Add(int64(by))
	if w.dice.hit(0.5) {
		w.cutPrimary() // who cannot let the new time be known
	}
}

func (w *world) anyStep() time.Duration {
	by := time.Hour
	if w.dice.hit(0.6) {
		by = w.dice.upTo(w.setup.Timing.Timeout)
	}
	if w.dice.hit(0.5) {
		return -by
	}
	return by
}

func (w *world) backUp() { w.backups = append(w.backups, w.store.Snapshot()) }

func (w *world) restore() {
	from := w.backups[w.dice.n(len(w.backups))]
	w.judge.restore(func() { w.store.Restore(from) })
}
