package memory_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/store/memory"
)

// A snapshot that was encoded and decoded is the same one.
func TestEncode(t *testing.T) {
	ctx := context.Background()
	s := memory.New(nil)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	n := lease.Session{ID: "s1", Instance: lease.NewInstance("x", ""), Timing: lease.Timing{Interval: time.Second, Timeout: time.Minute}}
	_, err := s.StartSession(ctx, n)
	check(err)
	id := lease.ID{Space: "role", Key: "r"}
	_, err = s.Acquire(ctx, lease.Expectation{Lease: id, Session: "s1"})
	check(err)
	_, err = s.Join(ctx, id, "s1")
	check(err)
	node := "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1"
	_, err = s.Registry().Report(ctx, shard.Record{Shard: "orders", ID: node, Address: "10.0.0.1:6379", Instance: "i", Interval: time.Second, Timeout: time.Minute, Link: &shard.Upstream{Up: true}}, true)
	check(err)
	_, err = s.Registry().UpdateRow(ctx, shard.RowUpdate{Row: shard.Row{Name: "orders", Primary: node, Members: []shard.Member{{ID: node}}},
		Commands: []shard.Command{{ID: "c1", Shard: "orders", Node: node, Epoch: 1, Order: shard.OrderFence, Within: time.Minute}}})
	check(err)
	check(s.Registry().Lock(ctx, shard.Lock{Shard: "orders", Primary: node, Value: "me"}))
	_, err = s.TokenTable().Change(ctx, "add", func([]access.Token, time.Time) (access.Change, error) {
		return access.Change{Token: access.Token{ID: "t1", Name: "n", Sum: [32]byte{1, 2}}}, nil
	})
	check(err)

	text, err := s.Snapshot().Encode()
	check(err)
	for _, part := range []string{`"s1"`, `"role"`, `"waiting"`, `"orders"`, `"link"`, `"c1"`, `"me"`, `"0102`} {
		if !bytes.Contains(text, []byte(part)) {
			t.Errorf("%s is not in %s", part, text)
		}
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
