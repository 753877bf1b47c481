// Package cache fetches values from a slow origin once for a whole cluster, without a
// database. The peers elect, per key, one peer that fetches; every peer gets a copy; a stale
// copy is served at once while one peer refreshes it; any peer may die at any moment.
//
// A [Peer] is one member, with an [Origin] that it calls. Programs in the same
// process use its methods; others use the client in cache/client, HTTP, or any client of
// the ZeroMQ protocol that this one is compatible with.
//
// # What it promises
//
//   - While a majority of the members is connected, the origin is called for a key by at most
//     one peer at a time, and once per expiry (a value with NoStore: once for each peer at which requests wait). A peer may fetch only while a majority has
//     promised to vote for no other peer; it ends its call before those promises end. This relies
//     on clocks that drift apart by less than a tenth, on an origin that
//     returns when its context ends, and on no peer of the kind that [Config.Mixed] allows.
//   - Each call has a higher term than every earlier call for the key, also after restarts with
//     storage: a fencing token for an origin that compares terms.
//   - A copy is never replaced by an older one, and nothing that was removed comes back.
//     Terms are stored before they are used, and removals before a peer says that it has them.
//   - Every request is answered: with a value, with the origin's failure, or with the reason why
//     there is no value. A copy is served in a partition, too. Clients of the original hear nothing beyond
//     [Config.MaxWaiting], and of malformed requests.
//   - Everything is bounded: keys, bytes, requests that wait, calls of the origin, queues to
//     peers and clients. Beyond a bound, requests are refused and the least recently used copies dropped.
//   - No message ends the process. A malformed one is counted in [Stats] and ignored.
//
// # What it does not promise
//
//   - That all peers have the newest copy at the same time: a peer that missed a copy gets it at
//     its next Get.
//   - New fetches without a majority. Two members are not safer than one, three survive one
//     death, five survive two.
//   - That a call ends which ignores its context: this peer does not call the origin for that key
//     again until it has ended, but another peer may.
//   - That a copy is on disk when it is served: copies are written later. A lost copy is fetched
//     again, or comes from another peer.
//   - That a live peer is never taken for dead: anything that answers on its address with
//     "connection refused" (a firewall that rejects instead of dropping, a proxy without a
//     backend) makes the others fetch while it still fetches. Let peers reach each other directly.
//   - Unique terms when a peer without its storage returns at once, and no other peer remembers
//     its life before (one that does makes it wait): it must be away for longer than the
//     difference between the peers' clocks plus twice [protocol.Timings.AnnounceTimeout].
//   - Secrecy or authenticity without [Curve]. [Config.Secret] authenticates peers alone.
//
// # States
//
// For each key, a peer is idle, a follower of a candidate or of the peer that fetches, a
// candidate that asks for votes, or fetching. A peer is starting (it abstains from
// votes for one [protocol.Timings.AnnounceTimeout], or until every other peer has confirmed that it
// does not rely on an earlier promise), voting, partitioned (no majority: it serves its copies),
// or stopped. The rules are in cache/protocol, which does no I/O; its documentation also says where an option is added.
//
// # How it fails
//
// When a peer's process ends, the others notice at once, because its address refuses connections, and
// another peer fetches instead. A peer that hangs or is cut off is noticed after
// [protocol.Timings.AnnounceTimeout]. A failure of the origin is the answer to every waiting
// request; one peer tries again after a growing back-off. A storage that fails or hangs loses
// saved copies but no answers: elections that must first store a term wait on that peer, for some
// 10 s, and other peers hold them. A peer that cannot store terms refuses to fetch, and is not ready.
//
// # How a Get is answered
//
//  1. [Peer.Get] (peer.go), or for a client clientServer.handleRequest (clients.go), looks into the table on its own
//     goroutine. A copy that is good enough is the answer. A stale one is, too, and noteStaleHit has it refreshed.
//  2. Otherwise the request goes to the loop (tryRequest), which gives it a token (addWaiter, answer.go) and has the
//     machine take it (step, loop.go).
//  3. The machine decides which peer fetches: see cache/protocol, "Where a fetch is decided".
//  4. holdOrExecute (effects.go) carries out what it wants done. A [protocol.StartFetch] goes to fetches.start (fetches.go),
//     which calls the [Origin] once one of Config.Fetches places is free (fairqueue.go).
//  5. fetches.run reports what came of it to the loop. The machine's Reply or Refuse ends the wait (loop.answer,
//     answer.go).
//
// # How it runs
//
// One goroutine, the loop, owns the machine of cache/protocol and waits only for
// events. Each connection has a goroutine that answers from memory where it can and passes
// other requests to the loop; each call of the origin has one; one writes to the storage.
package cache
