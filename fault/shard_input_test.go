//go:build linux

package fault_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// TestFaultShardInput gives agents and people what cannot be: a clear error, and no change.
func TestFaultShardInput(t *testing.T) {
	t.Parallel()
	programs := fault.Build(t)
	s := fault.NewShard(t, fault.ShardConfig{Programs: programs, Database: fault.SQLite(t), Nodes: 2, Timing: unhurried})
	before := s.View()
	p := s.Primary()
	p.Must("SET", "precious", "1")
	alone := realserver.Redis(t, realserver.RedisOptions{Password: "secret"})
	wrong := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(wrong, []byte("guess\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	shared := realserver.Redis(t, realserver.RedisOptions{})
	sharedPort := shared.Addr[strings.LastIndexByte(shared.Addr, ':')+1:]
	cluster := realserver.Redis(t, realserver.RedisOptions{Args: []string{"--cluster-enabled", "yes"}})
	secured := realserver.Redis(t, realserver.RedisOptions{TLS: true})
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	agent := func(name, node string, more ...string) []string {
		return append([]string{"shard", "agent", name, "--node", node, "--data", t.TempDir(), "--interval", "400ms", "--timeout", "2s", "--unfenced-start"}, more...)
	}
	starter := func(args []string) []string {
		return slices.DeleteFunc(args, func(arg string) bool { return arg == "--unfenced-start" })
	}
	for _, c := range []struct {
		name string
		args []string
		says string // while it runs on, or as it ends
	}{
		{"unknown shard", []string{"shard", "primary", "nobody"}, "nobody"},
		{"switchover of an unknown shard", []string{"shard", "switchover", "nobody"}, "nobody"},
		{"switchover to an unknown node", []string{"shard", "switchover", "orders", "--to", "127.0.0.1:1"}, "127.0.0.1:1"},
		{"switchover to the primary", []string{"shard", "switchover", "orders", "--to", p.Addr}, "is the primary already"},
		{"failover of a primary that is well", []string{"shard", "failover", "orders"}, "--force"},
		{"the primary cannot be forgotten", []string{"shard", "forget", "orders", p.Addr}, "primary"},
		{"node in two shards", agent("others", p.Addr), "registered otherwise"},
		{"node in two shards, by another address", agent("others", strings.Replace(p.Addr, "127.0.0.1", "localhost", 1)), "is the same node as that of"},
		{"another process on the port of the node", starter(agent("third", shared.Addr, "--", "redis-server", "--port", sharedPort)), "node is not managed: process"},
		{"a server in cluster mode", agent("third", cluster.Addr), "cluster mode"},
		{"a server with TLS", agent("third", secured.Addr), "does it want TLS"},
		{"a server without TLS", agent("third", shared.Addr, "--tls"), "or one without TLS"},
		{"a server that is not a Redis", agent("third", strings.TrimPrefix(other.URL, "http://")), "not a Redis protocol answer"},
		{"two agents, one node", agent("orders", p.Addr), "registered otherwise"},
		{"another address of the same node", agent("orders", strings.Replace(p.Addr, "127.0.0.1", "127.0.0.2", 1), "--private-address", p.Addr), "registered otherwise"},
		{"wrong password", agent("third", alone.Addr, "--password-file", wrong), "WRONGPASS"},
		{"no password", agent("third", alone.Addr), "NOAUTH"},
		{"no such password file", agent("third", alone.Addr, "--password-file", wrong+"x"), "password-file"},
		{"shard name with a space", agent("a b", alone.Addr), "shard name"},
		{"shard name with a line's end", agent("a\nb", alone.Addr), "shard name"},
		{"shard name with escapes", agent("\x1b[2Jx", alone.Addr), "shard name"},
		{"empty shard name", agent("", alone.Addr), "shard name"},
		{"shard name that is a path", agent("../x", alone.Addr), "shard name"},
		{"address without a port", agent("third", "127.0.0.1"), "HOST:PORT"},
		{"port that is none", agent("third", "127.0.0.1:70000"), "port"},
		{"address with a line's end", agent("third", "127.0.0.1\n:6379"), "cannot stand in"},
		{"unsafe timing", []string{"shard", "agent", "third", "--node", alone.Addr, "--data", t.TempDir(), "--interval", "1s", "--timeout", "3100ms"}, "safe are"},
	} {
		t.Run(c.name, func(t *testing.T) { says(t, s, c.args, c.says) })
	}
	unmoved(t, s, before, "bad input")
	if got := s.Settled(); got != p || got.Must("GET", "precious") != "1" {
		t.Error("the primary is not what it was")
	}
	if v := s.View(); len(v.Nodes) != len(s.Nodes) || len(v.Row.Members) != len(s.Nodes) {
		t.Errorf("%d records and %d members of %d nodes", len(v.Nodes), len(v.Row.Members), len(s.Nodes))
	}
}

// says runs a command that must not succeed until it has said the words, and ends it.
func says(t *testing.T, s *fault.Shard, args []string, words string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Programs.Understudy, append(args, "--store", s.Database.URL)...)
	log := filepath.Join(t.TempDir(), "said")
	file, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd.Stdout, cmd.Stderr = file, file
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		text, _ := os.ReadFile(log)
		said := strings.Contains(string(text), words)
		select {
		case err := <-ended:
			text, _ := os.ReadFile(log)
			if err == nil || !strings.Contains(string(text), words) || strings.Contains(string(text), "\x1b") {
				t.Errorf("it ended with %v and said %q, without %q", err, text, words)
			}
			return
		case <-time.After(20 * time.Millisecond):
		}
		if said {
			cancel()
			<-ended
			return
		}
	}
}
