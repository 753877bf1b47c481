package wire

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"syscall"

	"github.com/understudy-ha/understudy/shard"
)

// maxDoors is how many addresses a Knocker keeps connections to.
const maxDoors = shard.MaxMembers

// Knocker asks nodes whether they answer, on connections that it keeps per address. The
// one that was knocked at longest ago is given up when there are too many.
type Knocker struct {
	cfg   Config
	mu    sync.Mutex
	doors map[string]*door
	count int64
}

type door struct {
	conn *Conn
	last int64 // knock, counted
}

// NewKnocker returns one that connects as cfg says.
func NewKnocker(cfg Config) *Knocker {
	return &Knocker{cfg: cfg, doors: map[string]*door{}}
}

// Knock sends PING. Whatever is answered in the protocol counts, an error as well: a server that
// wants a password or is loading is alive. What speaks another protocol is not the node.
func (k *Knocker) Knock(ctx context.Context, address string) shard.Verdict {
	_, err := k.at(address).Do(ctx, []string{"PING"})
	_, answered := errors.AsType[ServerError](err)
	switch {
	case err == nil || answered || errors.Is(err, shard.ErrNodeAccess):
		return shard.Answers
	case errors.Is(err, shard.ErrNodeGone) || errors.Is(err, syscall.ECONNRESET):
		return shard.Refuses
	}
	return shard.Mute
}

func (k *Knocker) at(address string) *Conn {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.count++
	d := k.doors[address]
	if d == nil {
		if len(k.doors) >= maxDoors {
			oldest := slices.MinFunc(slices.Collect(maps.Keys(k.doors)), func(a, b string) int {
				return cmp.Compare(k.doors[a].last, k.doors[b].last)
			})
			// Closing waits for a knock that is under way, and that ends at once.
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
func (k *Knocker) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for address, d := range k.doors {
		_ = d.conn.Close()
		delete(k.doors, address)
	}
}
