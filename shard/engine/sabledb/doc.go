// Package sabledb is the engine for SableDB. What it knows of it was measured on real nodes (commit fc0fa84); its
// tests run against package testkit/sabledb, or a real program (UNDERSTUDY_SABLEDB).
//
// # Addresses
//
// All addresses are those for clients. SableDB copies from another port, which each node's own agent reports
// ([shard.Engines] learns it by [shard.PeerLearner]); without a report it is [DefaultPrivateOffset] further. The host is an
// IPv4 literal: SableDB takes nothing else. There is no AUTH.
//
// # Fences
//
// SableDB has no condition for writes. The only fence is to be a replica, and the only closed one of a primary is to
// follow a place where nothing can listen. The engine shows such a node as a closed primary:
//
//   - Closing the fence of a primary detaches it. Promoting a replica detaches it, and nothing more. Both show as a
//     primary whose fence is closed.
//   - Opening that fence is what sends REPLICAOF NO ONE.
//
// This is known to the process that did it. To another one, and after a restart, such a node is a detached replica,
// closed all the same. There is no armed fence ([shard.ErrUnsupported], a delay of 0): about a primary that hangs
// behind an agent that is dead an operator must decide. There is no pause: a switchover refuses writes.
//
// # Where a replica is
//
// A node's own numbers have nothing to do with those of another. A replica keeps its place in its primary's numbers in
// changes.seq in its database folder, which its own agent reads ([Config.Folder]). Without the folder its place is what
// the primary last listed, which is a lower bound. Its copy counts as whole once the primary has listed it, and
// changes.seq was written, since it was led there. A history has the node id of its primary for a name.
//
// A write that changes nothing uses a number and is never sent, so that a replica at rest may be below its primary. So
// the write probe changes something (it sets a key and deletes it), and [Node.Pause] ends with such a pair, in the same request that closes the node. A replica that
// stays below all the same takes a full copy from the closed primary, or the switchover goes back.
//
// # Threads that end
//
// Its threads serve connections side by side. What a node that hung had received on a connection that was given up since may be carried
// out after what came on the next one, unlike on Redis: see [shard.Engine].
//
// A replica whose connection breaks while it sends never connects again, and does not tell. One that its primary has
// not listed for 2 s shows as stalled; its agent leads it there again, which is a full copy, one replica at a time.
//
// # What it does not promise
//
// Nothing is acknowledged by replicas: what no replica had is lost, and SableDB itself may lose 250 ms of writes in
// a crash. Every change of primary copies all data to every replica. The write probe needs a key in the node's
// slots, and looks for one among 256.
//
// # How it fails
//
// With the errors of [shard.Engine]. A node with a cluster database is not touched ([shard.ErrNodeAccess]): SableDB's
// own failover would compete.
package sabledb
