package client_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/catalog"
	"github.com/understudy-ha/understudy/store/memory"
)

// TestNamesOfQueries: the parameters are called as in the lists of all parts.
func TestNamesOfQueries(t *testing.T) {
	asked := ""
	c, err := client.New(client.Config{URL: "http://x", HTTP: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		asked = r.URL.RequestURI()
		return nil, errors.New("not now")
	})}})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Shards(t.Context(), client.ShardQuery{Contains: "ord", After: "a", Limit: 5, Trouble: true})
	if want := "/v1/shards?after=a&contains=ord&limit=5&trouble=true"; asked != want {
		t.Errorf("asked for %s, not %s", asked, want)
	}
}

// serveShards serves a store with the shard "orders": a primary, and a replica that is silent.
func serveShards(t *testing.T) (*client.Client, *memory.Store) {
	t.Helper()
	st := memory.New(nil)
	reg := st.Registry()
	row := shard.Row{Name: "orders", Epoch: 7, Primary: fmt.Sprintf("%040x", 1), PrimaryEpoch: 7}
	for n := 1; n <= 2; n++ {
		r := shard.Record{
			Shard: "orders", ID: fmt.Sprintf("%040x", n), Address: fmt.Sprintf("10.0.0.%d:6379", n), Role: shard.Primary, Condition: shard.Up,
			Txn: 100, Fence: shard.Open, Instance: fmt.Sprint("i", n), Interval: time.Minute, Timeout: time.Hour,
		}
		if n == 2 {
			r.Role, r.Txn, r.Link, r.Timeout, r.Trouble = shard.Replica, 90, &shard.Upstream{}, 1, "its primary refuses it"
		}
		if _, err := reg.Report(t.Context(), r, false); err != nil {
			t.Fatal(err)
		}
		row.Members = append(row.Members, shard.Member{ID: r.ID, Address: r.Address})
	}
	if _, err := reg.UpdateRow(t.Context(), shard.RowUpdate{Row: row}); err != nil {
		t.Fatal(err)
	}
	session := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance("host-1", ""), Timing: lease.Timing{Interval: time.Minute, Timeout: time.Hour}}
	if _, err := st.StartSession(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Acquire(t.Context(), lease.Expectation{Lease: shard.LeaseID("orders"), Session: session.ID}); err != nil {
		t.Fatal(err)
	}
	dir, err := catalog.New(catalog.Config{Registry: reg, Interval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = dir.Run(t.Context()) }()
	t.Cleanup(func() { <-done }) // its context ends before this
	s, err := api.New(api.Config{Store: st, Shards: dir, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(srv.Close)
	return connect(t, srv.URL, token), st
}

func TestShards(t *testing.T) {
	c, st := serveShards(t)
	ctx := t.Context()
	at, err := c.ShardPrimary(ctx, "orders", 0)
	if err != nil || at.Address != "10.0.0.1:6379" || at.Epoch != 7 {
		t.Errorf("primary %+v, %v", at, err)
	}
	_, err = c.ShardPrimary(ctx, "nope", time.Millisecond)
	wantCode(t, err, "not_found")
	one, err := c.Shard(ctx, "orders")
	if err != nil || one.Health != "fine" || one.Primary == nil || len(one.Nodes) != 2 || one.Nodes[1].LinkUp == nil || *one.Nodes[1].LinkUp {
		t.Errorf("shard %+v, %v", one, err)
	}
	deadline := time.Now().Add(enough)
	var list apitype.Shards
	for len(list.Shards) == 0 && time.Now().Before(deadline) { // until the catalog has read them
		list, err = c.Shards(ctx, client.ShardQuery{Trouble: true, Contains: "ORD", Limit: 5})
	}
	if err != nil || len(list.Shards) != 1 || list.Shards[0].Name != "orders" {
		t.Errorf("shards %+v, %v", list, err)
	}

	if err := c.PauseShard(ctx, "orders", "new switch", "alice"); err != nil {
		t.Fatal(err)
	}
	if v, _ := st.Registry().ReadView(ctx, "orders"); v.Row.Paused == nil || v.Row.Paused.Reason != "new switch" {
		t.Errorf("paused: %+v", v.Row.Paused)
	}
	if err := c.ResumeShard(ctx, "orders", "alice"); err != nil {
		t.Fatal(err)
	}
	if err := c.ForgetShardNode(ctx, "orders", "10.0.0.2:6379", "alice"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, c.ForgetShardNode(ctx, "orders", "10.0.0.1:6379", "alice"), "invalid")
}

func TestShardRequests(t *testing.T) {
	c, st := serveShards(t)
	ctx := t.Context()
	asked, err := c.Switchover(ctx, "orders", client.Switchover{To: "10.0.0.2:6379", Timeout: time.Second, By: "alice", Wait: time.Millisecond})
	if err != nil || asked.State != "waiting" {
		t.Fatalf("asked %+v, %v", asked, err)
	}
	_, err = c.Failover(ctx, "orders", client.Failover{Force: true})
	wantCode(t, err, "under_way")
	if got, err := c.ShardRequest(ctx, "orders", asked.Request, 0); err != nil || got.State != "waiting" {
		t.Errorf("request %+v, %v", got, err)
	}
	v, err := st.Registry().ReadView(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	row := v.Row.Copy()
	row.Request, row.Last = nil, &shard.Plan{Epoch: 8, Kind: shard.Switchover, Request: asked.Request, Failed: "its copy is not complete"}
	if _, err := st.Registry().UpdateRow(ctx, shard.RowUpdate{Row: row}); err != nil {
		t.Fatal(err)
	}
	got, err := c.ShardRequest(ctx, "orders", asked.Request, time.Minute)
	if err != nil || got.State != "failed" || got.Error == "" || got.Plan.Epoch != 8 {
		t.Errorf("refused: %+v, %v", got, err)
	}
	again, err := c.Failover(ctx, "orders", client.Failover{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CancelShardRequest(ctx, "orders", again.Request, "alice"); err != nil {
		t.Fatal(err)
	}
	_, err = c.ShardRequest(ctx, "orders", again.Request, 0)
	wantCode(t, err, "not_found")
}
