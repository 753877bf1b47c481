// Package claim divides keys of work among any number of instances: tenants,
// accounts, partitions, sources, the keys of a queue.
//
// A key is a row in the store. Whoever claims it works on it, in steps that begin
// and finish there; when its session lapses, others take its keys. [Run] does all
// of it for a user's own units of work. [Table] is the port to the store, which
// package dispatch uses for its queues.
//
// # The two windows
//
// A claim is held while its holder's session lives, and that session lives for
// the first window (30 s) after each renewal. Past it, anyone may take the key,
// unless a step of work had begun on it: that key is kept from others until the
// second window (3 min) after the step's begin has passed too. A step has a
// deadline that is shorter than the second window, so that by then it is over,
// or its process is not running. A holder that stops in order gives its keys back at once.
//
//	free        nobody's; may be taken when it is ready
//	held        by a live session; nobody takes it, its holder may give it back
//	in a step   held, and its holder has begun a step that it has not finished
//	lapsed      its holder's session is over: may be taken, in a step only past
//	            the second window; who takes it then is told that the step
//	            was interrupted
//
// # What it promises
//
// Take, begin and finish are compare-and-sets on the one row of the key, under a
// term that only grows: a begin and a take can never both succeed, and a finish
// under an old term has no effect. The store is the truth of what an instance
// holds; what a process remembers is a hint that the next statement corrects.
// Keys are shared fairly: an instance that joins has its part within a few
// intervals, handed to it by those who hold more, never torn from a step.
//
// # What it does not promise
//
// A process that was paused in the middle of a step for longer than the second
// window cannot be recalled: what it does to the world outside the store then, it
// does beside its successor. Its term is older; whoever compares terms refuses it.
// Taking a free key is no event of the history, because it happens for every bit
// of work; taking over what had lapsed is.
package claim
