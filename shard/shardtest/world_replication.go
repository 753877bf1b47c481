package shardtest

import (
	"cmp"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

func (n *Node) acknowledged() int {
	count := 0
	for _, f := range n.followers() {
		if f.Online && f.Lag <= time.Second {
			count++
		}
	}
	return count
}

func (n *Node) followers() []shard.Follower {
	var out []shard.Follower
	for _, a := range n.w.order {
		if r := n.w.nodes[a]; r.linked && r.primary == n.address && r.running {
			out = append(out, shard.Follower{Address: a, Txn: r.txn, Online: !r.syncing(), Lag: time.Since(r.input)})
		}
	}
	return out
}

func (n *Node) syncing() bool { return !n.copying.IsZero() }

// linkTime is how long a link is kept over which nothing comes.
const linkTime = time.Minute

// replicate lets replication do what it does in no time. The lock is held.
func (w *World) replicate() {
	for _, a := range w.order {
		if n := w.nodes[a]; n.running && !n.hung && n.queued > 0 {
			n.drain()
		}
	}
	for range w.order { // chains
		for _, a := range w.order {
			w.nodes[a].replicate()
		}
	}
}

func (n *Node) replicate() {
	if !n.running || n.hung || n.role != shard.Replica || n.primary == "" {
		return
	}
	p := n.w.nodes[n.primary]
	if p == nil || !p.running {
		if n.linked {
			// Redis looks after its links once per second.
			n.retry = time.Now().Add(time.Second)
		}
		n.linked, n.copying = false, time.Time{}
		return
	}
	// One that takes a full copy itself sends its replicas away.
	if n.linked && (n.peer != p.run || n.dataset != p.copies) {
		n.linked, n.copying, n.retry = false, time.Time{}, time.Now().Add(time.Second)
	}
	if p.hung || !n.w.reaches(n.address, p.address) {
		if n.linked && time.Since(n.input) > linkTime {
			n.linked = false
		}
		return
	}
	if !n.linked {
		// A replica that has no primary itself does not serve others.
		if time.Now().Before(n.retry) || p.role == shard.Replica && (!p.linked || p.syncing()) {
			return
		}
		n.attach(p)
	}
	n.input = time.Now()
	if n.syncing() {
		if time.Now().Before(n.copying) {
			return
		}
		n.copying, n.synced, n.linked = time.Time{}, true, true
		n.txn = p.txn - int64(len(p.data))
	}
	n.lineage, n.before = p.lineage, p.before
	n.catchUp(p)
}

// attach connects to a primary: with what is missing, or with a full copy.
func (n *Node) attach(p *Node) {
	partial := n.synced && (n.lineage.ID == p.lineage.ID && n.txn <= p.txn ||
		p.before.ID != "" && n.lineage.ID == p.before.ID && n.txn <= p.before.End)
	n.linked, n.peer, n.dataset = true, p.run, p.copies
	if !partial {
		// What it had is gone from now on, while it tells of the same place in the same lineage until the end.
		n.copies++
		n.data, n.file = nil, n.file+1
		n.synced, n.copying = false, time.Now().Add(cmp.Or(n.w.CopyTime, 20*time.Millisecond))
	}
}

func (n *Node) catchUp(p *Node) {
	seen := time.Now().Add(-n.lag)
	for i := int64(len(p.data)) - (p.txn - n.txn); i < int64(len(p.data)); i++ {
		if i < 0 {
			continue
		}
		if p.data[i].at.After(seen) {
			return
		}
		n.data = append(n.data, p.data[i])
		n.txn++
	}
}
