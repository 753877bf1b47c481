package shard

import (
	"cmp"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// Assignment is what an agent does with its node as long as no command says otherwise.
type Assignment string

// Assignments. Where the lease is given up, the fence is closed before.
const (
	// AssignLead: be the primary: take the lease, decide again, and open or arm the fence if it is still so.
	AssignLead       Assignment = "lead"
	AssignBootstrap  Assignment = "bootstrap"  // make the shard, with this node as its first primary
	AssignResume     Assignment = "resume"     // be the primary again under a new epoch: a restart cut its history; a replica is promoted first
	AssignFollow     Assignment = "follow"     // follow the primary, as it does, or by making it; give the lease up
	AssignFence      Assignment = "fence"      // keep the fence closed, give the lease up
	AssignKeep       Assignment = "keep"       // leave the node, its fence and the lease as they are
	AssignQuarantine Assignment = "quarantine" // keep the fence closed, give the lease up, and say why: Condition Quarantined
)

// Decision is an assignment, with what it needs.
type Decision struct {
	Assignment Assignment
	Why        string
	// Address to follow, on AssignFollow.
	Address string
}

// Self is an agent and its node, as they are now.
type Self struct {
	ID    string
	State State
	Saved SavedState
	// Holding: the node may be open. The agent holds the shard's lease and trusts it, or the store is down and all other
	// members have promised not to replace the node ([Promise]).
	Holding bool
	// Address of the node, as others know it.
	Address string
	// RunSeenFor is how long the agent has seen this run of the node's process.
	RunSeenFor time.Duration
	// PromotedRun is the run that a plan made the primary; "": none. What that one lacks was decided with the plan.
	PromotedRun string
	// NoShardFor is how long the agent has seen that there is no such shard.
	NoShardFor time.Duration
	// DiscardData: an operator said that whatever the node holds may be lost.
	DiscardData bool
}

// Decide returns what an agent does about its node, given the view. It is pure.
func Decide(v View, me Self) Decision {
	row := v.Row
	switch lost := v.lostDecisions(); {
	// The store knows nothing of the shard: it is new, or the store came back empty.
	case row.Rev == 0:
		return decideWithoutShard(v, me)
	// Epochs only grow, so this row is older than what was decided. Acting on it could open a second primary.
	case me.Saved.Epoch > row.Epoch:
		return Decision{Assignment: AssignFence, Why: fmt.Sprintf("the store knows epoch %d, and %d has begun here: it has lost what was decided last. To go on with the node that has the newest data: understudy shard failover %s --to NODE --force",
			row.Epoch, me.Saved.Epoch, row.Name)}
	// The same, as others tell: this node would lead beside what they know of, or have it copied over.
	case len(lost) > 0:
		return Decision{Assignment: AssignFence, Why: fmt.Sprintf("%s: %s. To go on with the node that has the newest data: understudy shard failover %s --to NODE --force", lost[0].Node, lost[0].Why, row.Name)}
	// While a plan replaces the primary, commands decide; this only keeps what must stay closed closed.
	case !row.Settled():
		return decideDuringPlan(*row.Plan, row.Primary, me)
	case row.Primary == me.ID:
		return decideAsPrimary(v, me)
	}
	return decideAsReplica(v, me)
}

// decideDuringPlan is about every node while a plan decides by commands. The primary that there
// is stays one, with its fence as the commands leave it, as long as it has the lease; so does
// the one that is being promoted. No other has a use for the lease.
func decideDuringPlan(p Plan, primary string, me Self) Decision {
	const why = "a plan is under way"
	ours := me.ID == primary || me.ID == p.To && p.Phase == Promoting
	// Whoever holds the lease without being named keeps the named one from taking it. A primary without the
	// lease may have been replaced already.
	if me.Holding && !ours || !me.Holding && me.State.Role == Primary {
		return Decision{Assignment: AssignFence, Why: why}
	}
	return Decision{Assignment: AssignKeep, Why: why}
}

// decideWithoutShard is about a shard that does not exist yet.
func decideWithoutShard(v View, me Self) Decision {
	// It follows a server outside the shard, or one whose agent makes the shard: not ours to change.
	if me.State.Role == Replica && !me.State.Link.Detached() {
		return Decision{Assignment: AssignKeep, Why: "the shard has no primary yet; this node is a replica"}
	}
	// How many keys it has is not known before it has loaded them.
	if me.State.Loading {
		return Decision{Assignment: AssignFence, Why: "it is loading its data"}
	}
	// Followers that report become members with the shard, and can take over from its first moment on.
	if me.hasUnreportedFollowers(v) {
		return Decision{Assignment: AssignKeep, Why: "the shard does not exist yet, and not all who follow this node have reported"}
	}
	// The store came back empty: a primary that was deposed may be back before the one that deposed it has reported.
	if why := me.betterFounder(v); why != "" {
		return Decision{Assignment: AssignFence, Why: why}
	}
	// Data goes before rank. With data on two nodes the first update of the row wins, and the other is
	// quarantined: nothing is overwritten.
	if me.State.Keys > 0 {
		return Decision{Assignment: AssignBootstrap}
	}
	// Store and node both came back empty: a replica may have all of it, and would copy the emptiness.
	if saved := me.Saved; saved.Keys > 0 && !me.DiscardData {
		return Decision{Assignment: AssignFence, Why: fmt.Sprintf("the store knows nothing of the shard, and this node came back empty; it had %d keys", saved.Keys)}
	}
	// An empty primary would have the one with data copy nothing over it.
	for _, r := range v.Nodes {
		if r.ID != me.ID && r.Live() && r.Condition == Up && r.Keys > 0 {
			return Decision{Assignment: AssignFence, Why: fmt.Sprintf("the shard has no primary yet, and %s has data; this node has none", r.Label())}
		}
	}
	// Nobody has data. The node that others follow already saves them a copy.
	if len(me.State.Followers) > 0 {
		return Decision{Assignment: AssignBootstrap}
	}
	// All are equal: the lowest id, so that not all try at once.
	for _, r := range v.Nodes {
		better := len(r.Followers) > 0 || r.ID < me.ID
		if r.ID != me.ID && r.Live() && r.Condition == Up && (r.Role == Primary || r.Link.Detached()) && better {
			return Decision{Assignment: AssignFence, Why: fmt.Sprintf("the shard has no primary yet; %s has more of a claim", r.Label())}
		}
	}
	return Decision{Assignment: AssignBootstrap}
}

// betterFounder is why a node that had a shard does not make it again: another continues with what came later, or may
// not have reported yet. An agent that was never in a shard knows no epoch, and waits for nobody.
func (me Self) betterFounder(v View) string {
	if me.Saved.Epoch == 0 {
		return ""
	}
	own, _ := v.Node(me.ID)
	for _, r := range v.Nodes {
		free := r.Condition == Up && (r.Role == Primary || r.Link.Detached())
		switch {
		case r.ID == me.ID || !r.Live():
		// What was decided last is with it, whether it can lead or not.
		case r.Epoch > me.Saved.Epoch:
			return fmt.Sprintf("the store knows nothing of the shard any more, and %s knows epoch %d of it, this node only %d", r.Label(), r.Epoch, me.Saved.Epoch)
		// It was promoted from what this node has.
		case r.Before.ID != "" && r.Before.ID == me.State.Lineage.ID && r.Role == Primary:
			return fmt.Sprintf("the store knows nothing of the shard any more, and %s went on with this node's data", r.Label())
		// Of two that know the same, the one that was a primary until now, then the one with more.
		case r.Epoch < me.Saved.Epoch || !free || r.Keys == 0:
		case r.Role == Primary && me.State.Role == Replica, r.Role == me.State.Role && r.Lineage.ID == me.State.Lineage.ID && r.Txn > me.State.Txn:
			return fmt.Sprintf("the store knows nothing of the shard any more, and %s has more of a claim to it", r.Label())
		}
	}
	if t := cmp.Or(own.Timeout, lease.DefaultTimeout); me.NoShardFor < t {
		return fmt.Sprintf("the store knows nothing of the shard any more; others have %v to report what they know", t)
	}
	return ""
}

// hasUnreportedFollowers reports whether the node has followers which may be members of the shard from its first moment on,
// and of which the store does not know that yet. They are waited for as long as a record is believed.
func (me Self) hasUnreportedFollowers(v View) bool {
	own, _ := v.Node(me.ID)
	followers, joined := 0, 0
	for _, f := range me.State.Followers {
		if f.Online {
			followers++
		}
	}
	for _, n := range v.Nodes {
		if n.isSyncedReplicaOf(own) {
			joined++
		}
	}
	return joined < followers && me.NoShardFor < cmp.Or(own.Timeout, lease.DefaultTimeout)
}

// decideAsPrimary is about the node that the row names.
func decideAsPrimary(v View, me Self) Decision {
	d := decideBySavedState(v, me)
	s, saved := me.State, me.Saved
	interrupted := s.Run != "" && s.Run != saved.Run && s.Run != me.PromotedRun && !(saved.Run == "" && me.Holding)
	if d.Assignment != AssignLead && d.Assignment != AssignResume || !interrupted {
		return d
	}
	// The agent's own file does not prove that nothing was lost: it is written once a second, and may come from the
	// same backup as the data.
	if why := v.longerCopy(me); why != "" {
		return Decision{Assignment: AssignQuarantine, Why: "it was restarted, and " + why}
	}
	if why := v.unseenMember(me); why != "" {
		return Decision{Assignment: AssignFence, Why: why}
	}
	if why := v.shorterLog(me); why != "" {
		return Decision{Assignment: AssignFence, Why: why}
	}
	return d
}

// decideBySavedState is decideAsPrimary as far as the agent's own file tells what the node had.
func decideBySavedState(v View, me Self) Decision {
	last := v.Row.lineage()
	s, saved := me.State, me.Saved
	// A node that its agent starts is a replica of nobody at first, and a configuration file that
	// calls it a replica is heard again at every restart.
	restarted := saved.NodeID == me.ID && saved.Run != "" && s.Run != saved.Run
	switch {
	// What it has is not known before it is loaded.
	case s.Loading:
		return Decision{Assignment: AssignFence, Why: "it is loading its data"}
	// Its agent started it so. Txn proves that the restart lost nothing.
	case s.Role == Replica && s.Link.Detached() && saved.HasAllData(s) && s.Lineage.ID == last && s.Txn >= saved.Txn:
		return Decision{Assignment: AssignResume, Why: "it follows nobody, and has all that it had"}
	// An operator, or another tool, sent REPLICAOF to a running primary: it may copy from anywhere by now.
	case s.Role == Replica && !restarted:
		return Decision{Assignment: AssignQuarantine, Why: "the shard names it as its primary, but it was made a replica"}
	// Restarted with "replicaof" in its configuration, and proved to have lost nothing.
	case s.Role == Replica && saved.HasAllData(s) && s.Lineage.ID == last:
		return Decision{Assignment: AssignResume, Why: "it was restarted as a replica, and has all that it had"}
	// As above, without the proof: the server it follows may overwrite what is left.
	case s.Role == Replica && !s.Link.Detached():
		return Decision{Assignment: AssignQuarantine, Why: "the shard names it as its primary, but it was restarted as a replica, and may have lost data"}
	// The same history: it is whole while its agent holds the lease, or if it has not gone back. Without a
	// saved state of this history there is nothing to compare with.
	case s.Role == Primary && s.Lineage.ID == last && (me.Holding || s.Txn >= saved.Txn || saved.Lineage.ID != last):
		return Decision{Assignment: AssignLead}
	// It was promoted before its agent could write that into the row: the new history starts where the old one ends.
	case s.Role == Primary && last != "" && s.Before.ID == last && s.Txn == s.Before.End && s.Txn >= saved.Txn:
		return Decision{Assignment: AssignResume, Why: "it was promoted, and has all that it had"}
	// The same process: only the name of its history is new.
	case saved.IsUninterrupted(s):
		return Decision{Assignment: AssignLead}
	// Replicas would copy the emptiness.
	case s.Keys == 0 && saved.Keys > 0 && !me.DiscardData:
		return Decision{Assignment: AssignQuarantine, Why: fmt.Sprintf("it came back empty, and had %d keys", saved.Keys)}
	// The data folder is new as well: nothing proves that it was empty before.
	case s.Keys == 0 && saved.NodeID != me.ID && !me.DiscardData:
		return Decision{Assignment: AssignQuarantine, Why: "it is empty, and nothing is known of what it had"}
	}
	// It may have lost data. Whoever certainly has not goes first …
	least, _ := v.leastOf(me)
	if best, _ := choosePrimary(v, choice{from: me.ID, least: least}); best != "" {
		return Decision{Assignment: AssignQuarantine, Why: "it was restarted, and a replica that was not has at least as much"}
	}
	// … and whoever has not reported yet may be such a one.
	if why := v.awaitedReport(me); why != "" {
		return Decision{Assignment: AssignFence, Why: why}
	}
	return Decision{Assignment: AssignResume, Why: "it was restarted, and no replica has a better copy"}
}

// leastOf is where a restarted primary stands in the shard's history, if its data tells. Otherwise it has kept all that
// it had, or lost it all: a node that lacks what it certainly had is no better.
func (v View) leastOf(me Self) (at int64, certain bool) {
	s, saved := me.State, me.Saved
	if at, certain = v.Row.position(Record{Lineage: s.Lineage, Before: s.Before, Txn: s.Txn}); certain {
		return at, true
	}
	had, _ := v.Row.position(Record{Lineage: saved.Lineage, Txn: saved.Txn})
	return max(had, v.Row.began()), false
}

// longerCopy is why a primary that was restarted lacks data: a member that lives has more of the same lineage, also one
// that was promoted out of it and never opened, because its plan failed.
func (v View) longerCopy(me Self) string {
	last := v.Row.lineage()
	at, certain := v.leastOf(me)
	for _, r := range v.Nodes {
		if _, member := v.Row.Member(r.ID); !member || r.ID == me.ID || !r.Live() || !r.Synced || r.Lineage.ID != last && r.Before.ID != last {
			continue
		}
		its, _ := v.Row.position(r)
		switch {
		case certain && its > at:
			return fmt.Sprintf("%s has more: it stands at %d, and this node at %d", r.Label(), its, at)
		case !certain && its > 0 && its >= at:
			return fmt.Sprintf("%s may have more: it stands at %d, and this node does not tell where it stands", r.Label(), its)
		}
	}
	return ""
}

// unseenMember is which member's report a restarted primary waits for, as it may have more.
func (v View) unseenMember(me Self) string {
	own, _ := v.Node(me.ID)
	for _, m := range v.Row.Members {
		r, live := v.answeringMember(m)
		switch {
		case m.ID == me.ID:
		case live && r.Condition == Loading:
			return v.awaitLoading(r, me)
		// A report tells of a probe up to an interval older: only one made since this run began tells all that it had of the one before.
		case live && me.RunSeenFor <= r.Age+r.Interval:
			return fmt.Sprintf("it was restarted; %s has not reported since, and may have more", r.Label())
		// An agent that starts at the same time needs T to report, and another T to be taken for dead.
		case !live && me.RunSeenFor < 3*own.Timeout:
			return v.awaitMember(m, me, 3*own.Timeout)
		}
	}
	return ""
}

// awaitLoading tells of a member that has not told yet what it has: it is waited for, however long that takes.
func (v View) awaitLoading(r Record, me Self) string {
	return fmt.Sprintf("it was restarted, and may lack data; %s is loading what it has, which may be more. To go on now: understudy shard failover %s --to %.8s --force", r.Label(), v.Row.Name, me.ID)
}

// awaitMember tells of a member that is waited for, and how to go on without it.
func (v View) awaitMember(m Member, me Self, most time.Duration) string {
	return fmt.Sprintf("it was restarted, and may lack data; it waits up to %v for node %.8s at %s, which may have more. To go on now: understudy shard failover %s --to %.8s --force",
		most, m.ID, m.Address, v.Row.Name, me.ID)
}

// awaitedReport is what a primary that may have lost data waits for before it continues with what is left: the reports of
// others that may have more. After a minute those who are silent are taken to be dead.
func (v View) awaitedReport(me Self) string {
	own, _ := v.Node(me.ID)
	// Agents that start with it need T to report, and another T to be taken for dead.
	if me.RunSeenFor < 3*own.Timeout {
		return "it was restarted; its replicas have not reported yet"
	}
	for _, m := range v.Row.Members {
		r, live := v.answeringMember(m)
		switch {
		case m.ID == me.ID:
		case live && r.Condition == Loading:
			return v.awaitLoading(r, me)
		case !live && me.RunSeenFor < max(maxReportWait, 3*own.Timeout):
			return v.awaitMember(m, me, maxReportWait)
		}
	}
	return ""
}

// maxReportWait is how long a primary that may have lost data waits for members that do not report.
const maxReportWait = time.Minute

// waitsForPrimary reports whether a replica that follows nobody leaves it so: nobody leads the shard, and the primary does
// not run, or would have it copy everything, over what only the replica may have. A primary whose agent is dead may serve
// its clients, and has it copy what they write.
func (v View) waitsForPrimary(s State) bool {
	r, known := v.Node(v.Row.Primary)
	if !known || !r.Live() || v.isLed() {
		return false
	}
	return r.Condition == Down || r.Condition == Loading || r.Lineage.ID != s.Lineage.ID && r.Before.ID != s.Lineage.ID
}

// decideAsReplica is about every other node.
func decideAsReplica(v View, me Self) Decision {
	row, s := v.Row, me.State
	_, member := row.Member(me.ID)
	ours, diverged := row.knowsLineage(Record{Lineage: s.Lineage, Before: s.Before, Txn: s.Txn})
	address := v.AddressOf(row.Primary)
	switch {
	// It would have to follow itself.
	case address != "" && address == me.Address:
		return Decision{Assignment: AssignFence, Why: fmt.Sprintf("its address is that of the primary, node %.8s, whose data folder is not this one: start the agent with that folder. Otherwise a replica takes its place once others have found it closed for T", row.Primary)}
	// It does already. Whether its data was the shard's does not matter any more: it has been copied over.
	case s.Role == Replica && s.Link != nil && s.Link.Address == address:
		return Decision{Assignment: AssignFollow, Address: address}
	// Without its lineage it cannot be told from a node with data of its own.
	case s.Loading:
		return Decision{Assignment: AssignFence, Why: "it is loading its data"}
	case address == "":
		return Decision{Assignment: AssignFence, Why: "the primary's address is not known"}
	// In the phase following the orchestrator lets only a few replicas copy at once.
	case member && row.Plan != nil && s.Role == Replica:
		return Decision{Assignment: AssignKeep, Why: "the plan under way leads it to the new primary when it is its turn"}
	// The same, for a former primary, which must not stay open meanwhile.
	case member && row.Plan != nil:
		return Decision{Assignment: AssignFence, Why: "the plan under way leads it to the new primary when it is its turn"}
	// It was promoted, and its plan failed before it was opened. It may have what the primary lacks, and following would
	// hide that at its next promotion.
	case member && s.Role == Primary && s.Before.ID == row.lineage() && !v.isLed():
		return Decision{Assignment: AssignFence, Why: "it was promoted by a plan that failed; it waits until the primary goes on, or another plan replaces that"}
	// The same for one that a plan that failed has detached: it may have more than a primary that was restarted.
	case member && s.Role == Replica && s.Link.Detached() && s.Keys > 0 && v.waitsForPrimary(s):
		return Decision{Assignment: AssignFence, Why: "it follows nobody, and may have more than the primary: it waits until that leads again, or is replaced"}
	// Nothing is lost by copying: it had the shard's data, or none, or an operator said so.
	case member || ours && !diverged || s.Keys == 0 || me.DiscardData:
		return Decision{Assignment: AssignFollow, Address: address}
	// It went on where the shard did not: the shard was made again from an older node, say.
	case ours:
		return Decision{Assignment: AssignQuarantine, Why: fmt.Sprintf("it has diverged: its last transactions, up to %d, were never this shard's; to lose them and join: --discard-data", s.Txn)}
	// Data of its own is never overwritten unasked. The two texts differ in where that data comes from.
	case s.Role == Replica && s.Link != nil && s.Link.Address != "":
		return Decision{Assignment: AssignQuarantine, Why: fmt.Sprintf("it follows %s, and its %d keys were never this shard's; to lose them and join: --discard-data", s.Link.Address, s.Keys)}
	}
	return Decision{Assignment: AssignQuarantine, Why: fmt.Sprintf("its %d keys were never this shard's (lineage %.8s); to lose them and join: --discard-data", s.Keys, s.Lineage.ID)}
}
