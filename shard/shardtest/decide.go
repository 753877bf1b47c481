package shardtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

func viewTopics() map[string]func(*bench) {
	return map[string]func(*bench){
		"view/all at one moment":              testOneMoment,
		"view/the lease is that of the store": testLease,
		"view/the lock of the row's primary":  testLockShown,
		"view/what is shown is a copy":        testCopy,
		"view/shards page by page":            testList,
		"view/a shard is removed":             testRemove,
	}
}

// testOneMoment has a writer that leaves every state of the shard with the node's
// transaction one more than the row's epoch, or without the node.
func testOneMoment(b *bench) {
	ctx, stop := context.WithCancel(b.ctx)
	s, done := b.other(), make(chan error, 1)
	defer stop()
	row := b.decide(shard.RowUpdate{Row: shard.Row{Name: "s"}})
	go func() { done <- b.alternate(ctx, row) }()
	for range 25 {
		looked, err := s.Registry.ReadView(b.ctx, "s")
		if err != nil {
			b.Fatal(err)
		}
		reported, err := s.Registry.Report(b.ctx, record("s", 2), false)
		if err != nil {
			b.Fatal(err)
		}
		views, err := s.Registry.List(b.ctx, "", 1)
		if err != nil {
			b.Fatal(err)
		}
		for _, v := range append(views, looked, reported) {
			if r, ok := v.Node(nodeID(1)); ok && r.Txn != v.Row.Epoch+1 {
				b.Fatalf("the row is of epoch %d, and the node at %d", v.Row.Epoch, r.Txn)
			}
		}
	}
	stop()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

// alternate reports the node and drops it, until ctx ends.
func (b *bench) alternate(ctx context.Context, row shard.Row) error {
	for ctx.Err() == nil {
		r := record("s", 1)
		r.Txn = row.Epoch + 1
		if _, err := b.Report(b.ctx, r, false); err != nil {
			return err
		}
		pause(ctx, time.Microsecond) // others look in between
		row.Epoch++
		rev, err := b.UpdateRow(b.ctx, shard.RowUpdate{Row: row, Drop: []string{r.ID}})
		if err != nil {
			return err
		}
		row.Rev = rev
	}
	return nil
}

func testLease(b *bench) {
	b.report(record("s", 1))
	b.report(record("t", 2))
	check := func(what string) {
		b.Helper()
		want, err := b.s.Leases.Get(b.ctx, shard.LeaseID("s"))
		if err != nil {
			b.Fatal(err)
		}
		listed, err := b.List(b.ctx, "", 1)
		if err != nil || len(listed) != 1 {
			b.Fatalf("List: %d, %v", len(listed), err)
		}
		for how, v := range map[string]shard.View{"ReadView": b.view("s"), "Report": b.report(record("s", 1)), "List": listed[0]} {
			got := v.Lease
			if !near(got.Remaining, want.Remaining) || !near(got.Age, want.Age) || !near(got.Reserved, want.Reserved) || !near(got.Since.Sub(want.Since), 0) {
				b.Errorf("%s, %s: times %+v, want %+v", what, how, got, want)
			}
			got.Remaining, got.Age, got.Reserved, got.Since = want.Remaining, want.Age, want.Reserved, want.Since
			b.same(what+", "+how, want, got)
		}
	}
	one, two := b.session("one"), b.session("two")
	check("never held")
	l := b.acquire("s", one)
	b.acquire("t", two)
	if got := b.view("s").Lease; got.Session != one.ID || got.Term != l.Term || !near(got.Remaining, long) || !got.Held() {
		b.Errorf("held: %+v", got)
	}
	check("held")
	b.pass(brief)
	if _, err := b.s.Leases.RenewSession(b.ctx, one.ID); err != nil {
		b.Fatal(err)
	}
	check("renewed")
	if b.s.Advance != nil {
		b.s.Advance(long + time.Minute)
		check("lapsed")
		one = b.session("one, anew")
		l = b.acquire("s", one)
	}
	h := lease.ReleaseRequest{Lease: l.ID, Session: one.ID, Term: l.Term, Successor: "two", Reserve: long, Reason: "test"}
	if err := b.s.Leases.Release(b.ctx, h); err != nil {
		b.Fatal(err)
	}
	check("released for another")
	three := b.session("three")
	b.acquire("s", three)
	if err := b.s.Leases.EndSession(b.ctx, three.ID, "test"); err != nil {
		b.Fatal(err)
	}
	check("ended")
}

func testLockShown(b *bench) {
	shown := func(what, want string) {
		b.Helper()
		if got := b.view("s").Lock; got != want {
			b.Errorf("%s: the lock is %q, want %q", what, got, want)
		}
	}
	b.report(record("s", 1))
	if err := b.lock("s", 1, "one", ""); err != nil {
		b.Fatal(err)
	}
	shown("no row", "")
	row := b.found("s", 1)
	shown("its primary", "one")
	if err := b.lock("s", 2, "two", ""); err != nil {
		b.Fatal(err)
	}
	shown("another node", "one")
	row.Primary = nodeID(2)
	row = b.decide(shard.RowUpdate{Row: row})
	shown("another primary", "two")
	row.Primary = nodeID(3)
	row = b.decide(shard.RowUpdate{Row: row})
	shown("a primary without", "")
	row.Primary = ""
	b.decide(shard.RowUpdate{Row: row})
	shown("no primary", "")
}

func testCopy(b *bench) {
	r, row := full("s", 1), bigRow("s", 2)
	b.report(r)
	rev := b.decide(shard.RowUpdate{Row: row}).Rev
	for range 2 {
		v := b.view("s")
		for _, n := range []shard.Record{r, v.Nodes[0]} {
			n.Link.Address, n.Opinion.Of, n.Followers[0].Address, n.Results[0].ID = "x", "x", "x", "x"
		}
		for _, w := range []shard.Row{row, v.Row} {
			w.Members[0].ID, w.Lineages[0].ID, w.Plan.Reason, w.Plan.Steps[0].Note, w.Plan.Tried[0] = "x", "x", "x", "x", "x"
			w.Last.Reason, w.Last.Steps[0].Note, w.Request.By, w.Paused.By, w.Failovers[0] = "x", "x", "x", "x", time.Time{}
		}
	}
	v := b.view("s")
	b.same("the record", []shard.Record{full("s", 1)}, v.Nodes)
	want := bigRow("s", 2)
	want.Rev = rev
	b.same("the row", want, v.Row)
}

// bigRow is a row in which everything has a value, with n members.
func bigRow(name string, n int) shard.Row {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
	plan := func(epoch int64) *shard.Plan {
		p := &shard.Plan{
			Epoch: epoch, Kind: shard.Switchover, From: nodeID(1), To: nodeID(2), Wanted: nodeID(2), Phase: shard.Catching, By: "instance", ByNode: nodeID(3),
			Reason: "asked for by ops", Force: true, Request: "q", Txn: 1<<62 + 7, Timeout: time.Second + 1, Began: at, Ended: at.Add(1e6), Took: 3, Failed: "no",
		}
		for i := range n {
			p.Tried = append(p.Tried, nodeID(i))
			p.Steps = append(p.Steps, shard.Step{Phase: shard.Pausing, Took: time.Duration(i + 1), Note: fmt.Sprint("step ", i)})
		}
		return p
	}
	row := shard.Row{
		Name: name, Epoch: 1<<53 + 9, Primary: nodeID(1), PrimaryEpoch: 1<<53 + 1, Secret: "secret", Plan: plan(1<<53 + 9), Last: plan(5),
		Request: &shard.Request{ID: "q", Kind: shard.Failover, To: nodeID(1), Force: true, By: "ops", Timeout: 5, At: at},
		Paused:  &shard.Pause{By: "ops", Reason: "work", Since: at},
	}
	for i := range shard.MaxLineages {
		row.Lineages = append(row.Lineages, shard.Lineage{ID: fmt.Sprint("l", i), End: 1<<61 + int64(i)})
	}
	for i := range n {
		host := strings.Repeat("h", 400)
		row.Members = append(row.Members, shard.Member{ID: nodeID(i), Address: fmt.Sprintf("%s:%d", host, i+1), Agent: host + ":1", Since: at})
		row.Failovers = append(row.Failovers, at.Add(time.Duration(i)*time.Second))
	}
	return row
}

func testList(b *bench) {
	names := []string{"0", "A", "Z", "a", "a-", "a.", "a.b", "aa", "a_", "b"}
	slices.Sort(names)
	for i, name := range names {
		if i%3 != 1 {
			b.report(record(name, i))
		}
		if i%3 != 0 {
			b.found(name, i)
		}
	}
	for _, limit := range []int{0, 1, 3, len(names), len(names) + 1} {
		var got []string
		after := ""
		for {
			page, err := b.List(b.ctx, after, limit)
			if err != nil {
				b.Fatalf("List after %q, %d: %v", after, limit, err)
			}
			if len(page) == 0 {
				break
			}
			if len(page) > max(limit, 1) {
				b.Fatalf("List of %d: %d views", limit, len(page))
			}
			for _, v := range page {
				got = append(got, v.Row.Name)
				shown := b.view(v.Row.Name)
				b.same("row of "+v.Row.Name, shown.Row, v.Row)
				b.same("nodes of "+v.Row.Name, shown.Nodes, v.Nodes)
			}
			after = got[len(got)-1]
			if len(got) > len(names) {
				b.Fatalf("by %d: %q, and it goes on", limit, got)
			}
		}
		if !slices.Equal(got, names) {
			b.Fatalf("by %d: %q, want %q", limit, got, names)
		}
	}
	for _, after := range []string{"b", "~", "日本", "'; --"} {
		want := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n <= after })
		if page, err := b.List(b.ctx, after, shard.MaxShards+7); err != nil || len(page) != len(want) {
			b.Errorf("List after %q: %d, %v; want %d", after, len(page), err, len(want))
		}
	}
}

func decideTopics() map[string]func(*bench) {
	return map[string]func(*bench){
		"decide/a new shard":                 testNewShard,
		"decide/the whole row is kept":       testWholeRow,
		"decide/only what was read":          testOnlyRead,
		"decide/one of many":                 testOneDecides,
		"decide/commands only if decided":    testDecideCommands,
		"decide/drops records and queues":    testDrop,
		"decide/a dropped node's last order": testDropAndSend,
		"decide/writes its event":            testDecideEvent,
	}
}

func testNewShard(b *bench) {
	row := b.found("s", 1)
	b.same("the row", row, b.view("s").Row)
	_, err := b.UpdateRow(b.ctx, shard.RowUpdate{Row: shard.Row{Name: "s"}})
	b.want("made again", err, shard.ErrChanged)
	_, err = b.UpdateRow(b.ctx, shard.RowUpdate{Row: shard.Row{Name: "t", Rev: 1}})
	b.want("changed, and never made", err, shard.ErrChanged)
	_, err = b.ReadView(b.ctx, "t")
	b.want("ReadView of what was not made", err, shard.ErrNotFound)
	b.same("the row in the end", row, b.view("s").Row)
}

func testWholeRow(b *bench) {
	want := b.decide(shard.RowUpdate{Row: bigRow("s", 3)})
	b.same("the row", want, b.view("s").Row)
	bare := b.decide(shard.RowUpdate{Row: shard.Row{Name: "s", Rev: want.Rev}})
	b.same("the row that replaces it", bare, b.view("s").Row)
}

func testOnlyRead(b *bench) {
	row := b.found("s", 1)
	first := row
	first.Epoch = 2
	second := b.decide(shard.RowUpdate{Row: first})
	for _, rev := range []int64{0, row.Rev, row.Rev - 1, second.Rev + 1, 1 << 60} {
		stale := row
		stale.Rev, stale.Epoch = rev, 99
		_, err := b.UpdateRow(b.ctx, shard.RowUpdate{Row: stale})
		b.want(fmt.Sprint("decided at ", rev, ", it is at ", second.Rev), err, shard.ErrChanged)
	}
	b.same("the row", second, b.view("s").Row)
}

func testOneDecides(b *bench) {
	b.report(record("s", 1))
	rev := int64(0)
	for round := range 10 {
		errs, revs := make([]error, 6), make([]int64, 6)
		atOnce(len(errs), func(i int) {
			revs[i], errs[i] = b.UpdateRow(b.ctx, shard.RowUpdate{
				Row:      shard.Row{Name: "s", Rev: rev, Epoch: int64(i)},
				Commands: []shard.Command{command("s", 1, fmt.Sprint(round, "/", i))},
			})
		})
		winner := b.oneWins(errs, shard.ErrChanged)
		if row := b.view("s").Row; row.Rev <= rev || row.Rev != revs[winner] || row.Epoch != int64(winner) {
			b.Errorf("%d won at %d with %d; the row is %+v", winner, rev, revs[winner], row)
		}
		rev = revs[winner]
		b.wantQueue("the winner's command", 1, fmt.Sprint(round, "/", winner))
	}
}

func testDecideCommands(b *bench) {
	b.report(record("s", 1))
	row := b.found("s", 1)
	b.decide(shard.RowUpdate{Row: row, Commands: []shard.Command{command("s", 1, "one"), command("s", 2, "two"), command("s", 1, "three")}})
	_, err := b.UpdateRow(b.ctx, shard.RowUpdate{
		Row: row, Drop: []string{nodeID(1)}, Commands: []shard.Command{command("s", 1, "four"), command("s", 3, "five")},
		Event: &history.Event{Part: shard.Space, Subject: "s", Reason: "never"},
	})
	b.want("decided at what was", err, shard.ErrChanged)
	if nodes := b.view("s").Nodes; len(nodes) != 1 {
		b.Errorf("a refused decision dropped a node: %+v", nodes)
	}
	b.wantQueue("decided", 1, "one", "three")
	b.wantQueue("decided", 2, "two")
	b.wantQueue("refused", 3)
	if b.s.History != nil {
		if es := b.events("s"); len(es) != 0 {
			b.Errorf("a refused decision wrote %+v", es)
		}
	}
}

func testDrop(b *bench) {
	row := b.found("s", 1)
	for n := range 4 {
		b.report(record("s", n))
		b.send(command("s", n, "c"))
	}
	b.report(record("t", 9))
	row = b.decide(shard.RowUpdate{Row: row, Drop: []string{nodeID(1), nodeID(3), nodeID(77)}})
	b.same("who is left", []shard.Record{record("s", 0), record("s", 2)}, b.view("s").Nodes)
	b.wantQueue("dropped", 1)
	b.wantQueue("dropped", 3)
	b.wantQueue("kept", 2, "c")
	b.same("it comes back", []shard.Record{record("s", 0), record("s", 1), record("s", 2)}, b.report(record("s", 1)).Nodes)
	b.decide(shard.RowUpdate{Row: row, Drop: []string{nodeID(9)}})
	b.same("a node of another shard", []shard.Record{record("t", 9)}, b.view("t").Nodes)
}

func testDropAndSend(b *bench) {
	row := b.found("s", 1)
	b.report(record("s", 2))
	b.send(command("s", 2, "old"))
	b.decide(shard.RowUpdate{Row: row, Drop: []string{nodeID(2)}, Commands: []shard.Command{command("s", 2, "new")}})
	b.wantQueue("dropped, and told to follow", 2, "new")
}

func testDecideEvent(b *bench) {
	b.events("s")
	e := history.Event{
		ID: 1 << 40, At: time.Unix(1, 0), Part: shard.Space, Subject: "s", From: "a:1 (x)", To: "b:2 (y)", Term: 1<<53 + 1,
		Reason: "failover: detaching 5ms, 'promoting' \"3ms\"", Duration: 123456 * time.Microsecond,
	}
	row := b.found("s", 1)
	b.decide(shard.RowUpdate{Row: row, Event: &e})
	got := b.events("s")
	if len(got) != 1 {
		b.Fatalf("events %+v", got)
	}
	if got[0].ID == e.ID || got[0].ID == 0 || !near(got[0].At.Sub(b.view("s").Now), 0) {
		b.Errorf("id %d, at %v: these are the store's to give", got[0].ID, got[0].At)
	}
	got[0].ID, got[0].At = e.ID, e.At
	b.same("the event", e, got[0])
}
