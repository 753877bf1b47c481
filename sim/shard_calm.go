package sim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// settle ends all faults. The shard has to come to rest by itself, or to say truly why it cannot.
func (w *shardWorld) settle() {
	pause(10 * time.Millisecond) // what was started at the last moment is under way
	w.heal()
	began := time.Now()
	why := w.await(w.within())
	if why != "" && w.asksForOperator() {
		// Nobody is suitable, and that is true: an operator chooses.
		w.judge.mu.Lock()
		w.judge.result.Blocked++
		w.judge.mu.Unlock()
		w.help()
		why = w.await(w.within())
	}
	if why != "" {
		w.judge.breach("%v after the last fault: %s\n%s", time.Since(began), why, w.describe())
		return
	}
	w.judge.mu.Lock()
	w.judge.result.Settled = time.Since(began)
	w.judge.mu.Unlock()
	w.rest()
	w.handOver()
}

// heal ends all faults.
func (w *shardWorld) heal() {
	w.calm.Store(true)
	w.judge.trace("all faults end")
	w.store.thaw()
	for i := range w.hosts {
		for j := range w.hosts {
			if i < j {
				w.nodes.Cut(w.hosts[i].address, w.hosts[j].address, false)
			}
		}
	}
	w.mu.Lock()
	clear(w.whisper)
	clear(w.deaf)
	w.mu.Unlock()
	for _, h := range w.hosts {
		h.setLine(lineWell)
		h.goOn()
		h.node.Lag(0)
		h.node.Sick(false)
		h.run()
		h.start()
	}
	desk := shard.Admin{Registry: judgedRegistry{w.base.Load().Registry(), w.judge}, By: "a person"}
	if err := desk.Resume(context.Background(), shardName); err != nil {
		w.judge.trace("resuming: %v", err)
	}
}

// within is how long it may take: for the last that was sent to be over, for all to report again,
// for a node to be given its time, and for plans with several tries.
func (w *shardWorld) within() time.Duration { return time.Minute + 12*w.setup.Timing.Timeout }

// await waits until the shard is settled and returns why it is not.
func (w *shardWorld) await(within time.Duration) (why string) {
	for end := time.Now().Add(within); time.Now().Before(end); pause(100 * time.Millisecond) {
		for _, h := range w.hosts {
			h.run()   // an agent may have killed it
			h.start() // a stop that was under way may have ended it
		}
		if why = w.unsettled(); why == "" {
			return ""
		}
	}
	return why
}

// unsettled is what is missing, "" when nothing is.
func (w *shardWorld) unsettled() string {
	v := w.view()
	p := w.hostOf(v.Row.Primary)
	switch {
	case v.Row.Plan != nil || v.Row.Request != nil:
		return "a plan or a request is under way"
	case p == nil:
		return "there is no primary"
	case !w.serves(p):
		return p.name + " is the primary, and does not accept writes"
	case !v.Lease.Held():
		return "nobody holds the lease"
	}
	for _, h := range w.hosts {
		if len(h.ops) > 0 || h.alive() == nil {
			return "the agent of " + h.name + " is being stopped"
		}
		s := h.node.State()
		if h == p || w.left(h) {
			continue
		}
		if _, member := v.Row.Member(h.id()); !member {
			return h.name + " is no member"
		}
		if s.Role != shard.Replica || s.Link == nil || s.Link.Address != p.address || !s.Link.Up || !s.Synced {
			return h.name + " does not follow the primary"
		}
	}
	return ""
}

// serves tells that the primary accepts writes, or rightly does not: the bound asks for more replicas
// than a person has left it.
func (w *shardWorld) serves(p *shardHost) bool {
	replicas := 0
	for _, h := range w.hosts {
		if h != p && !w.left(h) {
			replicas++
		}
	}
	return p.node.Accepts() || replicas < w.setup.MinReplicas && p.node.State().Fence == shard.Armed
}

// left tells that a node was forgotten by a person, and its agent does not take what it has for the shard's.
func (w *shardWorld) left(h *shardHost) bool {
	a := h.alive()
	return w.judge.forgotten(h) && a != nil && a.Status().Assignment == shard.AssignQuarantine
}

// asksForOperator tells that agents say that an operator has to choose, after data or a decision was lost.
func (w *shardWorld) asksForOperator() bool {
	w.judge.mu.Lock()
	lost, setBack := len(w.judge.data) > 0 || w.judge.forced, w.judge.setBack
	w.judge.mu.Unlock()
	for _, h := range w.hosts {
		a := h.alive()
		if a == nil {
			continue
		}
		if s := a.Status(); (lost || setBack) && strings.Contains(s.Blocked, "can become the primary") || setBack && strings.Contains(s.Trouble, "has lost what was decided") {
			return true
		}
	}
	return false
}

// help has the node with the most promoted.
func (w *shardWorld) help() {
	most := w.hosts[0]
	for _, h := range w.hosts {
		if len(h.node.Data()) > len(most.node.Data()) {
			most = h
		}
	}
	w.judge.trace("a person forces %s", most.name)
	desk := shard.Admin{Registry: judgedRegistry{w.base.Load().Registry(), w.judge}, By: "a person"}
	if _, err := desk.RequestPlan(context.Background(), shardName, shard.Request{Kind: shard.Failover, Force: true}, most.id()); err != nil {
		w.judge.breach("a person could not help: %v", err)
	}
}

// rest checks that a settled shard stays as it is, and has what it acknowledged.
func (w *shardWorld) rest() {
	t := w.setup.Timing.Timeout
	pause(3 * t)
	before := w.view().Row
	p := w.hostOf(before.Primary)
	for end := time.Now().Add(4 * t); time.Now().Before(end); pause(50 * time.Millisecond) {
		if p != nil && !w.serves(p) {
			w.judge.breach("%s does not accept writes any more, without a fault\n%s", p.name, w.describe())
			return
		}
	}
	after := w.view().Row
	if before.Primary != after.Primary || before.Epoch != after.Epoch {
		w.judge.breach("the primary changed without a fault: %.8s (%d), then %.8s (%d)\n%s", before.Primary, before.Epoch, after.Primary, after.Epoch, w.describe())
		return
	}
	w.judge.mu.Lock()
	kept := make([]int64, 0, len(w.judge.kept))
	for id := range w.judge.kept {
		kept = append(kept, id)
	}
	w.judge.mu.Unlock()
	pause(time.Second)
	for _, h := range w.hosts {
		if w.left(h) {
			continue
		}
		has, n := dataOf(h), 0
		for _, id := range kept {
			if !has[id] {
				n++
			}
		}
		if n > 0 {
			w.judge.breach("%s lacks %d acknowledged writes in the end", h.name, n)
		}
	}
}

// handOver has a settled shard switched over, which succeeds with nothing in its way.
func (w *shardWorld) handOver() {
	before := w.view().Row
	for _, h := range w.hosts {
		if w.left(h) {
			return
		}
		// Until a promise of the time of the faults ends, its node may not become the primary.
		for end := time.Now().Add(w.within()); time.Now().Before(end) && h.alive() != nil && h.alive().Status().PromisedFor > 0; {
			pause(time.Second)
		}
	}
	desk := shard.Admin{Registry: judgedRegistry{w.base.Load().Registry(), w.judge}, By: "a person"}
	_, err := desk.RequestPlan(context.Background(), shardName, shard.Request{Kind: shard.Switchover}, "")
	why := w.await(w.within())
	if after := w.view().Row; err != nil || why != "" || after.Primary == before.Primary {
		w.judge.breach("the switchover of a settled shard did not succeed: %v %s; %s\n%s", err, why, planText(after.Last), w.describe())
	}
}

func (w *shardWorld) describe() string {
	v := w.view()
	var b strings.Builder
	fmt.Fprintf(&b, "row epoch %d primary %.8s/%d plan %s request %+v last %s lease %+v\n", v.Row.Epoch, v.Row.Primary, v.Row.PrimaryEpoch, planText(v.Row.Plan), v.Row.Request, planText(v.Row.Last), v.Lease)
	for _, h := range w.hosts {
		s := h.node.State()
		fmt.Fprintf(&b, "%s %.8s: %s txn %d lineage %.4s… before %+v fence %s synced %t keys %d run %s link %+v running %t\n", h.name, h.id(), s.Role, s.Txn, s.Lineage.ID[36:], s.Before, s.Fence, s.Synced, s.Keys, s.Run[36:], s.Link, h.node.Running())
		if a := h.alive(); a != nil {
			st := a.Status()
			fmt.Fprintf(&b, "   stance %s condition %s holding %t open %t blocked %q trouble %q finding %+v down %v promised %v\n", st.Assignment, st.Condition, st.Holding, st.Open, st.Blocked, st.Trouble, st.Finding, st.StoreDown, st.PromisedFor)
		}
	}
	for _, r := range v.Nodes {
		fmt.Fprintf(&b, "record of %.8s: %s, fence %s, age %v, results %+v\n", r.ID, r.Condition, r.Fence, r.Age, r.Results)
	}
	return b.String()
}
