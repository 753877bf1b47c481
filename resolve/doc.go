// Package resolve finds the primary of a role, the primary of a shard and the replicas of a
// shard by name, with the time for which the answer is valid.
//
// [OfRole] and [OfShard] compute the answer from a reading of the store; they are pure. A [Resolver] keeps
// readings fresh for any number of callers, who cost the store nothing; package resolve/dns
// answers from it. A [Client] asks servers over HTTP using only the standard
// library, caches answers while they are valid, and dials.
//
// # What it promises
//
// An answer is never valid for longer than the configured MaxAge (default 5 s)
// after the start of the reading it rests on, and never past the end of the named holder's
// lease as of that reading. So an answer about a primary that
// died ends before another instance can take over because of that death. While a store
// is unavailable, answers end: callers get [ErrStale], not an old address. Servers tell the age of what they know of a shard in
// whole seconds, rounded down: what may have ended by less than one, a [Client] gives with a TTL of 0.
//
// Answers of a [Resolver] do not run out while its store answers: the next reading starts after half of their lifetime,
// so a reading may take two fifths of it. [catalog.NextReading] bounds the load on the store.
//
// # What it does not promise
//
// While the store's clock is stepped back, the remaining time of a lease can be too
// long: answers about a primary that died may then stay valid for the configured MaxAge after
// a takeover.
//
// A resign or a switchover is seen at the next reading: at once
// where the store notifies, after one interval elsewhere; a caller with a cached
// answer may use it until it ends. Open connections are not part of an answer;
// [Dialer] closes its own. An answer is a route to a primary, not a proof that it
// is primary: fence effects with the term or epoch in the answer.
//
// # States of a resolver
//
//	unread     nothing was read yet: every answer is ErrStale
//	fresh      read within the configured MaxAge: unknown names do not exist
//	stale      the last reading is older: every answer is ErrStale
package resolve
