package sim

import "time"

// strand kills the agent of the primary, and soon afterwards cuts it and one replica, at times without its agent too,
// off from the store and from the others: the replica's acknowledgements keep the primary's armed fence open.
func (w *shardWorld) strand() {
	d, t := w.dice, w.setup.Timing.Timeout
	p := w.primary()
	if p == nil {
		return
	}
	side := make([]bool, len(w.hosts))
	with := w.hosts[(p.i+1+d.n(len(w.hosts)-1))%len(w.hosts)]
	side[p.i], side[with.i] = true, true
	lasts := d.between(4*t, 8*t)
	w.judge.trace("%s and %s are stranded for %v", p.name, with.name, lasts)
	ends := []*shardHost{p}
	if d.hit(0.5) {
		ends = append(ends, with)
	}
	for _, h := range ends {
		w.flying.Go(h.crash)
		w.later(lasts+t, h.start)
	}
	pause(d.upTo(t / 2))
	w.divide(side, true, true)
	w.later(lasts, func() { w.divide(side, true, false) })
	for i, h := range w.hosts {
		if side[i] {
			h.setLine(lineMute)
			w.later(lasts, func() { h.setLine(lineWell) })
		}
	}
	pause(lasts + 4*t)
}

// stranded primaries lose their agent, and are cut off together with a replica.
func stranded(s *ShardSetup) { calmSchedule(s, "stranded") }

// calmSchedule has nothing happen but one kind of fault.
func calmSchedule(s *ShardSetup, only string) {
	s.Nodes, s.Length, s.MinReplicas, s.Only = 3, 2*time.Minute, 0, only
	s.Steps, s.Operators, s.Disks, s.Orchestrators = false, false, false, false
}
