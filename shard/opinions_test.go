package shard

import (
	"testing"
	"time"
)

// Whoever reaches a node whose agent is silent is believed, however old that is and whoever else was asked.
func TestOpinionThatCounts(t *testing.T) {
	agent := func(id string, says Reachability, age time.Duration) Record {
		return Record{ID: id, Timeout: time.Minute, Unattended: []Opinion{{Of: "x", Reachability: says, Age: age}}}
	}
	members := []Member{{ID: "a"}, {ID: "b"}, {ID: "x"}}
	seen := Observation{TakeableFor: time.Minute}
	for _, c := range []struct {
		a, b Record
		want Reachability
	}{
		{agent("a", Reachable, 2*time.Second), agent("b", TimedOut, time.Second), Reachable},
		{agent("a", Reachable, 2*time.Second), agent("b", Refused, time.Second), Reachable},
		{agent("a", Refused, 2*time.Second), agent("b", TimedOut, time.Second), Refused},
	} {
		for _, nodes := range [][]Record{{c.a, c.b}, {c.b, c.a}} {
			v := View{Nodes: nodes, Row: Row{Members: members}}
			if got, ok := v.opinionOf("x", seen); !ok || got.Reachability != c.want {
				t.Errorf("of %+v counts %v, want %v", nodes, got.Reachability, c.want)
			}
		}
	}
}
