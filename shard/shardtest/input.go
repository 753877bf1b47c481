package shardtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

func inputTopics() map[string]func(*bench) {
	return map[string]func(*bench){
		"input/hostile text is only data":      testHostileText,
		"input/text that is no text":           testNoText,
		"input/big rows":                       testBig,
		"input/what is invalid is refused":     testInvalid,
		"input/an ended context is no success": testContext,
	}
}

// hostile are texts for whoever does not quote, or quotes wrongly.
func hostile() []string {
	return []string{
		`'; DROP TABLE understudy_shard_rows; --`, `"}],"x":{"`, "\x00", "a\x00b", "%s %d %", `\`, `\u0000`, "\n\r\t", "${x} $1 ?1 :a", "]]>", "日本 é 🜁",
		"\u2028\u2029", "\ufffd", "<script>&amp;", "nil", "null", "[]", "{}", " ", "1e999", "NaN",
	}
}

func testHostileText(b *bench) {
	for i, text := range hostile() {
		name := fmt.Sprint("s", i)
		r := full(name, 10*i)
		r.Trouble, r.Announced, r.Agent, r.Run, r.Engine, r.Version, r.Instance = text, "", text, text, text, text, text
		r.Role, r.Condition, r.Fence = shard.Role(text), shard.Condition(text), shard.Fence(text)
		r.Lineage.ID, r.PrimaryID, r.Link.Address, r.Opinion.Of = text, text, text, text
		r.Followers[0].Address, r.Results[0].Error, r.Results[0].ID = text, text, text
		row := shard.Row{
			Name: name, Secret: text, Lineages: []shard.Lineage{{ID: text}}, Members: []shard.Member{{ID: r.ID, Address: text, Agent: text}},
			Paused: &shard.Pause{By: text, Reason: text}, Plan: &shard.Plan{Reason: text, By: text, Steps: []shard.Step{{Note: text}}, Kind: shard.Kind(text), Phase: shard.Phase(text)},
			Request: &shard.Request{ID: text, By: text},
		}
		c := command(name, 10*i, "c")
		c.To, c.Address, c.By, c.Order = text, text, text, shard.Order(text)
		b.report(r)
		row = b.decide(shard.RowUpdate{Row: row, Commands: []shard.Command{c}})
		v := b.view(name)
		b.same("the record", []shard.Record{r}, v.Nodes)
		b.same("the row", row, v.Row)
		got, err := b.Next(b.ctx, r.ID, 0)
		if err != nil {
			b.Fatalf("a command with %q: %v", text, err)
		}
		b.same("the command", c, got)
	}
	b.hostileNames()
}

// hostileNames is about what may not hold everything, yet more than is good for a query.
func (b *bench) hostileNames() {
	value := `v'"; --{}[]%s$1\*?^ 日本 🜁`
	b.mustFound("q")
	if err := b.lock("q", 1, value, ""); err != nil {
		b.Fatal(err)
	}
	if got := b.view("q").Lock; got != value {
		b.Errorf("the lock is %q, want %q", got, value)
	}
	if err := b.lock("q", 1, "*", "v*"); !errors.Is(err, shard.ErrLocked) {
		b.Errorf("a lock is renewed by a pattern: %v", err)
	}
	c := command("q", 1, value)
	b.send(c, c)
	b.wantQueue("a command's id", 1, value)
	if b.s.History == nil {
		return
	}
	e := history.Event{Part: shard.Space, Subject: "q", From: value, To: value, Reason: value}
	b.decide(shard.RowUpdate{Row: b.view("q").Row, Event: &e})
	if es := b.events("q"); len(es) != 1 || es[0].Reason != value || es[0].From != value {
		b.Errorf("the event came back as %+v", es)
	}
}

func (b *bench) mustFound(name string) { b.Helper(); b.found(name, 1) }

// testNoText has bytes that are no UTF-8: they may be refused or changed, and do no harm
// to what else there is.
func testNoText(b *bench) {
	b.report(record("s", 1))
	row := b.found("s", 1)
	bad := "\xff\xfe\xc0\x80"
	r := record("s", 2)
	r.Trouble, r.Version = bad, bad
	if _, err := b.Report(b.ctx, r, true); err != nil {
		b.want("a record", err, lease.ErrInvalid)
	}
	row.Secret = bad
	if _, err := b.UpdateRow(b.ctx, shard.RowUpdate{Row: row}); err != nil {
		b.want("a row", err, lease.ErrInvalid)
	}
	c := command("s", 1, "c")
	c.Address = bad
	if err := b.Send(b.ctx, c); err != nil {
		b.want("a command", err, lease.ErrInvalid)
	}
	b.queue(1)
	v := b.view("s")
	b.same("the other record", record("s", 1), v.Nodes[0])
	if _, err := b.List(b.ctx, bad, 10); err != nil {
		b.want("List", err, lease.ErrInvalid)
	}
}

func testBig(b *bench) {
	const name = "a-shard-whose-name-is-as-long-as-a-name-of-a-shard-can-ever-be.0"
	row := b.decide(shard.RowUpdate{Row: bigRow(name, shard.MaxMembers)})
	r := full(name, 0)
	r.Trouble, r.Followers, r.Results = strings.Repeat("é\"\\", 3000), nil, nil
	for i := range shard.MaxMembers {
		r.Followers = append(r.Followers, shard.Follower{Address: strings.Repeat("h", 450) + ":1", ID: nodeID(i), Txn: 1<<62 - int64(i)})
	}
	for i := range shard.MaxResults {
		r.Results = append(r.Results, shard.Result{ID: fmt.Sprint(i), Epoch: 1, Order: shard.OrderCatchUp, Error: strings.Repeat("e", 2000)})
	}
	var drop []string
	var all []shard.Command
	want := []shard.Record{r}
	b.report(r)
	const last = 20
	for n := 1; n <= last; n++ {
		want = append(want, record(name, n))
		b.report(want[n])
		c := command(name, n, fmt.Sprint("c", n))
		c.Address = strings.Repeat("a", 400)
		drop, all = append(drop, nodeID(n)), append(all, c)
	}
	v := b.view(name)
	b.same("row", row, v.Row)
	b.same("nodes", want, v.Nodes)
	row.Epoch++
	row = b.decide(shard.RowUpdate{Row: row, Drop: drop, Commands: all})
	v = b.view(name)
	b.same("row", row, v.Row)
	b.same("nodes", want[:1], v.Nodes)
	b.wantQueue("the last", last, fmt.Sprint("c", last))
}

func testInvalid(b *bench) {
	b.report(record("s", 1))
	row := b.found("s", 1)
	names := []string{"", "-a", ".", "a b", "a/b", "a:b", "a\x00", "é", strings.Repeat("a", 65), "'", "a*", "{a}"}
	ids := []string{"", "abc", strings.Repeat("A", 40), strings.Repeat("g", 40), strings.Repeat("a", 41), strings.Repeat("a", 39) + "'"}
	refused := func(what string, err error) { b.Helper(); b.want(what, err, lease.ErrInvalid) }

	record1 := func(what string, edit func(*shard.Record)) {
		b.Helper()
		r := record("s", 1)
		edit(&r)
		_, err := b.Report(b.ctx, r, true)
		refused("Report: "+what, err)
	}
	for _, name := range names {
		record1(fmt.Sprintf("shard %q", name), func(r *shard.Record) { r.Shard = name })
		_, err := b.ReadView(b.ctx, name)
		refused(fmt.Sprintf("ReadView(%q)", name), err)
		_, err = b.UpdateRow(b.ctx, shard.RowUpdate{Row: shard.Row{Name: name}})
		refused(fmt.Sprintf("UpdateRow about %q", name), err)
		refused(fmt.Sprintf("Lock of %q", name), b.lock(name, 1, "v", ""))
		refused(fmt.Sprintf("Unlock of %q", name), b.Unlock(b.ctx, shard.Lock{Shard: name, Primary: nodeID(1), Instead: "v"}))
		c := command(name, 1, "c")
		refused(fmt.Sprintf("Send for %q", name), b.Send(b.ctx, c))
		if name != "" {
			refused(fmt.Sprintf("Watch(%q)", name), b.Watch(b.ctx, name, func(string) {}))
		}
	}
	for _, id := range ids {
		what := fmt.Sprintf("node %q", id)
		record1(what, func(r *shard.Record) { r.ID = id })
		_, err := b.UpdateRow(b.ctx, shard.RowUpdate{Row: row, Drop: []string{id}})
		refused("UpdateRow, drop "+what, err)
		if id != "" {
			bad := row
			bad.Primary = id
			_, err = b.UpdateRow(b.ctx, shard.RowUpdate{Row: bad})
			refused("UpdateRow, primary "+what, err)
		}
		bad := row
		bad.Members = []shard.Member{{ID: id}}
		_, err = b.UpdateRow(b.ctx, shard.RowUpdate{Row: bad})
		refused("UpdateRow, member "+what, err)
		refused("Lock of "+what, b.Lock(b.ctx, shard.Lock{Shard: "s", Primary: id, Value: "v"}))
		c := command("s", 1, "c")
		c.Node = id
		refused("Send to "+what, b.Send(b.ctx, c))
		_, err = b.Next(b.ctx, id, 0)
		refused("Next of "+what, err)
	}
	b.invalidRest(row, record1, refused)
	b.same("the row", row, b.view("s").Row)
	b.same("the record", []shard.Record{record("s", 1)}, b.view("s").Nodes)
	b.wantQueue("refused", 1)
}

func (b *bench) invalidRest(row shard.Row, record1 func(string, func(*shard.Record)), refused func(string, error)) {
	b.Helper()
	for _, address := range []string{"", "host", ":1", "host:0", "host:65536", "h:1:2", "h\n:1"} {
		record1(fmt.Sprintf("address %q", address), func(r *shard.Record) { r.Address = address })
	}
	record1("no interval", func(r *shard.Record) { r.Interval = 0 })
	record1("no timeout", func(r *shard.Record) { r.Timeout = -1 })
	record1("too many results", func(r *shard.Record) { r.Results = make([]shard.Result, shard.MaxResults+1) })
	record1("too many followers", func(r *shard.Record) { r.Followers = make([]shard.Follower, shard.MaxMembers+1) })

	bad := row
	bad.Members = bigRow("s", shard.MaxMembers+1).Members
	_, err := b.UpdateRow(b.ctx, shard.RowUpdate{Row: bad})
	refused("UpdateRow, too many members", err)
	bad = row
	bad.Rev = -1
	_, err = b.UpdateRow(b.ctx, shard.RowUpdate{Row: bad})
	refused("UpdateRow at -1", err)

	for _, value := range []string{"", "a\nb", "\x00", " a", strings.Repeat("v", 201)} {
		refused(fmt.Sprintf("Lock with %q", value), b.lock("s", 1, value, ""))
		refused(fmt.Sprintf("Send of %q", value), b.Send(b.ctx, command("s", 1, value)))
	}
	for _, within := range []time.Duration{0, -1, soon - 1, shard.MaxWithin + 1} {
		c := command("s", 1, "c")
		c.Within = within
		refused(fmt.Sprint("Send within ", within), b.Send(b.ctx, c))
	}
}

func testContext(b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	b.report(record("s", 1))
	row := b.found("s", 1)
	_, report := b.Report(ctx, record("s", 2), false)
	_, look := b.ReadView(ctx, "s")
	_, list := b.List(ctx, "", 1)
	_, decide := b.UpdateRow(ctx, shard.RowUpdate{Row: row})
	lock := b.Lock(ctx, shard.Lock{Shard: "s", Primary: nodeID(1), Value: "v"})
	unlock := b.Unlock(ctx, shard.Lock{Shard: "s", Primary: nodeID(1), Instead: "v"})
	send := b.Send(ctx, command("s", 1, "c"))
	_, next := b.Next(ctx, nodeID(1), time.Second)
	for what, err := range map[string]error{
		"Report": report, "ReadView": look, "List": list, "UpdateRow": decide, "Lock": lock, "Unlock": unlock, "Send": send, "Next": next,
	} {
		if !errors.Is(err, lease.ErrUnavailable) && !errors.Is(err, lease.ErrUnknown) {
			b.Errorf("%s under a context that has ended: %v", what, err)
		}
	}
	if errors.Is(decide, lease.ErrUnavailable) {
		b.same("the row", row, b.view("s").Row)
	}
}
