package shard

import (
	"context"
	"errors"
	"time"
)

var (
	// ErrNodeRefused: the node refused a write because of its fence, or as a replica.
	ErrNodeRefused = errors.New("shard: node refuses writes")
	// ErrNodeUnhealthy: the node answers, but cannot write: its disk is full, say.
	ErrNodeUnhealthy = errors.New("shard: node cannot write")
	// ErrNodeGone: nothing listens at the node's address.
	ErrNodeGone = errors.New("shard: connection refused")
	// ErrNodeAccess: the node does not let us in: wrong password, no right to a command, TLS.
	ErrNodeAccess = errors.New("shard: no access to node")
	// ErrNotManaged: nothing is done with the node, as it is not what its agent was given, or is not safe to keep.
	ErrNotManaged = errors.New("node is not managed")
	// ErrUnsupported: the engine has no such thing.
	ErrUnsupported = errors.New("shard: the engine cannot do that")
)

// State is what a node says of itself.
type State struct {
	Role      Role
	Txn       int64
	Lineage   Lineage
	Before    Lineage // the one that it was promoted from; zero if there is none
	Loading   bool
	Link      *Upstream  // on a replica
	Followers []Follower // on a primary
	Fence     Fence
	Needs     int  // replicas that a fence needs which is not closed, 0 when the engine does not tell
	Synced    bool // it has all of one copy, be it an old one; not between the start of loading one and its end
	Keys      int64
	Run       string // new at every start of its process; "" if the engine has none
	PID       int    // 0 when the engine does not tell
	Version   string // product and version, for operators
	// ConfigFile is what its process was started with, on its host; "" if there is none, or the engine does not tell.
	ConfigFile string
	NodeID     string // where the engine has one of its own (SableDB)
	// LogPath is where its append-only log is, on its host; "" if it has none, or the engine does not tell. AppendLog is
	// how far that reaches; zero where it cannot be read.
	LogPath   string
	AppendLog AppendLog
	// Replication is the address that replicas copy from, where it is not that of the node (SableDB).
	Replication string
}

// PromotedAt is where the node stood when it was promoted. Where it stands since is too much: a client
// that waits for replicas moves a closed primary on, although nothing is written.
func (s State) PromotedAt() int64 {
	if end := s.Before.End; end > 0 && end < s.Txn {
		return end
	}
	return s.Txn
}

// Engine acts on one node. Every method is one short exchange, bounded by ctx. Errors
// wrap ErrNodeGone when the connection was refused, ErrNodeAccess, or the context's error when no answer came
// in time. Methods may be called from several goroutines, and again after an error.
//
// What a node that hangs has received it carries out when it continues, whether the caller still waits or not: what Pause,
// Promote and Follow sent in the order of the calls, what SetFence sent also, and in any order between the two. So a node
// that has detached does not follow again because of an earlier call. An engine that cannot promise that says so.
type Engine interface {
	// Probe asks the node about itself.
	Probe(ctx context.Context) (State, error)
	// TryWrite proves that the node accepts writes, and changes no data. ErrNodeRefused
	// and ErrNodeUnhealthy tell why it does not.
	TryWrite(ctx context.Context) error
	// SetFence opens, arms or closes the fence. It holds for connections that exist and
	// for those to come, and for commands that the node has received and not started. Armed
	// with n: writes need n replicas that acknowledge. ErrUnsupported if the engine
	// has no armed fence.
	SetFence(ctx context.Context, f Fence, n int) error
	// Pause lets writes wait for at most d; 0 lets them continue. ErrUnsupported if the
	// engine cannot; a closed fence then has to do.
	Pause(ctx context.Context, d time.Duration) error
	// Promote makes a replica a primary; its fence stays as it is.
	Promote(ctx context.Context) error
	// Follow makes the node a replica of the one at the address: it copies what is
	// missing, all of it if need be. "" detaches it: it stays a replica with what it
	// has, of nobody.
	Follow(ctx context.Context, address string) error
	// Close gives the connections up.
	Close() error
}

// Engines reaches nodes by their address.
type Engines interface {
	// Name of the engine: "redis", "sabledb".
	Name() string
	// At returns the engine of the node at an address. It connects when it is used.
	At(address string) Engine
	// ProbePeer reports whether a node answers, from a connection that is kept per address.
	ProbePeer(ctx context.Context, address string) Reachability
	// FenceDelay is how long an armed fence takes to close after the last
	// acknowledgement of a replica; 0 when the engine has none.
	FenceDelay() time.Duration
}

// ArmedFenceDelay is FenceDelay where there are armed fences, on Redis: a replica's last acknowledgement is told in whole seconds, and a lag of
// more than one closes the fence.
const ArmedFenceDelay = 2 * time.Second

// Peer is a node of the shard, as its own agent reported it.
type Peer struct {
	NodeID      string // the engine's own
	Address     string
	Replication string
}

// PeerLearner is an engine whose nodes do not tell where the others are: its agent does.
type PeerLearner interface {
	LearnPeers(peers []Peer)
}

// CatchUpper is an engine that itself proves that a replica has all that its closed primary has.
type CatchUpper interface {
	// CatchUp returns once the replica has what its primary had at txn.
	CatchUp(ctx context.Context, txn int64) error
}
