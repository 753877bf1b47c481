package wire

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/understudy-ha/understudy/shard"
)

// maxAddresses is how many addresses a PeerProbe keeps connections to.
const maxAddresses = shard.MaxMembers

// PeerProbe asks nodes whether they answer, on one connection per address that it keeps. When there are too many, it gives up the
// one that it used longest ago.
type PeerProbe struct {
	cfg   Config
	mu    sync.Mutex
	conns map[string]*peerConn
	count int64 // of probes
}

type peerConn struct {
	conn *Conn
	last int64 // the count at its latest probe
}

// NewPeerProbe returns one that connects as cfg says.
func NewPeerProbe(cfg Config) *PeerProbe {
	return &PeerProbe{cfg: cfg, conns: map[string]*peerConn{}}
}

// Probe sends PING. Whatever is answered in the protocol counts, an error as well: a server that
// wants a password or is loading is alive. What speaks another protocol is not the node.
func (p *PeerProbe) Probe(ctx context.Context, address string) shard.Reachability {
	_, err := p.at(address).Do(ctx, []string{"PING"})
	_, answered := errors.AsType[ServerError](err)
	switch {
	case err == nil || answered || errors.Is(err, shard.ErrNodeAccess):
		return shard.Reachable
	// A refusal comes from the host's own kernel. A reset does not count: a device in between can send one while the
	// node lives.
	case errors.Is(err, shard.ErrNodeGone):
		return shard.Refused
	}
	return shard.TimedOut
}

func (p *PeerProbe) at(address string) *Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	d := p.conns[address]
	if d == nil {
		if len(p.conns) >= maxAddresses {
			oldest := slices.MinFunc(slices.Collect(maps.Keys(p.conns)), func(a, b string) int {
				return cmp.Compare(p.conns[a].last, p.conns[b].last)
			})
			// Closing waits for a probe that is under way, and that ends at once.
			_ = p.conns[oldest].conn.Close()
			delete(p.conns, oldest)
		}
		d = &peerConn{conn: New(address, p.cfg)}
		p.conns[address] = d
	}
	d.last = p.count
	return d.conn
}

// Close gives all connections up.
func (p *PeerProbe) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for address, d := range p.conns {
		_ = d.conn.Close()
		delete(p.conns, address)
	}
}
