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

// PeerProbe asks nodes whether they answer, on connections that it keeps per address. The
// one that was knocked at longest ago is given up when there are too many.
type PeerProbe struct {
	cfg   Config
	mu    sync.Mutex
	doors map[string]*door
	count int64
}

type door struct {
	conn *Conn
	last int64 // peers, counted
}

// NewPeerProbe returns one that connects as cfg says.
func NewPeerProbe(cfg Config) *PeerProbe {
	return &PeerProbe{cfg: cfg, doors: map[string]*door{}}
}

// Probe sends PING. Whatever is answered in the protocol counts, an error as well: a server that
// wants a password or is loading is alive. What speaks another protocol is not the node.
func (k *PeerProbe) Probe(ctx context.Context, address string) shard.Reachability {
	_, err := k.at(address).Do(ctx, []string{"PING"})
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

func (k *PeerProbe) at(address string) *Conn {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.count++
	d := k.doors[address]
	if d == nil {
		if len(k.doors) >= maxAddresses {
			oldest := slices.MinFunc(slices.Collect(maps.Keys(k.doors)), func(a, b string) int {
				return cmp.Compare(k.doors[a].last, k.doors[b].last)
			})
			// Closing waits for a peers that is under way, and that ends at once.
			_ = k.doors[oldest].conn.Close()
			delete(k.doors, oldest)
		}
		d = &door{conn: New(address, k.cfg)}
		k.doors[address] = d
	}
	d.last = k.count
	return d.conn
}

// Close gives all connections up.
func (k *PeerProbe) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for address, d := range k.doors {
		_ = d.conn.Close()
		delete(k.doors, address)
	}
}
