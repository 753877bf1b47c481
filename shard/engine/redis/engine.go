package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/engine/wire"
)

// Rights are the rules of an ACL user that can do all that the engine does, and be the user
// of replicas towards their primary: ACL SETUSER name on >password, and these.
const Rights = "resetkeys ~" + probeKey + " resetchannels -@all +ping +info +config|get +config|set +del +replicaof +client|pause +client|unpause +client|kill +psync +replconf"

// probeKey is deleted to see whether the node writes. Nobody has it.
const probeKey = "understudy:no-such-key"

// Config says how to reach nodes.
type Config struct {
	// Username and Password that nodes want; "" is none. A username needs a password.
	Username, Password string
	// TLS; nil is a plain connection. Without a ServerName it is the host of the node's address.
	TLS *tls.Config
	// Timeout of an exchange, connecting included. Default 1 s.
	Timeout time.Duration
	// Dial replaces net.Dialer, in tests.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Validate returns an error that wraps lease.ErrInvalid for a configuration that cannot work.
func (c Config) Validate() error {
	switch {
	case c.Username != "" && c.Password == "":
		return fmt.Errorf("%w: redis user %q has no password", lease.ErrInvalid, c.Username)
	case c.Timeout < 0:
		return fmt.Errorf("%w: a timeout of %v; 0 is %v", lease.ErrInvalid, c.Timeout, wire.DefaultTimeout)
	}
	return nil
}

func (c Config) wire() wire.Config {
	return wire.Config{Username: c.Username, Password: c.Password, TLS: c.TLS, Timeout: c.Timeout, Dial: c.Dial}
}

// StartArgs are appended to the arguments of a redis-server that an agent starts: its fence is
// closed from the first moment on, and it is a replica of nobody. So a primary that comes back
// empty is not copied by its replicas, which connect again by themselves, before its
// agent has looked at it.
func StartArgs() []string {
	return []string{"--min-replicas-to-write", closedWith, "--min-replicas-max-lag", "1", "--replicaof", nowhereHost, nowherePort,
		"--rdb-del-sync-files", "yes"}
}

// engines implements [shard.Engines].
type engines struct {
	cfg   Config
	peers *wire.PeerProbe
}

// New returns the engine, or an error that wraps lease.ErrInvalid.
func New(cfg Config) (shard.Engines, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	// A probe does not log in: an answer that it must is an answer.
	peers := cfg.wire()
	peers.Username, peers.Password = "", ""
	return &engines{cfg: cfg, peers: wire.NewPeerProbe(peers)}, nil
}

func (*engines) Name() string { return "redis" }

func (*engines) FenceDelay() time.Duration { return shard.ArmedFenceDelay }

func (e *engines) ProbePeer(ctx context.Context, address string) shard.Reachability {
	return e.peers.Probe(ctx, address)
}

func (e *engines) At(address string) shard.Engine {
	n := &Node{address: address, cfg: e.cfg}
	for _, c := range []**wire.Conn{&n.probe, &n.write, &n.fence, &n.act} {
		*c = wire.New(address, e.cfg.wire())
	}
	return n
}

// Node is the engine of one node. It implements [shard.Engine].
type Node struct {
	address                  string
	cfg                      Config
	probe, write, fence, act *wire.Conn
}

// Close implements [shard.Engine].
func (n *Node) Close() error {
	return errors.Join(n.probe.Close(), n.write.Close(), n.fence.Close(), n.act.Close())
}

// do carries commands out of which each must be answered without an error.
func (n *Node) do(ctx context.Context, c *wire.Conn, commands ...[]string) ([]wire.Reply, error) {
	replies, err := c.Do(ctx, commands...)
	if err != nil {
		return nil, err
	}
	for i, r := range replies {
		if err := r.Err(); err != nil {
			return nil, n.refusal(commands[i], err)
		}
	}
	return replies, nil
}

// Close gives the connections for probing peers.
func (e *engines) Close() error {
	e.peers.Close()
	return nil
}
