package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

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
		j.forced, j.forcedIn, j.setBack = true, p.Epoch, false
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
		if j.setBack {
			j.overlooking(h, missing)
		}
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

// overlooking checks that nobody was promoted unasked, after the store had lost a decision, without what the primary of that has.
func (j *shardJudge) overlooking(h *shardHost, missing []int64) {
	for _, o := range j.w.hosts {
		has, n := dataOf(o), 0
		for _, id := range missing {
			if has[id] {
				n++
			}
		}
		if o != h && n > 0 {
			j.breachLocked("%s was promoted without %d acknowledged writes of an epoch that the store had lost; %s has them", h.name, n, o.name)
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
