// Package redis keeps sessions, leases and the history in Redis 6.2 or later, or
// in Valkey.
//
// Every operation is one Lua script, and so atomic; the time is the server's own,
// read inside the script. All keys begin with "{prefix}:", so that they share a
// slot and several stores can share a database. A session is a hash that expires
// 24 hours after it has lapsed; a lease is a hash that never expires, so that its
// term never falls. Events are a stream of bounded length. Changes of hands and
// requests are published; renewals are not.
//
// # What it does not promise
//
// Redis answers a write before its replicas have it, and before it is on disk
// unless it is told otherwise. What that means for a lease:
//
//   - A failover, by Sentinel or by hand, can lose acquisitions and renewals that
//     were acknowledged. The lease can then be taken by another: for up to T
//     there may be two that believe in it, of which the later has the higher
//     term. Check the term wherever the effects land.
//   - A master that is replaced while it is cut off accepts renewals from whoever
//     still reaches it, as long as min-replicas-to-write is 0, the default: the two
//     then believe in the lease for as long as the partition lasts. With
//     min-replicas-to-write 1, or more if replicas can be cut off together with the
//     master, it refuses them min-replicas-max-lag later (10 s by default, and up to
//     two more). Set that below T, and the two overlap for up to T again.
//   - A restart with "appendonly yes" and "appendfsync always" loses nothing. With
//     "appendfsync everysec" it loses up to about two seconds, with the same
//     consequence as a failover; an interval of two seconds or more is then
//     longer than the loss.
//   - A restart without persistence loses everything, the terms too. New terms
//     start from the clock in milliseconds and so are above the old ones, as long
//     as the clock was not set back meanwhile.
//   - FLUSHALL and FLUSHDB lose as much, and are noticed only by the next session
//     that starts, and not by that one if a program opened the store before it: do
//     not use them on a store that someone uses.
//   - An eviction policy other than noeviction lets the server delete sessions or
//     leases when memory is short. [Store.Inspect] warns.
//
// Two things keep the harm of a loss small. Every new connection looks whether
// the server is still the one that wrote the data (and all are new once one has
// led to a replica); if it is not, nothing is given
// away for one T (of whoever asks; lease.ErrUnavailable says so), so that
// holders of what was lost stop first. This delays the very first acquisition on a server that was started
// less than T ago, too. And the number of changes that a renewal returns differs
// from the one before, so that whoever holds, waits or watches reads again.
//
// The server's clock may be stepped: see package lease. A step back past the server's
// start or its last takeover lets one T pass again in which nothing is given away. A step by more than 24
// hours forward expires every session; their holders hear at the next renewal.
//
// # Tokens
//
// Those of package access are fields of the hash "tokens": JSON, by id, and "rev", which each change raises. A failover that
// loses the newest writes can bring a revoked token back.
//
// # Shards
//
// Others may read what package shard keeps. After the prefix:
//
//	NODE_ID                 hash    node_id, node_address, role, last_updated (µs), last_txn_id, primary_node_id;
//	                                shard_name, instance, timeout_ns; detail (the rest, JSON)
//	PRIMARY_ID_replicas     set     ids of the members but the primary
//	PRIMARY_ID_FAILOVER     string  the failover lock; SET NX EX 60
//	NODE_ID_queue           list    commands in JSON, each with expires_us; LPUSH, BRPOP
//	shard:NAME              hash    rev, primary, doc (the row, JSON)
//	shards                  zset    names
//	shard-nodes:NAME        set     ids of nodes
//	node-address:ADDRESS    set     ids of nodes
//
// A failover lock expires by the server's own timer; all else is judged by TIME. What
// is in a queue and is no command is dropped.
//
// A server that lost its newest writes may show an older row, with an older primary, and have
// forgotten commands and a failover lock. The revision of a row is at least the clock in
// microseconds, so none is given twice, as long as the clock was not set back further than
// the loss: who decides on what he read before gets shard.ErrChanged. Epochs are what the agents
// make them. The shard's lease is not given away for one T, as any other.
//
// # How it fails
//
// lease.ErrUnavailable: nothing was sent, or the server refused (read-only
// replica, loading, out of memory, password, …); the text says what to do.
// lease.ErrUnknown: the request was sent and no answer came. No request is sent
// twice. A request that a hanging server has received may be carried out when the
// server continues: it is judged by the clock of that moment.
//
// A server that has reached maxmemory still renews, releases and ends; it starts
// no session and gives no free lease away.
//
// Waiting for a command ends with lease.ErrUnknown two seconds after its time if the server does
// not answer; a command that was on its way is lost then, and whoever sent it sends it again.
//
// [Store.Watch] ends with an error within four seconds after its connection has
// died, silently or not; whoever watches again hears the zero Change first.
//
// Ending a session that holds very many leases is done in short steps, so that
// no other client waits; the leases count as free from the first step on.
package redis
