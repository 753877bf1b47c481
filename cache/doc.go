// Package cache fetches values from a slow origin once for a whole cluster, without a
// database. The peers elect, per key, who fetches; everybody gets a copy; an old
// copy is given at once while one peer refreshes it; any peer may die at any moment.
//
// A [Peer] is one member, with a [Origin] that it calls. Programs in the same
// process use its methods; others use the client in cache/client, HTTP, or any client of
// the ZeroMQ protocol that this one is compatible with.
//
// # What it promises
//
//   - While a majority of the members is connected, the origin is called for a key by at most
//     one peer at a time, and once per expiry. A peer may fetch only while a majority has
//     promised to vote for nobody else; it ends its call before those promises do. This rests
//     on clocks that run alike within a tenth of [protocol.Timings.AnnounceTimeout], on an origin that
//     returns when its context ends, and on no peer of the kind that [Config.Mixed] allows.
//   - Each call has a term that is higher than that of every call of the key before it, and
//     stays so over restarts with storage: the fencing token for an origin that compares.
//   - A copy is never replaced by an older one, and nothing that was removed comes back.
//     Terms and removals are stored before anybody acts on them.
//   - Whoever asks is answered: with a value, with the origin's failure, or with why there is
//     none. Nothing that is here is withheld, in a partition neither.
//   - Everything is bounded: keys, bytes, requests that wait, calls of the origin, queues to
//     peers and clients. What is beyond is refused, or the least recently used is forgotten.
//   - Nothing that somebody sends ends the process. It is counted in [Stats] and ignored.
//
// # What it does not promise
//
//   - That copies are the newest everywhere at once: a copy reaches each peer when it can, and
//     one that missed it gets it at the next Get there.
//   - New fetches without a majority. Two members are not safer than one, three survive one
//     death, five survive two.
//   - That a call which does not heed its context ends: the peer calls the origin no more for
//     that key until it has, but another peer may.
//   - That saves of copies are on disk: they are written behind. A copy that was lost is fetched
//     again, or comes from another peer.
//   - That a death is never wrongly proven: whatever answers for a living peer's address with
//     "connection refused" (a firewall that rejects instead of dropping, a proxy without a
//     backend) makes the others fetch while it still does. Let peers reach each other directly.
//   - Terms that are unique where a peer loses its storage, or has none, and is back at once: it
//     has to be away for longer than the peers' clocks are apart, plus twice
//     [protocol.Timings.AnnounceTimeout].
//   - Secrecy or authenticity without [Curve]. [Config.Secret] authenticates peers alone.
//
// # States
//
// A key is idle, or this peer follows a candidate or one that fetches (follower), asks
// for votes (candidate), or fetches (fetching). A peer is starting (it abstains from
// votes for one [protocol.Timings.AnnounceTimeout], or until every other peer has confirmed that nothing
// rests on what it promised before), voting, partitioned (no majority: it gives what it has),
// or stopped. The rules are in cache/protocol, which does no I/O.
//
// # How it fails
//
// A peer whose process ends is noticed at once, for its address refuses connections, and
// another fetches what it fetched. One that hangs, or is cut off, is noticed after the
// announce timeout, [protocol.Timings.AnnounceTimeout]. An origin that fails is told to everybody who
// waits, and asked again after a back-off that grows, by one peer. A storage that fails or
// hangs loses saves, never answers: what must be durable first waits for it, so that
// elections on that peer stand still and others hold them. A peer that cannot store terms
// refuses to fetch.
//
// # How it runs
//
// One goroutine, the loop, owns the machine of cache/protocol and never waits for anything
// but events. Each connection has a goroutine that answers from memory what is there and
// gives the loop the rest; each call of the origin has one; one writes to the storage.
package cache
