package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/open"
)

const (
	trioSize = 3
	// sentinelDown is the silence after which a Sentinel calls a primary down.
	sentinelDown = time.Second
	// sentinelPeer names it in the report.
	sentinelPeer = "Sentinel"
)

// nodeArgs are the same for all, beside the port.
var nodeArgs = []string{"--bind", "127.0.0.1", "--save", "", "--repl-diskless-sync-delay", "0", "--daemonize", "no"}

// trio is a primary with two replicas and what watches over them: three agents, or three Sentinels.
type trio struct {
	b      *bed
	shard  string
	nodes  []*trioNode
	guides []string // where clients ask for the primary
	procs  []*realserver.Process

	registry shard.Registry // nil of Sentinels
}

// trioNode is a redis-server, and its agent if it has one.
type trioNode struct {
	address string
	dir     string
	agent   *realserver.Process
	process *realserver.Process // nil if the agent started it
}

// pid of the node's process, 0 if it has none.
func (n *trioNode) pid() int {
	if n.process != nil {
		return n.process.Pid()
	}
	pid, _ := strconv.Atoi(infoField(n.address, "server", "process_id"))
	return pid
}

// agentProgram is what a trio of agents runs on.
type agentProgram struct {
	path     string
	store    string
	registry shard.Registry
}

// openRegistry opens a store's registry for the bench itself, and leaves what closes it to the bed.
func openRegistry(ctx context.Context, b *bed, url string) shard.Registry {
	st, err := open.Open(ctx, url, open.Options{Connections: 2})
	b.check(err, "opening the store")
	b.Cleanup(func() { _ = st.Close() })
	shards, ok := st.(store.Shards)
	if !ok {
		b.Fatalf("bench: %s keeps no shards", url)
	}
	return shards.Registry()
}

// startAgents starts a new shard: three agents, each of which starts its node.
func startAgents(b *bed, p agentProgram, name string, timing lease.Timing) *trio {
	t := &trio{b: b, shard: name, registry: p.registry}
	for range trioSize {
		n := &trioNode{address: realserver.FreeAddress(b), dir: b.TempDir()}
		guide, listen := realserver.FreeAddress(b), realserver.FreeAddress(b)
		_, port, _ := net.SplitHostPort(n.address)
		argv := append([]string{"shard", "agent", name, "--store", p.store, "--node", n.address, "--data", n.dir,
			"--interval", timing.Interval.String(), "--timeout", timing.Timeout.String(), "--listen", listen, "--sentinel", guide,
			"--", "redis-server", "--port", port}, nodeArgs...)
		n.agent = realserver.Start(b, exec.Command(p.path, argv...))
		t.nodes, t.guides, t.procs = append(t.nodes, n), append(t.guides, guide), append(t.procs, n.agent)
	}
	b.Cleanup(t.end)
	return t
}

// startAlone starts a primary and two replicas that nobody watches over, and waits until they are in step.
func startAlone(b *bed) *trio {
	t := &trio{b: b, shard: "alone"}
	b.Cleanup(t.end)
	t.startNodes()
	waitFor(b, "two replicas are in step", func() bool {
		for _, n := range t.nodes[1:] {
			if infoField(n.address, "replication", "master_link_status") != "up" {
				return false
			}
		}
		return true
	})
	return t
}

// startNodes starts them, the first one as the primary.
func (t *trio) startNodes() {
	b := t.b
	for i := range trioSize {
		n := &trioNode{address: realserver.FreeAddress(b), dir: b.TempDir()}
		_, port, _ := net.SplitHostPort(n.address)
		argv := append([]string{"--port", port, "--dir", n.dir}, nodeArgs...)
		if i > 0 {
			host, port, _ := net.SplitHostPort(t.nodes[0].address)
			argv = append(argv, "--replicaof", host, port)
		}
		n.process = realserver.Start(b, exec.Command("redis-server", argv...))
		t.nodes, t.procs = append(t.nodes, n), append(t.procs, n.process)
	}
	waitFor(b, "a redis-server answers", func() bool { return infoField(t.nodes[0].address, "server", "process_id") != "" })
}

// startSentinels starts a primary, two replicas and three Sentinels of a quorum of two.
func startSentinels(b *bed, name string) *trio {
	t := &trio{b: b, shard: name}
	b.Cleanup(t.end)
	t.startNodes()
	host, port, _ := net.SplitHostPort(t.nodes[0].address)
	for range trioSize {
		guide, dir := realserver.FreeAddress(b), b.TempDir()
		_, own, _ := net.SplitHostPort(guide)
		config := fmt.Sprintf("port %s\nbind 127.0.0.1\ndir %s\nsentinel monitor %s %s %s 2\nsentinel down-after-milliseconds %s %d\n",
			own, dir, name, host, port, name, sentinelDown.Milliseconds())
		file := filepath.Join(dir, "sentinel.conf")
		b.check(os.WriteFile(file, []byte(config), 0o600), "writing Sentinel's file")
		proc := realserver.Start(b, exec.Command("redis-server", file, "--sentinel"))
		t.guides, t.procs = append(t.guides, guide), append(t.procs, proc)
	}
	return t
}

// ready waits until everybody knows everybody, and all is as it should be.
func (t *trio) ready() {
	deadline := time.Now().Add(50 * time.Second)
	waitFor(t.b, "shard "+t.shard+" is complete", func() bool {
		if time.Now().After(deadline) {
			t.b.Fatalf("bench: shard %s (%s) does not get complete: %+v\n%s", t.shard, t.who(), t.view(), t.output())
		}
		for i, p := range t.procs {
			if p.Exited() {
				t.b.Fatalf("bench: process %d of shard %s ended: %s", i, t.shard, p.Output())
			}
		}
		if t.registry != nil {
			return t.agentsReady()
		}
		return t.sentinelsReady()
	})
}

func (t *trio) who() string {
	if t.registry != nil {
		return "understudy"
	}
	return "sentinel"
}

func (t *trio) view() shard.View {
	if t.registry == nil {
		return shard.View{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	v, err := t.registry.ReadView(ctx, t.shard)
	if err != nil {
		return shard.View{}
	}
	return v
}

// agentsReady: three members, the replicas synchronised, the primary open with its fence armed.
func (t *trio) agentsReady() bool {
	v := t.view()
	synced := 0
	for _, n := range v.Nodes {
		switch {
		case n.ID == v.Row.Primary:
			if n.Role != shard.Primary || !n.Armed || n.Condition != shard.Up || !v.Lease.Held() {
				return false
			}
		case n.Role == shard.Replica && n.Synced && n.Link != nil && n.Link.Up && n.Live():
			synced++
		}
	}
	return v.Row.Plan == nil && len(v.Row.Members) == trioSize && synced == trioSize-1
}

func (t *trio) sentinelsReady() bool {
	for _, g := range t.guides {
		r, err := ask(g, "SENTINEL", "MASTER", t.shard)
		m := r.pairs()
		if err != nil || m["flags"] != "master" || m["num-slaves"] != "2" || m["num-other-sentinels"] != "2" {
			return false
		}
		r, err = ask(g, "SENTINEL", "REPLICAS", t.shard)
		if err != nil {
			return false
		}
		for _, one := range r.list {
			if s := one.pairs(); s["flags"] != "slave" || s["master-link-status"] != "ok" {
				return false
			}
		}
	}
	return true
}

// finder of its primary, beginning at any of the guides.
func (t *trio) finder() finder {
	if len(t.guides) > 0 {
		return &guideFinder{guides: t.guides, name: t.shard}
	}
	f := &roleFinder{}
	for _, n := range t.nodes {
		f.nodes = append(f.nodes, n.address)
	}
	return f
}

// node at an address.
func (t *trio) node(address string) *trioNode {
	for _, n := range t.nodes {
		if n.address == address {
			return n
		}
	}
	t.b.Fatalf("bench: shard %s has no node at %s", t.shard, address)
	return nil
}

// end kills everything, agents first, since they would start their nodes again.
func (t *trio) end() {
	var ending sync.WaitGroup
	for _, n := range t.nodes {
		if n.agent != nil {
			ending.Go(n.agent.Kill)
		}
	}
	ending.Wait()
	for _, n := range t.nodes {
		if n.agent != nil {
			n.killSupervised()
		}
	}
	for _, p := range t.procs {
		ending.Go(p.Kill)
	}
	ending.Wait()
}

// killSupervised ends the process that an agent which is gone has left, if it is still the
// one that its file names.
func (n *trioNode) killSupervised() {
	data, err := os.ReadFile(filepath.Join(n.dir, "node.pid"))
	if err != nil {
		return
	}
	pid := pidIn(string(data))
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	_, port, _ := net.SplitHostPort(n.address)
	if pid > 0 && strings.Contains(string(line), port) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// pidIn reads the number after "pid": in a file of the agent.
func pidIn(text string) int {
	_, rest, _ := strings.Cut(text, `"pid":`)
	digits := strings.TrimSpace(rest)
	if i := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		digits = digits[:i]
	}
	pid, _ := strconv.Atoi(digits)
	return pid
}
