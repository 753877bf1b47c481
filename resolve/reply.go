package resolve

import (
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/elect"
)

// isOf reports whether a reply is one of this API about the name, and not any JSON: a role that has no holder is an error there.
func isOf(n Name, r apitype.RoleHolders, s apitype.Shard) bool {
	if n.Kind == Role {
		return r.Role == n.Of && len(r.Primaries) > 0
	}
	return s.Name == n.Of
}

// ofRoleReply is the answer of what a server said of a role that it read at most age ago.
func ofRoleReply(n Name, r apitype.RoleHolders, age, most time.Duration) (Answer, error) {
	role := elect.Role{Name: n.Of}
	for _, p := range r.Primaries {
		expires := time.Duration(p.ExpiresInMS) * time.Millisecond
		role.Primary = append(role.Primary, elect.Primary{ID: p.ID, Name: p.Name, Address: p.Address, Term: p.Term, ExpiresIn: expires})
	}
	return OfRole(role, age, most)
}

// ofShardReply is the answer of what a server said of a shard. It knew it for age, of which the part that the server told is
// rounded down to whole seconds.
func ofShardReply(n Name, s apitype.Shard, age, most time.Duration) (Answer, error) {
	left := time.Duration(s.LeftMS) * time.Millisecond
	// Not by the age that it may have had at most: a lease of a second would have ended in every answer.
	if n.Kind == Primary && s.Primary != nil && left > 0 && left <= age {
		return Answer{Name: n}, stale(n, age)
	}
	if age >= most {
		return Answer{Name: n}, stale(n, age)
	}
	age += time.Second // it was rounded down
	a := Answer{Name: n, TTL: max(0, most-age)}
	if n.Kind == Primary && s.Primary != nil {
		a.Holders = []Holder{{ID: s.Primary.NodeID, Address: s.Primary.Address, Term: s.Primary.Epoch}}
		a.TTL = max(0, min(a.TTL, left-age))
		if s.Plan != nil || s.Request != nil {
			a.TTL = 0
		}
	}
	if n.Kind == Replica {
		for _, r := range s.Nodes {
			if r.Role == "replica" && !r.Primary && r.Condition == "up" && r.AgentLives && r.InStep && r.LinkUp != nil && *r.LinkUp {
				a.Holders = append(a.Holders, Holder{ID: r.ID, Address: r.Address})
			}
		}
		a.TTL = min(a.TTL, time.Second)
	}
	return a.checked(false, age)
}
