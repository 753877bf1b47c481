//go:build linux

package fault

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/open"
)

// ShardConfig describes a [Shard].
type ShardConfig struct {
	Programs Programs
	// Database that coordinates. Required.
	Database Database
	// Nodes is how many there are. Default 3.
	Nodes int
	// Timing of the agents. Default 400 ms and 2 s.
	Timing lease.Timing
	// Network, if links between hosts are cut: the node i stands in its namespace i+1.
	Network *Network
	// Host of the nodes without a network. Default 127.0.0.1.
	Host string
	// Unattended agents answer no other's: nobody can promise them anything.
	Unattended bool
	// Agent are flags for every agent, and Server arguments for every redis-server.
	Agent, Server []string
	// Service, unless nil, is the configuration file of each redis-server, which something else than its agent starts then,
	// and starts again at once whenever it ends.
	Service []string
	// Seed of the links' randomness.
	Seed uint64
}

// Shard is a shard of redis-servers, each started and supervised by an agent of its own.
type Shard struct {
	ShardConfig

	Nodes []*ShardNode

	tb    testing.TB
	dir   string
	store store.Store
}

// shardName is the name of a [Shard].
const shardName = "orders"

// NewShard makes a shard whose nodes run, and waits until it is settled. When the test ends,
// everything ends, and what the agents said is told if the test failed.
func NewShard(tb testing.TB, cfg ShardConfig) *Shard {
	tb.Helper()
	s := PrepareShard(tb, cfg)
	for _, n := range s.Nodes {
		n.Start()
	}
	s.Settled()
	return s
}

// PrepareShard makes a shard of which nothing runs yet.
func PrepareShard(tb testing.TB, cfg ShardConfig) *Shard {
	tb.Helper()
	if cfg.Nodes == 0 {
		cfg.Nodes = 3
	}
	if cfg.Timing == (lease.Timing{}) {
		cfg.Timing = lease.Timing{Interval: 400 * time.Millisecond, Timeout: 2 * time.Second}
	}
	if cfg.Host == "" {
		cfg.Host = "127.0.0.1"
	}
	s := &Shard{ShardConfig: cfg, tb: tb, dir: tb.TempDir()}
	tb.Cleanup(s.kill)
	for i := range cfg.Nodes {
		s.add(i + 1)
	}
	return s
}

func (s *Shard) add(at int) {
	n := &ShardNode{Name: fmt.Sprintf("n%d", at), shard: s, at: at, Dir: filepath.Join(s.dir, fmt.Sprintf("n%d", at)),
		log: filepath.Join(s.dir, fmt.Sprintf("n%d.log", at))}
	if err := os.MkdirAll(n.Dir, 0o700); err != nil {
		s.tb.Fatal(err)
	}
	host := s.Host
	if s.Network != nil {
		host = s.Network.Address(at)
	} else if s.Database.Addr != "" {
		n.Link = NewProxy(s.tb, s.Database.Addr, s.Seed+uint64(at))
	}
	for _, address := range []*string{&n.Addr, &n.Checks, &n.Sentinel} {
		*address = net.JoinHostPort(host, strconv.Itoa(realserver.FreePort(s.tb)))
	}
	s.Nodes = append(s.Nodes, n)
}

// Mark is in the environment of everything that the shard starts.
func (s *Shard) mark() string { return "UNDERSTUDY_FAULT=" + s.dir }

// Look reads the shard beside the links.
func (s *Shard) Look() (shard.View, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return s.Store().(store.Shards).Registry().ReadView(ctx, shardName)
}

// View reads the shard, until that works.
func (s *Shard) View() (v shard.View) {
	s.tb.Helper()
	realserver.Eventually(s.tb, patience, "reading the shard", func() (err error) {
		v, err = s.Look()
		return err
	})
	return v
}

// Store is opened beside the links.
func (s *Shard) Store() store.Store {
	s.tb.Helper()
	if s.store != nil {
		return s.store
	}
	realserver.Eventually(s.tb, patience, "opening the store", func() (err error) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		s.store, err = open.Open(ctx, s.Database.URL, open.Options{Connections: 3})
		return err
	})
	s.tb.Cleanup(func() { _ = s.store.Close() })
	return s.store
}

// Shards of the store.
func (s *Shard) Shards() store.Shards { return s.Store().(store.Shards) }

// Understudy runs the command line once, beside the links, and returns what it printed.
func (s *Shard) Understudy(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, s.Programs.Understudy, append(args, "--store", s.Database.URL)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("understudy %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// kill ends whatever is left, and tells what the agents said if the test failed.
func (s *Shard) kill() {
	if s.tb.Failed() && s.store != nil {
		shown, err := s.Understudy("shard", "show", shardName, "-o", "json")
		s.tb.Logf("the shard: %s %v", shown, err)
		for _, n := range s.Nodes {
			info, err := n.Do("INFO", "replication")
			memory, _ := os.ReadFile(filepath.Join(n.Dir, "memory.json"))
			s.tb.Logf("%s remembers %s and shows %s %v", n.Name, memory, info, err)
		}
	}
	for _, n := range s.Nodes {
		n.KillAgent()
	}
	all := func() []Proc {
		left := marked(s.mark())
		for _, n := range s.Nodes {
			left = append(left, processesIn(n.Dir)...)
		}
		return left
	}
	left := all()
	for end := time.Now().Add(patience); len(left) > 0 && time.Now().Before(end); left = all() {
		for _, p := range left {
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
		s.Pass(10 * time.Millisecond)
	}
	if len(left) > 0 {
		s.tb.Errorf("cannot be killed: %v", left)
	}
	if !s.tb.Failed() {
		return
	}
	for _, n := range s.Nodes {
		s.tb.Logf("%s (%s) said:\n%s", n.Name, n.Addr, tail(n.Said(), 6000))
	}
}

func tail(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return "…" + text[len(text)-n:]
}

// RedisIn starts a store's server in a namespace of a network.
func RedisIn(tb testing.TB, n *Network, at int) Database {
	tb.Helper()
	host, port := n.Address(at), strconv.Itoa(realserver.FreePort(tb))
	argv := append(n.Wrap(at), realserver.Find(tb, "redis-server"), "--bind", host, "--port", port, "--save", "", "--appendonly", "yes", "--appendfsync", "always", "--protected-mode", "no",
		"--dir", tb.TempDir())
	realserver.Start(tb, exec.Command(argv[0], argv[1:]...))
	addr := net.JoinHostPort(host, port)
	realserver.Eventually(tb, patience, "the store answers", func() error {
		_, err := AskRedis(addr, "PING")
		return err
	})
	return Database{URL: "redis://" + addr + "/0", Addr: addr}
}
