package sabledbnode

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/understudy-ha/understudy/internal/resp"
)

// Cluster is nodes that can reach each other.
type Cluster struct {
	// Name makes CLUSTER NODES list the nodes; without one it is empty.
	Name string
	// Blanks prints INFO as the first SableDB did, with a blank after the colon.
	Blanks bool

	mu    sync.Mutex
	nodes []*Node
}

// Node is one server. What follows Addr is guarded by the cluster's lock.
type Node struct {
	ID   string
	Addr string // public
	port int    // private; nothing listens there

	c        *Cluster
	l        net.Listener
	wg       sync.WaitGroup
	conns    map[net.Conn]bool
	data     map[string]string
	sequence int64
	replica  bool
	follows  int    // private port
	primary  string // id, once joined
	held     bool
	down     bool
	reached  int64 // on a replica: where it is in its primary's numbers
	foreign  func(key string) bool
	refused  []string
}

// Start starts an empty primary.
func (c *Cluster) Start() (*Node, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := &Node{
		ID: fmt.Sprintf("%040x", 0xa0+len(c.nodes)), Addr: l.Addr().String(), port: 10_000 + len(c.nodes),
		c: c, l: l, data: map[string]string{}, conns: map[net.Conn]bool{},
	}
	c.nodes = append(c.nodes, n)
	n.wg.Go(n.accept)
	return n, nil
}

// Stop ends the node, as if it were killed.
func (n *Node) Stop() {
	_ = n.l.Close()
	n.c.mu.Lock()
	n.down = true
	for conn := range n.conns {
		_ = conn.Close()
	}
	n.c.mu.Unlock()
	n.wg.Wait()
}

// Hold keeps the node, a replica, from getting any further.
func (n *Node) Hold() { n.locked(func() { n.held = true }) }

// Foreign says which keys are in slots of other shards.
func (n *Node) Foreign(is func(key string) bool) { n.locked(func() { n.foreign = is }) }

// Refused are the commands that SableDB would not have known.
func (n *Node) Refused() (all []string) {
	n.locked(func() { all = slices.Clone(n.refused) })
	return all
}

// Data is what the node holds.
func (n *Node) Data() (all map[string]string) {
	n.locked(func() { all = maps.Clone(n.data) })
	return all
}

func (n *Node) locked(f func()) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	f()
}

func (n *Node) accept() {
	for {
		conn, err := n.l.Accept()
		if err != nil {
			return
		}
		n.locked(func() {
			if n.conns[conn] = true; n.down {
				_ = conn.Close()
			}
		})
		n.wg.Go(func() { n.serve(conn) })
	}
}

func (n *Node) serve(conn net.Conn) {
	defer n.locked(func() { delete(n.conns, conn) })
	defer conn.Close()
	r, out := resp.NewReader(conn, resp.Limits{}), &resp.Writer{}
	for {
		args, err := r.Request()
		if err != nil {
			return
		}
		n.locked(func() { n.answer(out, args) })
		if _, err := conn.Write(out.Take(nil)); err != nil {
			return
		}
	}
}

// answer is under the cluster's lock.
func (n *Node) answer(out *resp.Writer, args []string) {
	name := strings.ToUpper(args[0])
	switch {
	case name == "PING" && len(args) == 1:
		out.Simple("PONG")
	case name == "INFO":
		out.Bulk(n.info())
	case name == "DBSIZE" && len(args) == 1:
		out.Int(int64(len(n.data)))
	case name == "CLUSTER" && len(args) == 2 && strings.EqualFold(args[1], "NODES"):
		n.nodes(out)
	case name == "CLUSTER" && len(args) == 2 && strings.EqualFold(args[1], "MYID"):
		out.Bulk(n.ID)
	case (name == "REPLICAOF" || name == "SLAVEOF") && len(args) == 3:
		n.replicaOf(out, args[1], args[2])
	case name == "GET" && len(args) == 2:
		if v, ok := n.data[args[1]]; ok {
			out.Bulk(v)
		} else {
			out.Null()
		}
	case name == "SET" && len(args) == 3:
		n.write(out, args[1], func() { n.set(out, args[1], args[2]) })
	case name == "DEL" && len(args) == 2:
		n.write(out, args[1], func() { n.del(out, args[1]) })
	default:
		n.refused = append(n.refused, strings.Join(args, " "))
		out.Error("ERR unknown command `" + args[0] + "`")
	}
}

func (n *Node) write(out *resp.Writer, key string, change func()) {
	switch {
	case n.foreign != nil && n.foreign(key):
		out.Error("MOVED 1 127.0.0.1:1")
	case n.replica:
		out.Error("READONLY You can't write against a read only replica.")
	default:
		change()
	}
}

func (n *Node) set(out *resp.Writer, key, value string) {
	n.data[key] = value
	n.changed()
	out.Simple("OK")
}

func (n *Node) del(out *resp.Writer, key string) {
	if _, ok := n.data[key]; !ok {
		out.Int(0)
		return
	}
	delete(n.data, key)
	n.changed()
	out.Int(1)
}

func (n *Node) changed() {
	n.sequence++
	for _, r := range n.replicas() {
		if !r.held {
			r.data, r.reached = maps.Clone(n.data), n.sequence
			r.sequence++
		}
	}
}

// replicas are those that have joined and still follow.
func (n *Node) replicas() (all []*Node) {
	for _, r := range n.c.nodes {
		if r.replica && r.follows == n.port && r.primary == n.ID && !r.down {
			all = append(all, r)
		}
	}
	return all
}

func (n *Node) replicaOf(out *resp.Writer, host, port string) {
	if strings.EqualFold(host, "NO") && strings.EqualFold(port, "ONE") {
		n.replica, n.follows, n.primary = false, 0, ""
		out.Simple("OK")
		return
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if ip := net.ParseIP(host); ip == nil || ip.To4() == nil || err != nil {
		n.refused = append(n.refused, "REPLICAOF "+host+" "+port)
		out.Error("ERR value is not an integer or out of range")
		return
	}
	n.replica, n.follows = true, int(number)
	for _, p := range n.c.nodes {
		if p.port == n.follows && !p.down && p != n && !n.held {
			n.primary = p.ID
			n.data, n.reached = maps.Clone(p.data), p.sequence
			// One step of its own for each record that is copied, and for what is deleted.
			n.sequence += int64(len(p.data)) + 100
		}
	}
	out.Simple("OK")
}

func (n *Node) info() string {
	var b strings.Builder
	colon := ":"
	if n.c.Blanks {
		colon = ": "
	}
	role := "primary"
	if n.replica {
		role = "replica"
	}
	fmt.Fprintf(&b, "# Replication\nrole%s%s\nnode_id%s%s\nlast_db_update_sequence_number%s%d\n", colon, role, colon, n.ID, colon, n.sequence)
	if n.replica {
		fmt.Fprintf(&b, "primary_node_id%s%s\n", colon, n.primary)
		return b.String()
	}
	all := n.replicas()
	fmt.Fprintf(&b, "connected_replicas%s%d\n", colon, len(all))
	for _, r := range all {
		fmt.Fprintf(&b, "replica%s%s,distance_from_primary:%d,last_change_sequence_number:%d\n", colon, r.ID, n.sequence-r.reached, r.reached)
	}
	return b.String()
}

func (n *Node) nodes(out *resp.Writer) {
	if n.c.Name == "" {
		out.Array(0)
		return
	}
	out.Array(len(n.c.nodes))
	for _, p := range n.c.nodes {
		flags, primary := "master", "-"
		if p.replica {
			flags, primary = "slave", cmp.Or(p.primary, "-")
		}
		if p == n {
			flags = "myself," + flags
		}
		out.Bulk(fmt.Sprintf("%s %s@%d %s %s 0 0 %d connected 0-16383\n", p.ID, p.Addr, p.port, flags, primary, p.sequence))
	}
}
