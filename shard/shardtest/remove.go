package shardtest

import (
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/shard"
)

// testRemove: a shard goes with its nodes, and leaves others alone.
func testRemove(b *bench) {
	b.report(record("t", 9))
	b.report(record("s", 1))
	b.report(record("s", 2))
	row := b.found("s", 1)
	b.send(command("s", 2, "a"))
	update := shard.RowUpdate{
		Row: shard.Row{Name: "s", Rev: row.Rev - 1}, Remove: true, Drop: []string{nodeID(1), nodeID(2)},
		Event: &history.Event{Part: shard.Space, Subject: "s", Reason: "shard removed"},
	}
	_, err := b.UpdateRow(b.ctx, update)
	b.want("a row that has changed", err, shard.ErrChanged)
	if v := b.view("s"); v.Row.Rev != row.Rev || len(v.Nodes) != 2 {
		b.Errorf("the refusal left %+v", v)
	}
	update.Row.Rev = row.Rev
	if rev, err := b.UpdateRow(b.ctx, update); err != nil || rev != 0 {
		b.Fatalf("UpdateRow with Remove: %d, %v", rev, err)
	}
	_, err = b.ReadView(b.ctx, "s")
	b.want("a shard that was removed", err, shard.ErrNotFound)
	if all, err := b.List(b.ctx, "", 10); err != nil || len(all) != 1 || all[0].Row.Name != "t" {
		b.Errorf("left are %+v, %v; want t alone", all, err)
	}
	b.wantQueue("of a node that is gone", 2)
	if told := b.events("s"); len(told) == 0 || told[len(told)-1].Reason != "shard removed" {
		b.Errorf("the history: %+v", told)
	}
	// Its nodes may join another one, and one of its name starts anew.
	b.report(record("t", 1))
	b.report(record("s", 2))
	if again := b.found("s", 2); again.Rev < row.Rev {
		b.Errorf("a shard made again has revision %d, was %d", again.Rev, row.Rev)
	}

	// One that never had a row.
	b.report(record("u", 3))
	if _, err := b.UpdateRow(b.ctx, shard.RowUpdate{Row: shard.Row{Name: "u"}, Remove: true, Drop: []string{nodeID(3)}}); err != nil {
		b.Fatal(err)
	}
	_, err = b.ReadView(b.ctx, "u")
	b.want("a shard without a row that was removed", err, shard.ErrNotFound)
}
