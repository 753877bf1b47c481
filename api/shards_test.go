package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/memory"
)

func nodeID(n int) string { return fmt.Sprintf("%040x", 0xabcdef00+n) }

func nodeAt(n int) string { return fmt.Sprintf("10.0.0.%d:6379", n) }

// fakeCatalog shows what the store has, and counts who asks.
type fakeCatalog struct {
	registry shard.Registry
	mu       sync.Mutex
	changed  chan struct{}
	age      time.Duration
	stale    error
}

func (d *fakeCatalog) Shard(name string) (shard.View, bool) {
	v, err := d.registry.ReadView(context.Background(), name)
	return v, err == nil
}

func (d *fakeCatalog) Shards() []shard.View {
	views, _ := d.registry.List(context.Background(), "", shard.MaxShards)
	return views
}

func (d *fakeCatalog) Changed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

func (d *fakeCatalog) Freshness() (time.Duration, error) { return d.age, d.stale }

func (d *fakeCatalog) tell() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.changed)
	d.changed = make(chan struct{})
}

// shardRig is a server whose store has a shard "orders" with the nodes 1 (the primary), 2 and 3.
type shardRig struct {
	*rig
	catalog *fakeCatalog
}

func newShardRig(t *testing.T) *shardRig {
	t.Helper()
	st := memory.New(nil)
	known := &fakeCatalog{registry: st.Registry(), changed: make(chan struct{}), age: 3 * time.Second}
	s, err := New(Config{Store: st, Shards: known})
	if err != nil {
		t.Fatal(err)
	}
	g := &shardRig{&rig{t: t, store: st, s: s}, known}
	g.shard("orders")
	return g
}

// shard makes a shard that is well.
func (g *shardRig) shard(name string) {
	g.t.Helper()
	base := len(name) * 10
	if name == "orders" {
		base = 0
	}
	row := shard.Row{Name: name, Epoch: 7, Primary: nodeID(base + 1), PrimaryEpoch: 7, Secret: "agents-only", Lineages: []shard.Lineage{{ID: "l"}}}
	for n := base + 1; n <= base+3; n++ {
		g.report(name, n, nil)
		row.Members = append(row.Members, shard.Member{ID: nodeID(n), Address: nodeAt(n)})
	}
	if _, err := g.store.Registry().UpdateRow(g.t.Context(), shard.RowUpdate{Row: row}); err != nil {
		g.t.Fatal(err)
	}
	id := lease.NewID()
	session := lease.Session{ID: id, Instance: lease.Instance{ID: fmt.Sprint("i", base+1), Name: "host-1"}, Timing: lease.Timing{Interval: time.Minute, Timeout: time.Hour}}
	if _, err := g.store.StartSession(g.t.Context(), session); err != nil {
		g.t.Fatal(err)
	}
	if _, err := g.store.Acquire(g.t.Context(), lease.Expectation{Lease: shard.LeaseID(name), Session: id}); err != nil {
		g.t.Fatal(err)
	}
}

// report writes the record of a node; the first of ten is the primary.
func (g *shardRig) report(name string, n int, edit func(*shard.Record)) {
	g.t.Helper()
	r := shard.Record{
		Shard: name, ID: nodeID(n), Address: nodeAt(n), Role: shard.Replica, Txn: 90, PrimaryID: nodeID(n/10*10 + 1), Condition: shard.Up,
		Lineage: shard.Lineage{ID: "l"}, Link: &shard.Upstream{Up: true}, Synced: true, Fence: shard.Closed, Priority: 100,
		Instance: fmt.Sprint("i", n), Interval: time.Minute, Timeout: time.Hour, Engine: "redis",
	}
	if n%10 == 1 {
		r.Role, r.Txn, r.PrimaryID, r.Link, r.Fence, r.Armed = shard.Primary, 100, "", nil, shard.Armed, true
	}
	if edit != nil {
		edit(&r)
	}
	if _, err := g.store.Registry().Report(g.t.Context(), r, true); err != nil {
		g.t.Fatal(err)
	}
}

// decide changes the row as an agent would.
func (g *shardRig) decide(edit func(*shard.Row)) {
	g.t.Helper()
	v, err := g.store.Registry().ReadView(g.t.Context(), "orders")
	if err != nil {
		g.t.Fatal(err)
	}
	row := v.Row.Copy()
	edit(&row)
	if _, err := g.store.Registry().UpdateRow(g.t.Context(), shard.RowUpdate{Row: row}); err != nil {
		g.t.Fatal(err)
	}
	g.catalog.tell()
}

func (g *shardRig) show() apitype.Shard {
	g.t.Helper()
	a := g.do("GET", "/v1/shards/orders", "")
	a.want(200, "")
	if strings.Contains(a.Body, "agents-only") {
		g.t.Fatalf("the secret of the agents is shown: %s", a.Body)
	}
	var v apitype.Shard
	a.into(&v)
	return v
}

func TestShardIsShown(t *testing.T) {
	g := newShardRig(t)
	v := g.show()
	if v.Primary == nil || *v.Primary != (apitype.ShardPrimary{Shard: "orders", NodeID: nodeID(1), Address: nodeAt(1), Epoch: 7}) || v.Health != string(shard.Fine) || len(v.Nodes) != 3 {
		t.Errorf("shown %+v", v)
	}
	if n := v.Nodes[1]; n.Lag != 10 || !n.InStep || n.LinkUp == nil || !*n.LinkUp || !n.AgentLives || n.Primary {
		t.Errorf("the replica is shown as %+v", n)
	}
	if v.Successor != nodeID(2) || v.NoSuccessor != "" {
		t.Errorf("the successor of two equal replicas is %q (%s)", v.Successor, v.NoSuccessor)
	}
	var at apitype.ShardPrimary
	a := g.do("GET", "/v1/shards/orders/primary", "")
	a.into(&at)
	if at != *v.Primary || a.Header.Get("Age") != "3" {
		t.Errorf("the primary is at %+v, age %q", at, a.Header.Get("Age"))
	}
	for _, path := range []string{"", "/primary", "/requests/x"} {
		g.do("GET", "/v1/shards/nope"+path, "").want(404, "not_found")
		g.do("GET", "/v1/shards/-x"+path, "").want(400, "invalid")
	}
	g.do("GET", "/v1/shards/orders/requests/x", "").want(404, "not_found")
	g.do("GET", "/v1/shards/orders/primary?wait=2m", "").want(400, "invalid")
}

// TestSuccessorIsShown: it is the one that the agents would promote, not the one with the highest number.
func TestSuccessorIsShown(t *testing.T) {
	g := newShardRig(t)
	g.decide(func(r *shard.Row) { r.Lineages = []shard.Lineage{{ID: "old", End: 80}, {ID: "l"}} })
	g.report("orders", 2, func(r *shard.Record) { r.Lineage.ID, r.Txn = "old", 95 })
	if v := g.show(); v.Successor != nodeID(3) {
		t.Errorf("beside a replica that has diverged, the successor is %q (%s)", v.Successor, v.NoSuccessor)
	}
	g.report("orders", 3, func(r *shard.Record) { r.Priority = 0 })
	if v := g.show(); v.Successor != "" || !strings.Contains(v.NoSuccessor, "it has diverged") || !strings.Contains(v.NoSuccessor, "its priority is 0") || !strings.Contains(v.NoSuccessor, "--to NODE --force") {
		t.Errorf("without a successor: %q, %s", v.Successor, v.NoSuccessor)
	}
	if v := ViewShard(shard.View{Row: shard.Row{Name: "new"}}); v.Successor != "" || v.NoSuccessor != `shard "new" has no primary yet` {
		t.Errorf("without a primary: %q, %s", v.Successor, v.NoSuccessor)
	}
}

func TestShardsAreListed(t *testing.T) {
	g := newShardRig(t)
	for _, name := range []string{"aa", "bbb", "Cccc"} {
		g.shard(name)
	}
	g.report("bbb", 32, func(r *shard.Record) { r.Trouble = "its copy broke off" })
	list := func(query string) (out []string, next string) {
		var page struct {
			Shards []apitype.Shard
			Next   string
		}
		a := g.do("GET", "/v1/shards?"+query, "")
		a.want(200, "")
		a.into(&page)
		for _, s := range page.Shards {
			out = append(out, s.Name)
			if (s.Alarm != 0) != (s.Name == "bbb") {
				t.Errorf("%s is listed with alarm %d", s.Name, s.Alarm)
			}
		}
		return out, page.Next
	}
	for _, c := range []struct {
		query string
		want  []string
		next  string
	}{
		{"", []string{"Cccc", "aa", "bbb", "orders"}, ""},
		{"limit=2", []string{"Cccc", "aa"}, "aa"},
		{"limit=2&after=aa", []string{"bbb", "orders"}, "orders"},
		{"contains=CC", []string{"Cccc"}, ""}, {"text=CC", []string{"Cccc"}, ""}, // the old name
		{"trouble=true", []string{"bbb"}, ""},
	} {
		if got, next := list(c.query); !slices.Equal(got, c.want) || next != c.next {
			t.Errorf("%s: %v, next %q", c.query, got, next)
		}
	}
	for _, query := range []string{"limit=0", "limit=1001", "after=%00", "text=%0a", "trouble=yes"} {
		g.do("GET", "/v1/shards?"+query, "").want(400, "invalid")
	}
	g.catalog.stale = shard.ErrNotFound
	g.do("GET", "/v1/shards", "").want(503, "not_ready")
	state := g.s.shards.state()
	if got := state.List[0]; got.Name != "bbb" || got.Alarm != 1 || state.Totals.Shards != 4 || state.Totals.Trouble != 1 {
		t.Errorf("the page is shown %s first, of %+v", got.Name, state.Totals)
	}
}

func TestNoShards(t *testing.T) {
	g := newRig(t)
	g.do("GET", "/v1/shards", "").want(404, "no_shards")
	g.do("POST", "/v1/shards/orders/pause", "").want(404, "no_shards")
	if g.s.shards.state() != nil || g.s.shards.changed() != nil {
		t.Error("a server without shards has some")
	}
	if strings.Contains(g.do("GET", "/metrics", "").Body, "understudy_shard") {
		t.Error("… and metrics of them")
	}
	if _, err := New(Config{Store: struct{ store.Store }{g.store}, Shards: &fakeCatalog{}}); !errors.Is(err, lease.ErrInvalid) {
		t.Errorf("a catalog without a store that keeps shards: %v", err)
	}
}

func TestShardWithoutPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newShardRig(t)
		g.decide(func(r *shard.Row) { r.Plan = &shard.Plan{Epoch: 8, Kind: shard.Failover, Phase: shard.Promoting} })
		p := g.do("GET", "/v1/shards/orders/primary", "").want(503, "no_primary")
		if !strings.Contains(p.Detail, "failing over") || p.RetryAfterMS == 0 {
			t.Errorf("no primary: %+v", p)
		}
		began := time.Now()
		g.do("GET", "/v1/shards/orders/primary?wait=3s", "").want(503, "no_primary")
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("waited %v in vain", took)
		}
		go func() {
			time.Sleep(1234 * time.Millisecond)
			g.decide(func(r *shard.Row) { r.Plan, r.Primary, r.PrimaryEpoch = nil, nodeID(2), 8 })
		}()
		began = time.Now()
		var at apitype.ShardPrimary
		g.do("GET", "/v1/shards/orders/primary?wait=30s", "").into(&at)
		if took := time.Since(began); at.Address != nodeAt(2) || took != 1234*time.Millisecond {
			t.Errorf("after %v: %+v", took, at)
		}
	})
}

func TestShardIsPaused(t *testing.T) {
	g := newShardRig(t)
	g.do("POST", "/v1/shards/orders/pause", `{"reason":"new switch","by":"alice"}`).want(200, "")
	if p := g.show().Paused; p == nil || p.By != "alice (192.0.2.1)" || p.Reason != "new switch" {
		t.Errorf("paused: %+v", p)
	}
	// One that has ended and paused is blocked, and says so.
	g.report("orders", 1, func(r *shard.Record) { r.Condition, r.Trouble = shard.Down, "killed" })
	l, _ := g.store.Get(t.Context(), shard.LeaseID("orders"))
	if err := g.store.Release(t.Context(), lease.ReleaseRequest{Lease: shard.LeaseID("orders"), Session: l.Session, Term: l.Term}); err != nil {
		t.Fatal(err)
	}
	if v := g.show(); v.Primary != nil || v.Health != string(shard.Replaceable) || !strings.Contains(v.Blocked, "understudy shard resume orders") {
		t.Errorf("down and paused: %+v", v)
	}
	g.do("POST", "/v1/shards/orders/resume", `{"by":"bob"}`).want(200, "")
	if v := g.show(); v.Paused != nil || v.Blocked != "" {
		t.Errorf("resumed: %+v", v)
	}
	for _, body := range []string{`{"reason":"a\u0000"}`, `{"why":"x"}`, `{"by":" x"}`} {
		g.do("POST", "/v1/shards/orders/pause", body).want(400, "invalid")
	}
	g.do("POST", "/v1/shards/nope/pause", "").want(404, "not_found")
	var h struct{ Events []history.Event }
	g.do("GET", "/v1/history?part=shard&limit=1", "").into(&h)
	if len(h.Events) != 1 || h.Events[0].Reason != "resumed by bob (192.0.2.1)" {
		t.Errorf("history: %+v", h)
	}
}

func TestShardRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newShardRig(t)
		const path = "/v1/shards/orders/switchover"
		a := g.do("POST", path, `{"to":"10.0.0.2:6379","timeout_ms":1700,"by":"alice"}`)
		a.want(202, "")
		var asked, now apitype.ShardRequest
		a.into(&asked)
		if at := a.Header.Get("Location"); at != "/v1/shards/orders/requests/"+asked.Request || asked.State != apitype.RequestWaiting {
			t.Fatalf("asked: %s, %+v", at, asked)
		}
		if q := g.show().Request; q == nil || q.To != nodeID(2) || q.TimeoutMS != 1700 || q.By != "alice (192.0.2.1)" {
			t.Errorf("the agents are asked for %+v", q)
		}
		g.do("POST", path, "").want(409, "under_way")
		follow := func(query string) apitype.ShardRequest {
			var out apitype.ShardRequest
			a := g.do("GET", "/v1/shards/orders/requests/"+asked.Request+query, "")
			a.want(200, "")
			a.into(&out)
			return out
		}
		if now = follow("?wait=2s"); now.State != apitype.RequestWaiting {
			t.Errorf("nobody has begun: %+v", now)
		}
		plan := &shard.Plan{Epoch: 8, Kind: shard.Switchover, From: nodeID(1), To: nodeID(2), Phase: shard.Pausing, Request: asked.Request}
		go func() {
			time.Sleep(100 * time.Millisecond)
			g.decide(func(r *shard.Row) { r.Request, r.Plan = nil, plan })
			time.Sleep(100 * time.Millisecond)
			g.decide(func(r *shard.Row) { r.Plan.Phase, r.Primary, r.PrimaryEpoch = shard.Following, nodeID(2), 8 })
		}()
		began := time.Now()
		if now = follow("?wait=30s"); now.State != apitype.RequestDone || now.Plan.To != nodeID(2) || time.Since(began) != 200*time.Millisecond {
			t.Errorf("after %v: %+v", time.Since(began), now)
		}
		g.decide(func(r *shard.Row) { r.Plan, r.Last = nil, r.Plan })
		if now = follow(""); now.State != apitype.RequestDone {
			t.Errorf("when it is over: %+v", now)
		}

		// A refusal is an error for whoever waits for it.
		go func() {
			time.Sleep(300 * time.Millisecond)
			g.decide(func(r *shard.Row) {
				r.Request, r.Last = nil, &shard.Plan{Kind: shard.Failover, Request: r.Request.ID, Failed: "the primary is fine"}
			})
		}()
		p := g.do("POST", "/v1/shards/orders/failover?wait=10s", `{"force":true}`).want(409, "not_done")
		if !strings.Contains(p.Detail, "the primary is fine") {
			t.Errorf("refused: %+v", p)
		}
		g.do("GET", "/v1/shards/orders/requests/"+asked.Request, "").want(404, "not_found")
		go func() {
			time.Sleep(300 * time.Millisecond)
			g.decide(func(r *shard.Row) { r.Request = nil })
		}()
		g.do("POST", path+"?wait=10s", "").want(409, "not_done") // someone took it back
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		send(t, g.s, request(ctx, "POST", path+"?wait=10s", "")).want(202, "") // whoever asked has gone; it waits nevertheless
		g.decide(func(r *shard.Row) { r.Request = nil })

		var second apitype.ShardRequest
		g.do("POST", path, "").into(&second)
		g.do("DELETE", "/v1/shards/orders/requests/"+second.Request+"?by=bob", "").want(204, "")
		if g.show().Request != nil {
			t.Error("a request that was taken back still waits")
		}
		for _, body := range []string{`{"timeout_ms":-1}`, `{"timeout_ms":60001}`, `{"to":"a\n"}`, `{"force":true}`} {
			g.do("POST", path, body).want(400, "invalid")
		}
		g.do("POST", path, `{"to":"10.0.0.9:6379"}`).want(404, "not_found")
		g.do("POST", path+"?wait=x", "").want(400, "invalid")
	})
}

// A switchover that goes back to its old primary is not done, and ends as failed. The primary that an operator forced is,
// while its replicas copy.
func TestForcedReturnIsDone(t *testing.T) {
	for force, want := range map[bool]string{true: apitype.RequestDone, false: apitype.RequestRunning} {
		plan := &shard.Plan{Kind: shard.Return, Phase: shard.Following, Force: force, Request: "q"}
		if got, _ := viewRequest(shard.Row{Plan: plan}, "q"); got.State != want {
			t.Errorf("forced: %t: %s, not %s", force, got.State, want)
		}
	}
}

func TestShardNodeIsForgotten(t *testing.T) {
	g := newShardRig(t)
	const nodes = "/v1/shards/orders/nodes/"
	p := g.do("DELETE", nodes+nodeAt(1), "").want(400, "invalid")
	if !strings.Contains(p.Detail, "primary") {
		t.Errorf("the primary: %+v", p)
	}
	g.do("DELETE", nodes+nodeAt(3), "").want(400, "invalid") // its agent reports
	g.do("DELETE", nodes+"10.0.0.9:1", "").want(404, "not_found")
	v, _ := g.store.Registry().ReadView(t.Context(), "orders")
	if _, err := g.store.Registry().UpdateRow(t.Context(), shard.RowUpdate{Row: v.Row, Drop: []string{nodeID(3)}}); err != nil {
		t.Fatal(err)
	}
	g.do("DELETE", nodes+nodeID(3)+"?by=alice", "").want(204, "")
	if v := g.show(); len(v.Nodes) != 2 {
		t.Errorf("a node that was forgotten is shown: %+v", v.Nodes)
	}
}

func TestShardMetrics(t *testing.T) {
	g := newShardRig(t)
	g.decide(func(r *shard.Row) {
		r.Last = &shard.Plan{Kind: shard.Failover, Steps: []shard.Step{{Phase: shard.Detaching, Took: 20 * time.Millisecond}, {Phase: shard.Promoting, Took: 30 * time.Millisecond}, {Phase: shard.Following, Took: time.Hour}}}
		r.Failovers = []time.Time{time.Now().Add(-2 * time.Hour), time.Now().Add(-time.Minute)}
	})
	text := g.do("GET", "/metrics", "").Body
	node := func(n int) string { return fmt.Sprintf(`address="%s",node="%s",shard="orders"`, nodeAt(n), nodeID(n)) }
	for _, line := range []string{
		`understudy_shards{health="fine"} 1`, `understudy_shards{health="failed"} 0`, `understudy_shard_up{shard="orders"} 1`,
		`understudy_shard_epoch{shard="orders"} 7`, `understudy_shard_last_change_seconds{kind="failover",shard="orders"} 0.05`,
		`understudy_shard_failovers_last_hour{shard="orders"} 1`, `understudy_shard_node_lag{` + node(2) + `} 10`,
		`understudy_shard_node_primary{` + node(1) + `} 1`, `understudy_shard_node_link_up{` + node(3) + `} 1`,
		`understudy_shard_node_fence{address="` + nodeAt(1) + `",fence="armed",node="` + nodeID(1) + `",shard="orders"} 1`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("metrics lack %s", line)
		}
	}
	if strings.Contains(text, `understudy_shard_node_lag{`+node(1)) {
		t.Error("the primary has a lag")
	}
	for n := range 2 * maxShardLabels {
		name := fmt.Sprintf("s-%03d", n)
		if _, err := g.store.Registry().UpdateRow(t.Context(), shard.RowUpdate{Row: shard.Row{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	text = g.do("GET", "/metrics", "").Body
	if n := strings.Count(text, "\nunderstudy_shard_up{"); n != maxShardLabels {
		t.Errorf("%d shards have metrics of their own", n)
	}
	if want := fmt.Sprintf("understudy_shards{health=\"none\"} %d\n", 2*maxShardLabels); !strings.Contains(text, want) {
		t.Errorf("metrics lack %s", want)
	}
	// A server that is cut off from the store says how old its knowledge is, and then no more of what was so once.
	g.catalog.stale = lease.ErrUnavailable
	for _, c := range []struct {
		age       time.Duration
		aged, all bool
	}{{3 * time.Second, true, true}, {time.Minute, true, false}, {0, false, false}} {
		g.catalog.age = c.age
		text = g.do("GET", "/metrics", "").Body
		aged := strings.Contains(text, fmt.Sprintf("\nunderstudy_shards_age_seconds %v\n", c.age.Seconds()))
		all, some := strings.Contains(text, "\nunderstudy_shard_up{"), strings.Contains(text, "\nunderstudy_shards{")
		if aged != c.aged || all != c.all || some != c.all {
			t.Errorf("cut off for %v: its age %t, shards %t, totals %t", c.age, aged, all, some)
		}
	}
}

// TestShardsArePushed: the page learns of a change at once, and not only when it is due.
func TestShardsArePushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newShardRig(t)
		s := start(t, Config{Store: g.store, Shards: g.catalog, Clock: bubbleClock{time.Now().Add(-time.Hour)}})
		r := newReader("", "", true)
		s.stream.subscribe(r, -1)
		defer s.stream.unsubscribe(r)
		state := func() apitype.State {
			for {
				<-r.wake
				messages, _ := s.stream.pending(r)
				for _, m := range messages {
					if m.event == nil {
						var out apitype.State
						_, data, _ := strings.Cut(string(m.frame), "data: ")
						if err := json.Unmarshal([]byte(data), &out); err != nil {
							t.Fatal(err)
						}
						return out
					}
				}
			}
		}
		first := state()
		if !slices.Contains(first.Parts, "shards") || first.Shards.Totals.Shards != 1 {
			t.Fatalf("parts %v, shards %+v", first.Parts, first.Shards)
		}
		state() // from here on only the time and the catalog lead to another
		time.Sleep(minPollGap + minPollGap/2)
		if more, _ := s.stream.pending(r); len(more) > 0 {
			t.Fatalf("%d messages came though nothing has changed", len(more))
		}
		began := time.Now()
		g.catalog.tell()
		state()
		if took := time.Since(began); took > minPollGap {
			t.Errorf("a change was shown after %v", took)
		}
	})
}
