// Package sabledb is the engine for SableDB, written from its source and tried against a
// stand-in (package standin), not against SableDB itself.
//
// # Addresses
//
// All addresses are those for clients. SableDB copies on another port; the engine looks it up
// in CLUSTER NODES of the node to follow, and otherwise adds [Config.PrivateOffset]. The
// host is an IPv4 literal: SableDB takes nothing else. There is no AUTH.
//
// # Fences
//
// SableDB has no condition for writes. The only fence is to be a replica, and the only closed
// one of a primary is to follow a place where nothing can listen. So the engine shows
// such a node as a closed primary:
//
//   - Closing the fence of a primary detaches it. Promoting a replica detaches it, and
//     nothing more. Both show as a primary whose fence is closed.
//   - Opening that fence is what sends REPLICAOF NO ONE.
//
// This is known to the process that did it. To another one, and after a restart, such a node is a
// detached replica, closed all the same. There is no armed fence ([shard.ErrUnsupported],
// a delay of 0): a primary that hangs behind an agent that is dead has to be decided about by a person.
// There is no pause: a switchover refuses writes instead of letting them wait.
//
// # Where a replica stands
//
// A node counts its transactions in its own numbers, which after a full copy have nothing to do
// with those of another node. A replica does not tell whether it is connected, nor
// whether its copy is whole. Its primary does tell of each replica where it is, in the primary's
// numbers. So a replica's transaction id is what its primary last said of it, and never its own
// number; its link is up, with that age of input, when its primary listed it.
// The id is therefore at least as old as the last probe: a lower bound, and comparable
// between the replicas of one primary. A history has the node id of its primary for a name,
// which comes again when that node is the primary again.
//
// For that the engine must find the primary, which takes a cluster name (--cluster-name at every
// SableDB). Without one, or before the primary has listed it, a replica is not
// synchronised: it is not chosen, but by a person's force.
//
// # What it does not promise
//
// A full copy that breaks off after the primary listed the replica is not seen until the
// primary lists it again: while a node follows another primary than the one that listed it, it
// counts as not synchronised. Nothing is acknowledged by replicas: what no replica had is lost, and SableDB
// itself may lose 250 ms of writes in a crash. Every change of primary copies all data to every
// replica. The write probe needs a key in the node's slots, and looks for one among 256.
//
// # How it fails
//
// With the errors of [shard.Engine].
package sabledb
