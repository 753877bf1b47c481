//go:build linux

package fault_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/fault"
)

// TestFaultShardStockClients has clients of Java and Node.js find the new primary after a death, a switchover and a host
// that falls silent, with the settings of docs/shard-clients.md. Those that cannot be had here are skipped by name.
func TestFaultShardStockClients(t *testing.T) {
	t.Parallel()
	java, node := javaClients(t), nodeClients(t)
	if java == nil && node == nil {
		t.Skip("neither Java with Maven nor Node.js with npm: no client is tried")
	}
	s := fault.NewShard(t, fault.ShardConfig{Programs: fault.Build(t), Database: fault.SQLite(t)})
	p := s.Settled()
	// Redisson and node-redis are told of one endpoint only, which dies with its host: they have the others from that one.
	clients := map[string]func(string) error{}
	for _, name := range []string{"jedis", "lettuce", "redisson", "ioredis", "ioredis5", "redis"} {
		start := java
		if name == "ioredis" || name == "ioredis5" || name == "redis" {
			start = node
		}
		var sentinels []string
		for _, n := range s.Nodes {
			if name != "redisson" && name != "redis" || n == p {
				sentinels = append(sentinels, n.Sentinel)
			}
		}
		if start != nil {
			clients[name] = clientProcess(t, start(name, sentinels))
		}
	}
	write := func(key string, where func() *fault.ShardNode) {
		t.Helper()
		var all sync.WaitGroup
		for name, write := range clients {
			all.Go(func() {
				if err := write(key); err != nil {
					t.Errorf("%s writes %q: %v", name, key, err)
				}
			})
		}
		all.Wait()
		at := where()
		for _, name := range slices.Sorted(maps.Keys(clients)) {
			if got := at.Must("GET", name+":"+key); got != "1" {
				t.Errorf("%s: %q is not at %s", name, key, at.Name)
			}
		}
	}
	write("before", s.Primary)
	p.KillHost()
	q := s.Moved(p)
	write("after a death", s.Primary)
	p.Start()
	s.Settled()
	if out, err := s.Understudy("shard", "switchover", "orders", "--to", p.Addr); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.Settled()
	write("after a switchover", s.Primary)
	p.SignalAgent(syscall.SIGSTOP)
	p.SignalNode(syscall.SIGSTOP)
	q = s.Moved(p)
	write("after a silence", func() *fault.ShardNode { return q })
	p.SignalNode(syscall.SIGCONT)
	p.SignalAgent(syscall.SIGCONT)
	s.Settled()
}

// javaClients returns how a Java client is started, or nil where there is none. The libraries come from Maven, once.
func javaClients(t *testing.T) func(name string, sentinels []string) *exec.Cmd {
	jars := clientLibraries(t, []string{"java", "mvn"}, "pom.xml", func(ctx context.Context, dir string) *exec.Cmd {
		return exec.CommandContext(ctx, "mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory="+dir)
	})
	if jars == "" {
		return nil
	}
	return func(name string, sentinels []string) *exec.Cmd {
		args := []string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "-cp", filepath.Join(jars, "*"), "testdata/clients/Clients.java", name}
		return exec.Command("java", append(args, sentinels...)...)
	}
}

// nodeClients is the same for Node.js.
func nodeClients(t *testing.T) func(name string, sentinels []string) *exec.Cmd {
	modules := clientLibraries(t, []string{"node", "npm"}, "package.json", func(ctx context.Context, dir string) *exec.Cmd {
		return exec.CommandContext(ctx, "npm", "install", "--silent", "--ignore-scripts", "--no-save", "--prefix", dir)
	})
	if modules == "" {
		return nil
	}
	return func(name string, sentinels []string) *exec.Cmd {
		return exec.Command("node", append([]string{filepath.Join(modules, "clients.mjs"), name}, sentinels...)...)
	}
}

// clientLibraries installs what the file in testdata/clients lists into a folder that outlives the test, and returns
// it: "" where a program is missing or the registry is not reached, which is logged.
func clientLibraries(t *testing.T, programs []string, list string, install func(ctx context.Context, dir string) *exec.Cmd) string {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Logf("skipped, since %s is not installed: the clients of %s", p, list)
			return ""
		}
	}
	text, err := os.ReadFile(filepath.Join("testdata/clients", list))
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	dir := filepath.Join(cache, "understudy-test", hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(dir); err != nil {
		if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
			t.Fatal(err)
		}
		made, err := os.MkdirTemp(filepath.Dir(dir), "new-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(made)
		for _, file := range []string{list, "clients.mjs"} {
			copyFile(t, filepath.Join("testdata/clients", file), filepath.Join(made, file))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		cmd := install(ctx, made)
		cmd.Dir = made
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Logf("skipped, since they could not be installed (%v: %.300s): the clients of %s", err, out, list)
			return ""
		}
		if err := os.Rename(made, dir); err != nil {
			t.Fatal(err)
		}
	}
	copyFile(t, "testdata/clients/clients.mjs", filepath.Join(dir, "clients.mjs"))
	return dir
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
