//go:build linux

package fault_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// snapshots: one file holds all of the node's data, with its place in the lineage.
func snapshots(c *fault.ShardConfig) {
	c.Server = []string{"--appendonly", "no", "--save", "3600 1000000"}
}

// rolledBack takes the primary, its data and its agent's folder back to one moment: nothing on its host contradicts it,
// and its replicas have what was acknowledged since.
func rolledBack(t *testing.T, s *fault.Shard, _ *fault.ShardLoad) {
	p := s.Primary()
	p.Must("SET", "kept:0", "0")
	p.Must("BGSAVE")
	realserver.Eventually(t, time.Minute, "the snapshot is on disk", func() error {
		if info := p.Must("INFO", "persistence"); !strings.Contains(info, "rdb_bgsave_in_progress:0") {
			return fmt.Errorf("%s", info)
		}
		return nil
	})
	files := map[string][]byte{}
	for _, name := range []string{"dump.rdb", "memory.json"} {
		text, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = text
	}
	for i := range keptWrites {
		p.Must("SET", fmt.Sprintf("kept:%d", i+1), "1")
	}
	awaitKept(t, s)
	p.KillHost()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(p.Dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.Start()
	checkKept(t, s, p)
}

// rolledBackAmongRestarts takes the primary back to a copy of its folder while both replicas restart: a log does not tell
// where it stands in a lineage, so nobody can tell who is newer. The primary must notice, and ask.
func rolledBackAmongRestarts(t *testing.T, s *fault.Shard, _ *fault.ShardLoad) {
	p := s.Settled()
	saved := p.Save()
	for i := range keptWrites {
		realserver.Eventually(t, time.Minute, p.Name+" takes a write", func() error {
			_, err := p.Do("SET", fmt.Sprintf("kept:%d", i+1), "1")
			return err
		})
	}
	awaitKept(t, s)
	realserver.Eventually(t, time.Minute, "the others know that the primary has more", func() error { return p.KnownNewer(saved) })
	for _, n := range s.Nodes {
		n.KillHost()
	}
	p.Restore(saved)
	for _, n := range s.Nodes {
		n.Start()
	}
	realserver.Eventually(t, time.Minute, "the primary asks an operator, or leads", func() error {
		if _, err := p.Do("SET", "leads", "1"); fault.AsksToCompare(p.Record()) || err == nil {
			return nil
		}
		return fmt.Errorf("%s", p.Record().Trouble)
	})
	if p.Must("GET", "leads") == "" {
		t.Logf("%s: %s", p.Name, p.Record().Trouble)
		realserver.Eventually(t, time.Minute, "an operator is heard", s.ForceBest)
	}
	checkKept(t, s, p)
}

// keptWrites is how many writes all have before the primary goes back: kept:1 and so on.
const keptWrites = 300

// awaitKept waits until all replicas have them.
func awaitKept(t *testing.T, s *fault.Shard) {
	t.Helper()
	for _, r := range s.Replicas() {
		realserver.Eventually(t, time.Minute, r.Name+" has all writes", func() error {
			if got, err := r.Do("GET", fmt.Sprintf("kept:%d", keptWrites)); err != nil || got != "1" {
				return fmt.Errorf("%q, %w", got, err)
			}
			return nil
		})
	}
}

// checkKept checks that whoever leads in the end has them, which p did when they were written.
func checkKept(t *testing.T, s *fault.Shard, p *fault.ShardNode) {
	t.Helper()
	q := s.Settled()
	lost := 0
	for i := range keptWrites {
		if got := q.Must("GET", fmt.Sprintf("kept:%d", i+1)); got != "1" {
			lost++
		}
	}
	t.Logf("%s leads, and was %s before", q.Name, p.Name)
	if lost > 0 {
		t.Errorf("%d of %d writes that both replicas had are lost", lost, keptWrites)
	}
}
