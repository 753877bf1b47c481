package sim

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/shardtest"
)

// shardJudge knows every write that was acknowledged and every decision.
type shardJudge struct {
	w        *shardWorld
	begin    time.Time
	deciding sync.Mutex

	mu       sync.Mutex
	broken   []string
	row      shard.Row
	named    map[int64]string // the primary of an epoch
	latest   map[string]int64 // the latest epoch under which a node, by address, was named
	open     map[string]int64 // … under which it was opened
	top      int64            // the highest epoch under which a write was accepted
	topAt    time.Time
	kept     map[int64]bool  // writes that the shard has acknowledged and not lost
	began    map[int64]bool  // … of which the primary had those when it took the place of another
	data     map[string]bool // hosts whose node lost its data
	forgot   map[string]bool // hosts whose node a person had forgotten
	well     time.Time       // since when the primary is well, and a replica is in touch with it
	wellNode string
	setBack  bool                       // the store has lost a decision, and nobody has forced another since
	forced   bool                       // a person had the data changed
	forcedIn int64                      // the epoch in which a person did so last
	halved   string                     // the node that a person forced last with half a copy
	left     map[string]time.Time       // when the store first had the result of a detachment, by command
	shown    map[string]map[string]bool // … which of them a host was shown
	views    map[string][2]shard.View   // the last two that a host was shown
	choice   map[string]bool            // … and had been when it made a plan's choice
	result   ShardResult
}

func newShardJudge(w *shardWorld) *shardJudge {
	return &shardJudge{w: w, begin: time.Now(), named: map[int64]string{}, latest: map[string]int64{}, open: map[string]int64{},
		kept: map[int64]bool{}, data: map[string]bool{}, forgot: map[string]bool{}, left: map[string]time.Time{}, shown: map[string]map[string]bool{}, choice: map[string]bool{}, views: map[string][2]shard.View{}}
}

func (j *shardJudge) at(t time.Time) string { return fmt.Sprintf("%.3f s", t.Sub(j.begin).Seconds()) }

func (j *shardJudge) trace(format string, args ...any) {
	if t := j.w.setup.Trace; t != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		t(j.at(time.Now())+" "+format, args...)
	}
}

func (j *shardJudge) breach(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.breachLocked(format, args...)
}

func (j *shardJudge) breachLocked(format string, args ...any) {
	text := j.at(time.Now()) + " " + fmt.Sprintf(format, args...)
	if len(j.broken) < 20 {
		j.broken = append(j.broken, text)
	}
	if t := j.w.setup.Trace; t != nil {
		t("BROKEN %s", text)
	}
}

// opening: the fence of a node is about to be opened.
func (j *shardJudge) opening(address string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.open[address] = j.latest[address]
}

// accepted is a write that was acknowledged. The world is locked.
func (j *shardJudge) accepted(a shardtest.Accepted) {
	h := j.hostAt(a.Node)
	j.mu.Lock()
	late := time.Since(j.topAt)
	j.mu.Unlock()
	excuse := h.excused(late)
	j.mu.Lock()
	defer j.mu.Unlock()
	// Who forces a failover says that the old primary is dead. Behind a cut it may live until what others have promised ends.
	excuse = excuse || j.top == j.forcedIn && late <= j.w.setup.Timing.Timeout
	epoch := j.open[a.Node]
	j.result.Writes++
	switch {
	case epoch == 0:
		j.breachLocked("%s accepted a write, and never was in the row", h.name)
	case epoch < j.top && excuse:
		j.result.Slips++
	case epoch < j.top:
		j.breachLocked("%s accepted a write under epoch %d after the first of epoch %d, at %s", h.name, epoch, j.top, j.at(j.topAt))
	case epoch > j.top:
		j.top, j.topAt = epoch, time.Now()
	}
	if epoch == j.row.PrimaryEpoch {
		j.kept[a.ID] = true
	}
}

// slipLimit is how long after the first write of its successor a node may accept writes that nothing but its
// armed fence could have refused: what the fence needs to close after the last acknowledgement of a replica.
const slipLimit = 3 * time.Second

// excused: nobody could close the host's node but its own armed fence, as its agent is dead or has just
// come, or could kill it as it hung. late is how long ago its successor accepted a write first.
func (h *shardHost) excused(late time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.w.setup.Timing.Timeout
	// What waited while it hung is accepted whenever it continues.
	unruly := !h.w.setup.KillHung || h.began.After(h.hung)
	if !h.went.IsZero() && time.Since(h.went) < time.Second && unruly {
		return true
	}
	// One that stops leaves a node open that it does not supervise.
	alone := h.agent == nil || h.leaving && !h.w.setup.Supervised || time.Since(h.began) < 2*t
	return alone && late <= slipLimit
}

func (j *shardJudge) hostAt(address string) *shardHost {
	for _, h := range j.w.hosts {
		if h.address == address {
			return h
		}
	}
	return nil
}

// reported: the store has taken the record.
func (j *shardJudge) reported(r shard.Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, done := range r.Results {
		if id := shard.CommandID(done.Epoch, r.ID, done.Order); done.Order == shard.OrderDetach && j.left[id].IsZero() {
			j.left[id] = time.Now()
		}
	}
}

// show notes what a view tells the host.
func (j *shardJudge) show(h *shardHost, v shard.View) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p := v.Row.Plan
	v.Nodes = slices.Clone(v.Nodes) // a broken agent changes its own
	j.views[h.name] = [2]shard.View{j.views[h.name][1], v}
	for _, r := range v.Nodes {
		if p == nil {
			return
		}
		if _, ok := r.ResultOf(p.Epoch, shard.OrderDetach); ok {
			if j.shown[h.name] == nil {
				j.shown[h.name] = map[string]bool{}
			}
			j.shown[h.name][shard.CommandID(p.Epoch, r.ID, shard.OrderDetach)] = true
		}
	}
}

// lossy: a node has lost its data.
func (j *shardJudge) lossy(h *shardHost) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.data[h.name] = true
}

// forget: a person had the host's node forgotten.
func (j *shardJudge) forget(h *shardHost) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.forgot[h.name] = true
}

func (j *shardJudge) forgotten(h *shardHost) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.forgot[h.name]
}

func (j *shardJudge) finish() ShardResult {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.result.Broken = j.broken
	return j.result
}
