// Package wire is a client of the RESP protocol for what an agent does with a database
// node: few commands, one exchange at a time, on connections that are kept.
//
// # What it promises
//
// Nothing takes longer than the caller's context or [Config.Timeout], whichever ends
// first: connecting, the TLS handshake, AUTH, waiting for another caller of the
// same connection, the exchange. A connection on which anything went wrong is
// given up, so that a late answer is never taken for that of a later command.
//
// Whatever the other side sends, at most [MaxReply] bytes of one exchange are kept, and
// nesting is bounded; what is not RESP is [ErrProtocol].
//
// # What it does not promise
//
// A connection that turns out to be closed before a byte of an answer came is
// replaced at once, twice at most, and the commands are sent again: after a restart of the
// server the first exchange succeeds, and after its death it says that nobody
// listens. So commands must bear to be carried out more than once.
//
// # How it fails
//
// With [shard.ErrNodeGone] when the connection is refused, [shard.ErrNodeAccess] when
// TLS or AUTH fails, the context's error when no answer came in time. What the
// server answers is no error of an exchange: see [Reply.Err].
package wire
