// Package sabledb is a store in SableDB, as real ones were measured (commit fc0fa84): for those who have one already.
//
// # How
//
// SableDB's transactions do not isolate: WATCH is checked before EXEC waits, and a connection's EXEC carries out its
// earlier ones again. Its LOCK does. So a call is a connection of its own, LOCK {prefix}, reads, at most one EXEC with nothing
// but writes, and the end of the connection, which frees the lock.
//
// What is kept is the state of a [memory.Store], one value under the prefix, and the history, a list: a call reads
// the state, has that store do the work, and writes back what has changed. So it behaves as that store does,
// and costs in proportion to all that is kept: it is made for tens of instances.
//
// The clock is what remains of a key that expires in ten years, in whole seconds. A deadline is set a second later and so
// never comes early; sessions whose timing that makes unsafe are refused.
//
// # What it does not promise
//
// Nothing wakes those who wait but commands of a shard; they poll. A client that hangs within a call holds the lock until its
// connection ends: nothing is given away twice then, but all other calls fail.
//
// A crash of the server loses up to 250 ms of writes, and two holders may meet for up to T. So nothing is given away
// for T plus two seconds after a connection that was kept broke, the server became another, or the prefix was first used. A process
// that was not connected during the crash does not notice it.
//
// # How it fails
//
// With the errors of [lease.Store]: lease.ErrUnavailable when nothing was changed, lease.ErrUnknown when the EXEC was sent and not
// answered.
package sabledb
