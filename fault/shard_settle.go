//go:build linux

package fault

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/shard"
)

// shardPatience is how long a shard may take to be well again, on a busy machine.
const shardPatience = 40 * time.Second

// Primary is the node that the row names.
func (s *Shard) Primary() *ShardNode {
	s.tb.Helper()
	v := s.View()
	r, _ := v.Node(v.Row.Primary)
	n := s.at(r.Address)
	if n == nil {
		s.tb.Fatalf("no node of the shard is its primary: %+v", v.Row)
	}
	return n
}

// Replicas are the nodes that are not the primary.
func (s *Shard) Replicas() []*ShardNode {
	s.tb.Helper()
	p := s.Primary()
	return slices.DeleteFunc(slices.Clone(s.Nodes), func(n *ShardNode) bool { return n == p })
}

func (s *Shard) at(address string) *ShardNode {
	for _, n := range s.Nodes {
		if n.Addr == address {
			return n
		}
	}
	return nil
}

// Settled waits until the shard has one primary that takes writes, nothing is under way, and
// every other node whose agent lives is a member that follows it and is in touch. It
// returns the primary.
func (s *Shard) Settled() *ShardNode {
	s.tb.Helper()
	var primary *ShardNode
	before := map[string]int64{}
	realserver.Eventually(s.tb, shardPatience, "the shard is settled", func() error {
		<-time.After(20 * time.Millisecond)
		v, err := s.Look()
		if err != nil {
			return err
		}
		primary, err = s.settled(v)
		for _, r := range v.Nodes { // what was reported before is not known to be so still
			if _, seen := before[r.ID]; !seen {
				before[r.ID] = r.Updated
			}
			if n := s.at(r.Address); err == nil && n != nil && !n.Exited() && before[r.ID] == r.Updated {
				err = fmt.Errorf("%s has not reported since", n.Name)
			}
		}
		return err
	})
	return primary
}

func (s *Shard) settled(v shard.View) (*ShardNode, error) {
	own, known := v.Node(v.Row.Primary)
	primary := s.at(own.Address)
	switch {
	case v.Row.Plan != nil:
		return nil, fmt.Errorf("a %s is under way: %s since %v", v.Row.Plan.Kind, v.Row.Plan.Phase, v.Now.Sub(v.Row.Plan.Began))
	case !known || primary == nil:
		return nil, errors.New("no primary is known")
	case !own.Live() || own.Condition != shard.Up || own.Role != shard.Primary:
		return nil, fmt.Errorf("the primary %s is a %s and %s, reported %v ago (%s)", primary.Name, own.Role, own.Condition, own.Age, own.Trouble)
	}
	// A new agent leaves an open node open, and has the lease only once that of the agent before has lapsed. Without it the node closes when
	// it loses the store.
	if l := v.Lease; !l.Held() || l.Holder.ID != own.Instance {
		return nil, fmt.Errorf("the agent of %s does not hold the lease: %+v", primary.Name, l)
	}
	for _, n := range s.Nodes {
		if n == primary || n.Exited() {
			continue
		}
		i := slices.IndexFunc(v.Nodes, func(r shard.Record) bool { return r.Address == n.Addr })
		if i < 0 {
			return nil, fmt.Errorf("%s is not registered", n.Name)
		}
		r := v.Nodes[i]
		if _, member := v.Row.Member(r.ID); !member || !r.Live() || r.Role != shard.Replica || r.PrimaryID != own.ID || r.Link == nil || !r.Link.Up || !r.Synced {
			return nil, fmt.Errorf("%s is a %s and %s, member: %v, link: %+v, synced: %v, reported %v ago (%s)", n.Name, r.Role, r.Condition, member, r.Link, r.Synced, r.Age, r.Trouble)
		}
	}
	if _, err := primary.Do("SET", "settled", strconv.FormatInt(v.Row.Rev, 10)); err != nil {
		return nil, fmt.Errorf("%s takes no write: %w", primary.Name, err)
	}
	return primary, nil
}

// Moved waits until the row names another primary than the given one, and that takes writes.
func (s *Shard) Moved(from *ShardNode) (to *ShardNode) {
	s.tb.Helper()
	realserver.Eventually(s.tb, shardPatience, "another primary than "+from.Name, func() error {
		<-time.After(10 * time.Millisecond)
		v, err := s.Look()
		if err != nil {
			return err
		}
		r, _ := v.Node(v.Row.Primary)
		if to = s.at(r.Address); to == nil || to == from {
			return fmt.Errorf("it is still %s; plan: %+v, last: %+v", from.Name, v.Row.Plan, v.Row.Last)
		}
		_, err = to.Do("SET", "moved", "1")
		return err
	})
	return to
}

// Pass lets time pass.
func (s *Shard) Pass(d time.Duration) { <-time.After(d) }
