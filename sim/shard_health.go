package sim

import (
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// hurt: the host's node was not well for a moment, which watch may not see.
func (j *shardJudge) hurt(h *shardHost) {
	id := h.id()
	j.mu.Lock()
	defer j.mu.Unlock()
	if id == "" || j.wellNode == id {
		j.well = time.Time{}
	}
}

// watch checks all the time whether the primary is well.
func (j *shardJudge) watch(done <-chan struct{}) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		j.mu.Lock()
		id, was := j.row.Primary, j.wellNode
		j.mu.Unlock()
		h := j.w.hostOf(id)
		well := h != nil && h.node.Accepts() && j.w.attended(h)
		j.mu.Lock()
		switch {
		case !well:
			j.well = time.Time{}
		case j.well.IsZero() || was != id:
			j.well, j.wellNode = time.Now(), id
		}
		j.mu.Unlock()
	}
}

// attended reports whether a replica whose agent lives, and reaches the store, follows the node.
func (w *shardWorld) attended(p *shardHost) bool {
	for _, h := range w.hosts {
		line, _ := h.lineNow()
		if h == p || h.alive() == nil || line != lineWell || h.node.Hung() {
			continue
		}
		s := h.node.State()
		if s.Role == shard.Replica && s.Link != nil && s.Link.Up && s.Link.Address == p.address && s.Link.Input >= 0 && s.Link.Input < 200*time.Millisecond && !s.Link.Syncing {
			return true
		}
	}
	return false
}
