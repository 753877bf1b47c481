package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/shard"
)

func TestForcedLossIsNamed(t *testing.T) {
	node := func(name string, txn int64, edit func(*apitype.ShardNode)) apitype.ShardNode {
		n := apitype.ShardNode{ID: strings.Repeat(name, 4) + "0", Address: name + ":1", Condition: "up", Member: true, AgentLives: true, Txn: txn,
			Keys: txn / 13, InStep: true, Lineage: "L", Priority: 100}
		if edit != nil {
			edit(&n)
		}
		return n
	}
	s := apitype.Shard{Name: "orders", Successor: strings.Repeat("b", 4) + "0", Health: string(shard.Fine), Reason: "its agent holds the lease", Nodes: []apitype.ShardNode{
		node("a", 160, func(n *apitype.ShardNode) { n.Primary = true }),
		node("b", 100, nil),
		node("c", 90, nil),
		node("d", 150, func(n *apitype.ShardNode) { n.AgentLives = false }),
		// What the agents do not promote unless it is named, and what is not the shard's.
		node("e", 155, func(n *apitype.ShardNode) { n.Priority = 0 }),
		node("f", 154, func(n *apitype.ShardNode) { n.Condition = "down" }),
		node("g", 153, func(n *apitype.ShardNode) { n.Syncing = true }),
		node("h", 500, func(n *apitype.ShardNode) { n.InStep, n.Lineage, n.Member = false, "X", false }),
		node("i", 120, func(n *apitype.ShardNode) { n.InStep, n.Lineage = false, "Y" }),
		node("j", 130, nil), // has diverged, as the server knows
	}}
	for to, want := range map[string]string{
		"":     "go on with b:1 (bbbb0) with 7 keys at transaction 100, and destroy the last 60 of a:1 (aaaa0) with 12 keys at transaction 160, and what is written to any other node until that follows. To go on: understudy shard failover orders --force --max-loss 60",
		"c:1":  "destroy the last 70 of a:1",
		"cccc": "failover orders --to cccc --force --max-loss 70",
		"e:1":  "failover orders --to e:1 --force --max-loss 5",
		"h:1":  "go on with h:1 (hhhh0) with 38 keys at transaction 500, and destroy the last 160 of a:1",
		"a:1":  "go on with a:1 (aaaa0) with 12 keys at transaction 160, and destroy what is written to any other node until that follows",
	} {
		f, ok, err := forcedLossOf(s, to)
		if text := f.text(s, to); !ok || err != nil || !strings.Contains(text, want) || !strings.Contains(text, "the primary of orders is fine: its agent holds the lease") {
			t.Errorf("--to %q: %s", to, text)
		}
	}
	if _, ok, err := forcedLossOf(s, "nobody"); ok || err != nil {
		t.Error("a node that does not exist is named")
	}
	// Who would be promoted is not guessed.
	for why, want := range map[string]string{"b: its agent is silent": "b: its agent is silent", "": "name one: --to NODE"} {
		s.Successor, s.NoSuccessor = "", why
		if _, _, err := forcedLossOf(s, ""); !errors.Is(err, shard.ErrFailed) || !strings.Contains(err.Error(), want) {
			t.Errorf("without a successor (%s): %v", why, err)
		}
		if f, ok, err := forcedLossOf(s, "c:1"); !ok || err != nil || f.lost != 70 {
			t.Errorf("without a successor, --to c:1: %d, %v", f.lost, err)
		}
	}

	// The primary came back with other data: the others are not in step with it.
	s.Successor = strings.Repeat("c", 4) + "0"
	s.Nodes = []apitype.ShardNode{node("a", 3, func(n *apitype.ShardNode) { n.Primary, n.Lineage = true, "X" })}
	for _, b := range []apitype.ShardNode{node("b", 90, nil), node("c", 100, nil)} {
		b.InStep = false
		s.Nodes = append(s.Nodes, b)
	}
	for to, want := range map[string]int64{"": 0, "a:1": 97, "b:1": 10} {
		if f, ok, err := forcedLossOf(s, to); !ok || err != nil || f.lost != want {
			t.Errorf("--to %q of a primary that came back: --max-loss %d, not %d", to, f.lost, want)
		}
	}
}
