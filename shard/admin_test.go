package shard_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/shardtest"
	"github.com/understudy-ha/understudy/store/memory"
)

// A node that would be one member too many cannot be forced: the desk says so, and what to do.
func TestDeskRefusesOneMemberTooMany(t *testing.T) {
	store := memory.New(nil)
	registry := store.Registry()
	desk := shard.Admin{Registry: registry, By: "test"}
	id := func(i int) string { return fmt.Sprintf("%040x", i) }
	report := func(i int) {
		t.Helper()
		address := fmt.Sprintf("10.0.0.%d:6379", i)
		_, err := registry.Report(t.Context(), shard.Record{Shard: "s", ID: id(i), Address: address, Announced: address, Role: shard.Replica, Condition: shard.Up,
			Instance: fmt.Sprint("agent ", i), Interval: time.Second, Timeout: time.Minute, Run: fmt.Sprint("run ", i), Engine: "test"}, true)
		if err != nil {
			t.Fatal(err)
		}
	}
	report(1)
	report(99)
	row := shard.Row{Name: "s", Epoch: 1, Primary: id(1), PrimaryEpoch: 1, Secret: "secret"}
	for i := range shard.MaxMembers {
		row.Members = append(row.Members, shard.Member{ID: id(i + 1), Address: fmt.Sprintf("10.0.0.%d:6379", i+1)})
	}
	var err error
	if row.Rev, err = registry.UpdateRow(t.Context(), shard.RowUpdate{Row: row}); err != nil {
		t.Fatal(err)
	}
	force := shard.Request{Kind: shard.Failover, Force: true}
	if _, err := desk.RequestPlan(t.Context(), "s", force, id(99)); !errors.Is(err, lease.ErrInvalid) || !strings.Contains(err.Error(), "understudy shard forget s NODE") {
		t.Errorf("a member too many: %v", err)
	}
	if _, err := desk.RequestPlan(t.Context(), "s", force, id(2)); err != nil {
		t.Error("a member was refused:", err)
	}
	v, err := registry.ReadView(t.Context(), "s")
	if err != nil || v.Row.Request == nil || v.Row.Request.To != id(2) {
		t.Fatalf("the request is %+v: %v", v.Row.Request, err)
	}
	row = v.Row.Copy()
	row.Request, row.Members = nil, row.Members[:shard.MaxMembers-1]
	if _, err := registry.UpdateRow(t.Context(), shard.RowUpdate{Row: row}); err != nil {
		t.Fatal(err)
	}
	if _, err := desk.RequestPlan(t.Context(), "s", force, id(99)); err != nil {
		t.Error("the last free place was refused:", err)
	}
}

// Whoever gets no answer is told that the request may have been taken, and where that is to be seen.
func TestDeskGetsNoAnswer(t *testing.T) {
	c := memory.New(nil)
	line := &shardtest.Line{Registry: c.Registry(), Commands: c.Commands(), Leases: c}
	registry, _, _ := line.Ports()
	if _, err := registry.UpdateRow(t.Context(), shard.RowUpdate{Row: shard.Row{Name: "s", Epoch: 1, Primary: strings.Repeat("a", 40), PrimaryEpoch: 1, Secret: "secret"}}); err != nil {
		t.Fatal(err)
	}
	line.Intercept(func(call string) error {
		if call == "decide" {
			return lease.ErrUnknown
		}
		return nil
	})
	err := shard.Admin{Registry: registry, By: "test"}.Pause(t.Context(), "s", "a new switch")
	if !errors.Is(err, lease.ErrUnknown) || !strings.Contains(err.Error(), "understudy shard show s") {
		t.Errorf("%v", err)
	}
}
