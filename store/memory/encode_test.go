package memory_test

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/store/memory"
)

// A snapshot that was encoded and decoded is the same one, and the one that SableDB keeps since the first version.
func TestEncode(t *testing.T) {
	ctx := context.Background()
	now := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
	s := memory.New(func() time.Time { return now })
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"s1", "s2", "s3"} {
		n := lease.Session{ID: id, Instance: lease.Instance{ID: "i-" + id, Name: "x", Address: "10.0.0.9:1"}, Timing: lease.Timing{Interval: time.Second, Timeout: time.Minute}}
		_, err := s.StartSession(ctx, n)
		check(err)
	}
	id := lease.ID{Space: "role", Key: "r"}
	_, err := s.Acquire(ctx, lease.Expectation{Lease: id, Session: "s1", Places: 2})
	check(err)
	_, err = s.Join(ctx, id, "s2")
	check(err)
	check(s.RequestRelease(ctx, id, "i-s2", "ops"))
	free := lease.ID{Space: "role", Key: "free"}
	held, err := s.Acquire(ctx, lease.Expectation{Lease: free, Session: "s3"})
	check(err)
	check(s.Release(ctx, lease.ReleaseRequest{Lease: free, Session: "s3", Term: held.Term, Successor: "i-s1", Reserve: time.Second}))
	check(s.EndSession(ctx, "s3", "stopped"))
	node := "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1"
	_, err = s.Registry().Report(ctx, shard.Record{Shard: "orders", ID: node, Address: "10.0.0.1:6379", Instance: "i", Interval: time.Second, Timeout: time.Minute, Link: &shard.Upstream{Up: true}}, true)
	check(err)
	taken := shard.Command{ID: "c0", Shard: "orders", Node: "b" + node[1:], Epoch: 1, Order: shard.OrderFence, Within: time.Minute}
	_, err = s.Registry().UpdateRow(ctx, shard.RowUpdate{Row: shard.Row{Name: "orders", Primary: node, Members: []shard.Member{{ID: node}}},
		Commands: []shard.Command{taken, {ID: "c1", Shard: "orders", Node: node, Epoch: 1, Order: shard.OrderFence, Within: time.Minute}}})
	check(err)
	_, err = s.Commands().Next(ctx, taken.Node, 0) // a queue without commands is none
	check(err)
	check(s.Registry().Lock(ctx, shard.Lock{Shard: "orders", Primary: node, Value: "me"}))
	_, err = s.TokenTable().Change(ctx, "add", func([]access.Token, time.Time) (access.Change, error) {
		return access.Change{Token: access.Token{ID: "t1", Name: "n", Sum: [32]byte{1, 2}}}, nil
	})
	check(err)

	text, err := s.Snapshot().Encode()
	check(err)
	kept, err := os.ReadFile("testdata/state.json")
	check(err)
	if !bytes.Equal(text, bytes.TrimSpace(kept)) {
		t.Errorf("it is\n%s\nand SableDB keeps\n%s", text, kept)
	}
	back, err := memory.DecodeSnapshot(text)
	check(err)
	other := memory.New(nil)
	other.Restore(back)
	again, err := other.Snapshot().Encode()
	check(err)
	if !bytes.Equal(text, again) {
		t.Errorf("it was\n%s\nand is\n%s", text, again)
	}
	if _, err := memory.DecodeSnapshot([]byte(`{"tokens":[{"sum":"zz"}]}`)); err == nil {
		t.Error("a token without a sum is taken")
	}
}
