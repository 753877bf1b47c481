package sabledb

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/engine/wire"
)

// DefaultPrivateOffset is between SableDB's default ports.
const DefaultPrivateOffset = 1000

// Where a detached node is led: nothing can listen on port 0.
const (
	nowhereHost = "127.0.0.1"
	nowherePort = "0"
)

// Config says how to reach nodes.
type Config struct {
	// Node is the address of the agent's own node.
	Node string
	// Replication is the address that replicas of that node copy from. Default: [DefaultPrivateOffset] further.
	Replication string
	// Folder returns that node's database folder, "" if it is not known.
	Folder func() string
	// TLS; nil is a plain connection.
	TLS *tls.Config
	// Timeout of an exchange, connecting included. Default 1 s.
	Timeout time.Duration
	// Dial replaces net.Dialer, in tests.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// engines implements [shard.Engines].
type engines struct {
	cfg   Config
	wire  wire.Config
	peers *wire.PeerProbe

	mu          sync.Mutex
	known       map[string]*memory // by address
	addresses   map[string]string  // by SableDB's own id
	replication map[string]string  // by address
}

// New returns the engine, or an error that wraps lease.ErrInvalid.
func New(cfg Config) (shard.Engines, error) {
	if cfg.Timeout < 0 {
		return nil, fmt.Errorf("%w: a timeout of %v", lease.ErrInvalid, cfg.Timeout)
	}
	if cfg.Replication != "" {
		if err := validateIPv4("replication address", cfg.Replication); err != nil {
			return nil, err
		}
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = wire.DefaultTimeout
	}
	w := wire.Config{TLS: cfg.TLS, Timeout: cfg.Timeout, Dial: cfg.Dial}
	return &engines{cfg: cfg, wire: w, peers: wire.NewPeerProbe(w), known: map[string]*memory{}, addresses: map[string]string{}, replication: map[string]string{}}, nil
}

func (*engines) Name() string { return "sabledb" }

// FenceDelay implements [shard.Engines]: there is no armed fence.
func (*engines) FenceDelay() time.Duration { return 0 }

func (e *engines) ProbePeer(ctx context.Context, address string) shard.Reachability {
	return e.peers.Probe(ctx, address)
}

func (e *engines) At(address string) shard.Engine {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known[address] == nil {
		e.known[address] = &memory{}
	}
	return &Node{
		address: address, of: e, memory: e.known[address],
		probe: wire.New(address, e.wire), write: wire.New(address, e.wire), act: wire.New(address, e.wire),
	}
}

// Close gives the connections for probing peers.
func (e *engines) Close() error {
	e.peers.Close()
	return nil
}

// Node is the engine of one node. It implements [shard.Engine].
type Node struct {
	address           string
	of                *engines
	memory            *memory
	probe, write, act *wire.Conn

	mu      sync.Mutex
	primary *wire.Conn // to the primary of this replica
	at      string     // its address
	suffix  int        // of a key in the node's slots
}

// Close implements [shard.Engine].
func (n *Node) Close() error {
	n.mu.Lock()
	primary := n.primary
	n.mu.Unlock()
	if primary != nil {
		_ = primary.Close()
	}
	return errors.Join(n.probe.Close(), n.write.Close(), n.act.Close())
}

// SetFence implements [shard.Engine]; see the package.
func (n *Node) SetFence(ctx context.Context, f shard.Fence, _ int) error {
	n.memory.mu.Lock()
	defer n.memory.mu.Unlock()
	switch f {
	case shard.Armed:
		return fmt.Errorf("%w: SableDB has no fence that closes by itself", shard.ErrUnsupported)
	case shard.Open:
		if !n.memory.standing {
			return nil
		}
		if err := n.replicaOf(ctx, "NO", "ONE"); err != nil {
			return err
		}
		n.memory.opened()
		return nil
	case shard.Closed:
		in, err := n.info(ctx, n.act)
		if err != nil || in.role == shard.Replica {
			return err
		}
		n.memory.closing()
		return n.detach(ctx, true)
	}
	return fmt.Errorf("%w: fence %q", lease.ErrInvalid, f)
}

// Pause implements [shard.Engine]. What it cannot do it answers with a fence that is closed at once, behind a write that
// changes something: a replica that has that one has all.
func (n *Node) Pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	m := n.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	in, err := n.info(ctx, n.act)
	if err != nil {
		return err
	}
	if in.role == shard.Primary {
		n.mu.Lock()
		key := probeKey(n.suffix)
		n.mu.Unlock()
		m.acts++
		m.closing()
		replies, err := n.act.Do(ctx, []string{"SET", key, "1"}, []string{"DEL", key}, []string{"REPLICAOF", nowhereHost, nowherePort})
		if err == nil {
			err = replies[2].Err() // a disk that is full must not keep it open
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: SableDB cannot let writes wait", shard.ErrUnsupported)
}

// Promote implements [shard.Engine]: it accepts writes once its fence is opened.
func (n *Node) Promote(ctx context.Context) error {
	n.memory.mu.Lock()
	defer n.memory.mu.Unlock()
	in, err := n.info(ctx, n.act)
	if err != nil || in.role == shard.Primary {
		return err
	}
	return n.detach(ctx, true)
}

// Follow implements [shard.Engine]. REPLICAOF costs a full copy each time, also from the node that it follows: one
// that its primary lists is left alone.
func (n *Node) Follow(ctx context.Context, address string) error {
	m := n.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if address == "" {
		return n.detach(ctx, false)
	}
	if err := validateIPv4("address to follow", address); err != nil {
		return err
	}
	if m.detached || m.follows != "" && m.follows != address {
		return n.lead(ctx, address)
	}
	in, err := n.info(ctx, n.act)
	if err != nil {
		return err
	}
	if in.role == shard.Replica && in.primary != "" {
		if txn, listed := n.listedBy(ctx, address, in); listed {
			m.follows = address
			m.hear(in.primary, txn, time.Now())
			return nil
		}
	}
	return n.lead(ctx, address)
}

// listedBy returns where the primary at address says that the node is, if it lists it.
func (n *Node) listedBy(ctx context.Context, address string, in info) (txn int64, listed bool) {
	c := wire.New(address, n.of.wire)
	defer c.Close()
	p, err := n.info(ctx, c)
	if err != nil || p.role != shard.Primary || p.id != in.primary {
		return 0, false
	}
	return p.replica(in.id)
}

// lead makes the node a replica of the one at address: a full copy.
func (n *Node) lead(ctx context.Context, address string) error {
	host, port, err := n.of.replicationOf(address)
	if err != nil {
		return err
	}
	m := n.memory
	m.before, _ = n.readPlace()
	if err := n.replicaOf(ctx, host, port); err != nil {
		return err
	}
	again := m.follows == address && m.primary == ""
	m.patience = max(firstCopy, 3*m.took, m.patience)
	if again {
		m.patience *= 2
	}
	// It is empty until the new primary lists it.
	m.standing, m.detached, m.follows, m.led, m.missing, m.primary, m.txn = false, false, address, time.Now(), time.Time{}, "", 0
	return nil
}

// detach leads the node nowhere; standing tells that it is to show as a closed primary.
func (n *Node) detach(ctx context.Context, standing bool) error {
	if err := n.replicaOf(ctx, nowhereHost, nowherePort); err != nil {
		return err
	}
	m := n.memory
	m.standing, m.detached, m.follows, m.missing = standing, true, "", time.Time{}
	if p, err := n.readPlace(); err == nil && m.primary != "" && m.isCopied(p) {
		m.txn = max(m.txn, p.txn)
	}
	return nil
}

func (n *Node) replicaOf(ctx context.Context, host, port string) error {
	n.memory.acts++
	_, err := n.do(ctx, n.act, []string{"REPLICAOF", host, port})
	return err
}

func validateIPv4(what, address string) error {
	if err := shard.ValidateAddress(what, address); err != nil {
		return err
	}
	host, _, _ := net.SplitHostPort(address)
	if ip, err := netip.ParseAddr(host); err != nil || !ip.Is4() {
		return fmt.Errorf("%w: %s: SableDB follows an IPv4 literal, and not %q", lease.ErrInvalid, what, host)
	}
	return nil
}

// replicationOf returns where replicas copy from the node at address.
func (e *engines) replicationOf(address string) (host, port string, err error) {
	e.mu.Lock()
	known := e.replication[address]
	e.mu.Unlock()
	if address == e.cfg.Node && e.cfg.Replication != "" {
		known = e.cfg.Replication
	}
	if known != "" {
		return net.SplitHostPort(known)
	}
	host, port, err = net.SplitHostPort(address)
	if err != nil {
		return "", "", err
	}
	number, _ := strconv.Atoi(port)
	if number += DefaultPrivateOffset; number < 1 || number > 65535 {
		return "", "", fmt.Errorf("%w: %s has no replication port: %d; name it with --private-address", lease.ErrInvalid, address, number)
	}
	return host, strconv.Itoa(number), nil
}

// do carries commands out of which each must be answered without an error.
func (n *Node) do(ctx context.Context, c *wire.Conn, commands ...[]string) ([]wire.Reply, error) {
	replies, err := c.Do(ctx, commands...)
	if err != nil {
		return nil, err
	}
	for i, r := range replies {
		if err := r.Err(); err != nil {
			return nil, fmt.Errorf("node %s: %s: %w", n.address, commands[i][0], err)
		}
	}
	return replies, nil
}
