package main

import (
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/shard"
)

func TestForcedLossIsNamed(t *testing.T) {
	s := apitype.Shard{Name: "orders", Health: string(shard.Fine), Reason: "its agent holds the lease", Nodes: []apitype.ShardNode{
		{ID: "aaaa0", Address: "a:1", Primary: true, Member: true, AgentLives: true, Txn: 160, Keys: 12},
		{ID: "bbbb0", Address: "b:1", Member: true, AgentLives: true, Txn: 100, Keys: 7},
		{ID: "cccc0", Address: "c:1", Member: true, AgentLives: true, Txn: 90, Keys: 6},
		{ID: "dddd0", Address: "d:1", Member: true, Txn: 150},
	}}
	for to, want := range map[string]string{
		"":     "go on with b:1 (bbbb0) with 7 keys at transaction 100, and destroy the last 60 of a:1 (aaaa0) with 12 keys at transaction 160, and what is written to any other node until that follows. To go on: understudy shard failover orders --force --lose 60",
		"c:1":  "destroy the last 70 of a:1",
		"cccc": "failover orders --to cccc --force --lose 70",
		"a:1":  "go on with a:1 (aaaa0) with 12 keys at transaction 160, and destroy what is written to any other node until that follows",
	} {
		f, ok := forcedLossOf(s, to)
		if text := f.text(s, to); !ok || !strings.Contains(text, want) || !strings.Contains(text, "the primary of orders is fine: its agent holds the lease") {
			t.Errorf("--to %q: %s", to, text)
		}
	}
	if _, ok := forcedLossOf(s, "nobody"); ok {
		t.Error("a node that does not exist is named")
	}
}
