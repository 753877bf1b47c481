package shard

import (
	"fmt"
	"time"
)

// possibleAcknowledgers are the nodes whose acknowledgements may keep the armed fence of a silent primary open, and
// which no plan could detach. Silence proves nothing while there are enough of them: a cut may have left them on the
// primary's side. own is the primary's last record.
func (v View) possibleAcknowledgers(seen Observation, own Record, fenceDelay time.Duration) (left []string) {
	for _, id := range v.possibleReplicas() {
		r, reports := v.Node(id)
		op, asked := v.opinionOf(id, seen)
		switch {
		// Its process has ended, or its agent lives and detaches it before anybody is promoted. One that hangs cannot
		// be detached, and acknowledges when it continues.
		case reports && r.Live() && r.Condition != Silent:
		// Nothing listens at its address: it is taken not to run, as a primary that refuses connections is.
		case asked && op.Reachability == Refused:
		// The orchestrator detaches it from its own host.
		case asked && op.Reachability == Reachable:
		// It was away when the primary's agent was still there to see that.
		case v.wasAway(id, own, fenceDelay):
		case reports:
			left = append(left, r.Label())
		default:
			left = append(left, fmt.Sprintf("node %.8s", id))
		}
	}
	return left
}

// notDetached are the nodes that have not left the old primary of a plan, as far as is known: each may keep its
// armed fence open. A node that has is one whose detachment was acknowledged under the plan's epoch, that is seen to
// follow someone else or nobody, or whose process does not run.
func (v View) notDetached(seen Observation, p Plan, fenceDelay time.Duration) (left []Record) {
	own, _ := v.Node(p.From)
	for _, id := range v.possibleReplicas() {
		r, reports := v.Node(id)
		op, asked := v.opinionOf(id, seen)
		done, ok := r.ResultOf(p.Epoch, OrderDetach)
		live := reports && r.Live()
		switch {
		case ok && done.Error == "":
		case live && (r.Condition == Down || r.Role == Primary || r.Link.Detached() || r.PrimaryID != "" && r.PrimaryID != p.From):
		case !live && asked && (op.Reachability == Refused || op.Reachability == Reachable && (op.Link == nil || op.Link.Detached())):
		case !live && v.wasAway(id, own, fenceDelay):
		default:
			r.ID, r.Address = id, v.AddressOf(id)
			left = append(left, r)
		}
	}
	return left
}

// possibleReplicas are the nodes that may follow the primary: its members, and whoever said so last.
func (v View) possibleReplicas() (ids []string) {
	for _, m := range v.Row.Members {
		if m.ID != v.Row.Primary {
			ids = append(ids, m.ID)
		}
	}
	for _, r := range v.Nodes {
		if _, member := v.Row.Member(r.ID); !member && r.PrimaryID == v.Row.Primary && r.ID != v.Row.Primary {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// wasAway reports whether a node had neither an agent that reported nor a link when the primary's agent reported last.
// It can have come back since only if its agent died, its node lived, and a cut ended at the moment at which another
// began: that is not counted with.
func (v View) wasAway(id string, own Record, fenceDelay time.Duration) bool {
	if r, reports := v.Node(id); reports && r.Age < own.Age+r.Timeout {
		return false
	}
	for _, f := range own.Followers {
		// One without an id may be anybody.
		if (f.ID == id || f.ID == "") && f.Lag <= fenceDelay {
			return false
		}
	}
	return own.ID != ""
}
