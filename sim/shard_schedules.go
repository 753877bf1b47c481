package sim

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/shardtest"
	"github.com/understudy-ha/understudy/store/memory"
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
	node := p.node.Snapshot()
	// With a folder that was written before the snapshot was taken, nothing of the agent's own contradicts it.
	putBack := p.saveFolder()
	pause(d.between(t/4, t))
	w.judge.trace("%s: rolled back", p.name)
	w.judge.hurt(p)
	p.crash()
	p.node.Kill()
	w.judge.rolledBack(p, node)
	putBack()
	pause(d.upTo(t / 2))
	p.node.StartFrom(node)
	p.start()
	pause(4 * t)
}

// rollBackAmongRestarts takes the host of the primary back to a snapshot while all other nodes restart, from logs that do
// not tell where they stand. Where the shard asks for a person, one chooses the node that has the most.
func (w *shardWorld) rollBackAmongRestarts() {
	d, t := w.dice, w.setup.Timing.Timeout
	p := w.primary()
	if p == nil || p.alive() == nil {
		return
	}
	node := p.node.Snapshot()
	putBack := p.saveFolder()
	pause(3*time.Second + d.between(2*t, 3*t)) // agents write down once a second what they know
	w.judge.trace("%s: rolled back, and all restart", p.name)
	for _, h := range w.hosts {
		w.judge.hurt(h)
		if h == p || d.hit(0.5) {
			h.crash()
		}
		h.node.Kill()
	}
	w.judge.rolledBack(p, node)
	putBack()
	pause(d.upTo(t / 2))
	p.node.StartFromLog(node)
	for _, h := range w.hosts {
		h.run()
		h.start()
	}
	for end := time.Now().Add(20 * t); time.Now().Before(end); pause(t) {
		a, row := p.alive(), w.view().Row
		if a != nil && strings.Contains(a.Status().Trouble, "may have more. Compare them") && row.Plan == nil && row.Request == nil {
			w.help()
		}
	}
}

// rolledBackAmongRestarts is rolledBack while all others restart.
func rolledBackAmongRestarts(s *ShardSetup) {
	calmSchedule(s, "rolled back among restarts")
	s.Supervised = true
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

// emptyStore has the store come back empty at the moment at which a deposed primary continues.
func (w *shardWorld) emptyStore() {
	d, t := w.dice, w.setup.Timing.Timeout
	p := w.primary()
	if p == nil || p.alive() == nil {
		return
	}
	w.hang(p)
	p.crash()
	for end := time.Now().Add(10 * t); w.primary() == p && time.Now().Before(end); {
		pause(t / 10)
	}
	pause(d.between(t, 2*t))
	q := w.primary()
	if q == nil || q == p || !q.node.Accepts() {
		return
	}
	w.judge.trace("the store comes back empty")
	w.base.Store(memory.New(w.wall))
	for _, h := range w.hosts {
		h.setLine(lineRefused) // its connections end
		h.setLine(lineWell)
	}
	// Whoever does not follow may have diverged from what the shard is made again with, and the history that would tell is
	// gone with the store: an operator has to decide about it.
	for _, h := range w.hosts {
		if s := h.node.State(); h != q && (s.Link == nil || !s.Link.Up) {
			w.judge.forget(h)
		}
	}
	p.goOn()
	p.start()
	pause(8 * t)
}

// setStoreBack has the store go back to before a failover, as one does that fails over to a copy behind it. What the new primary has accepted since, at
// times no other node has. The deposed one returns at times.
func (w *shardWorld) setStoreBack() {
	d, t := w.dice, w.setup.Timing.Timeout
	p := w.primary()
	if p == nil || p.alive() == nil {
		return
	}
	if q, r := w.hosts[(p.i+1)%len(w.hosts)], w.hosts[(p.i+2)%len(w.hosts)]; d.hit(0.8) {
		w.nodes.Cut(q.address, r.address, true)
		w.later(12*t, func() { w.nodes.Cut(q.address, r.address, false) })
	}
	store := w.base.Load()
	before := store.Snapshot()
	w.judge.trace("%s: host dies", p.name)
	w.judge.hurt(p)
	p.node.Kill()
	p.crash()
	for end := time.Now().Add(10 * t); w.primary() == p && time.Now().Before(end); {
		pause(t / 10)
	}
	pause(d.between(t/10, t))
	if q := w.primary(); q == nil || q == p || !q.node.Accepts() {
		return
	}
	w.judge.trace("the store goes back to before the failover")
	w.judge.mu.Lock()
	w.judge.setBack = true
	w.judge.mu.Unlock()
	store.Restore(before)
	for _, h := range w.hosts {
		h.setLine(lineRefused) // its connections end
		h.setLine(lineWell)
	}
	if d.hit(0.5) {
		w.later(d.upTo(4*t), func() { p.run(); p.start() })
	}
	pause(8 * t)
	if w.asksForOperator() {
		w.help()
		pause(8 * t)
	}
}

// setBack stores have lost the latest failover.
func setBack(s *ShardSetup) { calmSchedule(s, "set back") }

// hangUnled has the primary hang whose agent has just been started again, and has not got the lease yet. That agent can kill
// it, and nobody is promoted before, unless it is closed: the agent before may have closed it and died, which is reason
// enough to replace it.
func (w *shardWorld) hangUnled() {
	d, t := w.dice, w.setup.Timing.Timeout
	p := w.primary()
	if p == nil || p.alive() == nil {
		return
	}
	p.crash()
	pause(d.between(t+time.Second, 2*t)) // what the agent before had reported has lapsed
	p.start()
	pause(d.between(t/4, t))
	w.hang(p)
	for end := time.Now().Add(4 * t); time.Now().Before(end); pause(10 * time.Millisecond) {
		if q := w.primary(); q != nil && q != p && p.node.Hung() && p.node.State().Fence != shard.Closed && q.node.Accepts() {
			w.judge.breach("%s was promoted, and the agent of %s lets it hang", q.name, p.name)
			break
		}
	}
	p.goOn()
	p.run()
	pause(4 * t)
}

// hungUnled primaries hang before their new agents lead.
func hungUnled(s *ShardSetup) {
	calmSchedule(s, "hung unled")
	s.KillHung = true
}

// hangPaused has the primary hang in a switchover from when its writes wait until after its pause has ended: what its clients sent meanwhile must not
// be accepted, or the switchover must not go on.
func (w *shardWorld) hangPaused() {
	d, t := w.dice, w.setup.Timing.Timeout
	p := w.primary()
	if p == nil || p.alive() == nil {
		return
	}
	const waits = shard.MinPause
	desk := shard.Admin{Registry: judgedRegistry{w.base.Load().Registry(), w.judge}, By: "a person"}
	if _, err := desk.RequestPlan(context.Background(), shardName, shard.Request{Kind: shard.Switchover, Timeout: waits}, ""); err != nil {
		return
	}
	for end := time.Now().Add(2 * t); time.Now().Before(end); pause(time.Millisecond) {
		if plan := w.view().Row.Plan; plan != nil && (plan.Phase == shard.Promoting || plan.Phase == shard.Catching && d.hit(0.5)) {
			break
		}
	}
	w.hang(p)
	pause(d.between(waits, waits+t/4))
	p.goOn()
	pause(4 * t)
}

// hungPaused primaries hang while they are switched over.
func hungPaused(s *ShardSetup) { calmSchedule(s, "hung paused") }

// dieTwice kills the primary and, as soon as another has taken its place, that one too, while one replica lags behind. All
// come back with what they had.
func (w *shardWorld) dieTwice() {
	d, t := w.dice, w.setup.Timing.Timeout
	p := w.primary()
	if p == nil || p.alive() == nil {
		return
	}
	behind := w.hosts[(p.i+1+d.n(len(w.hosts)-1))%len(w.hosts)]
	behind.node.Lag(d.between(time.Second, 3*time.Second))
	pause(d.between(time.Second, t))
	die := func(h *shardHost, back time.Duration) {
		w.judge.trace("%s: host dies", h.name)
		w.judge.hurt(h)
		h.node.Kill()
		h.crash()
		w.later(back, func() { h.run(); h.start() })
	}
	die(p, d.between(t, 4*t))
	for end := time.Now().Add(6 * t); w.primary() == p && time.Now().Before(end); {
		pause(t / 100)
	}
	if q := w.primary(); q != nil && q != p {
		die(q, d.upTo(2*t))
	}
	w.later(d.upTo(2*t), func() { behind.node.Lag(0) })
	pause(10 * t)
}

// diesTwice is a shard whose primaries die soon after their promotion.
func diesTwice(s *ShardSetup) {
	calmSchedule(s, "dies twice")
	s.Supervised = true
}

// lacking checks that nobody was promoted by itself who lacks what the primary before it had when it took the place of
// another, and has on its disk still.
func (j *shardJudge) lacking(h *shardHost, before string, missing []int64, began map[int64]bool) {
	old := j.w.hostOf(before)
	if old == nil || old == h {
		return
	}
	has, n := dataOf(old), 0
	for _, id := range missing {
		if has[id] && began[id] {
			n++
		}
	}
	if n > 0 {
		j.breachLocked("%s was promoted without %d acknowledged writes with which %s had become the primary", h.name, n, old.name)
	}
}

// savedPath is the file in which the agent keeps what it knows of its node.
func (h *shardHost) savedPath() string { return filepath.Join(h.dir, "memory.json") }

// saveFolder copies the agent's folder, and returns what puts the copy back; if there is none, nothing.
func (h *shardHost) saveFolder() (putBack func()) {
	saved, err := os.ReadFile(h.savedPath())
	return func() {
		if err == nil {
			_ = os.WriteFile(h.savedPath(), saved, 0o600)
		}
	}
}

// forgetEpoch has an agent that is about to start know no epoch.
func forgetEpoch(h *shardHost) {
	path := h.savedPath()
	text, err := os.ReadFile(path)
	if err != nil {
		return // it never ran
	}
	_ = os.WriteFile(path, regexp.MustCompile(`"epoch":\s*\d+`).ReplaceAll(text, []byte(`"epoch": 0`)), 0o600)
}

// emptied stores know nothing of the shard that there is.
func emptied(s *ShardSetup) {
	calmSchedule(s, "emptied")
	s.KillHung = false
}

// calmSchedule has nothing happen but one kind of fault.
func calmSchedule(s *ShardSetup, only string) {
	s.Nodes, s.Length, s.MinReplicas, s.Only = 3, 2*time.Minute, 0, only
	s.Steps, s.Operators, s.Disks, s.Orchestrators = false, false, false, false
}
