package shardtest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

func reportTopics() map[string]func(*bench) {
	return map[string]func(*bench){
		"report/the whole record is kept":        testWholeRecord,
		"report/the last one counts":             testUpsert,
		"report/stamp and age":                   testAge,
		"report/a record lives for its timeout":  testLives,
		"report/the view of after it":            testViewAfter,
		"report/shards know nothing of another":  testIndependent,
		"report/an agent that starts anew":       testRestart,
		"report/a node that moves":               testMoves,
		"report/a shard without row and records": testNobodyLeft,
	}
}

// full is a record in which everything has a value.
func full(name string, n int) shard.Record {
	r := record(name, n)
	r.Announced, r.PrimaryID, r.Trouble = "db.example:6380", nodeID(n+1), "not armed: one replica is left"
	r.Role, r.Condition, r.Fence, r.Armed = shard.Replica, shard.Loading, shard.Armed, true
	r.Txn, r.Epoch, r.Keys = 1<<62+1, 1<<53+1, 1<<53+3
	r.Lineage, r.Before = shard.Lineage{ID: "l2", End: 1<<62 - 1}, shard.Lineage{ID: "l1", End: 1<<53 + 5}
	r.Link = &shard.Upstream{Address: "10.9.9.9:1", Up: true, Syncing: true, Input: -1}
	r.Synced, r.Priority, r.Agent, r.Run = true, 0, "10.0.0.1:7000", "run"
	r.Followers = []shard.Follower{{Address: "10.0.0.2:1", ID: nodeID(9), Txn: 1<<62 + 3, Online: true, Lag: time.Second + 1}, {Address: "x:1", Lag: -1}}
	r.Opinion = &shard.Opinion{Of: nodeID(8), Reachability: shard.TimedOut, Age: 3, Silence: 4, Closed: 5}
	r.Results = []shard.Result{
		{ID: "1/a/fence", Epoch: 1<<53 + 1, Order: shard.OrderFence, Error: "no", Txn: 1 << 61, Lineage: r.Lineage, Before: r.Before, Took: 5},
		{ID: "1/a/detach", Epoch: 2, Order: shard.OrderDetach},
	}
	r.Interval, r.Timeout, r.Version = time.Second+1, long+1, "7.0.15"
	return r
}

func testWholeRecord(b *bench) {
	bare := shard.Record{Shard: "s", ID: nodeID(2), Address: "[::1]:1", Interval: time.Second, Timeout: long}
	for _, r := range []shard.Record{full("s", 1), bare} {
		b.report(r)
	}
	b.same("nodes", []shard.Record{full("s", 1), bare}, b.view("s").Nodes)
}

func testUpsert(b *bench) {
	b.report(full("s", 1))
	r := record("s", 1)
	b.same("after the second report", []shard.Record{r}, b.report(r).Nodes)
	r.Role, r.Txn = shard.Primary, 7
	b.report(r)
	b.same("after the third", []shard.Record{r}, b.view("s").Nodes)
}

func testAge(b *bench) {
	began := time.Now()
	r := record("s", 1)
	r.Updated, r.Age = 5, -7*long // not an agent's to say
	v := b.report(r)
	first := v.Nodes[0]
	if elapsed := time.Since(began); first.Age < 0 || first.Age > elapsed+time.Second {
		b.Errorf("a record that was just written is %v old", first.Age)
	}
	if at := time.UnixMicro(first.Updated); !near(v.Now.Sub(at), first.Age) {
		b.Errorf("written at %v, %v old at %v", at, first.Age, v.Now)
	}
	passes := max(brief, 2*b.s.Grain)
	if b.s.Advance != nil {
		passes = 10 * time.Minute
	}
	b.pass(passes)
	b.report(record("s", 2))
	v = b.view("s")
	if got := v.Nodes[0].Age; got < passes*9/10-b.s.Grain || !near(got, passes) {
		b.Errorf("%v later the record is %v old", passes, got)
	}
	if v.Nodes[0].Updated != first.Updated {
		b.Errorf("written at %d; after another node's report at %d", first.Updated, v.Nodes[0].Updated)
	}
	if at := time.UnixMicro(v.Nodes[0].Updated); !near(v.Now.Sub(at), passes) {
		b.Errorf("the store's clock shows %v, the record is of %v", v.Now, at)
	}
	v = b.report(r)
	if again := v.Nodes[0]; again.Updated < first.Updated+(passes*9/10-b.s.Grain).Microseconds() || again.Age >= passes && b.s.Advance != nil {
		b.Errorf("reported again: of %d, before of %d; %v old", again.Updated, first.Updated, again.Age)
	}
}

func testLives(b *bench) {
	r := record("s", 1)
	if v := b.report(r); !v.Nodes[0].Live() {
		b.Errorf("a record that was just written does not live: %v of %v", v.Nodes[0].Age, v.Nodes[0].Timeout)
	}
	r.Timeout = b.brief()
	b.report(r)
	b.lapse()
	if n := b.view("s").Nodes[0]; n.Live() {
		b.Errorf("it lives on: %v of %v", n.Age, n.Timeout)
	}
	if v := b.report(record("s", 1)); !v.Nodes[0].Live() {
		b.Error("reported again, it does not live")
	}
}

func testViewAfter(b *bench) {
	row := b.found("s", 1)
	if err := b.lock("s", 1, "v", ""); err != nil {
		b.Fatal(err)
	}
	for n := 3; n > 0; n-- {
		r := record("s", n)
		v := b.report(r)
		b.same("row", row, v.Row)
		if v.Lock != "v" || v.Lease.ID != shard.LeaseID("s") || v.Now.IsZero() {
			b.Errorf("the view has the lock %q, the lease %v and the time %v", v.Lock, v.Lease.ID, v.Now)
		}
		if got, ok := v.Node(r.ID); !ok || len(v.Nodes) != 4-n {
			b.Errorf("reported as the %d. node: %+v", 4-n, v.Nodes)
		} else {
			b.same("own record", r, got)
		}
		shown := b.view("s")
		b.same("ReadView and Report", v.Nodes, shown.Nodes)
		b.same("ReadView and Report", v.Row, shown.Row)
		if !slices.IsSortedFunc(v.Nodes, func(x, y shard.Record) int { return cmpID(x.ID, y.ID) }) {
			b.Errorf("nodes are not in the order of their ids: %+v", v.Nodes)
		}
	}
}

func cmpID(x, y string) int {
	if x < y {
		return -1
	}
	return 1
}

func testIndependent(b *bench) {
	names := []string{"s", "S", "s.", "s1", "s-1", "s_1"}
	for i, name := range names {
		b.report(record(name, i))
		b.found(name, i)
	}
	for i, name := range names {
		v := b.view(name)
		if len(v.Nodes) != 1 || v.Nodes[0].ID != nodeID(i) || v.Row.Name != name || v.Row.Primary != nodeID(i) {
			b.Errorf("shard %q: row %+v, nodes %+v", name, v.Row, v.Nodes)
		}
	}
}

func testRestart(b *bench) {
	r := record("s", 1)
	r.Timeout = b.brief()
	b.report(r)
	b.lapse()
	r.Instance, r.Timeout = "another", long
	b.same("after the restart", []shard.Record{r}, b.report(r).Nodes)
}

func testMoves(b *bench) {
	r := record("s", 1)
	old := r.Address
	b.report(r)
	r.Address = "10.1.1.1:1"
	b.same("moved", []shard.Record{r}, b.report(r).Nodes)
	next := record("s", 2)
	next.Address = old
	b.same("its old address is free", []shard.Record{r, next}, b.report(next).Nodes)
}

func testNobodyLeft(b *bench) {
	_, err := b.ReadView(b.ctx, "s")
	b.want("nothing was reported", err, shard.ErrNotFound)
	b.report(record("s", 1))
	v := b.view("s")
	b.same("row of a shard that was not decided about", shard.Row{Name: "s"}, v.Row)
	b.found("t", 1)
	if v := b.view("t"); len(v.Nodes) != 0 || v.Row.Rev == 0 {
		b.Errorf("a shard with a row alone: %+v", v)
	}
}

func takenTopics() map[string]func(*bench) {
	return map[string]func(*bench){
		"taken/the id in another shard":          testTakenID,
		"taken/the address in another shard":     testTakenAddress,
		"taken/the address by another node":      testTakenByNode,
		"taken/the id by another agent":          testTakenByAgent,
		"taken/by oneself is no matter":          testNotTaken,
		"taken/one of many nodes at an address":  testOneAtAnAddress,
		"taken/one of many agents of a node":     testOneAgent,
		"taken/one of many shards of a node":     testOneShard,
		"taken/one of many shards of an address": testOneShardOfAnAddress,
	}
}

// refused tells that a report is refused and leaves the shards as they were.
func (b *bench) refused(what string, r shard.Record, names ...string) {
	b.Helper()
	var before []shard.View
	for _, name := range names {
		before = append(before, b.view(name))
	}
	_, err := b.Report(b.ctx, r, true)
	b.want(what, err, shard.ErrTaken)
	for i, name := range names {
		after := b.view(name)
		b.same(what+", nodes of "+name, before[i].Nodes, after.Nodes)
		for k := range min(len(before[i].Nodes), len(after.Nodes)) {
			if was, is := before[i].Nodes[k].Updated, after.Nodes[k].Updated; was != is {
				b.Errorf("%s: a record of %s was of %d and is of %d", what, name, was, is)
			}
		}
	}
}

func testTakenID(b *bench) {
	b.report(record("a", 1))
	b.report(record("b", 2))
	r := record("b", 1)
	r.Address = "10.1.1.1:1"
	b.refused("the node lives in another shard", r, "a", "b")
	dead := record("a", 1)
	dead.Timeout = b.brief()
	b.report(dead)
	b.lapse()
	b.refused("the node is silent in another shard", r, "a", "b")
	b.found("a", 3)
	row := b.view("a").Row
	b.decide(shard.RowUpdate{Row: row, Drop: []string{r.ID}})
	b.same("dropped there", []shard.Record{r, record("b", 2)}, b.report(r).Nodes)
}

func testTakenAddress(b *bench) {
	b.report(record("a", 1))
	b.report(record("b", 2))
	r := record("b", 3)
	r.Address = record("a", 1).Address
	b.refused("the address lives in another shard", r, "a", "b")
	dead := record("a", 1)
	dead.Timeout = b.brief()
	b.report(dead)
	b.lapse()
	b.refused("the address is silent in another shard", r, "a", "b")
	moves := record("b", 2)
	moves.Address = r.Address
	b.refused("a node that is known goes to an address in another shard", moves, "a", "b")
	row := b.found("a", 1)
	b.decide(shard.RowUpdate{Row: row, Drop: []string{dead.ID}})
	b.report(r)
}

func testTakenByNode(b *bench) {
	b.report(record("s", 1))
	b.report(record("s", 3))
	r := record("s", 2)
	r.Address = record("s", 1).Address
	b.refused("another node lives there", r, "s")
	moves := record("s", 3)
	moves.Address = r.Address
	b.refused("a node that is known goes where another lives", moves, "s")
	old := record("s", 1)
	old.Timeout = b.brief()
	b.report(old)
	b.lapse()
	b.report(r)
	b.refused("another node lives there now", record("s", 1), "s")
}

func testTakenByAgent(b *bench) {
	r := record("s", 1)
	b.report(r)
	r2 := r
	r2.Instance, r2.Txn = "another", 5
	b.refused("another agent lives", r2, "s")
	r2.Timeout = b.brief() // its own timeout, not the other's, is what a record lives for
	b.refused("another agent lives, and this one is in a hurry", r2, "s")
	r.Timeout = b.brief()
	b.report(r)
	b.lapse()
	r2.Timeout = long
	b.report(r2)
	b.refused("the one that was silent comes back", r, "s")
	b.same("in the end", []shard.Record{r2}, b.view("s").Nodes)
}

func testNotTaken(b *bench) {
	r := record("s", 1)
	r.Announced = "public:1"
	b.report(r)
	b.report(r)
	same := record("s", 2) // behind one address for clients
	same.Announced = r.Announced
	b.report(same)
	third := record("t", 3)
	third.Announced = r.Address
	third.Agent = r.Address
	b.report(third)
}

// oneOfMany reports at once what cannot all be registered: exactly one is.
func (b *bench) oneOfMany(of func(round, i int) shard.Record) {
	for round := range 5 {
		errs := make([]error, 4)
		atOnce(len(errs), func(i int) { _, errs[i] = b.Report(b.ctx, of(round, i), false) })
		b.oneWins(errs, shard.ErrTaken)
	}
}

func testOneAtAnAddress(b *bench) {
	b.oneOfMany(func(round, i int) shard.Record {
		r := record("s", 10*round+i)
		r.Address = fmt.Sprintf("10.1.1.%d:1", round)
		return r
	})
}

func testOneAgent(b *bench) {
	b.oneOfMany(func(round, i int) shard.Record {
		r := record("s", round)
		r.Instance = fmt.Sprint(i)
		return r
	})
}

func testOneShard(b *bench) {
	b.oneOfMany(func(round, i int) shard.Record {
		r := record(fmt.Sprint("s", i), round)
		r.Address = fmt.Sprintf("10.1.%d.%d:1", round, i)
		return r
	})
}

func testOneShardOfAnAddress(b *bench) {
	b.oneOfMany(func(round, i int) shard.Record {
		r := record(fmt.Sprint("s", i), 10*round+i)
		r.Address = fmt.Sprintf("10.1.1.%d:1", round)
		return r
	})
}

// oneWins tells that exactly one of those who tried at once had success, and all others
// that error.
func (b *bench) oneWins(errs []error, want error) int {
	b.Helper()
	winner, won := -1, 0
	for i, err := range errs {
		switch {
		case err == nil:
			winner = i
			won++
		case !errors.Is(err, want):
			b.Fatalf("of several at once, one got %v; want %v", err, want)
		}
	}
	if won != 1 {
		b.Fatalf("of %d at once, %d had success: %v", len(errs), won, errs)
	}
	return winner
}

// session starts one of the lease store.
func (b *bench) session(name string) lease.Session {
	b.Helper()
	if b.s.Leases == nil {
		b.Skip("no leases to take")
	}
	s := lease.Session{
		ID: lease.NewID(), Instance: lease.NewInstance(name, "127.0.0.1:80"),
		Timing: lease.Timing{Interval: 10 * time.Minute, Timeout: long},
	}
	if _, err := b.s.Leases.StartSession(b.ctx, s); err != nil {
		b.Fatalf("StartSession: %v", err)
	}
	return s
}

func (b *bench) acquire(name string, s lease.Session) lease.Lease {
	b.Helper()
	seen, err := b.s.Leases.Get(b.ctx, shard.LeaseID(name))
	if err != nil {
		b.Fatal(err)
	}
	l, err := b.s.Leases.Acquire(b.ctx, lease.Expectation{Lease: seen.ID, Session: s.ID, Seen: seen.Seen(), Waited: true})
	if err != nil {
		b.Fatalf("Acquire: %v", err)
	}
	return l
}
