package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/api/apitype"
)

// A member without a record has no age, and a plan that failed before it chose names the node that was asked for.
func TestShownWithoutARecord(t *testing.T) {
	if got := agentText(apitype.ShardNode{}); got != "silent" {
		t.Errorf("its agent is %q", got)
	}
	var out bytes.Buffer
	a := &app{stdout: &out}
	s := shardSeen{Shard: apitype.Shard{Nodes: []apitype.ShardNode{{ID: "aaaa0", Address: "a:1"}, {ID: "bbbb0", Address: "b:1"}}}}
	if err := a.printPlan("latest", s, &apitype.ShardPlan{Kind: "switchover", From: "aaaa0", Wanted: "bbbb0", Failed: "it is silent"}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "a:1 (aaaa0) → b:1 (bbbb0)") {
		t.Errorf("the plan reads %q", out.String())
	}
}
