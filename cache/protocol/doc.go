// Package protocol is one peer's side of the agreement on who fetches a key's value,
// as a state machine: [Machine.Step] takes what happened and returns what to do. It
// has no goroutine, no I/O, no clock and no randomness of its own.
//
// # What it promises
//
// A fetch runs in a term of its own, and while one runs no other does, as long as
//   - clocks that count time run alike within a tenth, and the runner ends a fetch
//     when [Fetch.Until], moved by [Trust], has come, or at [Abort]: a process that is
//     paused in between fetches on without knowing it;
//   - what the runner says was stored is stored, and a peer that it calls [Dead] has
//     ended.
//
// A term is used once, unless a peer loses its storage and fetches again within twice
// [Timings.Source] and the clocks' difference. No loss, delay, repetition, reordering or partition of messages, no restart, with
// its storage or without, and no step of a wall clock makes two. A copy is never
// replaced by an older one, and what was removed does not come back.
//
// # How
//
// A key is idle, or this peer is a follower, a candidate or sourcing it.
//
//   - Whoever wants a value that is not fresh stands in a new term, above all it has
//     seen and not below its wall clock in milliseconds, so that a peer that lost its
//     storage does not begin again with terms that were used.
//   - A vote is a promise to vote for nobody else for [Timings.Source], and an [Ack] of
//     an announcement is the same promise again. A fetch may run while a majority is
//     promised, less a tenth: two majorities share a peer, and that peer has promised
//     itself to one of them. This is the lease of the kernel with a majority for a store.
//   - A promise ends early when who it was made to releases it ([Release]), has ended
//     (its address refuses connections, or it greets as another incarnation), or
//     has fetched. A question that came meanwhile is answered then.
//   - Equal candidates settle it at once: the one of the lower term, or, of equal ones,
//     the one that rendezvous hashing of the key puts behind, releases its voters and
//     votes for the other.
//   - A peer that starts has forgotten its promises: it votes for nobody for
//     [Timings.Source], or until every other member has greeted this incarnation and
//     neither stands nor fetches.
//   - Terms are used up to a ceiling that is stored ahead ([Raise]), so that no
//     election waits for a disk. After a restart every key counts as having used them all.
//   - Copies are ordered by (term, expiry, digest). A removal is a term, too.
//   - A failed fetch is told ([Failed]), and nobody stands until its back-off has passed.
//   - Members change one at a time, by single-decree Paxos per configuration number
//     (members.go has the argument why no two majorities act apart).
//
// # How it fails
//
// Without a majority nothing new is fetched; what is here is served. A peer that is
// cut off while it fetches gives the fetch up before the others may begin one. When
// the ceiling cannot be stored, the peer neither stands nor votes. Every message from
// outside is judged before it changes anything: terms a day ahead of the wall clock
// and copies that expire too late are ignored and counted.
package protocol
