package sabledb

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"
)

const (
	lossWindow = 250 * time.Millisecond
	// pull is how often a replica asks for updates.
	pull = 20 * time.Millisecond
)

// change is one number of a primary; key is "" if it changed nothing.
type change struct {
	sequence int64
	key      string
	to       *value // nil: deleted
}

type undone struct {
	at  time.Time
	key string
	was *value
}

// followers are those that have joined and whose threads live.
func (n *Node) followers() (all []*Node) {
	for _, r := range n.c.nodes {
		if r.replica && !r.down && !r.ended && r.listedAt && r.follows == n.Private && r.primary == n.ID {
			all = append(all, r)
		}
	}
	return all
}

// lastSent is the last number that changed something.
func (n *Node) lastSent() int64 {
	for i := len(n.log) - 1; i >= 0; i-- {
		if n.log[i].key != "" {
			return n.log[i].sequence
		}
	}
	return 0
}

func (n *Node) replicaOf(host, port string) (problem string) {
	if strings.EqualFold(host, "NO") && strings.EqualFold(port, "ONE") {
		n.serial++
		n.replica, n.follows, n.primary, n.log = false, "", "", nil
		return ""
	}
	if ip := net.ParseIP(host); ip == nil || ip.To4() == nil {
		return "ERR value is not an IP address"
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "ERR value is not an integer or out of range"
	}
	n.replica, n.follows = true, net.JoinHostPort(host, port)
	n.attach()
	return ""
}

// attach starts a replication thread for the primary that the node follows. The one before it ends.
func (n *Node) attach() {
	n.serial++
	n.ended, n.listedAt = false, false
	serial, stop := n.serial, n.stop
	n.wg.Go(func() { n.replicate(serial, stop) })
}

func (n *Node) replicate(serial int, stop chan struct{}) {
	copied := false
	for tick := time.NewTicker(pull); ; {
		select {
		case <-stop:
			tick.Stop()
			return
		case <-tick.C:
		}
		if !copied {
			p, wait := n.source(serial)
			if p == nil {
				continue
			}
			<-time.After(wait)
			copied = n.copyFrom(p, serial)
			continue
		}
		if !n.update(serial) {
			tick.Stop()
			return
		}
	}
}

// source joins the primary, which is told its id at once.
func (n *Node) source(serial int) (p *Node, wait time.Duration) {
	n.locked(func() {
		for _, o := range n.c.nodes {
			if o.Private == n.follows && !o.down && o.hung == nil && o != n && serial == n.serial {
				p, n.primary, wait = o, o.ID, n.c.CopyTime
			}
		}
	})
	return p, wait
}

// copyFrom takes everything that the primary has.
func (n *Node) copyFrom(p *Node, serial int) (done bool) {
	n.locked(func() {
		if serial != n.serial || p.down {
			return
		}
		n.data = maps.Clone(p.data)
		// One step of its own for each record that is copied, and for what is deleted.
		n.sequence += int64(len(p.data)) + 100
		n.reached, n.listedAt, done = p.sequence, true, true
		n.writeSequence()
	})
	return done
}

// update takes what the primary has sent since; it is false when the thread ends.
func (n *Node) update(serial int) (goOn bool) {
	n.locked(func() {
		if serial != n.serial || n.ended {
			return
		}
		goOn = true
		if n.held || n.hung != nil {
			return
		}
		for _, p := range n.c.nodes {
			if p.Private != n.follows || p.down || p.hung != nil {
				continue
			}
			before := n.reached
			first := sort.Search(len(p.log), func(i int) bool { return p.log[i].sequence > n.reached })
			for _, c := range p.log[first:] {
				if c.key == "" {
					continue
				}
				n.reached = c.sequence
				n.sequence++
				if c.to == nil {
					delete(n.data, c.key)
				} else {
					n.data[c.key] = c.to
				}
			}
			if n.reached != before {
				n.writeSequence()
			}
		}
	})
	return goOn
}

func (n *Node) writeSequence() {
	_ = os.WriteFile(filepath.Join(n.Folder, "changes.seq"), []byte(strconv.FormatInt(n.reached, 10)), 0o600)
}

// put changes a key on a primary. to is nil to delete it.
func (n *Node) put(key string, to *value) {
	was := n.data[key]
	n.sequence++
	if to == nil && was == nil {
		n.log = append(n.log, change{sequence: n.sequence})
		return
	}
	n.undo = append(n.undo[max(0, len(n.undo)-1000):], undone{time.Now(), key, was})
	n.log = append(n.log, change{n.sequence, key, to})
	if to == nil {
		delete(n.data, key)
	} else {
		n.data[key] = to
	}
}

func (n *Node) info() string {
	if n.infoText != "" {
		return n.infoText
	}
	var b strings.Builder
	role := "primary"
	if n.replica {
		role = "replica"
	}
	fmt.Fprintf(&b, "# Replication\nrole:%s\nnode_id:%s\nshard:\nslots:0-16383\nmanagement_database:%s\nlast_db_update_sequence_number:%d\n",
		role, n.ID, n.manager, n.sequence)
	if n.replica {
		fmt.Fprintf(&b, "primary_node_id:%s\n", n.primary)
		return b.String()
	}
	all := n.followers()
	fmt.Fprintf(&b, "connected_replicas:%d\n", len(all))
	for _, r := range all {
		fmt.Fprintf(&b, "replica:%s,distance_from_primary:%d,last_change_sequence_number:%d\n", r.ID, n.sequence-r.reached, r.reached)
	}
	return b.String()
}
