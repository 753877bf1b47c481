// Package resolve tells what a name stands for, and how long that may be believed: the
// primary of a role, the primary of a shard, the replicas of a shard.
//
// [OfRole] and [OfShard] are the pure answer from what was read of a store. A [Resolver] keeps
// readings fresh for any number of readers, who cost the store nothing; package resolve/dns
// answers from it. A [Client] asks servers over HTTP, without anything but the standard
// library, remembers answers for as long as they may be believed, and dials.
//
// # What it promises
//
// An answer is never believed longer than the configured MaxAge (default 5 s)
// after the reading on which it rests was begun, and never past the end of the lease of
// whoever it names, as the store had it at that reading. So no answer about a primary that
// died outlives the moment at which another may take over because of that, and while a store
// is away answers end: [ErrStale] takes their place, not an old address.
//
// Answers of a [Resolver] do not run out while its store answers: the next reading begins when half of their life is over,
// so that a reading may take two fifths of it. [catalog.NextReading] tells how the load on the store is bounded.
//
// # What it does not promise
//
// While the store's clock has been stepped back, what it says is left of a lease may be too
// much: answers about a primary that died may then live on for the configured MaxAge after
// another took over.
//
// A primary that gives its role up, or a switchover, is seen at the next reading: at once
// where the store notifies, after one interval elsewhere; and whoever remembers an answer
// may go on to use it until it ends. Connections that were opened are not part of an answer;
// [Dialer] closes its own. An answer is a way to a primary and no proof that it
// is one: what must not be done twice is fenced with the term or epoch, which comes along.
//
// # States of a resolver
//
//	unread     nothing was read yet: every answer is ErrStale
//	fresh      read within the configured MaxAge: names that it does not know do not exist
//	stale      the last reading is older: every answer is ErrStale
package resolve
