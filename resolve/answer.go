package resolve

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/shard"
)

// DefaultMaxAge is how long an answer may be believed at most, unless told otherwise.
const DefaultMaxAge = 5 * time.Second

// Empty is how long it may be believed at most that nobody holds a name, or that nothing
// has it: someone may be about to.
const Empty = time.Second

// Holder is one who stands behind a name.
type Holder struct {
	ID      string `json:"id"`
	Name    string `json:"name,omitempty"` // of an instance, for people; nodes have none
	Address string `json:"address"`        // for clients, as the holder told it; "" if it told none
	Term    int64  `json:"term"`           // of a role's holder; of a primary its epoch; 0 of a replica
}

// Answer is what a name stands for.
type Answer struct {
	Name Name `json:"name"`
	// Holders of a role in the order of its places, the primary of a shard, or its replicas by id.
	// Empty: the name exists and has no holder.
	Holders []Holder `json:"holders"`
	// TTL is how long it may be believed from now; with 0 it holds now and is not to be
	// remembered.
	TTL time.Duration `json:"-"`
}

// Equal tells that two answers name the same holders, addresses and terms.
func (a Answer) Equal(b Answer) bool {
	return a.Name == b.Name && slices.Equal(a.Holders, b.Holders)
}

// OfRole is the answer for a role as it was read age ago, believed for at most most after
// the reading. [ErrStale] when nothing of it can be believed any more.
func OfRole(r elect.Role, age, most time.Duration) (Answer, error) {
	n := Name{Role, r.Name}
	a := Answer{Name: n, TTL: most - age}
	if a.TTL <= 0 {
		return Answer{Name: n}, stale(n, age)
	}
	held := false
	for _, p := range r.Primary {
		if p.ExpiresIn <= 0 {
			continue // of another boot of this host, or over
		}
		held = true
		if left := p.ExpiresIn - age; left > 0 {
			a.TTL = min(a.TTL, left)
			a.Holders = append(a.Holders, Holder{p.ID, p.Name, p.Address, p.Term})
		}
	}
	return a.checked(held, age)
}

// OfShard is the answer for the primary or the replicas of a shard whose view was read age
// ago. Errors as of [OfRole].
func OfShard(v shard.View, kind Kind, age, most time.Duration) (Answer, error) {
	n := Name{kind, v.Row.Name}
	if most <= age {
		return Answer{Name: n}, stale(n, age)
	}
	if kind == Replica {
		return replicas(v, n, age, most)
	}
	a := Answer{Name: n, TTL: most - age}
	at, err := v.PrimaryEndpoint()
	if err != nil {
		return a.checked(false, age)
	}
	left := v.Lease.Remaining - age
	held := v.Lease.HasLiveHolder()
	switch {
	case held && left <= 0: // also if it was about to move: it may have
		return Answer{Name: n}, stale(n, age)
	case !held || v.Row.Plan != nil || v.Row.Request != nil:
		// Nobody vouches for it any longer than now, or it is about to move.
		a.TTL = 0
	default:
		a.TTL = min(a.TTL, left)
	}
	a.Holders = []Holder{{ID: at.NodeID, Address: at.Address, Term: at.Epoch}}
	return a, nil
}

// replicas that live, answer, have a whole copy and follow the primary.
func replicas(v shard.View, n Name, age, most time.Duration) (Answer, error) {
	a := Answer{Name: n, TTL: most - age}
	known := false
	for _, r := range v.Nodes {
		follows := r.Role == shard.Replica && r.PrimaryID == v.Row.Primary && r.Link != nil && r.Link.Up
		if !follows || r.ID == v.Row.Primary || r.Condition != shard.Up || !r.Synced || !r.Live() {
			continue
		}
		known = true
		if left := r.Timeout - r.Age - age; left > 0 {
			a.TTL = min(a.TTL, left)
			a.Holders = append(a.Holders, Holder{ID: r.ID, Address: r.Client()})
		}
	}
	slices.SortFunc(a.Holders, func(x, y Holder) int { return cmp.Compare(x.ID, y.ID) })
	return a.checked(known, age)
}

// checked is an answer about holders that were known or not when it was read.
func (a Answer) checked(known bool, age time.Duration) (Answer, error) {
	switch {
	case len(a.Holders) > 0:
		return a, nil
	case known:
		return Answer{Name: a.Name}, stale(a.Name, age)
	}
	a.TTL = min(a.TTL, Empty)
	return a, nil
}

func stale(n Name, age time.Duration) error {
	return fmt.Errorf("%w: %s was read %v ago", ErrStale, n, age.Round(time.Millisecond))
}
