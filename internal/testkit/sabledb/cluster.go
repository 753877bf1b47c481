package sabledb

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Cluster is nodes that can reach each other.
type Cluster struct {
	// CopyTime is how long a full copy takes.
	CopyTime time.Duration
	// Window is how long after the check of its watched keys an EXEC waits for its turn.
	Window time.Duration

	mu    sync.Mutex
	nodes []*Node
}

// Real is the program of a real SableDB to use, "" for the stand-in.
func Real() string { return os.Getenv("UNDERSTUDY_SABLEDB") }

// Node is one server. What follows Folder is guarded by the cluster's lock.
type Node struct {
	ID      string // of a stand-in
	Addr    string // for clients
	Private string // for replicas
	Folder  string // of its database

	c    *Cluster
	real *exec.Cmd
	l    net.Listener
	wg   sync.WaitGroup

	conns  map[*session]bool
	stop   chan struct{} // closed when the run ends
	down   bool
	hung   chan struct{} // nil, or closed when it continues
	before func(args []string)

	data      map[string]*value
	skew      time.Duration
	sequence  int64
	log       []change // of this life of the primary's numbers
	undo      []undone // what a crash loses
	locks     map[string]*session
	lockFreed chan struct{}
	pushed    chan struct{}
	listed    int64 // DBSIZE, counted seldom
	countedAt time.Time

	replica  bool
	follows  string // private address
	primary  string // id, once joined
	ended    bool   // its replication thread
	listedAt bool   // it has asked its primary for updates since it follows
	reached  int64  // in its primary's numbers
	held     bool
	manager  string
	infoText string
	lockless bool
	serial   int
	refused  []string
	foreign  func(key string) bool
	served   map[string]int
	commands map[string]command
}

// Start starts an empty primary until the test ends.
func (c *Cluster) Start(t testing.TB) *Node {
	t.Helper()
	dir := t.TempDir()
	n := &Node{c: c, Folder: filepath.Join(dir, "sabledb.db"), data: map[string]*value{}, served: map[string]int{}, commands: commands()}
	if Real() != "" {
		n.Addr, n.Private = free(t), free(t)
	} else if err := os.MkdirAll(n.Folder, 0o700); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	n.ID, n.Private = fmt.Sprintf("%040x", 0xa0+len(c.nodes)), orElse(n.Private, fmt.Sprintf("127.0.0.1:%d", 10_000+len(c.nodes)))
	c.nodes = append(c.nodes, n)
	c.mu.Unlock()
	if err := n.Run(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Kill)
	return n
}

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func free(t testing.TB) string {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Run starts the node again after Kill.
func (n *Node) Run() error {
	if Real() != "" {
		return n.runReal()
	}
	address := n.Addr
	if address == "" {
		address = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp4", address)
	if err != nil {
		return err
	}
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	n.l, n.down, n.hung, n.stop = l, false, nil, make(chan struct{})
	if n.Addr == "" {
		n.Addr = l.Addr().String() // read without the lock later
	}
	n.conns, n.locks = map[*session]bool{}, map[string]*session{}
	n.lockFreed, n.pushed, n.ended = make(chan struct{}), make(chan struct{}), false
	n.wg.Go(func() { n.accept(l) })
	if n.replica {
		n.attach()
	}
	return nil
}

// runReal starts a process of the real program, and waits until it answers.
func (n *Node) runReal() error {
	cmd := exec.Command(Real(), n.Args()...)
	cmd.Dir = filepath.Dir(n.Folder)
	if err := cmd.Start(); err != nil {
		return err
	}
	n.c.mu.Lock()
	n.real, n.down, n.stop = cmd, false, make(chan struct{})
	stop := n.stop
	n.c.mu.Unlock()
	n.wg.Go(func() {
		_ = cmd.Wait()
		close(stop)
	})
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		if conn, err := net.Dial("tcp", n.Addr); err == nil {
			return conn.Close()
		}
	}
	return fmt.Errorf("%s does not listen on %s", Real(), n.Addr)
}

// Args are the arguments of the real program.
func (n *Node) Args() []string {
	return []string{"--public-address", n.Addr, "--private-address", n.Private, "--db-path", n.Folder, "--workers", strconv.Itoa(2)}
}

// Done is closed when the node's run has ended.
func (n *Node) Done() <-chan struct{} {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	return n.stop
}

// PID of the process; that of the test for a stand-in.
func (n *Node) PID() int {
	if n.real != nil {
		return n.real.Process.Pid
	}
	return os.Getpid()
}

func (n *Node) locked(f func()) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	f()
}
