package sabledb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/engine/wire"
)

// errInfo: the answer to INFO is not that of a SableDB.
var errInfo = errors.New("shard/sabledb: INFO is not understood")

// probeKeys is how many keys are tried to find one in the node's slots.
const probeKeys = 256

// TryWrite implements [shard.Engine]. It sets a key and deletes it: what changes nothing would use a number that is never
// sent, and every replica at rest would seem to lag.
func (n *Node) TryWrite(ctx context.Context) error {
	n.mu.Lock()
	suffix := n.suffix
	n.mu.Unlock()
	replies, err := n.write.Do(ctx, []string{"SET", probeKey(suffix), "1"}, del(suffix))
	if err != nil {
		return err
	}
	answer := cmp.Or(replies[0].Err(), replies[1].Err())
	if answer != nil && code(answer) == "MOVED" {
		var commands [][]string
		for i := range probeKeys {
			commands = append(commands, del(i))
		}
		if replies, err = n.write.Do(ctx, commands...); err != nil {
			return err
		}
		for i, r := range replies {
			if answer = r.Err(); answer == nil || code(answer) != "MOVED" {
				n.mu.Lock()
				n.suffix = i
				n.mu.Unlock()
				break
			}
		}
	}
	switch {
	case answer == nil:
		return nil
	case code(answer) == "READONLY":
		return fmt.Errorf("%w: node %s: %w", shard.ErrNodeRefused, n.address, answer)
	case code(answer) == "MOVED":
		return fmt.Errorf("%w: node %s: none of %d keys is in its slots: %w", shard.ErrNodeUnhealthy, n.address, probeKeys, answer)
	}
	return fmt.Errorf("node %s: the write probe: %w", n.address, answer)
}

// del deletes the key of the write probe.
func del(suffix int) []string { return []string{"DEL", probeKey(suffix)} }

func probeKey(suffix int) string { return "understudy:write-probe:" + strconv.Itoa(suffix) }

func code(err error) string {
	answer, _ := errors.AsType[wire.ServerError](err)
	return answer.Code()
}

// Probe implements [shard.Engine].
func (n *Node) Probe(ctx context.Context) (shard.State, error) {
	m := n.memory
	for {
		m.mu.Lock()
		before := m.acts
		m.mu.Unlock()
		in, keys, err := n.look(ctx)
		if err != nil {
			return shard.State{}, err
		}
		m.mu.Lock()
		// What was asked before the node was made something else is not what it is now.
		if m.acts != before {
			m.mu.Unlock()
			continue
		}
		s := shard.State{Role: in.role, Keys: keys, Version: "SableDB", NodeID: in.id, Fence: shard.Open}
		if host, port, err := n.of.replicationOf(n.address); err == nil {
			s.Replication = net.JoinHostPort(host, port)
		}
		if in.role == shard.Primary {
			m.detached = false
			if m.standing { // it was opened by another program, or without an answer in time
				m.opened()
			}
			s.Txn, s.Lineage, s.Synced, s.Followers = in.sequence, shard.Lineage{ID: in.id}, true, n.followers(in)
		} else {
			n.fillReplica(&s, in)
		}
		m.mu.Unlock()
		return s, nil
	}
}

// look asks the node, and the primary of a replica.
func (n *Node) look(ctx context.Context) (in info, keys int64, err error) {
	replies, err := n.do(ctx, n.probe, []string{"INFO"}, []string{"DBSIZE"})
	if err != nil {
		return in, 0, err
	}
	if in, err = parseInfo(replies[0].Text); err != nil {
		return in, 0, fmt.Errorf("node %s: %w", n.address, err)
	}
	if keys = replies[1].Int; keys == 0 {
		if keys, err = n.countSome(ctx); err != nil {
			return in, 0, err
		}
	}
	if in.role == shard.Replica {
		n.askPrimary(ctx, in)
		n.weigh()
	}
	return in, keys, nil
}

// weigh finds the size of a copy that has ended.
func (n *Node) weigh() {
	m := n.memory
	m.mu.Lock()
	due := m.took > 0 && m.size == 0
	m.mu.Unlock()
	if !due {
		return
	}
	size := max(1, n.size()) // not again
	m.mu.Lock()
	defer m.mu.Unlock()
	m.size = size
}

// countSome tells a node that has keys from an empty one: DBSIZE is up to 30 s old.
func (n *Node) countSome(ctx context.Context) (int64, error) {
	replies, err := n.do(ctx, n.probe, []string{"SCAN", "0"})
	if err != nil {
		return 0, err
	}
	if items := replies[0].Items; len(items) == 2 && len(items[1].Items) > 0 {
		return int64(len(items[1].Items)), nil
	}
	return 0, nil
}

// fillReplica shows a replica, or a primary whose fence is closed.
func (n *Node) fillReplica(s *shard.State, in info) {
	m := n.memory
	s.Fence, s.Lineage = shard.Closed, shard.Lineage{ID: in.primary}
	if m.primary != "" && (m.primary == in.primary || m.detached) {
		s.Lineage.ID, s.Txn, s.Synced = m.primary, m.txn, true
		if p, err := n.readPlace(); err == nil && !m.standing {
			s.Synced = m.isCopied(p)
			if s.Synced {
				s.Txn = p.txn
			}
			if m.detached {
				s.Txn = max(m.txn, s.Txn)
			}
		}
	}
	switch {
	case m.standing:
		s.Role, s.Synced, s.Lineage = shard.Primary, true, shard.Lineage{ID: in.id}
		s.Txn = in.sequence
		if m.primary != "" { // its own numbers begin when it is opened
			s.Before, s.Txn = shard.Lineage{ID: m.primary, End: m.txn}, m.txn
		}
		return
	// A primary that was closed before this process began: it follows nobody, and has its own data.
	case in.primary == "" && m.follows == "" && m.led.IsZero():
		s.Lineage, s.Txn, s.Synced = shard.Lineage{ID: in.id}, in.sequence, true
	}
	s.Link = &shard.Upstream{Input: -1}
	if m.detached {
		return
	}
	s.Link.Address = cmp.Or(m.follows, n.of.addressOf(in.primary), in.primary)
	s.Link.Syncing, s.Link.Stalled = m.isCopying(), m.isStalled()
	s.Link.CopyTook, s.Link.CopyBytes = m.took, m.size
	if m.primary != "" {
		s.Link.Input = time.Since(m.heard)
		s.Link.Up = s.Synced && s.Link.Input < linkLife
	}
}

// askPrimary asks the primary of a replica where the replica is. It takes a part of the time only, so that a primary that
// hangs does not make its replica look hung.
func (n *Node) askPrimary(ctx context.Context, in info) {
	m := n.memory
	m.mu.Lock()
	detached, address := m.detached, m.follows
	m.mu.Unlock()
	if address == "" {
		address = n.of.addressOf(in.primary)
	}
	if detached || address == "" {
		return
	}
	n.mu.Lock()
	if n.at != address {
		if n.primary != nil {
			_ = n.primary.Close()
		}
		n.primary, n.at = wire.New(address, n.of.wire), address
	}
	c := n.primary
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, n.of.cfg.Timeout/4)
	defer cancel()
	sent := time.Now()
	p, err := n.info(ctx, c)
	if err != nil || p.role != shard.Primary {
		return
	}
	txn, listed := p.replica(in.id)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.led.After(sent) || m.detached: // it was led elsewhere meanwhile
	case listed && p.id == in.primary:
		m.hear(p.id, txn, sent)
	default:
		m.miss(sent)
	}
}

func (n *Node) info(ctx context.Context, c *wire.Conn) (info, error) {
	replies, err := n.do(ctx, c, []string{"INFO"})
	if err != nil {
		return info{}, err
	}
	return parseInfo(replies[0].Text)
}

// info is what a node says of itself.
type info struct {
	role     shard.Role
	id       string
	primary  string // node id, on a replica
	sequence int64  // in the node's own numbers
	replicas []listed
	manager  string // the cluster database: SableDB's own failover is on
	product  string // what answers instead of a SableDB
}

// replica returns where a primary says that a replica is, if it lists it.
func (in info) replica(id string) (txn int64, listed bool) {
	for _, r := range in.replicas {
		if r.id == id {
			return r.txn, true
		}
	}
	return 0, false
}

// listed is a replica in its primary's numbers.
type listed struct {
	id  string
	txn int64
}

// parseInfo reads INFO. The first SableDB has a blank after the colon.
func parseInfo(text string) (info, error) {
	var in info
	var err error
	number := func(value string) (n int64) {
		n, bad := strconv.ParseInt(value, 10, 64)
		if bad != nil {
			err = fmt.Errorf("%w: number %.40q", errInfo, value)
		}
		return n
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch name {
		case "role":
			in.role = shard.Role(value)
		case "management_database":
			in.manager = value
		case "redis_version":
			in.product = cmp.Or(in.product, "Redis")
		case "valkey_version":
			in.product = "Valkey"
		case "node_id":
			in.id = value
		case "primary_node_id":
			in.primary = value
		case "last_db_update_sequence_number":
			in.sequence = number(value)
		case "replica":
			fields := strings.Split(value, ",")
			r := listed{id: strings.TrimSpace(fields[0]), txn: -1}
			for _, f := range fields[1:] {
				if key, v, _ := strings.Cut(f, ":"); strings.TrimSpace(key) == "last_change_sequence_number" {
					r.txn = number(strings.TrimSpace(v))
				}
			}
			if r.txn >= 0 && len(in.replicas) < shard.MaxMembers {
				in.replicas = append(in.replicas, r)
			}
		}
	}
	switch {
	case in.product != "":
		return in, fmt.Errorf("%w: it is a %s, not a SableDB: use --engine redis", shard.ErrNodeAccess, in.product)
	case in.manager != "":
		return in, fmt.Errorf("%w: its management_database is %.60s, so that SableDB's own failover would compete: start it without --cluster-address", shard.ErrNodeAccess, in.manager)
	}
	if err == nil && in.role != shard.Primary && in.role != shard.Replica {
		err = fmt.Errorf("%w: role %.40q", errInfo, in.role)
	}
	if err == nil && in.id == "" {
		err = fmt.Errorf("%w: no node_id", errInfo)
	}
	return in, err
}

// followers are the replicas that a primary lists.
func (n *Node) followers(in info) []shard.Follower {
	var all []shard.Follower
	for _, r := range in.replicas {
		f := shard.Follower{Address: n.of.addressOf(r.id), Txn: r.txn, Online: true}
		if f.Address == "" {
			f.ID = r.id
		}
		all = append(all, f)
	}
	return all
}
