//go:build linux

package fault

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// ShardNode is a redis-server and its agent. Each can be hurt apart from the other.
type ShardNode struct {
	Name string
	// Addr is where the node answers, Checks where its agent does, Sentinel where its agent
	// speaks Sentinel's protocol.
	Addr, Checks, Sentinel string
	// Link of the agent to the store's server; nil for a store without one.
	Link *Proxy
	// Dir is the agent's data folder, and the node's.
	Dir string
	// Options are more flags of this agent.
	Options []string

	shard *Shard
	at    int // from 1
	cmd   *exec.Cmd
	done  chan struct{}
	log   string
}

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

// Start starts the agent, which starts its node unless that still runs.
func (n *ShardNode) Start() {
	s := n.shard
	s.tb.Helper()
	if n.cmd != nil && !n.Exited() {
		return
	}
	argv := n.agentLine()
	if s.Service == nil {
		argv = slices.Concat(argv, []string{"--"}, n.nodeLine())
	} else if n.cmd == nil {
		n.serve()
	}
	if s.Network != nil {
		argv = append(s.Network.Wrap(n.at), argv...)
	}
	n.cmd = exec.Command(argv[0], argv[1:]...)
	n.cmd.Dir, n.cmd.Env = s.dir, append(os.Environ(), s.mark())
	n.done = make(chan struct{})
	start(s.tb, n.cmd, n.log, n.done)
}

// serve has a node started by something else than its agent, and again whenever it ends, before 100 ms have passed.
func (n *ShardNode) serve() {
	s := n.shard
	s.tb.Helper()
	config := filepath.Join(s.dir, n.Name+".conf")
	if err := os.WriteFile(config, []byte(strings.Join(s.Service, "\n")+"\n"), 0o600); err != nil {
		s.tb.Fatal(err)
	}
	argv := n.nodeLine()
	argv = slices.Concat([]string{"-c", `while :; do "$@"; sleep 0.03; done`, "sh", argv[0], config, "--dir", n.Dir}, argv[1:])
	cmd := exec.Command("sh", argv...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), s.mark())
	start(s.tb, cmd, n.log, make(chan struct{}))
}

func (n *ShardNode) agentLine() []string {
	s := n.shard
	store := s.Database.URL
	if n.Link != nil {
		store = s.Database.through(s.tb, n.Link.Addr)
	}
	argv := []string{s.Programs.Understudy, "shard", "agent", shardName, "--store", store, "--node", n.Addr, "--data", n.Dir,
		"--interval", s.Timing.Interval.String(), "--timeout", s.Timing.Timeout.String(), "--sentinel", n.Sentinel, "--log-level", "debug"}
	if !s.Unattended {
		argv = append(argv, "--listen", n.Checks)
	}
	return slices.Concat(argv, s.Agent, n.Options)
}

func (n *ShardNode) nodeLine() []string {
	host, port, _ := net.SplitHostPort(n.Addr)
	if host == "localhost" {
		host = "127.0.0.1"
	}
	argv := []string{realserver.Find(n.shard.tb, "redis-server"), "--bind", host, "--port", port, "--save", "", "--appendonly", "yes",
		"--appendfsync", "everysec", "--repl-diskless-sync-delay", "0", "--protected-mode", "no"}
	return append(argv, n.shard.Server...)
}

// Exited reports whether the agent has ended.
func (n *ShardNode) Exited() bool {
	if n.cmd == nil {
		return true
	}
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// KillAgent ends the agent at once, and leaves the node.
func (n *ShardNode) KillAgent() {
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Kill()
	<-n.done
}

// Stop tells the agent to stop, as an operator would, which stops the node too.
func (n *ShardNode) Stop() {
	n.shard.tb.Helper()
	n.SignalAgent(syscall.SIGTERM)
	select {
	case <-n.done:
	case <-time.After(2 * patience):
		n.shard.tb.Errorf("%s did not stop within %v", n.Name, 2*patience)
		n.KillAgent()
	}
}

// SignalAgent sends a signal to the agent alone, if it runs. It is not stopped in the middle of a write to a file, which would stop everybody who
// has that file; see [Node.Pause].
func (n *ShardNode) SignalAgent(sig syscall.Signal) {
	signal := func(sig syscall.Signal) { _ = n.cmd.Process.Signal(sig) }
	if sig != syscall.SIGSTOP {
		signal(sig)
		return
	}
	for range 1000 {
		if n.Exited() || stopOutsideWrites(n.cmd.Process.Pid, signal) {
			return
		}
		<-time.After(time.Millisecond)
	}
	n.shard.tb.Fatalf("the agent of %s cannot be stopped outside of a write", n.Name)
}

// PID of the node's process; 0 if none runs.
func (n *ShardNode) PID() int { return firstIn(n.Dir) }

// firstIn is the process in a folder that no other one there has started; 0 if none runs. What a database node is called, and its environment, are its own to change,
// but not where it runs.
func firstIn(folder string) int {
	within := processesIn(folder)
	for _, p := range within {
		if !slices.ContainsFunc(within, func(o Proc) bool { return o.PID == p.Parent }) {
			return p.PID
		}
	}
	return 0
}

// processesIn are those that run in a folder.
func processesIn(folder string) []Proc {
	return slices.DeleteFunc(processes(), func(p Proc) bool {
		dir, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", p.PID))
		return p.State == 'Z' || dir != folder
	})
}

// SignalNode sends a signal to the node alone, and waits until it works.
func (n *ShardNode) SignalNode(sig syscall.Signal) {
	pid := n.PID()
	if pid == 0 {
		return
	}
	if _ = syscall.Kill(pid, sig); sig == syscall.SIGSTOP {
		stopped(pid)
	}
}

// KillNode ends the node at once, and leaves the agent.
func (n *ShardNode) KillNode() { n.SignalNode(syscall.SIGKILL) }

// KillHost ends both at once, the agent first.
func (n *ShardNode) KillHost() {
	n.KillAgent()
	n.KillNode()
}

// Empty loses the node's data, but not what the agent remembers. Nothing of it must run.
func (n *ShardNode) Empty() {
	n.shard.tb.Helper()
	for _, name := range []string{"appendonlydir", "dump.rdb"} {
		if err := os.RemoveAll(filepath.Join(n.Dir, name)); err != nil {
			n.shard.tb.Error(err)
		}
	}
}

// ID of the node.
func (n *ShardNode) ID() string {
	v, err := n.shard.Look()
	if err != nil {
		return ""
	}
	for _, r := range v.Nodes {
		if r.Address == n.Addr {
			return r.ID
		}
	}
	return ""
}

// Record of the node, as the store shows it.
func (n *ShardNode) Record() shard.Record {
	n.shard.tb.Helper()
	v := n.shard.View()
	for _, r := range v.Nodes {
		if r.Address == n.Addr {
			return r
		}
	}
	return shard.Record{}
}

// Said is what the agent has logged.
func (n *ShardNode) Said() string {
	text, _ := os.ReadFile(n.log)
	return string(text)
}

// Do asks the node something, on a connection of its own.
func (n *ShardNode) Do(args ...string) (string, error) {
	c, err := dialNode(n.Addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	r, err := c.do(args...)
	return r.text, err
}

// Must is Do, and fails the test on an error.
func (n *ShardNode) Must(args ...string) string {
	n.shard.tb.Helper()
	text, err := n.Do(args...)
	if err != nil {
		n.shard.tb.Fatalf("%s: %v: %v", n.Name, args, err)
	}
	return text
}

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

// At is the node's place in the network, from 1.
func (n *ShardNode) At() int { return n.at }

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
