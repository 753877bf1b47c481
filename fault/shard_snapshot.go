//go:build linux

package fault

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/engine/redis"
)

// appendManifest names the files of a node's log, within its folder.
const appendManifest = "appendonlydir/appendonly.aof.manifest"

// savedNames are what a node and its agent know after a restart.
var savedNames = []string{"appendonlydir", "memory.json"}

// Save returns a copy of a node's folder: its data, and what its agent remembers.
func (n *ShardNode) Save() (to string) {
	tb := n.shard.tb
	tb.Helper()
	to = tb.TempDir()
	realserver.Eventually(tb, patience, "a snapshot of "+n.Name, func() error {
		before, err := os.ReadFile(filepath.Join(n.Dir, appendManifest))
		if err != nil {
			return err
		}
		for _, name := range savedNames {
			if err := os.RemoveAll(filepath.Join(to, name)); err != nil {
				return err
			}
			if err := copyAll(filepath.Join(n.Dir, name), filepath.Join(to, name)); err != nil {
				return err
			}
		}
		if after, err := os.ReadFile(filepath.Join(n.Dir, appendManifest)); err != nil || !bytes.Equal(before, after) {
			return fmt.Errorf("the files were exchanged: %v", err)
		}
		return nil
	})
	return to
}

// Restore takes a host on which nothing runs back to what it had.
func (n *ShardNode) Restore(from string) {
	tb := n.shard.tb
	tb.Helper()
	n.Empty()
	for _, name := range savedNames {
		if err := copyAll(filepath.Join(from, name), filepath.Join(n.Dir, name)); err != nil {
			tb.Error(err)
		}
	}
}

// copyAll copies a file, or a folder of files.
func copyAll(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(to, os.DirFS(from))
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}

// KnownNewer reports whether every other member's agent knows that the node, the primary, has more than a copy of its
// folder: from then on they notice if it comes back with that.
func (n *ShardNode) KnownNewer(saved string) error {
	engines, err := redis.New(redis.Config{})
	if err != nil {
		return err
	}
	old, err := engines.(shard.LogReader).ReadLog(filepath.Join(saved, appendManifest))
	if err != nil {
		return err
	}
	v, err := n.shard.Look()
	if err != nil {
		return err
	}
	id := ""
	for _, r := range v.Nodes {
		if r.Address == n.Addr {
			id = r.ID
		}
	}
	if id != v.Row.Primary {
		return fmt.Errorf("%s is not the primary", n.Name)
	}
	for _, r := range v.Nodes {
		if l := r.PrimaryLog; r.ID != id && (l.Node != id || !old.Lacks(l.Written)) {
			return fmt.Errorf("%s knows %+v; the copy has %+v", r.Address, l, old)
		}
	}
	return nil
}

// AsksToCompare reports whether the agent of the primary asks an operator to choose, as nobody can tell who has most.
func AsksToCompare(r shard.Record) bool {
	return strings.Contains(r.Trouble, "Compare them, and choose")
}

// ForceBest does what an operator does whom a primary asks to: it looks at the nodes, and has the one with the most keys
// promoted.
func (s *Shard) ForceBest() error {
	var best *ShardNode
	most := -1
	for _, n := range s.Nodes {
		text, err := n.Do("DBSIZE")
		if err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
		keys := 0
		if _, err := fmt.Sscan(text, &keys); err != nil {
			return err
		}
		if keys > most {
			best, most = n, keys
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	desk := shard.Admin{Registry: s.Shards().Registry(), By: "test"}
	_, err := desk.RequestPlan(ctx, shardName, shard.Request{Kind: shard.Failover, Force: true}, best.Addr)
	return err
}
