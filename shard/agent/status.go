package agent

import (
	"cmp"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// statusBoard shows other goroutines what the loop knew last.
type statusBoard struct {
	mu       sync.Mutex
	status   shard.Status
	failing  time.Duration // clock reading since when the store has not answered; 0: it answers
	promised time.Duration // clock reading until when the agent has promised not to act
	changed  chan struct{}
}

// put shows a status, and wakes those who wait for a change that matters to them.
func (b *statusBoard) put(next shard.Status, failing, promised time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.status
	b.status, b.failing, b.promised = next, failing, promised
	if was.View.Row.Rev != next.View.Row.Rev || was.Holding != next.Holding || was.State.Role != next.State.Role ||
		was.Condition != next.Condition || was.Trouble != next.Trouble || len(was.View.Nodes) != len(next.View.Nodes) {
		close(b.changed)
		b.changed = make(chan struct{})
	}
}

// Status returns what the agent knows and does now.
func (a *Agent) Status() shard.Status {
	a.board.mu.Lock()
	st, failing, promised := a.board.status, a.board.failing, a.board.promised
	a.board.mu.Unlock()
	now := a.now()
	st.NodeID, st.Shard, st.Instance, st.Timeout = a.id, a.cfg.Shard, a.instance.ID, a.cfg.Timing.Timeout
	if failing != 0 {
		st.StoreDown = now - failing
	}
	st.PromisedFor = max(0, promised-now)
	st.Holding = st.Holding && a.trust.remaining() > 0
	// While the primary asks for promises, or is here, it is the one that was seen last.
	if st.StoreDown > st.Timeout && !st.Holding && st.PromisedFor == 0 {
		st.View.Stale = "its agent has not reached the store for longer than its timeout"
	}
	st.Open = a.fence.isOpen()
	if last := time.Duration(a.lastTurn.Load()); last != 0 {
		st.LoopAge = now - last
	}
	return st
}

// Changed returns a channel that is closed when the view, the node's role, or whether it is held changes.
// Take it before asking for the [Agent.Status].
func (a *Agent) Changed() <-chan struct{} {
	a.board.mu.Lock()
	defer a.board.mu.Unlock()
	return a.board.changed
}

// Shard returns the view of the agent's own shard.
func (a *Agent) Shard(name string) (shard.View, bool) {
	st := a.Status()
	if name != a.cfg.Shard || len(st.View.Nodes) == 0 && st.View.Row.Rev == 0 {
		return shard.View{}, false
	}
	return st.View, true
}

// Shards returns the one view there is.
func (a *Agent) Shards() []shard.View {
	if v, ok := a.Shard(a.cfg.Shard); ok {
		return []shard.View{v}
	}
	return nil
}

// trouble is what an operator should know first about the node. refusal is why the store does not take its record, "" within
// that record.
func (a *Agent) trouble(refusal string) string {
	return cmp.Or(a.probe.accessProblem, refusal, a.probe.unanswered, a.report.troubles(), a.process.trouble(), a.probe.warning)
}

// publish shows others what the loop knows.
func (a *Agent) publish() {
	a.board.put(shard.Status{
		View: a.view.View, Finding: a.orchestrate.action.Finding, Blocked: a.orchestrate.action.Blocked,
		State: a.probe.state, Condition: a.probe.condition, Assignment: a.reconcile.decision.Assignment,
		Holding: a.reconcile.isTrusted(), Epoch: a.knownEpoch(a.view.Row), Trouble: a.trouble(a.report.refusal),
		Registered: a.report.registered, Stats: a.stats,
	}, a.report.failing, a.promises.givenUntil)
}
