package shard

import (
	"fmt"
	"testing"
	"time"
)

func tendNode(i int, edit func(*Record)) Record {
	r := Record{
		Shard: "s", ID: fmt.Sprintf("%040x", i), Address: fmt.Sprintf("10.0.0.%d:6379", i), Role: Replica, PrimaryID: fmt.Sprintf("%040x", 1),
		Condition: Up, Lineage: Lineage{ID: "L"}, Link: &Upstream{Address: "10.0.0.1:6379", Up: true}, Synced: true,
		Run: fmt.Sprint("run ", i), Interval: time.Second, Timeout: 5 * time.Second,
	}
	if i == 1 {
		r.Role, r.PrimaryID, r.Link = Primary, "", nil
	}
	if edit != nil {
		edit(&r)
	}
	return r
}

// Replicas that have everything when a shard is made are members from the first moment on: the
// primary may die in the next.
func TestFoundationMembers(t *testing.T) {
	v := View{Now: time.UnixMilli(1_000_000), Nodes: []Record{
		tendNode(1, nil), tendNode(2, nil),
		tendNode(3, func(r *Record) { r.Synced = false }),
		tendNode(4, func(r *Record) { r.Link.Up = false }),
		tendNode(5, func(r *Record) { r.Lineage.ID = "other" }),
		tendNode(6, func(r *Record) { r.Age = time.Minute }),
		tendNode(7, func(r *Record) { r.Epoch = 2_000_000 }),
	}}
	row := v.BootstrapRow(v.Nodes[0], "secret")
	if got := len(row.Members); got != 3 || row.Members[0].ID != v.Nodes[0].ID || row.Members[1].ID != v.Nodes[1].ID || row.Members[2].ID != v.Nodes[6].ID {
		t.Errorf("members: %+v", row.Members)
	}
	if row.Epoch != 2_000_001 || row.PrimaryEpoch != row.Epoch {
		t.Errorf("epoch %d, of the primary %d", row.Epoch, row.PrimaryEpoch)
	}
}

// A second agent beside a node, by another of its addresses, takes nothing away from the first.
func TestTwoAgentsOfOneNode(t *testing.T) {
	second := tendNode(9, func(r *Record) { r.Run = "run 2" })
	v := View{Nodes: []Record{tendNode(1, nil), tendNode(2, nil), second}}
	v.Row = Row{Rev: 1, Primary: v.Nodes[0].ID, Members: []Member{{ID: v.Nodes[0].ID, Address: v.Nodes[0].Address}, {ID: v.Nodes[1].ID, Address: v.Nodes[1].Address}}}
	if row, changed := v.AdmitMembers(0); changed {
		t.Errorf("it was admitted: %+v", row.Members)
	}
	first := v.Nodes[1].ID
	if !v.Row.HasPrecedence(first, second.ID) || v.Row.HasPrecedence(second.ID, first) {
		t.Error("the member's agent is not the rightful one")
	}
	v.Row.Members = append(v.Row.Members, Member{ID: second.ID, Since: time.Unix(1, 0)})
	if !v.Row.HasPrecedence(first, second.ID) || v.Row.HasPrecedence(second.ID, first) {
		t.Error("of two members, the one that came first is not the rightful one")
	}
	v.Row.Members = nil
	if v.Row.HasPrecedence(first, second.ID) == v.Row.HasPrecedence(second.ID, first) {
		t.Error("of two strangers, not exactly one goes on")
	}
}

// Replicas whose primary does not list them any more copy one at a time: the one that copies already, then the lowest id.
func TestFirstToCopy(t *testing.T) {
	node := func(id string, l Upstream) Record {
		return Record{ID: id, PrimaryID: "p", Condition: Up, Role: Replica, Timeout: time.Second, Link: &l}
	}
	stalled, copying, up := Upstream{Stalled: true}, Upstream{Syncing: true}, Upstream{Up: true}
	silent := node("a", stalled)
	silent.Age = time.Minute
	for name, c := range map[string]struct {
		nodes []Record
		want  string
	}{
		"alone":                 {[]Record{node("b", stalled)}, ""},
		"others are up":         {[]Record{node("a", up), node("b", stalled)}, ""},
		"a lower one waits":     {[]Record{node("a", stalled), node("b", stalled)}, "a"},
		"a higher one waits":    {[]Record{node("b", stalled), node("c", stalled)}, ""},
		"a higher one copies":   {[]Record{node("b", stalled), node("c", copying)}, "c"},
		"a lower one is silent": {[]Record{silent, node("b", stalled)}, ""},
	} {
		first, _ := View{Nodes: c.nodes}.FirstToCopy(node("b", stalled))
		if first.ID != c.want {
			t.Errorf("%s: %q copies first, want %q", name, first.ID, c.want)
		}
	}
}

// A replica that had caught up, and has since copied what its restarted primary has, is not installed.
func TestSwitchoverInstallsWhatCaughtUp(t *testing.T) {
	row := Row{Primary: "a", Lineages: []Lineage{{ID: "L"}}, Plan: &Plan{Epoch: 2, Kind: Switchover, Phase: Promoting, From: "a", To: "b", Txn: 100}}
	for _, c := range []struct {
		s  State
		ok bool
	}{
		{State{Lineage: Lineage{ID: "M"}, Before: Lineage{ID: "L", End: 100}, Txn: 100}, true},
		{State{Lineage: Lineage{ID: "M"}, Before: Lineage{ID: "L", End: 102}, Txn: 110}, true},
		{State{Lineage: Lineage{ID: "M"}, Before: Lineage{ID: "N", End: 7}, Txn: 7}, false},
	} {
		if got, err := row.WithNewPrimary("b", 2, c.s, 0); (err == nil) != c.ok || c.ok && got.Primary != "b" {
			t.Errorf("%+v: %v", c.s, err)
		}
	}
}
