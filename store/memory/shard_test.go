package memory_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/shardtest"
	"github.com/understudy-ha/understudy/store/memory"
)

func TestShards(t *testing.T) {
	shardtest.TestRegistry(t, func(t *testing.T) shardtest.Subject {
		t.Parallel()
		var mu sync.Mutex
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		s := memory.New(func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return now
		})
		return shardtest.Subject{
			Registry: s.Registry(), Commands: s.Commands(), Leases: s, History: s,
			Advance: func(d time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				now = now.Add(d)
			},
		}
	})
}

// TestShardsRestored puts a store back to a backup, while someone waits and watches.
func TestShardsRestored(t *testing.T) {
	s := memory.New(nil)
	r, ctx := s.Registry(), t.Context()
	node := shard.Record{
		Shard: "s", ID: "0123456789012345678901234567890123456789", Address: "10.0.0.1:6379", Txn: 1, Interval: time.Second, Timeout: time.Hour,
	}
	report := func(txn int64) {
		t.Helper()
		node.Txn = txn
		if _, err := r.Report(ctx, node, false); err != nil {
			t.Fatal(err)
		}
	}
	decide := func(rev, epoch int64) int64 {
		t.Helper()
		rev, err := r.UpdateRow(ctx, shard.RowUpdate{Row: shard.Row{Name: "s", Rev: rev, Epoch: epoch, Primary: node.ID}})
		if err != nil {
			t.Fatal(err)
		}
		return rev
	}
	report(1)
	first := decide(0, 1)
	backup := s.Snapshot()
	want, err := r.ReadView(ctx, "s")
	if err != nil {
		t.Fatal(err)
	}
	report(2)
	lost := decide(first, 2)
	if err := r.Lock(ctx, shard.Lock{Shard: "s", Primary: node.ID, Value: "v"}); err != nil {
		t.Fatal(err)
	}
	woken := make(chan string, 10)
	go func() { _ = r.Watch(ctx, "s", func(name string) { woken <- name }) }()
	<-woken
	got := make(chan shard.Command, 1)
	go func() {
		c, err := s.Commands().Next(ctx, node.ID, shard.MaxWait)
		if err != nil {
			t.Errorf("Next over a restore: %v", err)
		}
		got <- c
	}()
	s.Restore(backup)
	v, err := r.ReadView(ctx, "s")
	if err != nil || v.Nodes[0].Txn != 1 || v.Lock != "" {
		t.Errorf("restored: %+v, %v", v, err)
	}
	if diff := cmp.Diff(want.Row, v.Row); diff != "" {
		t.Errorf("the row (-want +got):\n%s", diff)
	}
	if again := decide(first, 3); again <= first || again == lost {
		t.Errorf("revision %d was given before and after the restore", again)
	}
	if name := <-woken; name != "s" {
		t.Errorf("woken for %q", name)
	}
	c := shard.Command{ID: "c", Shard: "s", Node: node.ID, Epoch: 1, Order: shard.OrderFence, Within: time.Minute}
	if err := s.Commands().Send(ctx, c); err != nil {
		t.Fatal(err)
	}
	if c := <-got; c.ID != "c" {
		t.Errorf("got %+v", c)
	}
}
