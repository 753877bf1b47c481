package shard

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// arm keeps the fence of the primary armed while it has a replica, and disarms it, which the report
// of the same step says, when it has none.
func (w *modelWorld) arm(a *modelAgent) {
	if !a.up || a.role != Primary || a.fence == Closed || !a.holding {
		return
	}
	a.fence = Open
	for _, r := range w.agents {
		if p, ok := w.linked(r.modelNode); ok && p == a.modelNode && r.copying == 0 {
			a.fence, a.acked = Armed, w.now
		}
	}
}

func (w *modelWorld) release(a *modelAgent) {
	if w.holder == a.name() && w.reaches(a) {
		w.holder = ""
	}
	a.holding = false
}

func (w *modelWorld) acquire(a *modelAgent) bool {
	if a.holding || !w.reaches(a) || !a.up {
		return a.holding
	}
	if w.holder == "" || a.over && w.lapsed() && a.seen == w.take().Lease.Seen() {
		w.seq++
		w.holder, w.renewed = a.name(), w.now
		a.holding, a.trust = true, w.now+modelT-modelI
	}
	return a.holding
}

// open is the last step of becoming the primary: the report that says so, and then the fence.
func (w *modelWorld) open(a *modelAgent, epoch int64) bool {
	if !a.holding || w.now >= a.trust || !w.reaches(a) || !a.up || a.role != Primary {
		return false
	}
	r := w.record(a)
	r.Fence = Open
	w.records[a.id], w.reports[a.id] = r, w.now
	a.fence, a.opened, a.acked = Open, epoch, w.now
	w.note("%s opens under %d", a.name(), epoch)
	return true
}

func (w *modelWorld) demote(a *modelAgent, follows string) {
	a.fence, a.role, a.follows, a.detached, a.copying = Closed, Replica, follows, false, 0
	w.release(a)
}

// stand carries out what the agent does without being told.
func (w *modelWorld) stand(a *modelAgent) {
	if !a.alive || !a.looked || !a.up || a.job != nil {
		return
	}
	v := a.view
	a.acted = true
	b := w.stance(a, v)
	a.shunned = ""
	switch b.Assignment {
	case AssignLead:
		if !w.acquire(a) || a.fence != Closed {
			return
		}
		if v = w.take(); w.rules.stale {
			v = a.view
		}
		if w.stance(a, v).Assignment == AssignLead {
			w.open(a, v.Row.PrimaryEpoch)
		}
	case AssignResume:
		if w.acquire(a) {
			a.job = &modelJob{resume: true}
		}
	case AssignFollow:
		if a.role == Primary || a.detached || a.follows != v.Row.Primary {
			w.demote(a, v.Row.Primary)
		}
		w.release(a)
	case AssignFence, AssignQuarantine:
		a.fence = Closed
		w.release(a)
		if b.Assignment == AssignQuarantine {
			a.shunned = b.Why
		}
	}
}

func (w *modelWorld) stance(a *modelAgent, v View) Decision {
	if w.rules.stand != nil {
		v = w.rules.stand(v)
	}
	return Decide(v, Self{ID: a.id, State: w.state(a), Saved: a.memory, Holding: a.holding, RunSeenFor: w.now - a.started, NoShardFor: time.Hour})
}

// plan asks the planner, on the view that there is, and does what it says.
func (w *modelWorld) plan(a *modelAgent) {
	if !a.alive || !a.looked || !w.reaches(a) {
		return
	}
	v := a.view
	for i := range v.Nodes {
		v.Nodes[i].Age = w.now - w.reports[v.Nodes[i].ID]
	}
	s := Observation{Node: a.id, Instance: a.name(), LeaseTakeable: a.over, TakeableFor: w.now - a.overAt, PhaseFor: w.now - a.phaseAt, Orchestrating: w.locker == a.name()}
	if w.rules.view != nil {
		v = w.rules.view(v)
	}
	if w.rules.sight != nil {
		w.rules.sight(&s)
	}
	act := NextAction(v, s, Policy{FenceDelay: modelFence, FlapLimit: 1000})
	a.blocked = act.Blocked
	if act.Lock && (w.locker == "" || w.now-w.locked >= modelT || s.Orchestrating) {
		w.locker, w.locked = a.name(), w.now
	}
	if w.rules.send != nil {
		act.Send = w.rules.send(act.Send)
	}
	for _, c := range act.Send {
		w.send(c)
	}
	if p := w.agentAt(act.FenceAt); p != nil && p.up && !w.cut[p.id] && !w.cut[a.id] {
		p.fence = Closed
	}
	if d := act.Update; d != nil {
		if w.rules.decide != nil {
			w.rules.decide(v.Row, d)
		}
		if w.decide(d.Row) == nil {
			w.chose(a, v.Row, d.Row)
			w.note("%s decides %s", a.name(), rowLine(d.Row))
			if w.rules.send != nil {
				d.Commands = w.rules.send(d.Commands)
			}
			for _, c := range d.Commands {
				w.send(c)
			}
			for _, id := range d.Drop {
				delete(w.records, id)
				delete(w.queues, id)
			}
		}
	}
}

// chose checks a decision by what the orchestrator could know.
func (w *modelWorld) chose(a *modelAgent, before, r Row) {
	if r.Plan == nil {
		return
	}
	if old := before.Plan; old != nil && old.Epoch == r.Plan.Epoch && (old.By != r.Plan.By || old.Kind != r.Plan.Kind) {
		w.fail("two plans have epoch %d", old.Epoch)
	}
	if before.Plan == nil && r.Plan.Kind == Failover {
		p := w.agent(before.Primary)
		since := min(w.now-p.troubled, w.now-a.troubled)
		if since > 3*modelT && p.fence != Closed && w.now-a.lookedAt <= modelI {
			w.fail("%s is deposed, and has answered for %v", p.id[:1], since)
		}
	}
	if r.Plan.Phase == Promoting && r.Plan.Kind == Failover {
		if n, ok := a.view.Node(r.Plan.To); !ok || w.now-w.reports[n.ID] > n.Timeout || n.Condition != Up {
			w.fail("%s is chosen, and was known to be dead", r.Plan.To[:1])
		}
	}
}

func (w *modelWorld) agentAt(address string) *modelAgent {
	if address == "" {
		return nil
	}
	return w.agent(sceneID(address[:1]))
}

func (w *modelWorld) decide(r Row) error {
	if r.Rev != w.row.Rev {
		return ErrChanged
	}
	w.row = r.Copy()
	w.row.Rev++
	return nil
}

func (w *modelWorld) send(c Command) {
	for _, waits := range w.queues[c.Node] {
		if waits.ID == c.ID {
			return
		}
	}
	w.queues[c.Node] = append(w.queues[c.Node], c)
}

// obey carries out one command, or continues with a promotion.
func (w *modelWorld) obey(a *modelAgent) {
	if !a.alive || !w.reaches(a) {
		return
	}
	if a.job != nil {
		w.promotion(a)
		return
	}
	q := w.queues[a.id]
	if len(q) == 0 {
		return
	}
	c := q[0]
	w.queues[a.id], w.old = q[1:], append(w.old, c)
	if _, ok := c.Check("s", a.id, a.known); !ok {
		return
	}
	if c.Epoch > a.known {
		a.results = nil
	}
	a.known = c.Epoch
	done := Result{ID: c.ID, Epoch: c.Epoch, Order: c.Order}
	switch {
	case !a.up:
		done.Error = "the node is down"
	case c.Order == OrderPromote:
		a.job = &modelJob{epoch: c.Epoch}
		w.note("%s is to become the primary under %d", a.name(), c.Epoch)
		return
	case c.Order == OrderCatchUp && a.txn() < c.Txn:
		w.queues[a.id] = append(w.queues[a.id], c)
		return
	default:
		done.Error = w.carryOut(a, c)
	}
	w.result(a, done)
}

func (w *modelWorld) carryOut(a *modelAgent, c Command) string {
	switch c.Order {
	case OrderFence:
		a.fence = Closed
	case OrderDetach:
		if a.role == Replica {
			a.detached = true
		}
	case OrderPause:
		if !a.holding {
			return "it does not hold the lease"
		}
		a.fence = Closed
	case OrderYield:
		a.fence = Closed
		w.release(a)
	case OrderFollow:
		w.demote(a, c.To)
	}
	return ""
}

func (w *modelWorld) result(a *modelAgent, done Result) {
	done.Txn, done.Lineage, done.Before = a.txn(), a.lineage, a.before
	a.results = slices.DeleteFunc(a.results, func(r Result) bool { return r.Order == done.Order && r.Epoch == done.Epoch })
	a.results = append(a.results, done)
}

// promotion does one step of becoming the primary.
func (w *modelWorld) promotion(a *modelAgent) {
	j := a.job
	giveUp := func(why string) {
		a.job, a.fence = nil, Closed
		w.release(a)
		w.note("%s gives up the promotion of %d: %s", a.name(), j.epoch, why)
		if !j.resume {
			w.result(a, Result{Epoch: j.epoch, Order: OrderPromote, Error: why})
		}
	}
	p := w.row.Plan
	switch {
	case !a.up:
		giveUp("the node is down")
		return
	case !j.resume && j.stage < 3 && (p == nil || p.Epoch != j.epoch), j.resume && w.row.Primary != a.id:
		giveUp("another plan")
		return
	}
	switch j.stage {
	case 0:
		if a.role == Replica {
			w.count++
			a.before = Lineage{a.lineage.ID, a.txn()}
			a.role, a.lineage, a.follows, a.fence, a.detached, a.copying = Primary, Lineage{ID: fmt.Sprint("L", w.count)}, "", Closed, false, 0
		}
	case 1:
		if !w.acquire(a) {
			return
		}
	case 2:
		if err := w.installs(a, j); err != nil {
			giveUp(err.Error())
			return
		}
	default:
		if !w.open(a, w.row.PrimaryEpoch) {
			giveUp("its trust is over")
			return
		}
		if !j.resume {
			w.result(a, Result{Epoch: j.epoch, Order: OrderPromote})
		}
		a.job = nil
		return
	}
	j.stage++
}

// installs writes the node into the row, and checks what only an onlooker can: that no two do under
// one epoch, and that the node has nothing that the shard never had.
func (w *modelWorld) installs(a *modelAgent, j *modelJob) error {
	install := func(r Row, node string, epoch int64, l Lineage, txn int64) (Row, error) {
		return r.WithNewPrimary(node, epoch, State{Lineage: l, Txn: txn}, 0)
	}
	if w.rules.install != nil {
		install = w.rules.install
	}
	if !a.holding || w.now >= a.trust {
		return errors.New("its trust is over")
	}
	var row Row
	if j.resume {
		if w.row.Primary != a.id || !w.row.Settled() {
			return ErrChanged
		}
		row = View{Row: w.row, Now: time.Unix(0, 0)}.ResumeRow(a.lineage)
	} else {
		var err error
		if row, err = install(w.row, a.id, j.epoch, a.lineage, a.txn()); err != nil {
			return err
		}
	}
	if err := w.decide(row); err != nil {
		return err
	}
	w.note("%s is installed: %s", a.name(), rowLine(w.row))
	if was, ok := w.install[w.row.PrimaryEpoch]; ok {
		w.fail("%s and %s are both installed under epoch %d", was[:1], a.id[:1], w.row.PrimaryEpoch)
	}
	w.install[w.row.PrimaryEpoch] = a.id
	if (len(a.data) > len(w.truth) || !slices.Equal(a.data, w.truth[:len(a.data)])) && !j.resume {
		w.fail("%s is installed and had gone its own way", a.id[:1])
	}
	w.truth = slices.Clone(a.data)
	return nil
}

// round lets every agent do everything once, after which time passes.
func (w *modelWorld) round() {
	w.tick()
	for _, a := range w.agents {
		w.turn(a)
	}
}

// turn is one time round an agent's loop.
func (w *modelWorld) turn(a *modelAgent) {
	w.look(a)
	w.stand(a)
	w.plan(a)
	for range 5 {
		w.obey(a)
	}
}

// fault does something unpleasant, or nothing.
func (w *modelWorld) fault() {
	a := w.agents[w.rand.IntN(len(w.agents))]
	switch w.rand.IntN(20) {
	case 0, 12:
		a.up, a.fence, a.copying = false, Closed, 0
		w.note("node %s dies", a.id[:1])
	case 1, 2:
		w.crash(a)
	case 3, 4, 13, 14:
		w.start(a)
	case 15, 16:
		w.cut[a.id], w.apart[a.id] = false, false
		w.note("host %s is back", a.id[:1])
	case 5:
		w.cut[a.id] = !w.cut[a.id]
		w.note("host %s is cut off: %v", a.id[:1], w.cut[a.id])
	case 6:
		w.apart[a.id] = !w.apart[a.id]
		w.note("agent %s has no store: %v", a.id[:1], w.apart[a.id])
	case 7, 8:
		if len(w.old) > 0 { // a command comes a second time, or late
			c := w.old[w.rand.IntN(len(w.old))]
			w.queues[c.Node] = append(w.queues[c.Node], c)
		}
	case 9:
		if q := w.queues[a.id]; len(q) > 0 {
			w.queues[a.id] = q[1:] // one is lost
		}
	case 10:
		w.rand.Shuffle(len(w.queues[a.id]), func(i, j int) { q := w.queues[a.id]; q[i], q[j] = q[j], q[i] })
	case 11:
		if w.row.Request == nil && w.rand.IntN(3) == 0 {
			row := w.row.Copy()
			row.Request = &Request{ID: fmt.Sprint(w.count), Kind: Switchover, By: "ann"}
			_ = w.decide(row)
		}
	}
}

func (w *modelWorld) crash(a *modelAgent) {
	if a.alive {
		a.alive, a.holding, a.job, a.results, a.looked, a.acted, a.opinion = false, false, nil, nil, false, false, nil
		w.note("agent %s crashes", a.name())
	}
}

// start starts the agent if need be, and then its node, which starts a history of its own and may
// have lost its latest writes.
func (w *modelWorld) start(a *modelAgent) {
	if !a.alive {
		a.alive, a.over, a.phase, a.seen, a.silence, a.started = true, false, "", lease.Seen{}, -1, w.now
		a.instance++
		w.note("agent %s starts", a.name())
	}
	if !a.up {
		a.up, a.role, a.fence, a.follows, a.detached = true, Primary, Closed, "", false
		a.run++
		w.count++
		a.lineage, a.before = Lineage{ID: fmt.Sprint("R", w.count)}, Lineage{}
		if w.rand.IntN(3) == 0 {
			a.data = a.data[:len(a.data)-min(len(a.data)-1, w.rand.IntN(3))]
		}
		if w.rand.IntN(2) == 0 {
			a.base = w.rand.IntN(len(a.data) + 1)
		}
		w.note("node %s starts", a.id[:1])
	}
}

// walk takes random steps, with each agent at its own pace, then lets faults cease.
func (w *modelWorld) walk(steps int) {
	for range steps {
		a := w.agents[w.rand.IntN(len(w.agents))]
		switch w.rand.IntN(16) {
		case 0, 1:
			w.tick()
		case 2, 3:
			w.look(a)
		case 4:
			w.stand(a)
		case 5, 6:
			w.plan(a)
		case 7, 8:
			w.obey(a)
		case 9:
			w.fault()
		default:
			w.turn(a)
		}
		if len(w.wrong) > 0 {
			return
		}
	}
	clear(w.cut)
	clear(w.apart)
	why := ""
	for range 400 {
		for _, a := range w.agents {
			w.start(a)
		}
		w.round()
		if why = w.unsettled(); why == "" || len(w.wrong) > 0 {
			return
		}
	}
	for _, a := range w.agents {
		if a.blocked != "" || a.shunned != "" {
			w.asked = true // a person is asked
			return
		}
	}
	w.fail("after faults ceased: %s; %s", why, readable(rowLine(w.row)))
}

// unsettled tells what is wanting until the shard is well.
func (w *modelWorld) unsettled() string {
	p := w.agent(w.row.Primary)
	switch {
	case w.row.Plan != nil || w.row.Request != nil:
		return "a plan is under way"
	case !p.accepts(w.now) || !p.holding:
		return "the primary accepts nothing"
	}
	for _, a := range w.agents {
		if n, ok := w.linked(a.modelNode); a != p && (!ok || n != p.modelNode || a.copying > 0) {
			return a.id[:1] + " does not follow"
		}
	}
	return ""
}

// calm is a switchover with nothing in its way.
func (w *modelWorld) calm() {
	row := w.row.Copy()
	row.Request = &Request{ID: "q", Kind: Switchover, By: "ann"}
	_ = w.decide(row)
	for range 60 {
		w.round()
	}
	if why := w.unsettled(); why != "" || w.row.Primary == sceneID("a") || w.row.Last.Failed != "" {
		w.fail("a switchover did not succeed: %s; %s", why, readable(rowLine(w.row)))
	}
}

// returning is an old primary that comes back with an old view when the lease is free.
func (w *modelWorld) returning() {
	a, b := w.agents[0], w.agents[1]
	w.apart[a.id], w.cut[a.id] = true, true
	for w.row.Primary == a.id && w.now < 2*time.Hour {
		w.round()
	}
	if b.opened < 2 {
		return
	}
	w.write(b)
	b.up = false
	w.look(b)
	w.cut[a.id], w.apart[a.id] = false, false
	w.stand(a)
	if a.fence != Closed {
		w.write(a)
	}
}
