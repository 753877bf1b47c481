package sim

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

// monitorHealth is how the store is, and since when all is well.
type monitorHealth struct {
	mu                sync.Mutex
	down, slow, lossy time.Time // until
	hangs             time.Time
	badUntil          time.Time
}

type illness struct{ down, slow, lossy, hangs bool }

func (h *monitorHealth) now() illness {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	return illness{now.Before(h.down), now.Before(h.slow), now.Before(h.lossy), now.Before(h.hangs)}
}

// up says that all is well after a moment, unless something else is not.
func (h *monitorHealth) up(t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.After(h.badUntil) {
		h.badUntil = t
	}
}

// ill makes the store so until a moment.
func (h *monitorHealth) ill(until *time.Time, d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	end := time.Now().Add(d)
	if end.After(*until) {
		*until = end
	}
	if end = end.Add(4 * time.Second); end.After(h.badUntil) {
		h.badUntil = end
	}
}

// since is from when on all was well without a break; later than now when it is not.
func (h *monitorHealth) since() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.badUntil
}

// suffer lets faults befall the instances, the store and the router.
func (w *monitorWorld) suffer() {
	end := time.Now().Add(w.setup.Length)
	faults := []func(){w.kill, w.kill, w.stopOne, w.cutOff, w.storeDown, w.storeIll, func() {}}
	if w.setup.Freezes {
		faults = append(faults, w.freeze, w.freeze, w.storeHangs)
	}
	if w.setup.Steps {
		faults = append(faults, w.step, w.step)
	}
	if w.setup.Router {
		faults = append(faults, w.routerDown)
	}
	if w.setup.Operators {
		faults = append(faults, w.operate, w.operate, w.operate, w.operate)
	}
	outage := w.setup.Outage
	for time.Now().Before(end) {
		pause(w.dice.between(500*time.Millisecond, []time.Duration{3 * time.Second, 20 * time.Second}[w.dice.n(2)]))
		if outage && w.dice.hit(0.3) {
			outage = false
			w.allDown()
			continue
		}
		faults[w.dice.n(len(faults))]()
	}
}

func (w *monitorWorld) kill() {
	if i, n := w.anybody(w.dice); n != nil {
		w.judge.trace("%s is killed", n.name)
		n.kill()
		w.again(i, w.setup.First*3/2)
	}
}

func (w *monitorWorld) stopOne() {
	if i, n := w.anybody(w.dice); n != nil {
		w.judge.trace("%s stops", n.name)
		n.stop()
		w.again(i, w.setup.First*3/2)
	}
}

// again starts another run of an instance after a while, or at once.
func (w *monitorWorld) again(i int, most time.Duration) {
	w.gone(i)
	if w.dice.hit(0.5) {
		most = 0
	}
	d := w.dice.upTo(most)
	w.health.up(time.Now().Add(d + 4*time.Second))
	pause(d)
	w.launch(i)
}

// allDown has no instance run for ten minutes.
func (w *monitorWorld) allDown() {
	w.judge.trace("the whole monitor is down")
	d := w.dice.between(20*time.Second, 10*time.Minute)
	w.health.up(time.Now().Add(d + 4*time.Second))
	for i, n := range w.nodes {
		if w.dice.hit(0.5) {
			n.kill()
		} else {
			n.stop()
		}
		w.gone(i)
	}
	pause(d)
	for i := range w.nodes {
		w.launch(i)
	}
}

func (w *monitorWorld) cutOff() {
	if _, n := w.anybody(w.dice); n != nil {
		d := w.dice.upTo(3 * w.setup.First)
		w.judge.trace("%s is cut off for %v", n.name, d)
		n.cut.Store(true)
		n.heals.Store(time.Now().Add(d).UnixNano())
		w.judge.hindered(n, time.Now().Add(d))
		w.health.up(time.Now().Add(d + 4*time.Second))
		time.AfterFunc(d, func() { n.cut.Store(false) })
	}
}

func (w *monitorWorld) freeze() {
	if _, n := w.anybody(w.dice); n != nil {
		d := w.dice.upTo([]time.Duration{2 * time.Second, 4 * w.setup.First, time.Minute}[w.dice.n(3)])
		w.judge.trace("%s is frozen for %v", n.name, d)
		n.gate.freeze(d)
		w.judge.hindered(n, n.frozenUntil())
		w.health.up(time.Now().Add(d + 4*time.Second))
	}
}

// storeDown: for seconds, or for ten minutes.
func (w *monitorWorld) storeDown() {
	d := w.dice.upTo([]time.Duration{4 * time.Second, 4 * time.Second, 20 * time.Second, 10 * time.Minute}[w.dice.n(4)])
	w.judge.trace("the store is down for %v", d)
	w.health.ill(&w.health.down, d)
	if w.dice.hit(0.5) {
		pause(d)
	}
}

func (w *monitorWorld) storeIll() {
	d := w.dice.upTo(8 * time.Second)
	w.judge.trace("the store is slow or loses answers for %v", d)
	if w.dice.hit(0.5) {
		w.health.ill(&w.health.slow, d)
	} else {
		w.health.ill(&w.health.lossy, d)
	}
}

func (w *monitorWorld) storeHangs() {
	d := w.dice.upTo(8 * time.Second)
	w.judge.trace("the store hangs for %v", d)
	w.store.freeze(d)
	w.health.ill(&w.health.hangs, d)
}

// step steps the store's wall clock by hours. Less than a path's gap could pass for
// nothing.
func (w *monitorWorld) step() {
	by := w.dice.between(time.Minute, 3*time.Hour)
	if w.dice.hit(0.5) {
		by = -by
	}
	w.judge.steps(by)
	w.health.up(time.Now().Add(2 * time.Second))
}

func (w *monitorWorld) routerDown() {
	d := w.dice.upTo(15 * time.Second)
	w.judge.trace("the router is down for %v", d)
	w.router.mu.Lock()
	if now := time.Now(); now.After(w.router.until) {
		w.router.down, w.router.until = now, now.Add(d)
	}
	w.router.mu.Unlock()
	w.health.up(time.Now().Add(d + 4*time.Second))
}

// operate is a person, or a configuration that changes.
func (w *monitorWorld) operate() {
	s := w.sources[w.dice.n(len(w.sources))]
	ref := monitor.Action{Check: s.ref.Check, Source: s.ref.Source, Who: "op"}
	switch w.dice.n(8) {
	case 0:
		ref.Type = monitor.ActionPause
		if w.dice.hit(0.6) {
			ref.For = w.dice.between(time.Second, 10*time.Second)
		}
		w.act(ref)
	case 1:
		ref.Type = monitor.ActionResume
		w.act(ref)
	case 2:
		ref.Type = monitor.ActionRetire
		w.act(ref)
	case 3:
		ref.Type, ref.Source = []monitor.ActionType{monitor.ActionPause, monitor.ActionResume}[w.dice.n(2)], ""
		w.act(ref)
	case 4, 5:
		w.reconfigure(func(all map[string]monitor.Check) {
			e := all[s.ref.Check]
			if e.Interval == 0 {
				return
			}
			e.Missed = 1 + w.dice.n(4)
			all[s.ref.Check] = e
		})
	default:
		w.reconfigure(func(all map[string]monitor.Check) {
			if _, ok := all[s.ref.Check]; ok && len(all) > 1 && w.dice.hit(0.6) {
				delete(all, s.ref.Check)
				return
			}
			for _, e := range w.setup.Checks {
				if _, ok := all[e.Name]; !ok {
					all[e.Name] = e
				}
			}
		})
	}
}

// reconfigure puts another configuration into force.
func (w *monitorWorld) reconfigure(change func(map[string]monitor.Check)) {
	all := w.judge.configured()
	change(all)
	c := monitor.Configuration{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		c.Checks = append(c.Checks, all[name])
	}
	for _, s := range w.sources {
		if e, ok := all[s.ref.Check]; ok && (e.Fixed || e.GroupBy != "") {
			c.Declared = append(c.Declared, monitor.Declaration{Check: e.Name, Source: s.ref.Source, Labels: map[string]string{"rack": "r1"}})
		}
	}
	w.configure(c)
}
