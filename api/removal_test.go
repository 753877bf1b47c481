package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/catalog"
	"github.com/understudy-ha/understudy/store/memory"
)

// TestRemoval: queues, shards, sources and checks that have no use any more are deleted, and the history says by whom.
func TestRemoval(t *testing.T) {
	clock := newStepped()
	st := memory.New(clock.storeNow)
	shards, err := catalog.New(catalog.Config{Registry: st.Registry()})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Store: st, Shards: shards, Clock: clock, Limits: Limits{Act: Rate{PerSecond: -1}}})
	if err != nil {
		t.Fatal(err)
	}
	remove := func(path string) answer {
		return send(t, s, request(t.Context(), http.MethodDelete, "/v1/"+path, ""))
	}
	told := func(part, subject, want string) {
		t.Helper()
		events, err := st.Read(t.Context(), history.Query{Part: part, Subject: subject, Newest: true, Limit: 1})
		if err != nil || len(events) != 1 || events[0].Reason != want {
			t.Errorf("the history of %s %s: %+v, %v; want %q", part, subject, events, err, want)
		}
	}

	admin := st.QueueAdmin()
	if err := admin.CreateQueue(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Add(t.Context(), []dispatch.Message{{Queue: "orders", Key: "k", ID: "a"}, {Queue: "orders", Key: "k", ID: "b"}}); err != nil {
		t.Fatal(err)
	}
	session := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance("w", ""), Timing: lease.Timing{Interval: time.Second, Timeout: time.Minute}}
	if _, err := st.StartSession(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Claims().Join(t.Context(), claim.Member{Space: dispatch.Space("orders"), Session: session.ID}); err != nil {
		t.Fatal(err)
	}
	remove("queues/orders?messages=2").want(409, "wrong_state")
	if err := st.EndSession(t.Context(), session.ID, "stopped"); err != nil {
		t.Fatal(err)
	}
	if a := remove("queues/orders"); a.Status != 409 || !strings.Contains(a.Body, "has 2 messages") {
		t.Errorf("without a number: %d %s", a.Status, a.Body)
	}
	remove("queues/orders?messages=3").want(409, "wrong_state")
	remove("queues/orders?messages=-1").want(400, "invalid")
	remove("queues/orders?messages=2&by=alice").want(204, "")
	remove("queues/orders").want(404, "no_queue")
	told("batch", "orders", "queue removed with 2 messages by alice (192.0.2.1)")

	record := shard.Record{Shard: "main", ID: fmt.Sprintf("%040d", 1), Address: "a:1", Instance: "agent", Interval: time.Second, Timeout: 5 * time.Second, Run: "r", Engine: "redis", Role: shard.Replica, Condition: shard.Up}
	if _, err := st.Registry().Report(t.Context(), record, false); err != nil {
		t.Fatal(err)
	}
	remove("shards/main").want(400, "invalid")
	clock.pass(time.Minute)
	remove("shards/main?by=alice").want(204, "")
	remove("shards/main").want(404, "not_found")
	told("shard", "main", "shard removed by alice (192.0.2.1)")

	table := st.Monitor()
	if _, err := table.Configure(t.Context(), monitor.Configuration{Checks: []monitor.Check{{Name: "disk", Interval: time.Second}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Declare(t.Context(), []monitor.Declaration{{Check: "disk", Source: "a"}}); err != nil {
		t.Fatal(err)
	}
	remove("sources/disk/b").want(404, "no_source")
	remove("sources/disk/a?by=alice").want(204, "")
	remove("sources/disk/a").want(404, "no_source")
	told("monitor", "disk/a", "remove by alice (192.0.2.1)")
	remove("checks/cpu").want(404, "no_event")
	remove("checks/disk?by=alice").want(204, "")
	remove("checks/disk").want(404, "no_event")
	told("monitor", "disk", "remove by alice (192.0.2.1)")
}
