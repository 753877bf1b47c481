package sim

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// suffer lets faults happen for the length of the run.
func (w *shardWorld) suffer() {
	d, t := w.dice, w.setup.Timing.Timeout
	for end := time.Now().Add(w.setup.Length); time.Now().Before(end); {
		pause(d.between(50*time.Millisecond, 2*t))
		w.fault()
		for d.hit(0.3) { // misfortunes come together
			pause(d.upTo(t / 2))
			w.fault()
		}
	}
}

// anybody is some host, rather that of the primary.
func (w *shardWorld) anybody() *shardHost {
	if p := w.primary(); p != nil && w.dice.hit(0.5) {
		return p
	}
	return w.hosts[w.dice.n(len(w.hosts))]
}

// later does f after d, if there are faults still.
func (w *shardWorld) later(d time.Duration, f func()) {
	w.flying.Go(func() {
		select {
		case <-w.quiet:
			return
		case <-time.After(d):
		}
		if w.faulty() {
			f()
		}
	})
}

func (w *shardWorld) fault() {
	d, t, h := w.dice, w.setup.Timing.Timeout, w.anybody()
	faults := []func(){
		func() { w.killNode(h) },
		func() { w.killNode(h) },
		func() { w.killAgent(h) },
		func() { w.killNode(h); w.killAgent(h) },
		func() { w.reboot(h) },
		func() { w.hang(h) },
		func() { w.hang(h) },
		func() { w.cutLine(h, d.between(t/5, 4*t)) },
		func() { w.split() },
		func() { w.split() },
		func() { w.split() },
		func() { w.storeDown() },
		func() { w.storeStops() },
		func() { w.oneWay() },
		func() { w.lag() },
		func() { w.sick(h) },
		func() { w.restart(h) },
		func() { w.steps() },
		func() { w.operate() },
		func() { w.operate() },
	}
	switch w.setup.Only {
	case "divided":
		faults = []func(){w.split, w.split, w.split, func() { w.cutLine(h, d.between(2*t, 4*t)) }, w.lag, func() { w.killNode(h) }}
	case "copying":
		faults = []func(){w.operate, w.operate, func() { w.killNode(h) }, w.split, w.lag}
	case "unattended":
		faults = []func(){func() { w.killAgent(h) }}
	case "forced":
		faults = []func(){w.lag, w.force}
	case "stranded":
		faults = []func(){w.strand}
	case "emptied":
		faults = []func(){w.emptyStore}
	case "set back":
		faults = []func(){w.setStoreBack}
	case "hung paused":
		faults = []func(){w.hangPaused}
	case "hung unled":
		faults = []func(){w.hangUnled}
	case "dies twice":
		faults = []func(){w.dieTwice}
	case "rolled back among restarts":
		faults = []func(){w.rollBackAmongRestarts}
	case "rolled back":
		faults = []func(){w.rollBack}
	}
	faults[d.n(len(faults))]()
}

func (w *shardWorld) killNode(h *shardHost) {
	empty := w.setup.Disks && w.dice.hit(0.4)
	w.judge.trace("%s: node killed (data lost: %t)", h.name, empty)
	w.judge.hurt(h)
	h.node.Kill()
	if empty {
		w.judge.lossy(h)
		h.node.Start(true)
		h.node.Kill()
	}
	if !w.setup.Supervised || h.alive() == nil {
		w.later(w.dice.between(10*time.Millisecond, 3*w.setup.Timing.Timeout), func() { h.run() })
	}
}

// run starts the host's node, unless it runs.
func (h *shardHost) run() {
	if !h.node.Running() {
		h.w.judge.trace("%s: node starts", h.name)
		h.node.Start(false)
	}
}

func (w *shardWorld) killAgent(h *shardHost) {
	w.flying.Go(h.crash)
	w.later(w.dice.between(10*time.Millisecond, 4*w.setup.Timing.Timeout), h.start)
}

// restart is an agent that is told to stop, as for a new version.
func (w *shardWorld) restart(h *shardHost) {
	w.flying.Go(func() {
		h.leave()
		if w.faulty() {
			h.start()
		}
	})
}

func (w *shardWorld) reboot(h *shardHost) {
	w.judge.trace("%s: host reboots", h.name)
	w.judge.hurt(h)
	h.node.Kill()
	after := w.dice.between(time.Second, 3*w.setup.Timing.Timeout)
	w.flying.Go(func() {
		h.crash()
		h.node.Kill()
		h.reboot(w.dice.upTo(time.Hour))
		select {
		case <-w.quiet:
		case <-time.After(after):
		}
		if w.faulty() {
			h.run()
			h.start()
		}
	})
}

func (w *shardWorld) hang(h *shardHost) {
	w.judge.trace("%s: node hangs", h.name)
	w.judge.hurt(h)
	h.mu.Lock()
	h.hung = time.Now()
	h.mu.Unlock()
	h.node.Hang()
	w.later(w.dice.upTo(4*w.setup.Timing.Timeout), h.goOn)
}

func (h *shardHost) goOn() {
	if !h.node.Hung() {
		return
	}
	h.w.judge.trace("%s: node goes on", h.name)
	h.mu.Lock()
	h.went = time.Now()
	h.mu.Unlock()
	h.node.Continue()
}

func (w *shardWorld) cutLine(h *shardHost, d time.Duration) {
	to := []shardLine{lineRefused, lineMute}[w.dice.n(2)]
	w.judge.trace("%s: no way to the store (%d) for %v", h.name, to, d)
	h.setLine(to)
	w.later(d, func() { h.setLine(lineWell) })
}

// split parts the hosts in two groups, of which one may lose the store too.
func (w *shardWorld) split() {
	d := w.dice
	side := make([]bool, len(w.hosts))
	for i := range side {
		side[i] = d.hit(0.5)
	}
	if p := w.primary(); p != nil {
		side[p.i] = true
	}
	agents, lost, lasts := d.hit(0.5), d.hit(0.8), d.between(w.setup.Timing.Timeout/2, 5*w.setup.Timing.Timeout)
	w.judge.trace("the hosts are split %v, agents %t, store lost %t, for %v", side, agents, lost, lasts)
	w.divide(side, agents, true)
	w.later(lasts, func() { w.divide(side, agents, false) })
	for i, h := range w.hosts {
		if side[i] && lost {
			h.setLine(lineMute)
			w.later(lasts+d.upTo(time.Second), func() { h.setLine(lineWell) })
		}
	}
}

func (w *shardWorld) divide(side []bool, agents, cut bool) {
	for i, a := range w.hosts {
		for j, b := range w.hosts {
			if side[i] && !side[j] {
				w.nodes.Cut(a.address, b.address, cut)
				if agents || !cut {
					w.mu.Lock()
					w.whisper[[2]int{i, j}], w.whisper[[2]int{j, i}] = cut, cut
					w.mu.Unlock()
				}
			}
		}
	}
}

// oneWay cuts the way of one agent to a node, or to another agent.
func (w *shardWorld) oneWay() {
	a, b := w.dice.n(len(w.hosts)), w.dice.n(len(w.hosts))
	if a == b {
		return
	}
	which := w.deaf
	if w.dice.hit(0.5) {
		which = w.whisper
	}
	set := func(cut bool) {
		w.mu.Lock()
		which[[2]int{a, b}] = cut
		w.mu.Unlock()
	}
	set(true)
	w.later(w.dice.upTo(5*w.setup.Timing.Timeout), func() { set(false) })
}

func (w *shardWorld) storeDown() {
	lasts := w.dice.between(time.Second, 6*w.setup.Timing.Timeout)
	if w.dice.hit(0.2) {
		lasts = 3 * time.Minute
	}
	for _, h := range w.hosts {
		w.cutLine(h, lasts+w.dice.upTo(time.Second))
	}
	pause(w.dice.upTo(lasts))
}

func (w *shardWorld) storeStops() {
	d := w.dice.upTo(3 * w.setup.Timing.Timeout)
	w.judge.trace("the store stops for %v", d)
	w.store.freeze(d)
}

func (w *shardWorld) lag() {
	h := w.hosts[w.dice.n(len(w.hosts))]
	h.node.Lag(w.dice.upTo(3 * time.Second))
	w.later(w.dice.upTo(20*time.Second), func() { h.node.Lag(0) })
}

func (w *shardWorld) sick(h *shardHost) {
	w.judge.trace("%s: node cannot write", h.name)
	h.node.Sick(true)
	w.later(w.dice.upTo(4*w.setup.Timing.Timeout), func() { h.node.Sick(false) })
}

func (w *shardWorld) steps() {
	if !w.setup.Steps {
		return
	}
	by := w.dice.upTo(2*time.Hour) - time.Hour
	if w.dice.hit(0.5) {
		by = w.dice.upTo(10*time.Second) - 5*time.Second
	}
	if w.dice.hit(0.5) {
		w.hosts[w.dice.n(len(w.hosts))].clock.stepWall(by)
		return
	}
	w.judge.trace("the store's clock is stepped by %v", by)
	w.stepped.Add(int64(by))
}

// operate is what a person does.
func (w *shardWorld) operate() {
	if !w.setup.Operators {
		return
	}
	desk := shard.Admin{Registry: judgedRegistry{w.base.Load().Registry(), w.judge}, By: "a person"}
	ctx, to := context.Background(), ""
	if w.dice.hit(0.5) {
		to = w.hosts[w.dice.n(len(w.hosts))].id()
	}
	var err error
	what := ""
	switch w.dice.n(8) {
	case 0, 1, 2, 3:
		what = "switchover"
		_, err = desk.RequestPlan(ctx, shardName, shard.Request{Kind: shard.Switchover, Timeout: w.dice.between(time.Second, 5*time.Second)}, to)
	case 4:
		what = "failover"
		_, err = desk.RequestPlan(ctx, shardName, shard.Request{Kind: shard.Failover}, to)
	case 5:
		what = "failover --force"
		_, err = desk.RequestPlan(ctx, shardName, shard.Request{Kind: shard.Failover, Force: true}, to)
	case 6:
		what = "pause"
		err = desk.Pause(ctx, shardName, "maintenance")
		w.later(w.dice.upTo(4*w.setup.Timing.Timeout), func() { _ = desk.Resume(ctx, shardName) })
	case 7:
		what = "forget"
		if to != "" {
			w.judge.forget(w.hostOf(to))
			err = desk.Forget(ctx, shardName, to)
		}
	}
	w.judge.trace("a person: %s to %.8s: %v", what, to, err)
}

// perish ends an orchestrator at a step of its plan.
func (h *shardHost) perish(d shard.RowUpdate, err error) {
	w := h.w
	if !w.setup.Orchestrators || !w.faulty() || d.Row.Plan == nil && d.Row.Last == nil || err != nil || !w.dice.hit(0.15) {
		return
	}
	w.judge.trace("%s: the orchestrator dies", h.name)
	w.killAgent(h)
}

// force is a person who has the primary replaced.
func (w *shardWorld) force() {
	desk := shard.Admin{Registry: judgedRegistry{w.base.Load().Registry(), w.judge}, By: "a person"}
	_, err := desk.RequestPlan(context.Background(), shardName, shard.Request{Kind: shard.Failover, Force: true}, "")
	w.judge.trace("a person: failover --force: %v", err)
}
