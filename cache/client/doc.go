// Package client asks the peers of a cache for values.
//
// A [Client] keeps one connection to each server and sends each request to the next connected
// server in turn. If that server does not answer, has no value or disconnects, the request goes
// to the next one, until there is a value, a final error, or no time left.
//
// # What it promises
//
//   - [Client.Get] returns by its deadline: the context's, or Config.Timeout after the
//     call if that is earlier.
//   - Requests go only to connected servers. When a connection
//     breaks, its requests go to other servers at once.
//   - A server that sends nothing for 500 ms, or for 2.1 s after a keep-alive,
//     is skipped, and for one second by other requests too,
//     as long as another server is connected.
//   - After a server's "ask another", the client backs off, with growing pauses and
//     jitter: servers that refer a client to each other do not cause a storm.
//   - Waiting requests are bounded: Config.InFlight per server.
//   - A late reply is ignored, a malformed one is counted.
//
// # What it does not promise
//
//   - That a value is fresh: set Options.After for that. Item.Expire is by
//     the servers' clocks.
//   - That two consecutive Gets see values in order: they may ask different servers, and
//     one may not have the newer copy yet. Item.Term orders them.
//   - That only one server gets the request; the servers agree on who fetches.
//   - Without Curve, that the server is genuine.
//
// # States of a server
//
//	down      no connection; the next attempt is made after at most 500 ms
//	up        asked in its turn
//	silent    connected, but did not answer in time: asked if no other server is connected,
//	          and once a second to see whether it answers again
//
// # How it fails
//
// With [ErrFailed], [ErrNotFound], [ErrPartitioned], [ErrOverloaded], [ErrTooLarge] or
// [ErrBadRequest] when the servers said so; [Refusal] has the details. With
// [ErrTimeout] at the deadline; its text names the servers and what each said.
// With the context's error when it was cancelled, and [ErrClosed] after Close.
// The original's servers send no errors: there, a failing origin is a timeout.
package client
