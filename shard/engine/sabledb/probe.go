package sabledb

import (
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

// TryWrite implements [shard.Engine].
func (n *Node) TryWrite(ctx context.Context) error {
	n.mu.Lock()
	suffix := n.suffix
	n.mu.Unlock()
	replies, err := n.write.Do(ctx, del(suffix))
	if err != nil {
		return err
	}
	answer := replies[0].Err()
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
	return fmt.Errorf("node %s: DEL: %w", n.address, answer)
}

// del deletes a key that nobody has.
func del(suffix int) []string {
	return []string{"DEL", "understudy:no-such-key:" + strconv.Itoa(suffix)}
}

func code(err error) string {
	answer, _ := errors.AsType[wire.ServerError](err)
	return answer.Code()
}

// Probe implements [shard.Engine].
func (n *Node) Probe(ctx context.Context) (shard.State, error) {
	replies, err := n.do(ctx, n.probe, []string{"INFO"}, []string{"DBSIZE"}, []string{"CLUSTER", "NODES"})
	if err != nil {
		return shard.State{}, err
	}
	in, err := parseInfo(replies[0].Text)
	if err != nil {
		return shard.State{}, fmt.Errorf("node %s: %w", n.address, err)
	}
	peers := parsePeers(replies[2])
	m := n.memory
	if in.role == shard.Replica {
		n.ask(ctx, in, peers)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := shard.State{Role: in.role, Keys: replies[1].Int, Version: "SableDB", NodeID: in.id, Fence: shard.Open}
	if in.role == shard.Primary {
		// Somebody else may have opened it.
		m.standing, m.detached = false, false
		s.Txn, s.Lineage, s.Synced, s.Followers = in.sequence, shard.Lineage{ID: in.id}, true, in.followers(peers)
		return s, nil
	}
	s.Fence = shard.Closed
	s.Lineage = shard.Lineage{ID: in.primary}
	if m.primary != "" && (m.primary == in.primary || m.detached) {
		s.Lineage.ID, s.Txn, s.Synced = m.primary, m.txn, true
	}
	if m.standing {
		s.Role, s.Synced = shard.Primary, true
		s.Lineage, s.Txn = shard.Lineage{ID: in.id}, in.sequence
		if m.primary != "" {
			s.Before = shard.Lineage{ID: m.primary, End: m.txn}
		}
		return s, nil
	}
	s.Link = &shard.Upstream{Input: -1}
	if m.detached {
		return s, nil
	}
	s.Link.Address = m.follows
	if p := find(peers, in.primary); p.address != "" {
		s.Link.Address = p.address
	}
	if s.Synced {
		s.Link.Input = time.Since(m.heard)
		s.Link.Up = s.Link.Input < linkLife
	}
	return s, nil
}

// linkLife is how long a link counts as up after the primary last listed the replica.
const linkLife = 2 * time.Second

// ask asks the primary of a replica where the replica stands. It takes a part of the time
// only, so that a primary that hangs does not make its replica look hung.
func (n *Node) ask(ctx context.Context, in info, peers []peer) {
	n.memory.mu.Lock()
	detached := n.memory.detached
	n.memory.mu.Unlock()
	address := find(peers, in.primary).address
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
	if err != nil || p.id != in.primary || p.role != shard.Primary {
		return
	}
	for _, r := range p.replicas {
		if r.id == in.id {
			n.memory.mu.Lock()
			n.memory.primary, n.memory.txn, n.memory.heard = p.id, r.txn, sent
			n.memory.mu.Unlock()
		}
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
	if err == nil && in.role != shard.Primary && in.role != shard.Replica {
		err = fmt.Errorf("%w: role %.40q", errInfo, in.role)
	}
	if err == nil && in.id == "" {
		err = fmt.Errorf("%w: no node_id", errInfo)
	}
	return in, err
}

func (in info) followers(peers []peer) []shard.Follower {
	var all []shard.Follower
	for _, r := range in.replicas {
		all = append(all, shard.Follower{ID: r.id, Address: find(peers, r.id).address, Txn: r.txn, Online: true})
	}
	return all
}

// peer is a node of CLUSTER NODES.
type peer struct{ id, address, private string }

// parsePeers reads lines such as ID 10.0.0.1:6379@7379 master - 0 0 14 connected 0-16383. What is not
// understood is left out.
func parsePeers(r wire.Reply) []peer {
	var all []peer
	for _, item := range append(r.Items, r) {
		for line := range strings.Lines(item.Text) {
			f := strings.Fields(line)
			if len(f) < 2 {
				continue
			}
			address, private, _ := strings.Cut(f[1], "@")
			if _, _, err := net.SplitHostPort(address); err == nil {
				all = append(all, peer{f[0], address, private})
			}
		}
	}
	return all
}

func find(peers []peer, id string) peer {
	for _, p := range peers {
		if p.id == id && id != "" {
			return p
		}
	}
	return peer{}
}
