package sim

import (
	"context"
	"fmt"
	"maps"
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

// knowledge is what a host was shown: detachments, and its last two views.
type knowledge struct {
	left  map[string]bool
	views [2]shard.View
}

// knows is what the host was shown until now.
func (j *shardJudge) knows(h *shardHost) knowledge {
	j.mu.Lock()
	defer j.mu.Unlock()
	return knowledge{maps.Clone(j.shown[h.name]), j.views[h.name]}
}

// considered tells that a result of the plan was known when the choice was made, or long enough before
// the chosen one wrote itself into the row to make it give way.
func (j *shardJudge) considered(p shard.Plan, node string) bool {
	id := shard.CommandID(p.Epoch, node, shard.OrderDetach)
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.choice[id] || len(p.Tried) == 0 && time.Since(j.left[id]) > j.w.setup.Timing.Timeout
}

// judgedRegistry is the store's, with the judge looking on.
type judgedRegistry struct {
	shard.Registry
	j *shardJudge
}

func (r judgedRegistry) UpdateRow(ctx context.Context, d shard.RowUpdate) (int64, error) {
	return r.j.decide(ctx, d, knowledge{})
}

// decide passes a decision on, of someone who knows this, and looks at what became of it.
func (j *shardJudge) decide(ctx context.Context, d shard.RowUpdate, known knowledge) (int64, error) {
	j.deciding.Lock()
	defer j.deciding.Unlock()
	base := j.w.base.Load().Registry()
	before, _ := base.ReadView(ctx, shardName)
	rev, err := base.UpdateRow(ctx, d)
	if err == nil {
		d.Row.Rev = rev
		j.decided(before, d.Row, known)
	}
	return rev, err
}

func (j *shardJudge) decided(v shard.View, row shard.Row, known knowledge) {
	old := v.Row
	j.trace("row: epoch %d, primary %.8s (%d), plan %s", row.Epoch, row.Primary, row.PrimaryEpoch, planText(row.Plan))
	if row.Epoch < old.Epoch || row.PrimaryEpoch < old.PrimaryEpoch || row.PrimaryEpoch > row.Epoch {
		j.breach("epochs fell: from %d (%d) to %d (%d)", old.Epoch, old.PrimaryEpoch, row.Epoch, row.PrimaryEpoch)
	}
	j.mu.Lock()
	j.row = row
	j.mu.Unlock()
	p, was := row.Plan, old.Plan
	if p != nil && p.Force {
		j.mu.Lock()
		j.forced, j.forcedIn = true, p.Epoch
		j.mu.Unlock()
	}
	if p != nil && was != nil && p.Epoch == was.Epoch && (p.By != was.By || p.Kind != was.Kind) {
		j.breach("two plans have epoch %d: %s, then %s", p.Epoch, planText(was), planText(p))
	}
	if p != nil && p.To != "" && (was == nil || was.To != p.To) && (p.Kind == shard.Failover || p.Kind == shard.Switchover) && p.Wanted == "" {
		j.chosen(*p, known)
	}
	if p != nil && was == nil && p.Kind == shard.Failover && p.Request == "" {
		j.deposes(v, *p)
	}
	if p != nil && p.Phase == shard.Promoting && was != nil && was.Phase == shard.Detaching {
		j.mu.Lock()
		maps.Copy(j.choice, known.left)
		j.mu.Unlock()
		j.frozen(v, *p)
	}
	if row.Primary != old.Primary || row.PrimaryEpoch != old.PrimaryEpoch {
		j.installed(v, row)
	}
}

func planText(p *shard.Plan) string {
	if p == nil {
		return "none"
	}
	return fmt.Sprintf("%s %d %s from %.8s to %.8s (%s)", p.Kind, p.Epoch, p.Phase, p.From, p.To, p.Reason)
}

// deposes checks a failover that nobody asked for.
func (j *shardJudge) deposes(v shard.View, p shard.Plan) {
	h := j.w.hostOf(p.From)
	accepts := h != nil && h.node.Accepts() // its agent may have closed it since watch looked
	j.mu.Lock()
	defer j.mu.Unlock()
	if t := 2*j.w.setup.Timing.Timeout + time.Second; accepts && j.wellNode == p.From && !j.well.IsZero() && time.Since(j.well) > t {
		j.breachLocked("a healthy primary is deposed: %s is well since %s: %s", p.From[:8], j.at(j.well), p.Reason)
	}
}

// chosen checks that whoever made the choice had not read that the node is dead: before its last view, which may have
// come too late for the choice.
func (j *shardJudge) chosen(p shard.Plan, known knowledge) {
	for _, v := range known.views {
		if n, ok := v.Node(p.To); v.Row.Rev == 0 || ok && n.Live() && n.Condition == shard.Up {
			return
		}
	}
	j.breach("%.8s is chosen, and was known to be dead: %s", p.To, planText(&p))
}

// frozen checks that nodes which say that they left their primary stand still.
func (j *shardJudge) frozen(v shard.View, p shard.Plan) {
	for _, r := range v.Nodes {
		done, ok := r.ResultOf(p.Epoch, shard.OrderDetach)
		h := j.w.hostOf(r.ID)
		if !ok || done.Error != "" || h == nil || !r.Live() {
			continue
		}
		if s := h.node.State(); s.Run == r.Run && s.Role == shard.Replica && s.Txn != done.Txn {
			j.breach("%s said that it stands still at %d, and is at %d", h.name, done.Txn, s.Txn)
		}
	}
}

// installed checks what a new primary has.
func (j *shardJudge) installed(v shard.View, row shard.Row) {
	h := j.w.hostOf(row.Primary)
	if h == nil {
		j.breach("the primary %.8s is no node of the shard", row.Primary)
		return
	}
	has := dataOf(h)
	for _, h := range j.w.hosts {
		n := h.node.State()
		j.trace("   %s: %s txn %d of %.8s, before %+v, data %d, link %+v", h.name, n.Role, n.Txn, n.Lineage.ID[32:], n.Before, n.Keys, n.Link)
	}
	rest := map[string]map[int64]bool{}
	p := row.Plan
	for _, r := range v.Nodes {
		o := j.w.hostOf(r.ID)
		if o == nil || o == h || p == nil {
			continue
		}
		done, ok := r.ResultOf(p.Epoch, shard.OrderDetach)
		if _, member := row.Member(r.ID); ok && done.Error == "" && j.considered(*p, r.ID) && member && r.Live() && r.Condition == shard.Up && r.Synced && r.Lineage.ID == lineageBefore(v.Row) {
			rest[o.name] = dataOf(o)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.result.Installs++
	if who, ok := j.named[row.PrimaryEpoch]; ok && who != row.Primary {
		j.breachLocked("two primaries of epoch %d: %.8s and %.8s", row.PrimaryEpoch, who, row.Primary)
	}
	j.named[row.PrimaryEpoch] = row.Primary
	j.latest[h.address] = row.PrimaryEpoch
	switch half := !h.node.State().Synced; {
	case half && p != nil && p.Force:
		j.halved = row.Primary
	// A plan that failed may return to one that a person has forced with that.
	case half && p != nil && (row.Primary != v.Row.Primary || row.Primary != j.halved):
		j.breachLocked("%s was promoted with half a copy", h.name)
	}
	var missing []int64
	for id := range j.kept {
		if !has[id] {
			missing = append(missing, id)
			delete(j.kept, id)
		}
	}
	began := j.began
	if row.Primary != v.Row.Primary { // a switchover that was undone does not change the primary
		j.began = maps.Clone(j.kept)
	}
	slices.Sort(missing)
	if len(missing) == 0 {
		return
	}
	j.result.Lost += len(missing)
	switch {
	case p == nil && !j.data[h.name]:
		j.breachLocked("%s goes on as the primary without %d acknowledged writes", h.name, len(missing))
	case p == nil || p.Force:
	case p.Kind == shard.Switchover || p.Kind == shard.Return:
		if !j.data[h.name] {
			j.breachLocked("a %s lost %d acknowledged writes, the first %d", p.Kind, len(missing), missing[0])
		}
	default:
		j.lacking(h, v.Row.Primary, missing, began)
		for name, has := range rest {
			n := 0
			for _, id := range missing {
				if has[id] {
					n++
				}
			}
			tried := slices.ContainsFunc(p.Tried, func(id string) bool { o := j.w.hostOf(id); return o != nil && o.name == name })
			if n > 0 && !tried && p.Wanted == "" {
				j.breachLocked("%s was promoted without %d acknowledged writes that %s has", h.name, n, name)
			}
		}
	}
}

func lineageBefore(r shard.Row) string {
	if n := len(r.Lineages); n > 0 {
		return r.Lineages[n-1].ID
	}
	return ""
}

func dataOf(h *shardHost) map[int64]bool {
	has := map[int64]bool{}
	for _, id := range h.node.Data() {
		has[id] = true
	}
	return has
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
