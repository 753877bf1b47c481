package shard

import (
	"time"
)

// Status is an agent as it is now.
type Status struct {
	NodeID   string  `json:"node_id"`
	Shard    string  `json:"shard"`
	Instance string  `json:"instance"`
	View     View    `json:"view"`    // as the store showed it last
	Finding  Finding `json:"finding"` // about the primary
	// State of the node, and its condition.
	State     State     `json:"state"`
	Condition Condition `json:"condition"`
	Stance    Stance    `json:"stance"`
	// Holding: the node may be open: its lease is held and trusted, or all others have promised.
	Holding bool `json:"holding"`
	// Open: the fence was opened or armed under that.
	Open  bool  `json:"open"`
	Epoch int64 `json:"epoch"` // the highest known
	// Blocked is why nothing is done about a primary that is over.
	Blocked string `json:"blocked,omitempty"`
	// Trouble is what a person should know about this node.
	Trouble string `json:"trouble,omitempty"`
	// StoreDown is for how long the store has not answered; 0: it does.
	StoreDown time.Duration `json:"store_down_ns"`
	// PromisedFor is for how much longer the agent has promised not to act.
	PromisedFor time.Duration `json:"promised_for_ns"`
	// Registered: the store has accepted a record of this run.
	Registered bool `json:"registered"`
	// LoopAge is how long ago the agent's loop last went round.
	LoopAge time.Duration `json:"loop_age_ns"`
	// Timeout of the session and of records.
	Timeout time.Duration `json:"timeout_ns"`
	Stats   Stats         `json:"stats"`

	downSince, promised time.Duration
}

// Stats counts what an agent did since it began.
type Stats struct {
	Plans    int64 `json:"plans"`    // begun as the orchestrator
	Opened   int64 `json:"opened"`   // times that the fence was opened
	Fenced   int64 `json:"fenced"`   // times that trust ended with the node open
	Deaths   int64 `json:"deaths"`   // of the node, seen
	Kills    int64 `json:"kills"`    // of a hung node
	Promised int64 `json:"promised"` // rounds in which all others promised
	Commands int64 `json:"commands"` // carried out
}

// Status returns what the agent knows and does now.
func (a *Agent) Status() Status {
	a.statusMu.Lock()
	st := a.status
	a.statusMu.Unlock()
	now := a.cfg.Clock.Now()
	st.NodeID, st.Shard, st.Instance, st.Timeout = a.id, a.cfg.Shard, a.instance.ID, a.cfg.Timing.Timeout
	if st.downSince != 0 {
		st.StoreDown = now - st.downSince
	}
	st.PromisedFor = max(0, st.promised-now)
	st.Holding = st.Holding && a.trust.remaining() > 0
	st.Open = a.gate.isOpen()
	if round := time.Duration(a.round.Load()); round != 0 {
		st.LoopAge = now - round
	}
	return st
}

// Changed returns a channel that is closed when the view, the node's role, or whether it is
// held changes. Take it before asking for the [Status].
func (a *Agent) Changed() <-chan struct{} {
	a.statusMu.Lock()
	defer a.statusMu.Unlock()
	return a.changed
}

// Shard returns the view of the agent's own shard.
func (a *Agent) Shard(name string) (View, bool) {
	st := a.Status()
	if name != a.cfg.Shard || len(st.View.Nodes) == 0 && st.View.Row.Rev == 0 {
		return View{}, false
	}
	return st.View, true
}

// Shards returns the one view there is.
func (a *Agent) Shards() []View {
	if v, ok := a.Shard(a.cfg.Shard); ok {
		return []View{v}
	}
	return nil
}

// publish makes what the loop knows visible to others.
func (a *Agent) publish(now time.Duration) {
	s := &a.s
	trouble := s.trouble
	for _, t := range []string{s.refused, s.access} {
		if t != "" {
			trouble = t
		}
	}
	next := Status{View: s.view, Finding: s.action.Finding, State: s.node, Condition: s.condition, Stance: s.bearing.Stance,
		Holding: a.holding(), Epoch: max(a.folder.memory().Epoch, s.view.Row.Epoch), Blocked: s.action.Blocked, Trouble: trouble,
		downSince: s.failing, promised: s.promised, Registered: s.registered, Stats: s.stats}
	a.statusMu.Lock()
	defer a.statusMu.Unlock()
	was := a.status
	a.status = next
	if was.View.Row.Rev != next.View.Row.Rev || was.Holding != next.Holding || was.State.Role != next.State.Role ||
		was.Condition != next.Condition || was.Trouble != next.Trouble || len(was.View.Nodes) != len(next.View.Nodes) {
		close(a.changed)
		a.changed = make(chan struct{})
	}
}
