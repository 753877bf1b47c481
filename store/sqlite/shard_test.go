package sqlite_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/shardtest"
	"github.com/understudy-ha/understudy/store/sqlite"
)

func TestShards(t *testing.T) {
	first := filepath.Join(t.TempDir(), "store.db")
	made, err := sqlite.Open(t.Context(), sqlite.Config{Path: first})
	if err == nil {
		err = made.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	empty, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	shardtest.TestRegistry(t, func(t *testing.T) shardtest.Subject {
		t.Parallel()
		c := newTwoClocks()
		path := filepath.Join(t.TempDir(), "store.db")
		if err := os.WriteFile(path, empty, 0o600); err != nil {
			t.Fatal(err)
		}
		cfg := sqlite.Config{Path: path, Clock: c, Wall: c.Wall}
		subject := shardSubject(open(t, cfg))
		subject.Advance = c.step
		subject.Open = func(t *testing.T) shardtest.Subject { return shardSubject(open(t, cfg)) }
		return subject
	})
}

func shardSubject(s *sqlite.Store) shardtest.Subject {
	return shardtest.Subject{Registry: s.Registry(), Commands: s.Commands(), Leases: s, History: s}
}

// TestShardWakesOfTheVersionBefore: its processes and this one's wake each other, though each follows a table of its own.
func TestShardWakesOfTheVersionBefore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, sqlite.Config{Path: path})
	ctx, stop := context.WithCancel(t.Context())
	woken, done := make(chan string, 10), make(chan error)
	go func() { done <- s.Registry().Watch(ctx, "s", func(name string) { woken <- name }) }()
	<-woken // it is ready
	if _, err := plain(t, path).Exec("INSERT INTO understudy_shard_wake (shard) VALUES ('other'), ('s')"); err != nil {
		t.Fatal(err)
	}
	if name := <-woken; name != "s" {
		t.Errorf("woken for %q", name)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := s.Registry().UpdateRow(t.Context(), shard.RowUpdate{Row: shard.Row{Name: "s"}}); err != nil {
		t.Fatal(err)
	}
	if n := count(t, path, "understudy_shard_wake WHERE shard = 's'"); n != 2 {
		t.Errorf("%d wakings for the version before, want 2", n)
	}
}

// TestShardsAfterReboot: the agents of before are no more, whatever the clocks show.
func TestShardsAfterReboot(t *testing.T) {
	c := newTwoClocks()
	cfg := sqlite.Config{Path: filepath.Join(t.TempDir(), "store.db"), Clock: c, Wall: c.Wall, BootID: "one"}
	s, ctx := open(t, cfg), t.Context()
	node := shard.Record{
		Shard: "s", ID: "0123456789012345678901234567890123456789", Address: "10.0.0.1:6379", Instance: "before", Interval: time.Second, Timeout: time.Hour,
	}
	if _, err := s.Registry().Report(ctx, node, false); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Registry().UpdateRow(ctx, shard.RowUpdate{Row: shard.Row{Name: "s", Primary: node.ID}}); err != nil {
		t.Fatal(err)
	}
	lock := shard.Lock{Shard: "s", Primary: node.ID, Value: "before"}
	if err := s.Registry().Lock(ctx, lock); err != nil {
		t.Fatal(err)
	}
	if err := s.Commands().Send(ctx, shard.Command{ID: "c", Shard: "s", Node: node.ID, Epoch: 1, Within: time.Hour}); err != nil {
		t.Fatal(err)
	}
	cfg.BootID = "two"
	s = open(t, cfg)
	v, err := s.Registry().ReadView(ctx, "s")
	if err != nil || len(v.Nodes) != 1 || v.Nodes[0].Live() || v.Lock != "" || v.Row.Rev == 0 {
		t.Errorf("after the reboot: %+v, %v", v, err)
	}
	if c, err := s.Commands().Next(ctx, node.ID, 0); !errors.Is(err, shard.ErrNoCommand) {
		t.Errorf("a command of before the reboot: %+v, %v", c, err)
	}
	if err := s.Registry().Lock(ctx, lock); err != nil {
		t.Errorf("the lock after the reboot: %v", err)
	}
	node.Instance = "after"
	if v, err := s.Registry().Report(ctx, node, false); err != nil || !v.Nodes[0].Live() {
		t.Errorf("the agent that starts after the reboot: %+v, %v", v.Nodes, err)
	}
}
