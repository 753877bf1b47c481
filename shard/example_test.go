package shard_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// The primary's agent is silent, and its session has lapsed. Whether the primary can be replaced depends on
// what the agents of the other members see.
func ExampleJudge() {
	id := func(c string) string { return strings.Repeat(c, 40) }
	primary := shard.Record{ID: id("a"), Address: "10.0.0.1:6379", Role: shard.Primary, Condition: shard.Up, Armed: true, Age: 8 * time.Second, Timeout: 5 * time.Second}
	replica := shard.Record{ID: id("b"), Address: "10.0.0.2:6379", Role: shard.Replica, Condition: shard.Up, Timeout: 5 * time.Second}
	view := shard.View{
		Row:   shard.Row{Name: "orders", Rev: 1, Primary: primary.ID, Members: []shard.Member{{ID: primary.ID}, {ID: replica.ID}}},
		Nodes: []shard.Record{primary, replica},
	}
	seen := shard.Observation{Node: replica.ID, LeaseTakeable: true, TakeableFor: 6 * time.Second}

	for _, reached := range []shard.Reachability{shard.Reachable, shard.Refused} {
		view.Nodes[1].Opinion = &shard.Opinion{Of: primary.ID, Reachability: reached}
		finding := shard.Judge(view, seen, 3*time.Second)
		fmt.Printf("%s: %s\n", finding.Health, finding.Why)
	}
	// Output:
	// unattended: its session has lapsed, but it answers the agent of 10.0.0.2:6379 (bbbbbbbb)
	// failed: its session has lapsed, and it refuses connections (1 of 1)
}
