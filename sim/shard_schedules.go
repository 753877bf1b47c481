package sim

import (
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/understudy-ha/understudy/shard/shardtest"
)

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

// rollBack takes the host of the primary back to a snapshot, of the node and at times of its agent's folder too, soon
// enough for it to lead again.
func (w *shardWorld) rollBack() {
	d, t := w.dice, w.setup.Timing.Timeout
	p := w.primary()
	if p == nil || p.alive() == nil {
		return
	}
	memory := filepath.Join(p.dir, "memory.json")
	node := p.node.Snapshot()
	// With a folder that was written before the snapshot was taken, nothing of the agent's own contradicts it.
	folder, err := os.ReadFile(memory)
	pause(d.between(t/4, t))
	w.judge.trace("%s: rolled back", p.name)
	w.judge.hurt(p)
	p.crash()
	p.node.Kill()
	w.judge.rolledBack(p, node)
	if err == nil {
		_ = os.WriteFile(memory, folder, 0o600)
	}
	pause(d.upTo(t / 2))
	p.node.StartFrom(node)
	p.start()
	pause(4 * t)
}

// rolledBack: a host lost what it had written since the snapshot was taken. What no other node has is lost with that.
func (j *shardJudge) rolledBack(h *shardHost, s shardtest.Snapshot) {
	left := map[int64]bool{}
	for _, id := range s.Data() {
		left[id] = true
	}
	for _, o := range j.w.hosts {
		if o != h {
			maps.Copy(left, dataOf(o))
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	maps.DeleteFunc(j.kept, func(id int64, _ bool) bool { return !left[id] })
}

// rolledBack hosts start again from snapshots.
func rolledBack(s *ShardSetup) {
	calmSchedule(s, "rolled back")
	s.Supervised = true // the replicas of one that starts open copy from it before any agent can know
}

// calmSchedule has nothing happen but one kind of fault.
func calmSchedule(s *ShardSetup, only string) {
	s.Nodes, s.Length, s.MinReplicas, s.Only = 3, 2*time.Minute, 0, only
	s.Steps, s.Operators, s.Disks, s.Orchestrators = false, false, false, false
}
