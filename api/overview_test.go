package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/internal/attention"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/store/memory"
)

// overview looks again.
func (g *rig) overview() (out apitype.Overview) {
	g.t.Helper()
	g.s.overview.snapshot.invalidate()
	a := g.do("GET", "/v1/overview", "")
	a.want(200, "")
	a.into(&out)
	return out
}

// ofPart is what the overview says of a part.
func ofPart(v apitype.Overview, part string) (held apitype.Held, needs []apitype.Need) {
	for _, h := range v.Held {
		if h.Part == part {
			held = h
		}
	}
	for _, n := range v.Needs {
		if n.Part == part {
			needs = append(needs, n)
		}
	}
	return held, needs
}

func TestOverviewOfRolesAndQueues(t *testing.T) {
	g := newQueueRig(t)
	s := g.session("web-1")
	g.put(s).want(200, "")
	g.do("PUT", "/v1/leases/role/reports", `{"session":"`+s+`"}`).want(200, "")
	l, err := g.store.Get(t.Context(), lease.ID{Space: "role", Key: "reports"})
	if err != nil {
		t.Fatal(err)
	}
	g.do("DELETE", "/v1/leases/role/reports", fmt.Sprintf(`{"session":%q,"term":%d}`, s, l.Term)).want(204, "")
	g.clock.pass(3 * time.Second)
	g.add("a", "a0", "x")
	g.add("b", "b0", "x")
	g.block("a")
	g.s.queues.invalidate()

	v := g.overview()
	if !v.At.Equal(g.clock.storeNow()) || len(v.Errors) > 0 || v.MoreNeeds != 0 {
		t.Errorf("at %v, errors %q, %d more", v.At, v.Errors, v.MoreNeeds)
	}
	held, _ := ofPart(v, "role")
	want := apitype.Held{Part: "role", Total: 2, Held: 1, Wrong: []apitype.Wrong{{Subject: "reports", What: "vacant for 3 s, no standby"}}}
	if diff := cmp.Diff(want, held); diff != "" {
		t.Errorf("roles (-want +got):\n%s", diff)
	}
	held, needs := ofPart(v, "queue")
	want = apitype.Held{Part: "queue", Total: 1, Wrong: []apitype.Wrong{{Subject: "orders", What: "2 waiting, no instance delivers"}}}
	if diff := cmp.Diff(want, held); diff != "" {
		t.Errorf("queues (-want +got):\n%s", diff)
	}
	wanted := []apitype.Need{
		{Part: "queue", Subject: "orders", Severity: "bad", What: "2 waiting, no instance delivers: start an instance that has this queue"},
		{Part: "queue", Subject: "orders", Item: "a", ID: "a0", Severity: "bad", What: "Blocked: no such account"},
	}
	if diff := cmp.Diff(wanted, needs); diff != "" {
		t.Errorf("what needs an operator (-want +got):\n%s", diff)
	}
	c := v.Changes
	if c.Total < 4 || c.More || !c.Since.Equal(v.At.Add(-time.Hour)) {
		t.Errorf("changes: %+v", c)
	}
	for _, group := range c.Groups {
		if group.Part == "role" && group.Subject == "reports" {
			if group.Count != 2 || group.Latest.To != "" || !group.First.Before(v.At) {
				t.Errorf("what happened to reports: %+v", group)
			}
			return
		}
	}
	t.Errorf("reports is not among the changes: %+v", c.Groups)
}

// TestOverviewOfManyQueues: what is wrong with a queue that the page's list leaves out is reported all the same.
func TestOverviewOfManyQueues(t *testing.T) {
	g := newQueueRig(t)
	for n := range maxShown {
		if err := g.store.QueueAdmin().CreateQueue(t.Context(), fmt.Sprintf("a-%03d", n)); err != nil {
			t.Fatal(err)
		}
	}
	g.add("a", "a0", "x")
	g.block("a")
	g.s.queues.invalidate()
	held, needs := ofPart(g.overview(), "queue")
	want := apitype.Held{Part: "queue", Total: maxShown + 1, Held: maxShown, Wrong: []apitype.Wrong{{Subject: "orders", What: "1 waiting, no instance delivers"}}}
	if diff := cmp.Diff(want, held); diff != "" {
		t.Errorf("queues (-want +got):\n%s", diff)
	}
	if len(needs) != 2 || needs[1].Item != "a" || needs[1].What != "Blocked: no such account" {
		t.Errorf("what needs an operator: %+v", needs)
	}
	if s := g.s.poller.state(t.Context(), nil); s.BlockedKeys != 1 || len(s.Queues.List) != maxShown {
		t.Errorf("%d keys are blocked in the state, which lists %d queues", s.BlockedKeys, len(s.Queues.List))
	}
}

// TestOverviewOfUnreadKeys: the blocked keys of very many queues are not read, but their queues are named and the keys counted.
func TestOverviewOfUnreadKeys(t *testing.T) {
	var v overviewBuilder
	v.addQueues(queueSnapshot{views: []apitype.Queue{{Queue: "orders", Blocked: 3, Holders: []apitype.Holder{{}}}}}, nil)
	want := []apitype.Need{{Part: "queue", Subject: "orders", Severity: "bad", What: "3 keys blocked"}}
	if diff := cmp.Diff(want, v.Needs); diff != "" || v.MoreNeeds != 2 {
		t.Errorf("%d more; what needs an operator (-want +got):\n%s", v.MoreNeeds, diff)
	}
}

func TestGrouped(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	var events []history.Event
	for n := range history.MaxRead {
		events = append(events, history.Event{ID: int64(n + 1), At: since.Add(time.Duration(n-2) * time.Second), Part: "role", Subject: fmt.Sprint("r", n%60)})
	}
	v := groupChanges(events, since)
	if v.Total != history.MaxRead-2 || len(v.Groups) != maxGroups || !v.More {
		t.Errorf("%d events in %d groups, more %t", v.Total, len(v.Groups), v.More)
	}
	if g := v.Groups[0]; g.Latest.ID != history.MaxRead || g.Count != 17 && g.Count != 16 {
		t.Errorf("the first is %+v", g)
	}
	if v := groupChanges(events[:4], since); v.Total != 2 || v.More {
		t.Errorf("of four, two of them old: %+v", v)
	}
	if v := groupChanges(events, since.Add(-time.Hour)); !v.More || v.Total != history.MaxRead {
		t.Errorf("there may be older ones, and nothing says so: %d, %t", v.Total, v.More)
	}
}

func TestOverviewOfShards(t *testing.T) {
	g := newShardRig(t)
	held, needs := ofPart(g.overview(), "shard")
	if held.Total != 1 || held.Held != 1 || len(held.Wrong)+len(needs) != 0 {
		t.Errorf("a shard that is well: %+v, %+v", held, needs)
	}
	g.decide(func(r *shard.Row) { r.Paused = &shard.Pause{By: "alice"} })
	if _, needs = ofPart(g.overview(), "shard"); len(needs) != 1 || needs[0].Severity != "warn" || !strings.Contains(needs[0].What, "Paused by alice") {
		t.Errorf("paused: %+v", needs)
	}
	l, err := g.store.Get(t.Context(), shard.LeaseID("orders"))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.store.EndSession(t.Context(), l.Session, "it died"); err != nil {
		t.Fatal(err)
	}
	g.report("orders", 1, func(r *shard.Record) { r.Condition = shard.Down })
	if _, needs = ofPart(g.overview(), "shard"); len(needs) != 1 || needs[0].Severity != "bad" || needs[0].What == "" {
		t.Errorf("its primary has died: %+v; %+v", needs, g.show())
	}
	many := manyShards{fakeCatalog: g.catalog}
	for n := range maxShown + maxNeeds {
		many.views = append(many.views, shard.View{Row: shard.Row{Name: fmt.Sprint("s", n)}}) // without a primary
	}
	g.s.shards.catalog = many
	v := g.overview()
	held, needs = ofPart(v, "shard")
	if held.Total != len(many.views) || held.Held != 0 || len(held.Wrong)+held.More != held.Total || len(needs) != maxNeeds || v.MoreNeeds != maxShown {
		t.Errorf("more than the page lists: %+v; %d needs and %d more", held, len(needs), v.MoreNeeds)
	}
}

// manyShards is a catalog of others.
type manyShards struct {
	*fakeCatalog
	views []shard.View
}

func (d manyShards) Shards() []shard.View { return d.views }

func TestOverviewOfMonitor(t *testing.T) {
	g := newMonitorRig(t, every("web"))
	g.down("web", "w1", "w2")
	held, needs := ofPart(g.overview(), "monitor")
	if held.Total != monitor.Partitions || held.Held != 0 || len(held.Wrong) != 1 {
		t.Errorf("nobody looks after the sources: %+v", held)
	}
	if len(needs) != 3 || needs[0].Severity != "bad" || !strings.HasPrefix(needs[0].What, "no instance watches 64 of the 64 partitions") {
		t.Fatalf("not watched, and two alarms: %+v", needs)
	}
	if needs = needs[1:]; needs[0].Subject != "web" || needs[0].Severity != "bad" || needs[0].ID == "" || needs[0].What != "failed" {
		t.Fatalf("two alarms: %+v", needs)
	}
	g.do("POST", "/v1/alarms/"+needs[0].ID+"/acknowledge", `{"by":"alice"}`).want(200, "")
	_, again := ofPart(g.overview(), "monitor")
	if len(again) != 3 || again[2].ID != needs[0].ID || again[2].Severity != "warn" || !strings.Contains(again[2].What, "known to alice") {
		t.Errorf("one of them is known: %+v", again)
	}
}

func TestOverviewOfCache(t *testing.T) {
	p := newStandIn()
	s, err := New(Config{Store: memory.New(nil), Cache: p})
	if err != nil {
		t.Fatal(err)
	}
	g := &rig{t: t, s: s}
	if held, needs := ofPart(g.overview(), "cache"); held.Held != 3 || len(held.Wrong)+len(needs) != 0 { // one link is dead, which the doctor says
		t.Errorf("a peer that is well: %+v, %+v", held, needs)
	}
	p.view.Partitioned, p.view.Connected = true, 1
	if held, needs := ofPart(g.overview(), "cache"); len(held.Wrong) != 1 || !strings.Contains(held.Wrong[0].What, "alone") || len(needs) != 1 || needs[0].Severity != "bad" {
		t.Errorf("a peer that is alone: %+v, %+v", held, needs)
	}
	p.refuse = fmt.Errorf("it is closing")
	if v := g.overview(); len(v.Errors) != 1 || !strings.Contains(v.Errors[0], "it is closing") {
		t.Errorf("a peer that does not answer: %+v", v)
	}
}

func TestOverviewWithoutItsStore(t *testing.T) {
	st := &flaky{Store: memory.New(nil)}
	s, err := New(Config{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	g := &rig{t: t, s: s}
	st.down.Store(true)
	g.do("GET", "/v1/overview", "").want(503, "store_unavailable")
	st.down.Store(false)
	if v := g.overview(); len(v.Errors) != 0 || v.Held == nil || v.Needs == nil || v.Changes.Groups == nil {
		t.Errorf("of nothing: %+v", v)
	}
	st.down.Store(true)
	if v := g.overview(); len(v.Errors) != 1 || v.At.IsZero() {
		t.Errorf("what was known is not given: %+v", v)
	}
}

func TestOverviewIsBounded(t *testing.T) {
	var v overviewBuilder
	h := apitype.Held{}
	for n := range maxNeeds + 5 {
		v.addNeed(apitype.Need{Subject: fmt.Sprint(n)})
		addWrong(&h, fmt.Sprint(n), "")
	}
	if len(v.Needs) != maxNeeds || v.MoreNeeds != 5 || len(h.Wrong) != maxWrong || h.More != maxNeeds+5-maxWrong {
		t.Errorf("%d needs and %d more; %d wrong and %d more", len(v.Needs), v.MoreNeeds, len(h.Wrong), h.More)
	}
	v.Needs[1].Severity = attention.Bad
	for n := range maxNeeds {
		v.addNeed(apitype.Need{Subject: fmt.Sprint("bad ", n), Severity: attention.Bad})
	}
	isWarning := func(n apitype.Need) bool { return n.Severity != attention.Bad }
	if len(v.Needs) != maxNeeds || v.MoreNeeds != maxNeeds+5 || slices.ContainsFunc(v.Needs, isWarning) || v.Needs[0].Subject != "1" {
		t.Errorf("%d needs and %d more; warnings take the places of the bad: %+v", len(v.Needs), v.MoreNeeds, v.Needs)
	}
}
