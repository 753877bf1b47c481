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
	// PrivateOffset is added to a node's port to get the one that replicas connect to, where
	// CLUSTER NODES does not tell. Default 1000.
	PrivateOffset int
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

	mu    sync.Mutex
	known map[string]*memory // by address
}

// memory is what the nodes themselves do not tell. It is shared by all engines of one address.
type memory struct {
	mu sync.Mutex
	// standing: it is to be a primary, and is detached because its fence is closed.
	standing bool
	detached bool
	follows  string // address that it was last led to
	// What the primary last said of it.
	primary string
	txn     int64
	heard   time.Time
}

// New returns the engine, or an error that wraps lease.ErrInvalid.
func New(cfg Config) (shard.Engines, error) {
	if cfg.Timeout < 0 {
		return nil, fmt.Errorf("%w: a timeout of %v", lease.ErrInvalid, cfg.Timeout)
	}
	if cfg.PrivateOffset == 0 {
		cfg.PrivateOffset = DefaultPrivateOffset
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = wire.DefaultTimeout
	}
	w := wire.Config{TLS: cfg.TLS, Timeout: cfg.Timeout, Dial: cfg.Dial}
	return &engines{cfg: cfg, wire: w, peers: wire.NewPeerProbe(w), known: map[string]*memory{}}, nil
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
		n.memory.standing, n.memory.detached = false, false
		return nil
	case shard.Closed:
		in, err := n.info(ctx, n.act)
		if err != nil || in.role == shard.Replica {
			return err
		}
		return n.detach(ctx, true)
	}
	return fmt.Errorf("%w: fence %q", lease.ErrInvalid, f)
}

// Pause implements [shard.Engine].
func (n *Node) Pause(_ context.Context, d time.Duration) error {
	if d == 0 {
		return nil
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

// Follow implements [shard.Engine].
func (n *Node) Follow(ctx context.Context, address string) error {
	n.memory.mu.Lock()
	defer n.memory.mu.Unlock()
	if address == "" {
		return n.detach(ctx, false)
	}
	if err := shard.ValidateAddress("address to follow", address); err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(address)
	if ip, err := netip.ParseAddr(host); err != nil || !ip.Is4() {
		return fmt.Errorf("%w: SableDB follows an IPv4 literal, and not %q", lease.ErrInvalid, host)
	}
	// REPLICAOF costs a full copy each time, also from the node that it follows.
	if m := n.memory; m.follows == address && !m.detached && m.primary != "" && time.Since(m.heard) < linkLife {
		return nil
	}
	private, err := n.privatePort(ctx, address, port)
	if err != nil {
		return err
	}
	if err := n.replicaOf(ctx, host, private); err != nil {
		return err
	}
	n.memory.standing, n.memory.detached, n.memory.follows = false, false, address
	// It is empty until the new primary says otherwise.
	n.memory.primary, n.memory.txn = "", 0
	return nil
}

// detach leads the node nowhere; standing tells that it is to show as a closed primary.
func (n *Node) detach(ctx context.Context, standing bool) error {
	if err := n.replicaOf(ctx, nowhereHost, nowherePort); err != nil {
		return err
	}
	n.memory.standing, n.memory.detached, n.memory.follows = standing, true, ""
	return nil
}

func (n *Node) replicaOf(ctx context.Context, host, port string) error {
	_, err := n.do(ctx, n.act, []string{"REPLICAOF", host, port})
	return err
}

// privatePort is the port of the node at address that replicas connect to.
func (n *Node) privatePort(ctx context.Context, address, port string) (string, error) {
	c := wire.New(address, n.of.wire)
	defer c.Close()
	if replies, err := c.Do(ctx, []string{"CLUSTER", "NODES"}); err == nil && replies[0].Err() == nil {
		for _, p := range parsePeers(replies[0]) {
			if p.address == address && p.private != "" {
				return p.private, nil
			}
		}
	}
	number, _ := strconv.Atoi(port)
	if number += n.of.cfg.PrivateOffset; number < 1 || number > 65535 {
		return "", fmt.Errorf("%w: %s has no private port: %d", lease.ErrInvalid, address, number)
	}
	return strconv.Itoa(number), nil
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
