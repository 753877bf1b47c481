// Package zmtp speaks ZMTP 3.0 and 3.1, ZeroMQ's wire protocol, over TCP: the socket
// kinds PUB, SUB, ROUTER and DEALER, with the mechanisms NULL (no protection) and
// CURVE (both sides known by their keys, everything encrypted).
//
// It is not ZeroMQ's API. There are no sockets with queues between threads, but
// connections with callbacks: a [Listener] accepts them, a [Dialer] keeps one, and
// a [Handler] is told what happens on each.
//
// # States of a connection
//
//	handshake   greeting, then the commands of the mechanism; bounded by HandshakeTimeout
//	connected   from Handler.Connected to Handler.Disconnected; messages both ways
//	closed      for good: a Dialer makes a new Conn, a new back-off, and so on until Close
//
// # What it promises
//
//   - The messages of one connection arrive in the order in which they were sent, whole
//     or not at all.
//   - [Conn.Send] never waits. It copies the message into the connection's queue, or
//     says false. What waits in a queue is bounded by Config.Queue.
//   - What the other side sends is bounded before memory is taken for it: message,
//     frames, commands, subscriptions, and the time of the handshake.
//   - A wrong byte closes the connection it came on, with an error that says what was
//     wrong, and nothing else. It is counted in [Stats].
//   - With [Curve], nobody without the secret keys can read, forge, repeat or reorder
//     what is sent, and only clients that Allow accepts get as far as Connected.
//   - Secret keys are in no error, no log line, and no formatted Config.
//
// # What it does not promise
//
//   - Delivery. Send returning true means that the message is in the queue; it is lost
//     if the connection is. Nothing is queued for a peer that is not connected.
//   - That who is behind a NULL connection is who it says it is.
//   - Routing ids: a [Conn] is the route, and an answer is sent on the Conn that the
//     request came on.
//   - ZMTP 1 and 2 (libzmq before 4.0): refused with [ErrVersion].
//   - Protection of the length and the time of messages, with CURVE neither.
//
// # How it fails
//
// Every end of a connection is told to Handler.Disconnected with its reason: io.EOF
// when the other side closed, [ErrClosed] when this side did, [ErrSlow] when the other
// side did not read for WriteTimeout, [ErrSilent] when it did not answer heartbeats,
// and an error wrapping [ErrProtocol] or [ErrTooLarge] when it broke the rules.
// A handshake that fails is told to Handler.Failed by a Dialer, and is logged (at Debug) and
// counted by a Listener. A Dialer that was refused tries again, after its back-off: the other
// side's list of keys may change.
//
// # Handlers
//
// The calls for one connection come from the goroutine that reads it. A handler that
// takes long delays this connection and no other, in both directions: what is sent on the
// connection meanwhile is written when the handler returns.
package zmtp
