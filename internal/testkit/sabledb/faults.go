package sabledb

import (
	"maps"
	"slices"
	"syscall"
	"time"
)

// Kill ends the node at once. What it wrote last is lost.
func (n *Node) Kill() {
	if n.real != nil {
		_ = n.real.Process.Kill()
		n.wg.Wait()
		return
	}
	n.c.mu.Lock()
	if n.down {
		n.c.mu.Unlock()
		return
	}
	n.down = true
	n.resume()
	_ = n.l.Close()
	for s := range n.conns {
		_ = s.conn.Close()
	}
	// A replica that was about to be sent something writes into a broken pipe, and its thread ends.
	for _, r := range n.followers() {
		if r.reached < n.lastSent() {
			r.ended = true
		}
	}
	close(n.stop)
	n.lose()
	n.c.mu.Unlock()
	n.wg.Wait()
}

// lose undoes what was written within the last 250 ms.
func (n *Node) lose() {
	for _, u := range slices.Backward(n.undo) {
		if time.Since(u.at) > lossWindow {
			break
		}
		if u.was == nil {
			delete(n.data, u.key)
		} else {
			n.data[u.key] = u.was
		}
	}
	n.undo = nil
}

// Flush has what was written so far survive a crash.
func (n *Node) Flush() { n.locked(func() { n.undo = nil }) }

// Hang stops the node, with its connections open, until Resume or Kill.
func (n *Node) Hang() {
	if n.real != nil {
		_ = n.real.Process.Signal(syscall.SIGSTOP)
		return
	}
	n.locked(func() { n.hung = make(chan struct{}) })
}

// Resume lets a node that hangs continue.
func (n *Node) Resume() {
	if n.real != nil {
		_ = n.real.Process.Signal(syscall.SIGCONT)
		return
	}
	n.locked(n.resume)
}

func (n *Node) resume() {
	if n.hung != nil {
		close(n.hung)
		n.hung = nil
	}
}

// Cut closes all connections of clients.
func (n *Node) Cut() {
	n.locked(func() {
		for s := range n.conns {
			_ = s.conn.Close()
		}
	})
}

// EndThread ends the replication thread of a replica for good.
func (n *Node) EndThread() { n.locked(func() { n.ended = true }) }

// Hold keeps a replica from getting any further, until it is let continue.
func (n *Node) Hold(on bool) { n.locked(func() { n.held = on }) }

// ManagedBy sets the cluster database that the node names.
func (n *Node) ManagedBy(address string) { n.locked(func() { n.manager = address }) }

// InfoText replaces the answer to INFO.
func (n *Node) InfoText(text string) { n.locked(func() { n.infoText = text }) }

// IgnoreLocks makes it a broken server, whose LOCK does nothing: which a test of isolation has to notice.
func (n *Node) IgnoreLocks() { n.locked(func() { n.lockless = true }) }

// Foreign says which keys are in slots of other shards.
func (n *Node) Foreign(is func(key string) bool) { n.locked(func() { n.foreign = is }) }

// Before calls f with each request that is about to be carried out, which waits for it.
func (n *Node) Before(f func(args []string)) { n.locked(func() { n.before = f }) }

// Step moves the clock by which keys expire.
func (n *Node) Step(d time.Duration) { n.locked(func() { n.skew += d }) }

// Refused are the commands that SableDB does not have.
func (n *Node) Refused() (all []string) {
	n.locked(func() { all = slices.Clone(n.refused) })
	return all
}

// Served counts the requests, by command.
func (n *Node) Served() (all map[string]int) {
	n.locked(func() { all = maps.Clone(n.served) })
	return all
}

// Copies is how often the node was led to a primary.
func (n *Node) Copies() (count int) {
	n.locked(func() { count = n.serial })
	return count
}

// SetCopyTime changes how long full copies take from now on.
func (c *Cluster) SetCopyTime(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.CopyTime = d
}
