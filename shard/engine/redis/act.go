package redis

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// closedWith is more replicas than a server can have: the highest number that it takes.
const closedWith = "2147483647"

// Where a detached replica is led: nothing can listen on port 0.
const (
	nowhereHost = "127.0.0.1"
	nowherePort = "0"
)

// TryWrite implements [shard.Engine]. While a pause lasts and the fence is not closed, there is
// no answer.
func (n *Node) TryWrite(ctx context.Context) error {
	_, err := n.do(ctx, n.write, []string{"DEL", probeKey})
	return err
}

// SetFence implements [shard.Engine].
func (n *Node) SetFence(ctx context.Context, f shard.Fence, replicas int) error {
	want := "0"
	switch f {
	case shard.Open:
	case shard.Closed:
		want = closedWith
	case shard.Armed:
		if replicas < 1 || replicas > shard.MaxMembers {
			return fmt.Errorf("%w: a fence armed with %d replicas; 1 to %d", lease.ErrInvalid, replicas, shard.MaxMembers)
		}
		want = strconv.Itoa(replicas)
	default:
		return fmt.Errorf("%w: fence %q", lease.ErrInvalid, f)
	}
	// A lag of 0 would switch the condition off.
	commands := [][]string{configSet("min-replicas-max-lag", strconv.Itoa(maxLag)), configSet("min-replicas-to-write", want)}
	if f == shard.Open {
		commands = commands[1:]
	}
	_, err := n.do(ctx, n.fence, commands...)
	return err
}

// Pause implements [shard.Engine].
func (n *Node) Pause(ctx context.Context, d time.Duration) error {
	command := []string{"CLIENT", "UNPAUSE"}
	if d > 0 {
		ms := max(1, d.Milliseconds())
		command = []string{"CLIENT", "PAUSE", strconv.FormatInt(ms, 10), "WRITE"}
	}
	_, err := n.do(ctx, n.act, command)
	return err
}

// Promote implements [shard.Engine].
func (n *Node) Promote(ctx context.Context) error {
	_, err := n.do(ctx, n.act, []string{"REPLICAOF", "NO", "ONE"})
	return err
}

// Follow implements [shard.Engine]. The clients of a node that was a primary are
// disconnected: those that only read would stay with it for ever.
func (n *Node) Follow(ctx context.Context, address string) error {
	host, port := nowhereHost, nowherePort
	var commands [][]string
	if address != "" {
		if err := shard.ValidateAddress("address to follow", address); err != nil {
			return err
		}
		host, port, _ = net.SplitHostPort(address)
		if n.cfg.Password != "" {
			commands = append(commands, configSet("masteruser", n.cfg.Username), configSet("masterauth", n.cfg.Password))
		}
		if n.cfg.TLS != nil {
			commands = append(commands, configSet("tls-replication", "yes"))
		}
	}
	commands = append(commands, configSet("replica-read-only", "yes"), []string{"REPLICAOF", host, port})
	replies, err := n.do(ctx, n.act, []string{"INFO", "replication"})
	if err != nil {
		return err
	}
	if role := parseInfo(replies[0].Text).text("role"); role != "slave" && role != "replica" {
		// A pause would hold up what comes from the new primary, too.
		commands = append(commands, []string{"CLIENT", "UNPAUSE"}, clientKill("normal"), clientKill("pubsub"))
	}
	_, err = n.do(ctx, n.act, commands...)
	return err
}

func clientKill(kind string) []string {
	return []string{"CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"}
}

func configSet(name, value string) []string { return []string{"CONFIG", "SET", name, value} }
