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

// What blocks a failover often begins with what is believed of the primary: that is printed once.
func TestReasonIsPrintedOnce(t *testing.T) {
	for _, c := range []struct {
		blocked string
		paused  *apitype.ShardPause
		want    string
	}{
		{"in other words: it is silent. Make sure that it is dead, then: force it", nil, "stuck: in other words: it is silent. Make sure that it is dead, then: force it\n"},
		{"failover is paused", &apitype.ShardPause{By: "alice"}, "stuck: it is silent. failover is paused\n"},
	} {
		var out bytes.Buffer
		a := &app{stdout: &out}
		s := apitype.Shard{Name: "orders", Health: "stuck", Reason: "it is silent", Blocked: c.blocked, Paused: c.paused}
		if err := a.printShardHead(s); err != nil {
			t.Fatal(err)
		}
		if note := shardNote(s); note != c.blocked {
			t.Errorf("the lists note %q", note)
		}
		if !strings.Contains(out.String(), c.want) || strings.Count(out.String(), "it is silent") != 1 {
			t.Errorf("it prints %q", out.String())
		}
	}
}
