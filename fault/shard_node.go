//go:build linux

package fault

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/shard"
)

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

// At is the node's place in the network, from 1.
func (n *ShardNode) At() int { return n.at }
