// Package zmtp speaks ZMTP 3.0 and 3.1, ZeroMQ's wire protocol, over TCP: the socket
// kinds PUB, SUB, ROUTER and DEALER, with the mechanisms NULL (no protection) and
// CURVE (both sides known by their keys, everything encrypted).
//
// Its API is not ZeroMQ's. Instead of sockets with queues between threads it has
// connections with callbacks: a [Listener] accepts them, a [Dialer] keeps one connected, and
// a [Handler] receives what happens on each.
//
// # States of a connection
//
//	handshake   greeting, then the commands of the mechanism; bounded by HandshakeTimeout
//	connected   from Handler.Connected to Handler.Disconnected; messages both ways
//	closed      for good: a Dialer makes a new Conn after a back-off, until Close
//
// # What it promises
//
//   - The messages of one connection arrive in the order in which they were sent, whole
//     or not at all.
//   - [Conn.Send] never waits. It copies the message into the connection's queue, which
//     Config.Queue and a [Budget] bound, or returns false.
//   - Input is bounded before memory is allocated for it: messages,
//     frames, commands, subscriptions, and the time of the handshake.
//   - A wrong byte closes only the connection it came on, with an error that says what was
//     wrong. [Listener.Failed] counts it.
//   - With [Curve], nobody without the secret keys can read, forge, replay or reorder
//     messages, and only clients that Allow accepts reach Connected.
//   - Secret keys appear in no error, no log line, and no formatted Config.
//
// # What it does not promise
//
//   - Delivery. Send returning true means that the message is in the queue; it is lost
//     with the connection. Nothing is queued for a peer that is not connected.
//   - That the other side of a NULL connection is genuine.
//   - Routing IDs: send an answer on the [Conn] of its request.
//   - ZMTP 1 and 2 (libzmq before 4.0): refused with [ErrVersion].
//   - That length and time of messages stay secret, even with CURVE.
//
// # How it fails
//
// Handler.Disconnected receives the reason of every end of a connection: io.EOF
// when the other side closed, [ErrClosed] when this side did, [ErrSlow] when the other
// side read nothing for WriteTimeout (next to nothing for a fifth of it, while a [Budget] has no room),
// [ErrSilent] when it did not answer heartbeats,
// and an error wrapping [ErrProtocol] or [ErrTooLarge] when it broke the protocol.
// After a failed handshake a Dialer calls Handler.Failed; a Listener logs it (at Debug) and
// counts it. A refused Dialer tries again after its back-off, because the other
// side's list of keys may change.
//
// # Handlers
//
// The calls for one connection come from the goroutine that reads it. A slow handler
// delays only this connection, in both directions: messages sent on it meanwhile are
// written when the handler returns. No PING is sent or answered meanwhile: the other side may give
// the connection up with [ErrSilent], after its HeartbeatTimeout; this side does not.
package zmtp
