//go:build linux

package fault_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// TestFaultShardClients has stock clients find the new primary: through the agents' Sentinel endpoints, and
// behind an HAProxy that asks the agents' checks.
func TestFaultShardClients(t *testing.T) {
	t.Parallel()
	s := fault.NewShard(t, fault.ShardConfig{Programs: fault.Build(t), Database: fault.SQLite(t)})
	var sentinels []string
	for _, n := range s.Nodes {
		sentinels = append(sentinels, n.Sentinel)
	}
	client := goredis.NewFailoverClient(&goredis.FailoverOptions{MasterName: "orders", SentinelAddrs: sentinels})
	defer client.Close()
	others := slices.Sorted(slices.Values(sentinels[1:]))
	if got := endpointsOf(t, sentinels[0]); !slices.Equal(got, others) {
		t.Errorf("the endpoint at %s names %v, want %v", sentinels[0], got, others)
	}
	proxy := haproxy(t, s)
	python := pythonWriter(t, sentinels)
	write := func(key string) {
		t.Helper()
		realserver.Eventually(t, time.Minute, "go-redis writes "+key, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			return client.Set(ctx, "go:"+key, "1", 0).Err()
		})
		realserver.Eventually(t, time.Minute, "a client of HAProxy writes "+key, func() error {
			_, err := fault.AskRedis(proxy, "SET", "haproxy:"+key, "1")
			return err
		})
		if err := python(key); err != nil {
			t.Fatalf("redis-py writes %s: %v", key, err)
		}
	}
	written := func(key string, n *fault.ShardNode) {
		t.Helper()
		for _, who := range []string{"go:", "haproxy:", "python:"} {
			if got := n.Must("GET", who+key); got != "1" {
				t.Errorf("%s%s is not at %s", who, key, n.Name)
			}
		}
	}
	p := s.Primary()
	write("before")
	written("before", p)
	p.KillHost()
	q := s.Moved(p)
	write("after a death")
	written("after a death", q)
	p.Start()
	s.Settled()
	if out, err := s.Understudy("shard", "switchover", "orders", "--to", p.Addr); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.Settled()
	write("after a switchover")
	written("after a switchover", p)
	p.KillAgent()
	write("while its agent is dead")
	written("while its agent is dead", p)
}

// endpointsOf returns the Sentinel endpoints that the one at the address names, in order.
func endpointsOf(t *testing.T, address string) (all []string) {
	client := goredis.NewSentinelClient(&goredis.Options{Addr: address})
	defer client.Close()
	list, err := client.Sentinels(t.Context(), "orders").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		all = append(all, net.JoinHostPort(e["ip"], e["port"]))
	}
	slices.Sort(all)
	return all
}

// haproxy runs the configuration of the example on the ports of the shard.
func haproxy(t *testing.T, s *fault.Shard) (addr string) {
	program := realserver.Find(t, "haproxy", "/usr/sbin/haproxy")
	config, err := os.ReadFile("../examples/redis-haproxy/haproxy.cfg")
	if err != nil {
		t.Fatal(err)
	}
	port := realserver.FreePort(t)
	ports := []string{"127.0.0.1:6390", fmt.Sprintf("127.0.0.1:%d", port), "127.0.0.1:6391", fmt.Sprintf("127.0.0.1:%d", realserver.FreePort(t))}
	for i, n := range s.Nodes {
		_, check, _ := net.SplitHostPort(n.Checks)
		ports = append(ports, fmt.Sprintf("127.0.0.1:%d", 7001+i), n.Addr, fmt.Sprintf("port %d", 8001+i), "port "+check)
	}
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(file, []byte(strings.NewReplacer(ports...).Replace(string(config))), 0o600); err != nil {
		t.Fatal(err)
	}
	realserver.Start(t, exec.Command(program, "-db", "-f", file))
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// pythonWriter is redis-py, which is told keys line by line.
func pythonWriter(t *testing.T, sentinels []string) func(key string) error {
	const module = "/usr/lib/python3/dist-packages/redis/__init__.py"
	if _, err := os.Stat(module); err != nil {
		if os.Getenv(realserver.RequireEnv) == "1" {
			t.Fatal("python3-redis is not installed")
		}
		return func(string) error { return nil }
	}
	const program = `
import sys, time, redis
from redis.sentinel import Sentinel
def split(a):
    h, p = a.rsplit(":", 1)
    return h, int(p)
master = Sentinel([split(a) for a in sys.argv[1:]], socket_timeout=5).master_for("orders", socket_timeout=5)
for line in sys.stdin:
    end = time.monotonic() + 50
    while True:
        try:
            master.set("python:" + line.strip(), "1")
            print("done", flush=True)
            break
        except redis.RedisError as e:
            if time.monotonic() > end:
                print("failed: %r" % e, flush=True)
                break
            time.sleep(0.02)
`
	return clientProcess(t, exec.Command("/usr/bin/python3", append([]string{"-c", program}, sentinels...)...))
}

// clientProcess starts a client that reads keys line by line, and answers "done" for each that it has written. One that says
// nothing for two minutes (each is to give up by itself after 50 s) is killed.
func clientProcess(t *testing.T, cmd *exec.Cmd) func(key string) error {
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	answers := bufio.NewReader(out)
	return func(key string) error {
		silent := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
		defer silent.Stop()
		if _, err := fmt.Fprintln(in, key); err != nil {
			return err
		}
		answer, err := answers.ReadString('\n')
		if err == nil && strings.TrimSpace(answer) != "done" {
			err = fmt.Errorf("it says %q", answer)
		}
		return err
	}
}
